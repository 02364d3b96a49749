"""What a writer that died has left is settled by the next one: forward if all of it is there, back if not."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import omnigraph
from omnigraph.commit.stamp import Stamp
from omnigraph.errors import KeyConflict
from omnigraph.storage.lance import lance_api
from omnigraph.storage.manifest.records import RECOVERY_ACTOR
from tests.commit.stepper import Stepper, waiting_is_a_step
from tests.contention.audit import objects_left, wrong_epochs
from tests.contention.processes import Processes


def die(processes: Processes, path: Path, deed: str, phase: str, occurrence: int = 1) -> None:
    arguments = {"uri": str(path), "deed": deed, "phase": phase, "occurrence": occurrence}
    assert processes.run("perform_deed", arguments, {"OMNIGRAPH_ACTOR": "anna"}).status == -signal.SIGKILL


def ids(graph: Any, type_name: str = "Left") -> set[str]:
    return set(graph.snapshot().read(type_name)["id"].to_pylist())


def stray(graph: Any, type_name: str, stamp: str | None) -> None:
    """A row on a table that the door knows nothing of, with or without a stamp."""
    import pyarrow as pa
    from lance.fragment import write_fragments

    view = graph._committer.view("main")
    newest = view.tables.newest(view.pins[view.type(type_name).id])
    rows = pa.table({"id": ["stray"], "name": ["stray"], "n": [1]}, schema=newest.schema)
    append = lance_api.operations().Append(write_fragments(rows, newest, mode="append"))
    properties = {} if stamp is None else {lance_api.STAMP: stamp}
    tx = lance_api.transaction(append, read_version=newest.version, properties=properties)
    lance_api.commit(view.tables.location, newest, tx)


def decided_stamp(graph: Any, type_name: str) -> str:
    view = graph._committer.view("main")
    return str(Stamp(view.head.incarnation, view.head.epoch, 0, view.type(type_name).id, "0", "dead"))


def test_effects_that_are_all_there_are_published_as_the_commit_they_were_to_be(
    processes: Processes, path: Path, graph: Any
) -> None:
    die(processes, path, "put", "publish")
    assert "new" not in ids(graph), "readers never look above a pin"
    graph.upsert({"Right": [{"name": "other"}]})
    mine, theirs = graph.commits(limit=2)
    assert theirs.kind == "write"
    assert theirs.actor == "anna"
    assert theirs.recovery is not None
    assert theirs.recovery["outcome"] == "rolled_forward"
    assert mine.parent == theirs.id
    assert "new" in ids(graph)
    assert not objects_left(path)


def test_effects_that_are_not_all_there_are_restored_over_and_the_abort_is_on_record(
    processes: Processes, path: Path, graph: Any
) -> None:
    die(processes, path, "put", "effect", 3)
    graph.upsert({"Left": [{"name": "other"}]})
    _, abort = graph.commits(limit=2)
    assert abort.kind == "recovery"
    assert abort.actor == RECOVERY_ACTOR
    assert abort.recovery is not None
    assert abort.recovery["outcome"] == "rolled_back"
    assert abort.recovery["kind"] == "write"
    assert ids(graph) == {"old", "older", "other"}
    assert ids(graph, "Right") == {"old", "older"}
    assert not wrong_epochs(graph)


def test_a_writer_that_died_before_its_first_effect_costs_an_epoch_that_is_decided(
    processes: Processes, path: Path, graph: Any
) -> None:
    before = graph._manifest.head("main").epoch
    die(processes, path, "put", "check")
    graph.upsert({"Left": [{"name": "other"}]})
    assert graph._manifest.head("main").epoch == before + 2
    outcome = graph._manifest.outcome(graph._manifest.head("main").incarnation, before + 1)
    assert outcome is not None
    assert outcome.recovery["outcome"] == "rolled_back"


def test_a_dead_writer_of_one_branch_does_not_concern_another(processes: Processes, path: Path, graph: Any) -> None:
    graph.create_branch("side")
    die(processes, path, "put", "effect", 2)
    seen: list[str] = []
    omnigraph.open(path, observer=seen.append).upsert({"Left": [{"name": "other"}]}, branch="side")
    assert "claim" not in seen


def test_reading_settles_nothing(processes: Processes, path: Path, graph: Any) -> None:
    die(processes, path, "put", "effect", 3)
    left = objects_left(path)
    fresh = omnigraph.open(path)
    fresh.snapshot().read("Left")
    fresh.commits()
    fresh.branches()
    assert objects_left(path) == left
    assert ids(graph) == {"old", "older"}


def test_leftovers_of_a_decided_epoch_are_restored_over_by_the_next_writer(path: Path, graph: Any) -> None:
    stray(graph, "Left", decided_stamp(graph, "Left"))
    assert "stray" not in ids(graph)
    seen: list[str] = []
    fresh = omnigraph.open(path, observer=seen.append)
    fresh.upsert({"Left": [{"name": "new"}], "Right": [{"name": "new"}]})
    assert seen.count("restore") == 1, seen
    assert ids(fresh) == {"old", "older", "new"}
    for count in range(3):
        fresh.upsert({"Left": [{"name": f"later-{count}"}]})
    assert seen.count("restore") == 1, "once is enough"


def test_leftovers_on_tables_that_a_write_does_not_touch_stay_where_they_are(path: Path, graph: Any) -> None:
    stray(graph, "Right", decided_stamp(graph, "Right"))
    seen: list[str] = []
    omnigraph.open(path, observer=seen.append).upsert({"Left": [{"name": "new"}]})
    assert "restore" not in seen
    assert "stray" not in ids(graph, "Right")


def test_a_write_refused_under_its_ticket_decides_its_epoch(path: Path, graph: Any) -> None:
    """Of two inserts of one key the second is refused after it has taken a ticket: an abort, on record."""
    with waiting_is_a_step():
        slow = Stepper("slow", path, lambda g: g.insert({"Left": [{"name": "new", "n": 2}]}))
        while slow.at != "lock":
            slow.advance()
        graph.insert({"Left": [{"name": "new", "n": 1}]})
        slow.run_free()
    assert isinstance(slow.error, KeyConflict)
    head = graph._manifest.head("main")
    abort = graph._manifest.outcome(head.incarnation, head.epoch)
    assert abort.kind == "abort"
    assert abort.commit is None
    assert graph.commits(limit=1)[0].kind == "write", "an abort that changed nothing is no commit"
    assert not wrong_epochs(graph)
    assert not objects_left(path)
