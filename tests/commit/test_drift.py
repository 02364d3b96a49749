"""A table that was changed without the door is refused for writing, by name; everything else goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import omnigraph
from omnigraph.errors import UncoveredDrift
from tests.commit import plant
from tests.contention.audit import objects_left, wrong_epochs


def table_of(graph: Any, type_name: str, branch: str = "main") -> tuple[str, int]:
    view = graph._committer.view(branch)
    pin = view.pins[view.type(type_name).id]
    return str(view.tables.location.join(pin.path)), pin.version


def raw_append(graph: Any, type_name: str, branch: str = "main") -> int:
    """What somebody with a Lance client and no manners does."""
    uri, _ = table_of(graph, type_name, branch)
    schema = lance.dataset(uri).schema
    lance.write_dataset(pa.table({"id": ["raw"], "name": ["raw"], "n": [1]}, schema=schema), uri, mode="append")
    return int(lance.dataset(uri).version)


@pytest.mark.parametrize(
    "write",
    [
        lambda g: g.upsert({"Left": [{"name": "new"}]}),
        lambda g: g.insert({"Left": [{"name": "new"}], "Right": [{"name": "new"}]}),
        lambda g: g.update("Left", {"n": 5}, ids=["old"]),
        lambda g: g.delete({"Left": ["old"]}),
    ],
    ids=["upsert", "insert", "update", "delete"],
)
def test_a_write_to_a_table_that_moved_on_its_own_is_refused_and_says_what_to_do(
    path: Path, graph: Any, write: Any
) -> None:
    _, pinned = table_of(graph, "Left")
    newest = raw_append(graph, "Left")
    before = graph.snapshot().commit
    with pytest.raises(UncoveredDrift) as refusal:
        write(omnigraph.open(path))
    error = refusal.value
    assert error.condition == "uncovered_drift"
    assert "repair" in error.remedy
    assert error.fields["table_key"] == "node:Left"
    assert error.fields["manifest_version"] == pinned
    assert error.fields["lance_head_version"] == newest
    assert graph.snapshot().commit == before
    assert lance.dataset(table_of(graph, "Left")[0]).version == newest, "only repair may touch it"
    assert not objects_left(path)


def test_other_tables_and_branches_stay_writable_and_readers_see_no_drift(path: Path, graph: Any) -> None:
    graph.create_branch("side")
    raw_append(graph, "Left")
    graph.upsert({"Right": [{"name": "new"}]})
    graph.upsert({"Left": [{"name": "new"}]}, branch="side")
    assert "raw" not in graph.snapshot().read("Left")["id"].to_pylist()
    assert set(graph.snapshot("side").read("Left")["id"].to_pylist()) == {"old", "older", "new"}
    assert not wrong_epochs(graph)


def test_drift_of_a_fork_concerns_its_branch_only(path: Path, graph: Any) -> None:
    graph.create_branch("side")
    graph.upsert({"Left": [{"name": "new"}]}, branch="side")
    raw_append(graph, "Left", "side")
    with pytest.raises(UncoveredDrift):
        graph.upsert({"Left": [{"name": "newer"}]}, branch="side")
    graph.upsert({"Left": [{"name": "newer"}]})


def test_drift_on_a_table_of_a_dead_writer_does_not_block_its_recovery(
    path: Path, graph: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_LEASE_S", "0.2")
    tables = [graph.schema().node[name].id for name in ("Left", "Right")]
    plant.lock(path, {"nonce": "planted", "owner": plant.ELSEWHERE, "tables": tables, "kind": "write"})
    newest = raw_append(graph, "Left")
    graph.upsert({"Right": [{"name": "new"}]})
    assert lance.dataset(table_of(graph, "Left")[0]).version == newest
    with pytest.raises(UncoveredDrift):
        graph.upsert({"Left": [{"name": "new"}]})
    assert not wrong_epochs(graph)


def test_drift_that_comes_between_check_and_effect_is_found_and_nothing_is_lost(path: Path, graph: Any) -> None:
    came = iter([True])

    def observe(phase: str) -> None:
        if phase == "effect" and next(came, False):
            raw_append(graph, "Left")

    with pytest.raises(UncoveredDrift):
        omnigraph.open(path, observer=observe).upsert({"Left": [{"name": "new"}]})
    assert set(graph.snapshot().read("Left")["id"].to_pylist()) == {"old", "older"}
    graph.upsert({"Right": [{"name": "new"}]})
    assert not objects_left(path)
    assert not wrong_epochs(graph)
    uri, pinned = table_of(graph, "Left")
    rows = lance.dataset(uri).to_table(columns=["id"])["id"].to_pylist()
    assert "raw" in rows, "what a stranger wrote is repair's to judge, nobody else's"
    assert lance.dataset(uri, version=pinned).count_rows() == 2
