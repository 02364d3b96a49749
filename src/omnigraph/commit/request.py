"""What a caller asks of the door, and what it is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omnigraph.commit.stage import View
from omnigraph.errors import PreconditionFailed
from omnigraph.storage.records import Record


@dataclass(frozen=True)
class Request:
    """Who asks, and under which condition."""

    branch: str
    actor: str | None = None
    if_commit: str | None = None
    operation_id: str | None = None


@dataclass(frozen=True)
class Outcome:
    """`record` is None if there was nothing to change. `repeated` says that this operation id had been done before."""

    record: Record | None
    result: Any = None
    repeated: bool = False


class Aborted(Exception):
    """The epoch is decided and my operation is not in it: try again under a new one."""


class Busy(Exception):
    """Another writer went first. What was prepared may still hold."""


def require_commit(view: View, request: Request) -> None:
    if request.if_commit is not None and view.head.commit != request.if_commit:
        raise PreconditionFailed(expected=request.if_commit, actual=view.head.commit, branch=request.branch)
