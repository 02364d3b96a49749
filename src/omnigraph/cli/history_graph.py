"""The history as a drawing: one lane per line of commits, as `git log --graph` draws it.

Commits come children before parents. A lane waits for one commit. Where a commit is drawn, all lanes that wait for it
join; then its lane waits for its first parent, and of a merge a new lane beside it for the second one.

The drawing takes at most WIDTH_MAX characters of a line; on a terminal lines are cut at its edge.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.graph.results import BranchInfo, CommitInfo, TagInfo

WIDTH_MAX = 40


def drawn(commits: Sequence[CommitInfo], branches: Sequence[BranchInfo], tags: Sequence[TagInfo]) -> list[str]:
    names: dict[str, list[str]] = {}
    for branch in branches:
        names.setdefault(branch.commit, []).append(branch.name)
    for tag in tags:
        names.setdefault(tag.commit, []).append(f"tag {tag.name}")
    lines = []
    for lane, commit in rows(commits):
        text = "" if commit is None else _told(commit, names.get(commit.id, []))
        lines.append(_fitting(f"{_narrowed(lane)} {text}".rstrip()))
    return lines


def _told(commit: CommitInfo, names: Sequence[str]) -> str:
    stands = f"  ({', '.join(names)})" if names else ""
    return f"{commit.id} {commit.created_at:%Y-%m-%d %H:%M:%S}Z {commit.kind}{stands} {commit.actor or ''}"


def _narrowed(lane: str) -> str:
    """A drawing that is too wide is cut; a commit beyond the cut is still marked."""
    if len(lane) <= WIDTH_MAX:
        return lane
    mark = "*" if "*" in lane[WIDTH_MAX - 2 :] else ""
    return f"{lane[: WIDTH_MAX - 1 - len(mark)]}…{mark}"


def _fitting(line: str) -> str:
    if not sys.stdout.isatty():
        return line
    width = shutil.get_terminal_size().columns
    return line if len(line) <= width else f"{line[: width - 1]}…"


def rows(commits: Sequence[CommitInfo]) -> Iterator[tuple[str, CommitInfo | None]]:
    """(drawing, commit) line by line; None between two commits."""
    lanes: list[str] = []
    for commit in commits:
        if commit.id not in lanes:
            lanes.append(commit.id)
        at = lanes.index(commit.id)
        others = [i for i, waits_for in enumerate(lanes) if waits_for == commit.id and i != at]
        for other in reversed(others):
            yield _joining(len(lanes), at, other), None
            del lanes[other]
        yield " ".join("*" if i == at else "|" for i in range(len(lanes))), commit
        match commit.parents:
            case []:
                if at < len(lanes) - 1:
                    yield _closing(len(lanes), at), None
                del lanes[at]
            case [parent]:
                lanes[at] = parent
            case [parent, merged, *_]:
                yield _opening(len(lanes), at), None
                lanes[at] = parent
                lanes.insert(at + 1, merged)


def _joining(count: int, at: int, other: int) -> str:
    """Lane `other` goes over to lane `at`, and those to its right move up."""
    cells = [" "] * (2 * count - 1)
    for i in range(other):
        cells[2 * i] = "|"
    for i in range(at, other - 1):
        cells[2 * i + 1] = "_"
    for i in range(other, count):
        cells[2 * i - 1] = "/"
    return "".join(cells).rstrip()


def _opening(count: int, at: int) -> str:
    """A new lane begins to the right of lane `at`, and those beyond make room."""
    cells = [" "] * (2 * count)
    for i in range(at + 1):
        cells[2 * i] = "|"
    for i in range(at, count):
        cells[2 * i + 1] = "\\"
    return "".join(cells).rstrip()


def _closing(count: int, at: int) -> str:
    """Lane `at` has ended, and those to its right move up."""
    cells = [" "] * (2 * count - 1)
    for i in range(at):
        cells[2 * i] = "|"
    for i in range(at + 1, count):
        cells[2 * i - 1] = "/"
    return "".join(cells).rstrip()
