"""A process is killed before every phase of the door that it comes to: the next one finds exactly the old or the new
state, can write at once, and leaves nothing behind.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.commit.phases import PHASES
from tests.commit.deeds import DEEDS
from tests.contention.processes import Processes
from tests.support.phase_bench import Bench, occurrences

PUBLISHED = ("acknowledge", "release")


@pytest.fixture(params=[name for name in DEEDS if name != "probe"])
def bench(request: pytest.FixtureRequest, processes: Processes, tmp_path: Path) -> Bench:
    return Bench(processes, tmp_path, request.param)


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
