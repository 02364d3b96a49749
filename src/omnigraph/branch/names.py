"""Which names a branch may have.

Parts of letters, digits, '.', '_' and '-', joined by '/'; a live name must not be a path prefix of another, so that
`review` and `review/anna` can't both exist. Names that begin with `__` are for the system's own use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from omnigraph.errors import BranchExists, InvalidBranchName

_PART = re.compile(r"[A-Za-z0-9._-]+")
LENGTH_MOST = 200


def require_name(name: str) -> None:
    """Refuse what can't be a branch's name."""
    detail = ""
    if not name:
        detail = "it is empty."
    elif len(name) > LENGTH_MOST:
        detail = f"it is longer than {LENGTH_MOST} characters."
    elif name.startswith("__"):
        detail = "names that begin with two underscores are for the system's own use."
    elif not all(_PART.fullmatch(part) and part.strip(".") for part in name.split("/")):
        detail = "its parts are made of letters, digits, '.', '_' and '-', joined by '/'."
    if detail:
        raise InvalidBranchName(branch=name, detail=detail)


def require_free(name: str, taken: Iterable[str]) -> None:
    for other in taken:
        if other == name:
            raise BranchExists(branch=name, why="")
        if other.startswith(f"{name}/") or name.startswith(f"{other}/"):
            why = f": the names {other!r} and {name!r} can't both exist, one is a folder of the other"
            raise BranchExists(branch=other, why=why)
