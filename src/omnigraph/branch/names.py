"""Which names a branch may have.

Parts of letters, digits, '.', '_' and '-', joined by '/'; a live name must not be a path prefix of another, so that
`review` and `review/anna` can't both exist. Names that begin with `__` are for the system's own use.
"""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.errors import BranchExists, InvalidBranchName
from omnigraph.language.identifiers import BRANCH_LENGTH_MAX, is_branch_path


def require_name(name: str) -> None:
    """Refuse what can't be a branch's name."""
    detail = ""
    if not name:
        detail = "it is empty."
    elif len(name) > BRANCH_LENGTH_MAX:
        detail = f"it is longer than {BRANCH_LENGTH_MAX} characters."
    elif name.startswith("__"):
        detail = "names that begin with two underscores are for the system's own use."
    elif not is_branch_path(name):
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
