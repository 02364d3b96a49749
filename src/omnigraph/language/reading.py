"""What both languages share about the text that they are given.

Lone surrogates, which no file in UTF-8 holds, NUL and texts beyond a size are refused before anything is parsed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from omnigraph.language.lalr import Unexpected

if TYPE_CHECKING:
    from omnigraph.language.schema.source import Place, Source


TEXT_CHARS_MAX = 2_000_000
"""Far beyond what people and tools write; the time of the parser and the checker is bounded with it."""


def check_text(source: Source, what: str, refuse: Callable[[Place, str], Exception]) -> None:
    """Raise what `refuse` makes of the first character that no plain text holds. `what` is what the text is."""
    if len(source.text) > TEXT_CHARS_MAX:
        detail = f"The text has {len(source.text):,} characters, and {what} at most {TEXT_CHARS_MAX:,}."
        raise refuse(source.place_of(0), detail)
    nul = source.text.find("\0")
    if nul >= 0:
        raise refuse(source.place_of(nul), f"There is a NUL character here; {what} is plain text.")
    try:
        source.text.encode("utf-8")
    except UnicodeEncodeError as error:
        detail = f"There is half of a surrogate pair here; {what} is plain text in UTF-8."
        raise refuse(source.place_of(error.start), detail) from None


def open_text(source: Source, offset: int, found: str) -> str:
    """What is wrong with a text whatever was expected there: something is never closed, or is no letter of ours."""
    rest = source.text[offset : offset + 2]
    if rest[:1] == '"' and '"' not in found[1:]:
        return "This string is never closed."
    if rest == "/*":
        return "This comment is never closed."
    if not found.isascii():
        return f"Unexpected {found!r}: names are made of the letters A to Z, digits and _."
    return ""


def open_string(error: Unexpected) -> str:
    """A string that runs over several lines right before the error is most likely missing its closing quote."""
    token = error.before
    if token is not None and token.type == "STRING" and token.end_line != token.line:
        return f" Is the string that opens on line {token.line} missing its closing quote?"
    return ""
