"""From the text of a schema to the terminals of its grammar.

All kinds of names have the same form: the parser determines which one is accepted. A word is a keyword only where a
keyword is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from omnigraph.language.lalr import Grammar

_PIECE = re.compile(
    r"""(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<NUMBER>[+-]?[0-9]+(?:\.[0-9]+)?)
    |(?P<STRING>"(?:[^"\\]|\\(?s:.))*")
    |(?P<sign>->|\.\.|[^A-Za-z0-9_"])""",
    re.VERBOSE,
)
_NAMES = ("TYPE_NAME", "PROPERTY_NAME", "ANNOTATION_NAME", "BASE_TYPE", "WORD")


class SchemaLexer:
    def __init__(self, grammar: Grammar) -> None:
        self._words = grammar.words
        self._enum_value = re.compile(grammar.patterns["ENUM_VALUE"])

    def __call__(self, text: str, position: int, accepted: Collection[str]) -> tuple[str, int]:
        if "ENUM_VALUE" in accepted and (value := self._enum_value.match(text, position)):
            return "ENUM_VALUE", value.end()
        match = _PIECE.match(text, position)
        if match is None:
            return "", position
        kind, end = match.lastgroup or "", match.end()
        if kind == "sign":
            return self._words.get(match[0], ""), end
        if kind != "word":
            return kind, end
        keyword = self._words.get(match[0], "")
        name = next((name for name in _NAMES if name in accepted), "")
        return (keyword if keyword in accepted else name or keyword or "WORD"), end
