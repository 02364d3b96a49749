r"""Regular expressions of users: RE2 runs them all, in time proportional to the text whatever the pattern.

`matches` takes patterns in the syntax of RE2: `\d`, `\w` and `\s` mean ASCII. `@check` takes them in the syntax of
Python, where these mean Unicode: `CheckPattern` rewrites the differences, in two forms. ASCII texts, which are nearly
all, are searched with a short form. The form with Unicode classes takes RE2 long to compile and is used for the other
texts.

| in a pattern of @check | RE2                                                            |
|------------------------|----------------------------------------------------------------|
| `\d \w \s \D \W \S`    | classes of the same characters, outside and inside of `[ ]`    |
| `\Z`                   | `\z`                                                           |
| `a{,3}`                | `a{0,3}`                                                       |
| `\uXXXX`, `\UXXXXXXXX` | `\x{…}`                                                        |
| `$`                    | the end of the text; not also before a line break at the end   |
| `\b`                   | letters and digits of ASCII only                               |

RE2 does not support lookaround, backreferences, atomic groups and comments: they are refused when a schema is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

PATTERN_CHARS_MAX = 10_000
# Constructs of Python's regular expressions that RE2 does not support.
_FOREIGN = re.compile(r"(?<!\\)(?:\\\\)*(?:\(\?(?:[=!>]|<[=!]|P=|\()|\\[1-9])")
_TOKEN = re.compile(
    r"""\\Q.*?(?:\\E|\Z)          # a literal stretch
      | \\u[0-9A-Fa-f]{4} | \\U[0-9A-Fa-f]{8}
      | \\.                       # an escape
      | \{,[0-9]+\}
      | \[\^?\]?                  # a class begins; a bracket that comes first in it is a character
      | .""",
    re.DOTALL | re.VERBOSE,
)
_SPACE = r"\t-\r\x{1c}-\x{20}"
_ASCII = {"s": _SPACE, "S": r"\x{0}-\x{8}\x{e}-\x{1b}!-\x{10ffff}"}
_UNICODE = {
    "d": r"\p{Nd}",
    "D": r"\P{Nd}",
    # The underscore comes first: behind \p{N} it could become the start of a range.
    "w": r"_\p{L}\p{N}",
    # Inside of a class: all that is neither letter nor number, of the connectors all but the underscore. Unassigned
    # code points are in no class of RE2.
    "W": r"\p{C}\p{M}\p{S}\p{Z}\p{Pd}\p{Ps}\p{Pe}\p{Pi}\p{Pf}\p{Po}"
    r"\x{203f}\x{2040}\x{2054}\x{fe33}\x{fe34}\x{fe4d}-\x{fe4f}\x{ff3f}",
    "s": _SPACE + r"\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}",
    "S": r"\x{0}-\x{8}\x{e}-\x{1b}!-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}"
    r"\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff}",
}


def pattern_problem(text: str) -> str | None:
    """Why RE2 can't run the text, as a sentence; None if it can."""
    if len(text) > PATTERN_CHARS_MAX:
        return f"A regular expression has at most {PATTERN_CHARS_MAX} characters, and this one {len(text)}."
    return _compile_problem(text)


@lru_cache(maxsize=512)
def _compile_problem(text: str) -> str | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.match_substring_regex(pa.array([""]), text)
    except pa.ArrowInvalid as error:
        if _FOREIGN.search(text):
            return "Lookaround, backreferences and conditionals are not part of these regular expressions."
        detail = str(error).removeprefix("Invalid regular expression: ")
        return f"This is not a regular expression: {detail[:200]}."
    return None


@dataclass(frozen=True)
class CheckPattern:
    """The two forms of a pattern of @check."""

    text: str
    ascii: str
    unicode: str

    @staticmethod
    @lru_cache(maxsize=256)
    def of(text: str) -> CheckPattern:
        return CheckPattern(text, _rewritten(text, _ASCII), _rewritten(text, _UNICODE))

    def problem(self, texts: Any = None) -> str | None:
        """Why RE2 can't run the pattern, as a sentence; with `texts`, an Arrow array, on these."""
        import pyarrow.compute as pc

        if len(self.text) > PATTERN_CHARS_MAX:
            return pattern_problem(self.text)
        first = _compile_problem(self.ascii)
        needs_unicode = texts is None or pc.all(pc.string_is_ascii(texts)).as_py() is False
        return first if first is not None or not needs_unicode else _compile_problem(self.unicode)

    def unmatched(self, texts: Any) -> Any:
        """The texts of an Arrow array that the pattern does not match."""
        import pyarrow as pa
        import pyarrow.compute as pc

        is_ascii = pc.string_is_ascii(texts)
        parts = [texts.filter(is_ascii), texts.filter(pc.invert(is_ascii))]
        unmatched = []
        for part, form in zip(parts, (self.ascii, self.unicode), strict=True):
            if len(part):
                unmatched.append(part.filter(pc.invert(pc.match_substring_regex(part, form))))
        return pa.concat_arrays(unmatched) if unmatched else texts


def _rewritten(text: str, classes: dict[str, str]) -> str:
    """The RE2 pattern with the meaning of the Python pattern."""
    parts: list[str] = []
    in_class = False
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token[0] == "\\":
            parts.append(_escape(token, classes, in_class=in_class))
            continue
        if token[0] == "[" and in_class:
            # Inside of a class it is a character, and the rest of the token has its own meaning.
            parts.append("\\[" + token[1:])
            in_class = not token.endswith("]")
            continue
        if token[0] == "[":
            in_class = True
        elif token == "]" and in_class:
            in_class = False
        elif token[0] == "{" and len(token) > 1 and not in_class:
            token = "{0" + token[1:]
        parts.append(token)
    return "".join(parts)


def _class(letter: str, classes: dict[str, str]) -> str:
    opposite = classes[letter.lower()]
    return f"[{opposite}]" if letter.islower() else f"[^{opposite}]"


def _escape(token: str, classes: dict[str, str], *, in_class: bool) -> str:
    letter = token[1]
    if letter in classes:
        return classes[letter] if in_class else _class(letter, classes)
    if letter == "Z" and not in_class:
        return "\\z"
    if letter in "uU" and len(token) > 2:
        return f"\\x{{{token[2:]}}}"
    return token
