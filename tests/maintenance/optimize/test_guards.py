"""What optimize has prepared meets a table that somebody else has changed meanwhile: each guard of its short part.

Others come at one moment, between the preparation and the commit. What they were acknowledged is there afterwards, and
every index answers what a scan answers. Deferred rewrites and saved plans: `test_guards_deferred.py`.
"""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

import omnigraph as og
from omnigraph.index import segments
from omnigraph.maintenance.optimize import indices
from omnigraph.storage.lance.indices import built_indices
from omnigraph.storage.lance.rewrites import rewrite
from tests.maintenance import strangers
from tests.maintenance.optimize.answers import disagreements
from tests.maintenance.optimize.conftest import SCHEMA, people
from tests.maintenance.optimize.tables import coverage, keys, opened
from tests.support.exchanged_vectors import exchange_vectors as exchange_vectors
from tests.support.guards import AS_IT_IS, is_exchanged, meanwhile, posts


def require_right(graph: og.Graph, name: str = "Person") -> None:
    assert disagreements(opened(graph, name)) == []
    assert graph.verify(full=True).ok


# ---- rewrites --------------------------------------------------------------------------------------------------------


def test_vectors_exchanged_in_a_fragment_that_was_being_rewritten_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = posts(tmp_path / "g", 3, 10)
    meanwhile(monkeypatch, lambda: exchange_vectors(og.open(graph.uri)))
    result = graph.optimize()
    found = {row["name"]: row["vec"] for row in graph.nodes("Post").to_pylist()}
    assert [name for name, vector in found.items() if is_exchanged(vector)] == [f"p{i}" for i in range(10)]
    assert result.rounds == 2
    require_right(graph, "Post")


def test_rows_of_a_fragment_that_vanished_while_it_was_being_rewritten_stay_deleted(
    worn: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile(monkeypatch, lambda: og.open(worn.uri).delete({"Person": ["p2", "p3"]}))
    row = worn.optimize().table("node:Person")
    assert (row.committed, row.rows_replayed) == (True, 2)
    assert keys(worn) == ["p0", "p1", "p4", "p5", "p6", "p7"]
    require_right(worn)


def test_rows_that_came_back_while_their_fragment_was_being_rewritten_are_not_lost(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody restores the table to a version from before a delete, and repair publishes it."""
    people(graph, 0, 10)
    people(graph, 10, 20)
    whole = opened(graph, "Person").version
    graph.delete({"Person": ["p3", "p4"]})

    def restore() -> None:
        lance.dataset(opened(graph, "Person").uri, version=whole).restore()
        graph.repair(force=True, confirm=True)

    meanwhile(monkeypatch, restore)
    assert graph.optimize().ok
    assert keys(graph) == sorted(f"p{i}" for i in range(20))
    require_right(graph)


def test_a_rewrite_whose_number_somebody_has_taken_meanwhile_is_done_again(
    worn: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrite, "ID_GAP", 1)

    def insert() -> None:
        for number in range(20, 23):
            people(og.open(worn.uri), number, number + 1)

    meanwhile(monkeypatch, insert)
    result = worn.optimize()
    assert (result.ok, result.rounds) == (True, 2)
    assert keys(worn) == sorted([*(f"p{i}" for i in range(8)), "p20", "p21", "p22"])
    require_right(worn)


# ---- segments --------------------------------------------------------------------------------------------------------


def test_an_index_over_vectors_that_were_exchanged_meanwhile_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indices, "VECTORS_MIN", 8)
    graph = posts(tmp_path / "g", 1, 40)
    meanwhile(monkeypatch, lambda: exchange_vectors(og.open(graph.uri)))
    result = graph.optimize()
    assert result.rounds == 2
    assert any(i.kind.startswith("IVF") for i in built_indices(opened(graph, "Post")))
    require_right(graph, "Post")


def test_two_that_extend_the_same_index_do_not_cover_its_rows_twice(
    worn: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    worn.optimize(**AS_IT_IS)
    people(worn, 8, 10)
    other = og.open(worn.uri, engine="local")
    meanwhile(monkeypatch, lambda: other.optimize(**AS_IT_IS))
    result = worn.optimize(**AS_IT_IS)
    assert not result.table("node:Person").committed, "the other one has done it"
    for index in built_indices(opened(worn, "Person")):
        assert sum(len(s.fragments) for s in index.segments) == len(index.covered)
    require_right(worn)


def test_a_vector_segment_whose_rewrite_leaves_rows_out_is_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a search for neighbours finds dead ones, and returns fewer than it was asked for."""
    monkeypatch.setattr(indices, "VECTORS_MIN", 8)
    monkeypatch.setattr(segments, "ABSORB_ROWS", 8)
    graph = posts(tmp_path / "g", 1, 100)
    graph.optimize()
    graph.delete({"Post": [f"p{i}" for i in range(0, 100, 2)]})
    assert graph.optimize(target_rows_per_fragment=20).table("node:Post").fragments_removed == 1
    require_right(graph, "Post")


def test_a_segment_of_which_a_fragment_is_gone_is_built_again_because_its_rows_may_live_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "ABSORB_ROWS", 0)
    graph = og.init(tmp_path / "g", "node Doc { key: String @key  kind: enum(a, b) @index }")
    graph.insert({"Doc": [{"key": f"d{i}", "kind": "a"} for i in range(5)]})
    graph.insert({"Doc": [{"key": f"d{i}", "kind": "a"} for i in range(5, 35)]})
    graph.optimize(**AS_IT_IS)
    first = opened(graph, "Doc").get_fragments()[0].fragment_id
    graph.upsert({"Doc": [{"key": f"d{i}", "kind": "b"} for i in range(5)]})
    assert first not in {f.fragment_id for f in opened(graph, "Doc").get_fragments()}
    graph.optimize(**AS_IT_IS)
    require_right(graph, "Doc")
    assert opened(graph, "Doc").count_rows("kind = 'a'") == 30


# ---- what waits ------------------------------------------------------------------------------------------------------


def test_a_table_that_drifted_is_skipped_and_gets_its_index_once_it_is_repaired(graph: og.Graph) -> None:
    people(graph, 0, 20)
    strangers.opened(graph, "Person").delete("id = 'p3'")
    row = graph.optimize().table("node:Person")
    assert (row.skipped, row.committed) == ("DriftNeedsRepair", False)
    assert built_indices(opened(graph, "Person")) == []
    graph.repair(force=True, confirm=True)
    row = graph.optimize().table("node:Person")
    assert (row.skipped, row.committed, row.coverage_after) == (None, True, 1.0)
    assert ("age", "BTREE") in {(i.column, i.kind) for i in built_indices(opened(graph, "Person"))}
    require_right(graph)


def test_an_index_declared_on_rows_that_are_there_is_built_by_the_next_optimize(worn: og.Graph) -> None:
    worn.upsert({"Knows": [{"from": "p2", "to": "p3", "since": 7}]})
    worn.optimize()
    before = opened(worn, "Knows").version
    worn.apply_schema(SCHEMA.replace("since: I32?", "since: I32? @index"))
    assert opened(worn, "Knows").version == before, "a declaration touches no table"
    assert "since" not in {i.column for i in built_indices(opened(worn, "Knows"))}
    assert worn.optimize().table("edge:Knows").indexes_built == 1
    table = opened(worn, "Knows")
    assert ("since", "BTREE") in {(i.column, i.kind) for i in built_indices(table)}
    assert set(coverage(table).values()) == {1.0}
    require_right(worn, "Knows")
