"""Optimize beside live writers, beside itself, and after those who died: real processes on one graph.

Nobody who writes notices it, nothing is lost or comes back, and wherever it is killed the next writer goes on at once
and the next optimize finishes the work.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.commit.advisory_lock import AdvisoryLocks
from omnigraph.maintenance.optimize import run
from omnigraph.storage.durability import manifest_path
from tests.contention import keepers
from tests.contention.audit import objects_left
from tests.contention.crowd import Member
from tests.contention.processes import Processes, is_stopped
from tests.maintenance import strangers
from tests.maintenance.optimize.tables import opened

ROWS = 300
NOISE_S = 8.0
"""What a loaded machine may add to any wait."""
LONG_LEASE_S = 60.0
SHORT_LEASE_S = 0.5
DEFERRED = {"defer_index_remap": True, "target_rows_per_fragment": 2000}


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Graphs without branches, which may be copied: worn after an optimize, and one with row ids by address."""
    made = {}
    for row_ids in ("stable", "address"):
        made[row_ids] = tmp_path_factory.mktemp("template") / row_ids
        keepers.create(str(made[row_ids]), rows=ROWS, row_ids=row_ids)
    with og.open(made["stable"]) as graph:
        graph.upsert({"Doc": [keepers.doc(f"base{i}", i) for i in range(40)]})
        graph.insert({"Note": [{"key": "second"}]})
        graph.insert({"Note": [{"key": "third"}]})
    with og.open(made["address"]) as graph:
        graph.insert({"Note": [{"key": "second"}]})
        graph.optimize(target_rows_per_fragment=2, engine="local")
    return made


@pytest.fixture
def path(templates: dict[str, Path], tmp_path: Path) -> Path:
    """Two tables worth an optimize: 300 docs under every kind of index, some of them changed since, and notes."""
    return Path(shutil.copytree(templates["stable"], tmp_path / "graph"))


@pytest.fixture
def by_address(templates: dict[str, Path], tmp_path: Path) -> Path:
    """Two tables of small fragments, covered by their indices."""
    return Path(shutil.copytree(templates["address"], tmp_path / "graph"))


class Crew:
    """Starts clients of one graph."""

    def __init__(self, processes: Processes, path: Path, *, lease_s: float = LONG_LEASE_S) -> None:
        self._processes, self.path, self._lease_s = processes, path, lease_s

    def start(self, job: str, **arguments: Any) -> Member:
        environment = {"OMNIGRAPH_LEASE_S": str(self._lease_s), "OMNIGRAPH_FSYNC": "off"}
        return Member(job, self._processes.start(job, {"uri": str(self.path), **arguments}, environment))

    def killed(self, job: str, **arguments: Any) -> None:
        ended = self.start(job, **arguments).job.wait(60)
        assert ended.status == -signal.SIGKILL, ended

    def stopped(self, job: str, **arguments: Any) -> Member:
        member = self.start(job, number=signal.SIGSTOP, **arguments)
        until = time.monotonic() + 60
        while not is_stopped(member.pid):
            assert time.monotonic() < until, "never came to that point"
            assert not member.job.is_over, "came to its end without coming to that point"
            time.sleep(0.005)
        return member

    def value(self, job: str, **arguments: Any) -> Any:
        return done(self.start(job, **arguments))


def done(member: Member) -> Any:
    return member.job.wait(90).value


def go_on(member: Member) -> Any:
    member.signal(signal.SIGCONT)
    return done(member)


def base(*, changed: range = range(0), deleted: range = range(0)) -> dict[str, int]:
    """`n` of the rows that every graph here starts with, after these changes."""
    found = {f"base{i}": (i + 1 if i in changed else i) % keepers.VALUES for i in range(ROWS)}
    return {key: n for key, n in found.items() if int(key[4:]) not in deleted}


def require_whole(path: Path, promised: dict[str, int]) -> og.Graph:
    graph = og.open(path, engine="local")
    assert keepers.wrong_rows(graph, promised) == []
    assert keepers.wrong_answers(graph) == []
    return graph


def require_finished(path: Path, promised: dict[str, int], **options: Any) -> None:
    """The next optimize finishes the work, and then there is none left. Nothing of anybody is left either."""
    graph = og.open(path, engine="local")
    assert keepers.wrong_rows(graph, promised) == []
    result = graph.optimize(**options)
    assert result.ok
    assert [t.skipped for t in result.tables if t.skipped] == []
    again = graph.optimize(**options)
    assert again.commit is None
    assert {t.coverage_after for t in again.tables} == {1.0}
    require_whole(path, promised)
    assert objects_left(path) == []
    assert graph.apply_schema(keepers.SCHEMA + "node Later { key: String @key }\n").commit is not None


