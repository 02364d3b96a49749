"""A process is killed before every phase of the door that it comes to: the next one finds exactly the old or the new
state, can write at once, and leaves nothing behind.
"""

from __future__ import annotations

import copy
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from omnigraph.commit.phases import PHASES
from tests.commit.deeds import DEEDS
from tests.contention.processes import Processes

AT_ONCE_S = 6.0
"""A dead owner is known to be dead: nobody waits for its lease of 20 s."""
PUBLISHED = ("acknowledge", "release")
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


@pytest.fixture(params=[name for name in DEEDS if name != "probe"])
def bench(request: pytest.FixtureRequest, processes: Processes, tmp_path: Path) -> Bench:
    return Bench(processes, tmp_path, request.param)


def occurrences(phases: list[str]) -> list[tuple[str, int]]:
    return [(phase, phases[: i + 1].count(phase)) for i, phase in enumerate(phases)]


def test_killed_before_any_phase_it_is_all_there_or_not_at_all(bench: Bench) -> None:
    for phase, occurrence in occurrences(bench.phases):
        bench.restore("start")
        bench.kill(bench.deed, phase, occurrence)
        published = phase in PUBLISHED or phase == "publish"
        # All effects are there before "publish": that is rolled forward. Before that nothing can be.
        expected = bench.new if published else bench.old
        assert bench.judge([expected], f"{bench.deed} killed before {phase} {occurrence}") == expected
    print(f"{bench.deed}: killed at {len(bench.phases)} phases: {bench.phases}")


def test_the_deed_that_should_fold_does_fold(processes: Processes, tmp_path: Path) -> None:
    """Two tables and three effects: one of them gets a second step."""
    assert Bench(processes, tmp_path, "put_and_fold").phases.count("effect") == 3


@pytest.mark.parametrize(
    ("deed", "phase", "occurrence"),
    [
        pytest.param("put", "plan", 1, marks=pytest.mark.long),
        ("put", "effect", 2),
        pytest.param("put", "publish", 1, marks=pytest.mark.long),
        pytest.param("put_on_forked_branch", "effect", 2, marks=pytest.mark.long),
    ],
)
def test_recovery_killed_before_any_of_its_phases_is_recovered_from(
    processes: Processes, tmp_path: Path, deed: str, phase: str, occurrence: int
) -> None:
    bench = Bench(processes, tmp_path, deed)
    expected = bench.new if phase == "publish" else bench.old
    bench.restore("start")
    bench.kill(deed, phase, occurrence)
    bench.keep("struck")
    ways = bench._run("perform_deed", deed=deed)
    assert {"claim", "recover", "decide"} <= set(ways)
    assert ("restore" in ways) == (phase != "publish")
    for way, number in occurrences(ways):
        bench.restore("struck")
        bench.kill(deed, way, number)
        again = way in (*PUBLISHED, "publish")
        bench.judge([bench.new if again else expected], f"{deed} struck at {phase}, its recovery at {way} {number}")
    print(f"{deed} killed before {phase}: recovery killed at {len(ways)} phases: {ways}")


def test_the_deeds_come_through_every_phase(processes: Processes, tmp_path: Path) -> None:
    """Otherwise a phase would not be tested here at all. Migration belongs to graphs of older formats."""
    seen: set[str] = {"migrate"}
    for number, deed in enumerate(("put", "evolve")):
        (tmp_path / str(number)).mkdir()
        bench = Bench(processes, tmp_path / str(number), deed)
        bench.restore("start")
        bench.kill(deed, "effect", 2)
        seen |= {*bench.phases, *bench._run("perform_deed", deed=deed)}
    assert seen == set(PHASES)
