"""One operation that is killed at any of its phases, with its states before and after."""

from __future__ import annotations

import copy
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.contention.processes import Processes

AT_ONCE_S = 6.0
"""A dead owner is known to be dead: nobody waits for its lease of 20 s."""


STATE = dict[str, dict[str, Any]]


@dataclass
class Bench:
    """One deed, its start, and its states before and after. Forks know their path: a graph is restored to its own."""

    processes: Processes
    folder: Path
    deed: str

    def __post_init__(self) -> None:
        self.path = self.folder / "graph"
        self._run("start_deed", deed=self.deed)
        self.keep("start")
        self.old: STATE = self._run("read_all")
        self.phases: list[str] = self._run("perform_deed", deed=self.deed)
        self.new: STATE = self._run("read_all")
        assert self.old != self.new

    def keep(self, name: str) -> None:
        shutil.copytree(self.path, self.folder / name)

    def restore(self, name: str) -> None:
        shutil.rmtree(self.path)
        shutil.copytree(self.folder / name, self.path)

    def kill(self, deed: str, phase: str, occurrence: int) -> None:
        arguments = {"uri": str(self.path), "deed": deed, "phase": phase, "occurrence": occurrence}
        assert self.processes.run("perform_deed", arguments).status == -signal.SIGKILL

    def judge(self, allowed: list[STATE], about: str) -> STATE:
        """A fresh process: which of the allowed states it found, and that it could go on from there."""
        found = self._run("examine", probe="probe")
        assert found["waited_s"] < AT_ONCE_S, about
        assert found["before"] in allowed or found["before"] == self.old, about
        settled = [state for state in allowed if with_probe(state) == found["after"]]
        assert settled, f"{about}: a third state: {found['after']}"
        if found["before"] != self.old:
            assert found["before"] == settled[0], f"{about}: what was there has gone"
        assert not found["wrong"], about
        assert not found["left"], about
        return settled[0]

    def _run(self, job: str, **arguments: Any) -> Any:
        return self.processes.run(job, {"uri": str(self.path), **arguments}).value


def with_probe(state: STATE) -> STATE:
    """The state after one more write on every branch."""
    state = copy.deepcopy(state)
    for branch in state.values():
        branch["commits"] += 1
        rows = branch["rows"]["Right"]
        rows.append({**rows[0], "id": "probe", "name": "probe", "n": None})
        rows.sort(key=lambda row: row["id"])
    return state


def occurrences(phases: list[str]) -> list[tuple[str, int]]:
    return [(phase, phases[: i + 1].count(phase)) for i, phase in enumerate(phases)]
