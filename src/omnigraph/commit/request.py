"""What a caller asks of the door, and what it is told."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from omnigraph.commit.operation import View
from omnigraph.errors import PreconditionFailed, StorageError
from omnigraph.storage.manifest.records import Record

REFUSALS_MAX = 3
"""Epochs that end with the same refusal of Lance before the caller is told. Each has tried several times."""
_NUMBERS = re.compile(r"[0-9a-f]*[0-9][0-9a-f-]*")
"""Versions, row counts and ids: they differ in refusals that say the same."""


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
    """The epoch is decided and my operation is not in it: try again under a new one.

    `refusal` is what Lance said of a step that it did not take; None if others were quicker.
    """

    def __init__(self, refusal: str | None = None) -> None:
        super().__init__(refusal)
        self.refusal = refusal


class Refusals:
    """Counts refusals that follow each other and say the same: what Lance refuses for good it refuses every time."""

    def __init__(self) -> None:
        self._last = ""
        self._count = 0

    def add(self, refusal: str | None, *, doing: str) -> None:
        """StorageError after REFUSALS_MAX equal ones."""
        said = _NUMBERS.sub("#", refusal or "")
        self._count = self._count + 1 if said == self._last else 1
        self._last = said
        if refusal and self._count >= REFUSALS_MAX:
            raise StorageError(doing=doing, detail=refusal)


class Busy(Exception):
    """Another writer went first. What was prepared may still hold."""


def require_commit(view: View, request: Request) -> None:
    if request.if_commit is not None and view.head.commit != request.if_commit:
        raise PreconditionFailed(expected=request.if_commit, actual=view.head.commit, branch=request.branch)
