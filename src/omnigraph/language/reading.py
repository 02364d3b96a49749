"""Checks of the source text that both languages share.

Lone surrogates, which no UTF-8 file holds, NUL and texts above a size are refused before parsing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from omnigraph.language.lalr import Unexpected

if TYPE_CHECKING:
    from omnigraph.language.schema.source import Place, Source


TEXT_CHARS_MAX = 2_000_000
"""Far more than people and tools write; it bounds the time of the parser and the checker."""


def check_text(source: Source, what: str, refuse: Callable[[Place, str], Exception]) -> None:
    """Raise the error of `refuse` for the first character that is not plain text. `what` names the kind of text."""
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


def open_text(source: Source, offset: int, token: str) -> str:
    """The message for an error that does not depend on what was expected: an unclosed string or comment, or a letter
    outside of ASCII.
    """
    rest = source.text[offset : offset + 2]
    if rest[:1] == '"' and '"' not in token[1:]:
        return "This string is never closed."
    if rest == "/*":
        return "This comment is never closed."
    if not token.isascii():
        return f"Unexpected {token!r}: names are made of the letters A to Z, digits and _."
    return ""


def open_string(error: Unexpected) -> str:
    """A hint for a string over several lines right before the error: its closing quote is probably missing."""
    token = error.before
    if token is not None and token.type == "STRING" and token.end_line != token.line:
        return f" Is the string that opens on line {token.line} missing its closing quote?"
    return ""
