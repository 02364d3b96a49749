"""A cleanup that is stopped at a place of its way."""

from __future__ import annotations

from collections.abc import Callable

import omnigraph as og


class Stop:
    """An observer that stops its operation before the nth time that it comes to a phase, and lets others act."""

    def __init__(self, phase: str, nth: int, others: Callable[[], None], *, past_lease: bool = True) -> None:
        self._phase, self._left, self._others, self._past_lease = phase, nth, others, past_lease
        self.graph: og.Graph | None = None
        self.stopped = False

    def __call__(self, phase: str) -> None:
        self._left -= phase == self._phase
        if self._left == 0 and phase == self._phase and not self.stopped:
            self.stopped = True
            assert self.graph is not None
            if self._past_lease:
                self.graph._committer.locks._heartbeats._watched.clear()
            self._others()
