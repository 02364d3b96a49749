"""From the text of a query to the terminals of its grammar.

1. one regular expression matches the next piece of text: a word, a variable, a number, a string, a sign
2. the terminal of a word or a sign depends on what the parser accepts there: a keyword or an operator if it is
   accepted, otherwise a name; the few terminals that look ahead are tried first
"""

from __future__ import annotations

import re
from collections.abc import Collection

from omnigraph.language.lalr import Grammar

_PIECE = re.compile(
    r"""(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<VARIABLE>\$[A-Za-z0-9_]+)
    |(?P<SYSTEM>@[A-Za-z_][A-Za-z0-9_]*)
    |(?P<NUMBER>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_]))
    |(?P<STRING>"(?:[^"\\]|\\(?s:.))*")
    |(?P<sign>[<>!]=|[^A-Za-z0-9_$@"])""",
    re.VERBOSE,
)
_AHEAD = re.compile(r"(?:[ \t\r\n\f\ufeff]|//[^\n]*+|/\*(?:[^*]|\*(?!/))*\*/)*([(:])")
# Words that are a terminal of their own where the following text matches its pattern.
_LOOKING_AHEAD = {"not": "NOT_IN", "path": "PATH", "shortest": "SHORTEST", "optional": "OPTIONAL"}
_NO_FUNCTIONS = frozenset(
    ("and", "or", "not", "in", "is", "as", "asc", "desc", "true", "false", "null", "distinct", "where")
)
_OPERATORS = frozenset((">=", "<=", "!=", "="))


class QueryLexer:
    def __init__(self, grammar: Grammar) -> None:
        self._words = grammar.words
        self._looking_ahead = {
            word: (name, re.compile(grammar.patterns[name])) for word, name in _LOOKING_AHEAD.items()
        }

    def __call__(self, text: str, position: int, accepted: Collection[str]) -> tuple[str, int]:
        match = _PIECE.match(text, position)
        if match is None:
            return "", position
        kind, value, end = match.lastgroup or "", match[0], match.end()
        if kind == "word":
            return self._word(value, text, position, accepted)
        if kind != "sign":
            return kind, end
        if value in _OPERATORS and "OPERATOR" in accepted:
            return "OPERATOR", end
        return self._words.get(value, "OPERATOR" if value in _OPERATORS else ""), end

    def _word(self, word: str, text: str, start: int, accepted: Collection[str]) -> tuple[str, int]:
        end = start + len(word)
        if word in self._looking_ahead:
            special, pattern = self._looking_ahead[word]
            if special in accepted and (whole := pattern.match(text, start)):
                return special, whole.end()
        if "FUNCTION" in accepted or "KEY" in accepted:
            ahead = _AHEAD.match(text, end)
            if ahead is not None and ahead[1] == "(" and "FUNCTION" in accepted and word not in _NO_FUNCTIONS:
                return "FUNCTION", end
            if ahead is not None and ahead[1] == ":" and "KEY" in accepted:
                return "KEY", end
        keyword = self._words.get(word)
        if keyword is not None and (keyword in accepted or ("NAME" not in accepted and "WORD" not in accepted)):
            return keyword, end
        return ("NAME" if "NAME" in accepted else "WORD"), end