def optimizes(path: Path) -> list[Any]:
    return [c for c in og.open(path).commits() if c.kind == "optimize" and c.actor == "omnigraph:optimize"]


# ---- live ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row_ids", ["stable", "address"])
def test_writers_beside_a_loop_of_optimize_lose_nothing_and_are_never_refused(
    processes: Processes, templates: dict[str, Path], tmp_path: Path, row_ids: str
) -> None:
    path = Path(shutil.copytree(templates[row_ids], tmp_path / "graph"))
    crew = Crew(processes, path)
    most, over = 120.0, str(tmp_path / "over")
    keeper = crew.start(
        "keep_optimizing",
        seconds=4.0,
        deferred=row_ids == "address",
        commits_min=2,
        seconds_max=most,
        finished=over,
    )
    writers = [crew.start("keep_writing", client=f"w{i}", seconds=most, seed=i, beside=over) for i in range(3)]
    told = [done(writer) for writer in writers]
    kept = done(keeper)
    assert [t["refused"] for t in told] == [[], [], []]
    assert [t["wrong"] for t in told] == [[], [], []]
    assert kept["failed"] == []
    assert kept["commits"] >= 2, kept
    assert kept["fragments_removed"] > 0
    promised = base() | {key: n for t in told for key, n in t["ledger"].items()}
    require_whole(path, promised)
    assert objects_left(path) == []


def test_a_delete_and_an_update_made_while_fragments_are_rewritten_survive(processes: Processes, path: Path) -> None:
    crew = Crew(processes, path)
    slow = crew.stopped("optimize_struck", stage="building indices", target_rows_per_fragment=2000)
    crew.value("write_docs", upsert=list(range(100, 130)), delete=list(range(200, 240)))
    result = go_on(slow)
    row = next(t for t in result["tables"] if t["table_key"] == "node:Doc")
    assert (row["error"], row["committed"]) == (None, True)
    assert row["rows_replayed"] == 70
    require_finished(path, base(changed=range(100, 130), deleted=range(200, 240)), target_rows_per_fragment=2000)


def test_inserts_go_beside_a_running_optimize_and_wait_only_for_its_commit(processes: Processes, path: Path) -> None:
    crew = Crew(processes, path)
    slow = crew.stopped("optimize_struck", stage="rewriting fragments")
    assert crew.value("write_docs", notes=["guest"], upsert=[0]) < NOISE_S
    slow.signal(signal.SIGCONT)
    done(slow)
    slow = crew.stopped("optimize_struck", phase="effect", target_rows_per_fragment=2000)
    waiting = crew.start("write_docs", notes=["waited"])
    time.sleep(0.5)
    assert not waiting.job.is_over
    assert go_on(slow)["commit"] is not None
    done(waiting)
    assert [c.kind for c in og.open(path).commits(limit=2)] == ["write", "optimize"]
    require_finished(path, base(changed=range(1)), target_rows_per_fragment=2000)


def test_two_that_optimize_at_the_same_time_converge(processes: Processes, path: Path) -> None:
    crew = Crew(processes, path)
    both = [crew.stopped("optimize_struck", stage="building indices", target_rows_per_fragment=2000) for _ in range(2)]
    for member in both:
        member.signal(signal.SIGCONT)
    for member in both:
        result = done(member)
        assert [t["error"] or t["skipped"] for t in result["tables"] if t["error"] or t["skipped"]] == []
    assert len(optimizes(path)) <= 3  # one of the template, and one or two of these
    require_whole(path, base())
    assert og.open(path, engine="local").optimize(target_rows_per_fragment=2000).commit is None


# ---- dead ------------------------------------------------------------------------------------------------------------

WAY = ["prepare", "lock", "check", "plan", *["effect"] * 4, "publish", "acknowledge", "release"]
FORWARD = ("publish", "acknowledge", "release")


@pytest.mark.parametrize(
    ("phase", "occurrence"), [(p, WAY[: i + 1].count(p)) for i, p in enumerate(WAY)], ids=lambda v: str(v)
)
def test_an_optimize_killed_at_any_phase_is_settled_for_all_tables_by_the_next_writer_at_once(
    processes: Processes, path: Path, phase: str, occurrence: int
) -> None:
    crew = Crew(processes, path)
    before = len(optimizes(path))
    crew.killed("optimize_struck", phase=phase, occurrence=occurrence, target_rows_per_fragment=2000)
    assert crew.value("write_docs", upsert=[0]) < NOISE_S
    made = optimizes(path)[: len(optimizes(path)) - before]
    if phase in FORWARD:
        assert [len(commit.tables) for commit in made] == [2]
        graph = og.open(path)
        assert len(opened(graph, "Note").get_fragments()) == 1
    else:
        assert made == []
    require_finished(path, base(changed=range(1)), target_rows_per_fragment=2000)


