"""Places in a .pg file, and errors that show them: file, line, column, the line itself and a caret under the place."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from omnigraph.errors import SchemaRuleError, SchemaSyntaxError

EXCERPT_CHARS_MAX = 160
DETAIL_CHARS_MAX = 600
_LONG_WORD = re.compile(r"[A-Za-z0-9_-]{41,}")


@dataclass(frozen=True)
class Place:
    """A position in a file; line and column count from 1, the column in characters."""

    line: int
    column: int


@dataclass(frozen=True)
class Source:
    text: str
    file: str

    def syntax_error(self, place: Place, detail: str) -> SchemaSyntaxError:
        return SchemaSyntaxError(**self._fields(place, detail))

    def rule_error(self, place: Place, detail: str) -> SchemaRuleError:
        return SchemaRuleError(**self._fields(place, detail))

    def place_of(self, offset: int) -> Place:
        before = self.text[:offset]
        return Place(before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)

    def _fields(self, place: Place, detail: str) -> dict[str, str | int]:
        lines = self.text.split("\n")
        line = lines[place.line - 1] if place.line <= len(lines) else ""
        return {
            "file": self.file,
            "line": place.line,
            "column": place.column,
            "detail": _readable(detail),
            "excerpt": excerpt(line, place.column),
        }


def _readable(detail: str) -> str:
    """The message with long words and a long text cut, since it may repeat what the user wrote."""
    short = _LONG_WORD.sub(lambda word: word.group()[:40] + "…", detail)
    return short if len(short) <= DETAIL_CHARS_MAX else short[:DETAIL_CHARS_MAX] + "…"


def excerpt(line: str, column: int) -> str:
    """The line and a caret line under `column`. Tabs stay tabs in both, so they align at any tab width."""
    line = line.rstrip("\r")
    caret = min(column - 1, len(line))
    start = max(0, caret - EXCERPT_CHARS_MAX // 2) if len(line) > EXCERPT_CHARS_MAX else 0
    window = line[start : start + EXCERPT_CHARS_MAX]
    shown = "".join(_printable(c) for c in window)
    pad = "".join(_blank(c) for c in shown[: caret - start])
    head, tail = "…" if start else "", "…" if start + len(window) < len(line) else ""
    return f"{head}{shown}{tail}\n{' ' * len(head)}{pad}^"


def _printable(c: str) -> str:
    """Replace control characters and lone surrogates, which disturb a terminal or can't be printed."""
    return c if c == "\t" or unicodedata.category(c) not in ("Cc", "Cs") else "\N{REPLACEMENT CHARACTER}"


def _blank(c: str) -> str:
    """Blank space as wide as the character."""
    if c == "\t":
        return "\t"
    if unicodedata.combining(c):
        return ""
    return "  " if unicodedata.east_asian_width(c) in ("W", "F") else " "


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """` Did you mean X?` for a similar word, else empty; to be appended to a full sentence."""
    from difflib import get_close_matches

    by_lower = {k.lower(): k for k in candidates}
    near = get_close_matches(word.lower()[:64], by_lower, n=1, cutoff=0.6)
    return f" Did you mean {by_lower[near[0]]}?" if near else ""


def quoted_list(words: Iterable[str], last: str = "or") -> str:
    """`a`, `a or b`, `a, b or c`."""
    *front, end = list(words)
    return f"{', '.join(front)} {last} {end}" if front else end
