"""What both languages share on the way from text to a tree: the parser, and the text that it is given.

1. text      refuse what no file in UTF-8 holds (lone surrogates) and NUL
2. grammar   LALR with a lexer that knows what the parser accepts, made on first use and kept for the process; its
             tables are also kept in the user's cache folder, because building them takes longer than most queries

Importing this module does not import lark.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from lark import Lark, UnexpectedToken
    from lark.lexer import Lexer

    from omnigraph.language.schema.source import Place, Source


@cache
def grammar_of(package: str, lexer: type[Lexer] | Literal["contextual"] = "contextual") -> Lark:
    """The parser for the `grammar.lark` of a package."""
    from importlib.resources import files

    from lark import Lark

    grammar = files(package).joinpath("grammar.lark").read_text(encoding="utf-8")
    kept = _cache_file(package)
    return Lark(grammar, parser="lalr", lexer=lexer, maybe_placeholders=False, cache=kept or False)


def _cache_file(package: str) -> str | None:
    """Where the tables of a grammar are kept; None where there is no folder of the user's own for it.

    Lark looks itself whether they are of this grammar and of its own version, and builds them again if they are not, or
    can't be read. They are read as code is: a folder that belongs to somebody else is not trusted.
    """
    above = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.path.join(above, "omnigraph")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if os.stat(folder).st_uid != os.getuid():
            return None
    except OSError:
        return None
    return os.path.join(folder, f"{package}.grammar")


def check_text(source: Source, what: str, refuse: Callable[[Place, str], Exception]) -> None:
    """Raise what `refuse` makes of the first character that no plain text holds. `what` is what the text is."""
    nul = source.text.find("\0")
    if nul >= 0:
        raise refuse(source.place_of(nul), f"There is a NUL character here; {what} is plain text.")
    try:
        source.text.encode("utf-8")
    except UnicodeEncodeError as error:
        detail = f"There is half of a surrogate pair here; {what} is plain text in UTF-8."
        raise refuse(source.place_of(error.start), detail) from None


def open_string(error: UnexpectedToken) -> str:
    """A string that runs over several lines right before the error is most likely missing its closing quote."""
    for token in error.token_history or ():
        if token is not None and token.type == "STRING" and token.end_line != token.line:
            return f" Is the string that opens on line {token.line} missing its closing quote?"
    return ""