@pytest.mark.parametrize("stage", ["rewriting fragments", "building indices"])
def test_an_optimize_killed_in_the_middle_of_its_preparation_leaves_nothing_to_settle(
    processes: Processes, path: Path, stage: str
) -> None:
    crew = Crew(processes, path)
    crew.killed("optimize_struck", stage=stage, midway=True, target_rows_per_fragment=2000)
    assert objects_left(path) == []
    assert crew.value("write_docs", upsert=[0]) < NOISE_S
    require_finished(path, base(changed=range(1)), target_rows_per_fragment=2000)


@pytest.mark.parametrize(("phase", "occurrence", "outcome"), [("effect", 1, "old"), ("publish", 1, "new")])
def test_what_a_dead_writer_left_is_resolved_first(
    processes: Processes, path: Path, phase: str, occurrence: int, outcome: str
) -> None:
    crew = Crew(processes, path)
    crew.killed("write_docs", upsert=[0], phase=phase, occurrence=occurrence)
    result = crew.value("optimize_struck", target_rows_per_fragment=2000)
    assert result["commit"]["actor"] == "omnigraph:optimize"
    assert [t["error"] or t["skipped"] for t in result["tables"] if t["error"] or t["skipped"]] == []
    require_finished(path, base(changed=range(1) if outcome == "new" else range(0)), target_rows_per_fragment=2000)


def test_the_ticket_of_a_live_writer_is_waited_for(processes: Processes, path: Path) -> None:
    crew = Crew(processes, path)
    writer = crew.stopped("write_docs", upsert=[0], phase="publish")
    optimizer = crew.start("optimize_struck", target_rows_per_fragment=2000)
    time.sleep(1.0)
    assert not optimizer.job.is_over
    go_on(writer)
    assert done(optimizer)["commit"] is not None
    assert [c.kind for c in og.open(path).commits(limit=2)] == ["optimize", "write"]
    require_finished(path, base(changed=range(1)), target_rows_per_fragment=2000)


# ---- the commit without a stamp --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "occurrence", "published"),
    [
        pytest.param("effect", 1, 0, marks=pytest.mark.long),
        ("effect", 2, 0),
        pytest.param("publish", 1, 0, marks=pytest.mark.long),
        ("acknowledge", 1, 1),
    ],
)
def test_a_deferred_optimize_killed_around_its_unstamped_commits_goes_back_as_a_whole(
    processes: Processes, by_address: Path, phase: str, occurrence: int, published: int
) -> None:
    crew = Crew(processes, by_address)
    before = len(optimizes(by_address))
    crew.killed("optimize_struck", phase=phase, occurrence=occurrence, **DEFERRED)
    assert crew.value("write_docs", upsert=[0], notes=["latest"]) < NOISE_S
    assert len(optimizes(by_address)) == before + published
    require_finished(by_address, base(changed=range(1)), **DEFERRED)


@pytest.mark.parametrize(("phase", "occurrence"), [("effect", 2), ("publish", 1)])
def test_a_deferred_optimize_killed_between_its_segments_and_its_merge_goes_back_as_a_whole(
    processes: Processes, by_address: Path, phase: str, occurrence: int
) -> None:
    crew = Crew(processes, by_address)
    crew.value("write_docs", upsert=list(range(1, 41)), notes=["uncovered"])
    before = len(optimizes(by_address))
    crew.killed("optimize_struck", phase=phase, occurrence=occurrence, **DEFERRED)
    assert crew.value("write_docs", upsert=[0]) < NOISE_S
    assert len(optimizes(by_address)) == before
    require_finished(by_address, base(changed=range(41)), **DEFERRED)


