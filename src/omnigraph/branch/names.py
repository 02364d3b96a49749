"""Which names branches and tags may have.

Parts of letters, digits, '.', '_' and '-', joined by '/'; a live name must not be a path prefix of another, so that
`review` and `review/anna` can't both exist. Names that begin with `__` are for the system's own use.
A branch and a tag never have the same name, so that a revision means one thing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from omnigraph.errors import BranchExists, InvalidBranchName, InvalidTagName, TagExists
from omnigraph.language.identifiers import BRANCH_LENGTH_MAX, is_branch_path
from omnigraph.storage.manifest.tags import Tag


def require_name(name: str) -> None:
    """Refuse what can't be a branch's name."""
    detail = _fault(name)
    if detail:
        raise InvalidBranchName(branch=name, detail=detail)


def require_tag_name(name: str) -> None:
    """Refuse what can't be a tag's name: the rules are those of branches."""
    detail = _fault(name)
    if detail:
        raise InvalidTagName(tag=name, detail=detail)


def _fault(name: str) -> str:
    """What is wrong with a name; empty if nothing is."""
    if not name:
        return "it is empty."
    if len(name) > BRANCH_LENGTH_MAX:
        return f"it is longer than {BRANCH_LENGTH_MAX} characters."
    if name.startswith("__"):
        return "names that begin with two underscores are for the system's own use."
    return "" if is_branch_path(name) else "its parts are made of letters, digits, '.', '_' and '-', joined by '/'."


def require_free(name: str, taken: Iterable[str], tags: Mapping[str, Tag]) -> None:
    """Refuse a branch's name that another branch, or a tag, has."""
    if name in tags:
        raise TagExists(tag=name, commit=tags[name].commit)
    for other in taken:
        if other == name:
            raise BranchExists(branch=name, why="")
        if other.startswith(f"{name}/") or name.startswith(f"{other}/"):
            why = f": the names {other!r} and {name!r} can't both exist, one is a folder of the other"
            raise BranchExists(branch=other, why=why)
