"""A repair that dies at any phase, and whose recovery dies too, can be repeated: the drift is still there, or is done.

That each phase leaves the old or the new state is shown, with all other operations, in
tests/commit/test_killed_at_a_phase.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph
from tests.contention.audit import objects_left, wrong_epochs
from tests.contention.processes import Processes
from tests.support.phase_bench import Bench, occurrences


def left_ids(path: Path) -> set[str]:
    return set(omnigraph.open(path).nodes("Left")["id"].to_pylist())


TURNING_POINTS = ("check", "plan", "effect", "publish", "release")


@pytest.mark.parametrize(("deed", "after"), [("repair_forced", {"raw"}), ("repair_discarding", set())])
def test_killed_at_any_turning_point_it_can_be_repeated(
    processes: Processes, tmp_path: Path, deed: str, after: set[str]
) -> None:
    bench = Bench(processes, tmp_path, deed)
    for phase, occurrence in (o for o in occurrences(bench.phases) if o[0] in TURNING_POINTS):
        bench.restore("start")
        bench.kill(deed, phase, occurrence)
        bench._run("perform_deed", deed=deed)
        graph = omnigraph.open(bench.path)
        assert left_ids(bench.path) == {"old", "older"} | after, f"killed before {phase} {occurrence}"
        assert graph.edges("Joins").num_rows == (0 if deed == "repair_forced" else 1)
        graph.upsert({"Left": [{"name": "probe"}]})
        assert not objects_left(bench.path)
        assert not wrong_epochs(graph)


def test_a_discard_cut_between_its_tables_whose_recovery_dies_too_leaves_what_was_published(
    processes: Processes, tmp_path: Path
) -> None:
    deed = "repair_discarding"
    bench = Bench(processes, tmp_path, deed)
    bench.restore("start")
    bench.kill(deed, "effect", 2)
    bench.keep("struck")
    ways = bench._run("perform_deed", deed=deed)
    assert {"claim", "recover", "decide"} <= set(ways)
    assert "restore" not in ways, "drift is never restored over by recovery"
    for way, number in occurrences(ways):
        bench.restore("struck")
        bench.kill(deed, way, number)
        assert left_ids(bench.path) == {"old", "older"}
        bench._run("perform_deed", deed=deed)
        graph = omnigraph.open(bench.path)
        assert {t.classification for t in graph.repair().tables} == {"clean"}, f"{way} {number}"
        assert not wrong_epochs(graph)
