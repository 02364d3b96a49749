"""The request to the committer, its outcome, and the exceptions between attempts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from omnigraph.commit.operation import View
from omnigraph.errors import PreconditionFailed, StorageError
from omnigraph.storage.manifest.records import Record

REFUSALS_MAX = 3
"""How many epochs in a row end with the same refusal of Lance before the caller gets the error. Each epoch has several
attempts."""
_NUMBERS = re.compile(r"[0-9a-f]*[0-9][0-9a-f-]*")
"""Versions, row counts and ids: they differ between equal refusals."""


@dataclass(frozen=True)
class Request:
    """The branch, the actor and the conditions of one operation."""

    branch: str
    actor: str | None = None
    if_commit: str | None = None
    operation_id: str | None = None


@dataclass(frozen=True)
class Outcome:
    """`record` is None if there was nothing to change. `repeated`: this operation id was committed before."""

    record: Record | None
    result: Any = None
    repeated: bool = False


class Aborted(Exception):
    """The epoch was decided without this operation: try again under a new epoch.

    `refusal` is Lance's error text for an effect that it refused; None if another writer won the race.
    """

    def __init__(self, refusal: str | None = None) -> None:
        super().__init__(refusal)
        self.refusal = refusal


class Refusals:
    """Counts equal refusals in a row: an error that lasts occurs every time."""

    def __init__(self) -> None:
        self._last = ""
        self._count = 0

    def add(self, refusal: str | None, *, doing: str) -> None:
        """Count one refusal. Raises StorageError after REFUSALS_MAX equal ones."""
        normalized = _NUMBERS.sub("#", refusal or "")
        self._count = self._count + 1 if normalized == self._last else 1
        self._last = normalized
        if refusal and self._count >= REFUSALS_MAX:
            raise StorageError(doing=doing, detail=refusal)


class Busy(Exception):
    """Another writer went first. The prepared work may still be valid."""


def require_commit(view: View, request: Request) -> None:
    if request.if_commit is not None and view.head.commit != request.if_commit:
        raise PreconditionFailed(expected=request.if_commit, actual=view.head.commit, branch=request.branch)
