"""Two operations in one process, of which one at a time may take one step: from one phase of the door to the next.

A `Stepper` runs one operation in a thread, with a handle of its own. It stands still before every phase until `advance`
lets it on. Where the door would sleep because another holds the ticket it stands still too, before "wait": looking
again is a step like any other, and nothing here ever depends on time.

There are no heartbeats here. In `waiting_is_a_step` nobody is ever taken for dead. In `waiting_is_over_at_once` the
lease has no length, and whoever stands still is taken for dead as soon as the other has looked twice: a thread that is
not let on is a process that was stopped for longer than its lease.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.commit import committer as committer_module

START = "start"
WAIT = "wait"
SWAP = "swap"
_mine = threading.local()


def open_without_heart(path: Path, **options: Any) -> Any:
    """A handle that never renews its tickets."""
    graph = omnigraph.open(path, **options)
    graph._committer.locks._heartbeats.watch = lambda lock: None  # type: ignore[method-assign]
    return graph


class Stepper:
    """One operation, step by step. `at` is the phase before which it stands; None when it has ended."""

    def __init__(self, name: str, path: Path, act: Callable[[Any], Any]) -> None:
        self.name = name
        self.at: str | None = START
        self.passed: list[str] = []
        self.result: Any = None
        self.error: BaseException | None = None
        self._act = act
        self._may_go = threading.Semaphore(0)
        self._stands = threading.Semaphore(0)
        self._free = False
        self.graph = open_without_heart(path, observer=self._gate)
        self._gate_swaps()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def acknowledged(self) -> bool:
        return self.at is None and self.error is None

    def advance(self) -> None:
        """One step: to the next phase, or to the end."""
        assert self.at is not None
        self.passed.append(self.at)
        self._may_go.release()
        assert self._stands.acquire(timeout=60), f"{self.name} hangs after {self.passed}"

    def run_free(self) -> None:
        """The rest of the way without standing still."""
        self._free = True
        if self.at is not None:
            self.advance()
        self._thread.join(timeout=60)
        assert not self._thread.is_alive(), f"{self.name} hangs after {self.passed}"

    def _gate(self, phase: str) -> None:
        if self._free or threading.current_thread() is not self._thread:
            return
        self.at = phase
        self._stands.release()
        self._may_go.acquire()

    def _gate_swaps(self) -> None:
        """Branches come and go without a ticket: their one compare-and-swap is a phase of its own here."""
        manifest = self.graph._manifest
        update = manifest.update

        def gated(updates: Any, **more: Any) -> int:
            if any(key == "refs" for key in updates):
                self._gate(SWAP)
            return update(updates, **more)

        manifest.update = gated  # type: ignore[method-assign]

    def _run(self) -> None:
        _mine.stepper = self
        self._may_go.acquire()
        try:
            self.result = self._act(self.graph)
        except Exception as error:  # noqa: BLE001  the operation's outcome, whatever it is: tests judge it
            self.error = error
        self.at = None
        self._stands.release()


class _GatedPause:
    """In place of the door's sleep between two looks at another's ticket."""

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self) -> None:
        stepper: Stepper | None = getattr(_mine, "stepper", None)
        if stepper is not None:
            stepper._gate(WAIT)


class _NoPause:
    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self) -> None:
        return None


def waiting_is_a_step() -> AbstractContextManager[pytest.MonkeyPatch]:
    """Nobody is ever taken for dead; waiting is a step of the schedule."""
    return _patched({"OMNIGRAPH_LEASE_S": "600"}, _GatedPause)


def waiting_is_over_at_once() -> AbstractContextManager[pytest.MonkeyPatch]:
    """Whoever stands still is taken for dead."""
    return _patched({"OMNIGRAPH_LEASE_S": "0"}, _NoPause)


def _patched(environment: dict[str, str], pause: type) -> AbstractContextManager[pytest.MonkeyPatch]:
    class Patched(AbstractContextManager[pytest.MonkeyPatch]):
        def __enter__(self) -> pytest.MonkeyPatch:
            self._patch = pytest.MonkeyPatch()
            for name, value in environment.items():
                self._patch.setenv(name, value)
            self._patch.setattr(committer_module, "writer_backoff", pause)
            return self._patch

        def __exit__(self, *_: object) -> None:
            self._patch.undo()

    return Patched()