@pytest.fixture(scope="session")
def committed(processes: Processes, templates: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Killed with both unstamped commits of every table made and nothing published."""
    made = Path(shutil.copytree(templates["address"], tmp_path_factory.mktemp("killed") / "graph"))
    Crew(processes, made).killed("optimize_struck", phase="publish", **DEFERRED)
    return made


def above_the_pin(graph: og.Graph) -> list[Path]:
    """The files of the versions of docs that nobody published, oldest first."""
    uri, pin = strangers.place(graph, "Doc")
    newest = strangers.opened(graph, "Doc").version
    return [Path(manifest_path(uri, version)) for version in range(pin + 1, newest + 1)]


def cut_short(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def write(graph: og.Graph) -> None:
    graph.upsert({"Doc": [keepers.doc("base0", 1)]})


@pytest.mark.parametrize(
    ("lost", "take", "go_on"),
    [
        ([0], cut_short, write),
        ([0], Path.unlink, write),
        ([0], cut_short, og.Graph.optimize),
        ([0], Path.unlink, lambda graph: graph.repair(confirm=True)),
        ([1], cut_short, write),
        ([0, 1], cut_short, write),
    ],
)
def test_a_power_loss_may_take_any_version_of_a_deferred_optimize_that_was_not_published(
    committed: Path, tmp_path: Path, lost: list[int], take: Any, go_on: Any
) -> None:
    """Lance makes two versions at once there, and syncs neither: the upper one may survive the lower one."""
    path = Path(shutil.copytree(committed, tmp_path / "graph"))
    graph = og.open(path, engine="local")
    unpublished = above_the_pin(graph)
    assert len(unpublished) == 2
    for n in lost:
        take(unpublished[n])
    assert graph.stats().drifted_tables == ()
    go_on(graph)
    write(graph)
    require_finished(path, base(changed=range(1)), **DEFERRED)


@pytest.mark.parametrize(("phase", "occurrence"), [("effect", 2), ("publish", 1)])
def test_a_writer_beside_an_unstamped_commit_waits_and_is_never_refused_for_drift(
    processes: Processes, by_address: Path, phase: str, occurrence: int
) -> None:
    crew = Crew(processes, by_address)
    slow = crew.stopped("optimize_struck", phase=phase, occurrence=occurrence, **DEFERRED)
    waiting = [crew.start("write_docs", upsert=[0]), crew.start("write_docs", notes=["guest"])]
    time.sleep(0.5)
    result = go_on(slow)
    assert [t["error"] or t["skipped"] for t in result["tables"] if t["error"] or t["skipped"]] == []
    for writer in waiting:
        done(writer)
    require_finished(by_address, base(changed=range(1)), **DEFERRED)


def test_an_unstamped_commit_that_is_published_while_a_writer_asks_whose_it_is_is_not_drift(
    processes: Processes, by_address: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner releases the ticket once the head has moved: who finds no ticket has to look at the head after that."""
    slow = Crew(processes, by_address).stopped("optimize_struck", phase="publish", occurrence=1, **DEFERRED)
    real, done_by_then = AdvisoryLocks.holder, []

    def holder(self: AdvisoryLocks, incarnation: str, epoch: int) -> Any:
        if not done_by_then:
            done_by_then.append(go_on(slow))
        return real(self, incarnation, epoch)

    monkeypatch.setattr(AdvisoryLocks, "holder", holder)
    og.open(by_address).upsert({"Doc": [keepers.doc("mine", 1)]})
    assert done_by_then[0]["commit"] is not None


@pytest.mark.parametrize(
    ("phase", "occurrence"),
    [pytest.param("effect", 1, marks=pytest.mark.long), ("effect", 2), ("publish", 1)],
)
def test_a_deferred_optimize_stopped_past_its_lease_leaves_no_drift_when_it_goes_on(
    processes: Processes, by_address: Path, phase: str, occurrence: int
) -> None:
    crew = Crew(processes, by_address, lease_s=SHORT_LEASE_S)
    slow = crew.stopped("optimize_struck", phase=phase, occurrence=occurrence, **DEFERRED)
    crew.value("write_docs", upsert=[0], notes=["overtook"])
    result = go_on(slow)
    assert [t["error"] or t["skipped"] for t in result["tables"] if t["error"] or t["skipped"]] == []
    crew.value("write_docs", upsert=[1], notes=["latest"])
    require_finished(by_address, base(changed=range(2)), **DEFERRED)


def test_what_another_has_just_compacted_without_a_stamp_is_not_taken_for_drift(
    by_address: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan looks at a table a moment after it looked at the head: what came in between is published by now."""
    real, other = run.plan, og.open(by_address, engine="local")

    def overtaken(view: Any, options: Any) -> Any:
        if options.target_rows_per_fragment == 99:
            other.optimize(**DEFERRED)
        return real(view, options)

    monkeypatch.setattr(run, "plan", overtaken)
    graph = og.open(by_address, engine="local")
    before = len(optimizes(by_address))
    planned = graph.plan_optimize(target_rows_per_fragment=99)
    assert len(optimizes(by_address)) == before + 1
    assert [t.skipped for t in planned.tables] == [None] * 3
    strangers.delete(graph, "Note", "first")
    assert [t.skipped for t in graph.plan_optimize(target_rows_per_fragment=99).tables].count("DriftNeedsRepair") == 1
