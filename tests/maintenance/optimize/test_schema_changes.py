"""A schema change that lands while optimize is at work: neither undoes the other, and the table stays whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pytest

import omnigraph as og
from tests.maintenance.optimize.tables import opened

BEFORE = """
node Person { name: String @key  age: I32? @index  bio: String? @index }
edge Knows: Person -> Person { since: I32? }
"""
KNOWS = "edge Knows: Person -> Person { since: I32? }\n"
DROPPED = "node Person { name: String @key  age: I32? @index }\n" + KNOWS
REWRITING, BUILDING = "rewriting fragments", "building indices"
CHANGES = {
    "dropped": (DROPPED, {}),
    "dropped for good": (DROPPED, {"allow_data_loss": True}),
    "added": (BEFORE.replace("bio:", "nick: String? @index  bio:"), {}),
    "renamed": (BEFORE.replace("bio: String? @index", 'story: String? @index @rename_from("bio")'), {}),
    "edge type dropped": (BEFORE.replace(KNOWS, ""), {"allow_data_loss": True}),
}


class At:
    """A watcher that lets something happen when a stage begins, once."""

    def __init__(self, stage: str, act: Any) -> None:
        self._stage, self._act = stage, act
        self.happened = False

    def engine(self, name: str, reason: str) -> None: ...

    def stage(self, name: str, *, tasks: int) -> None:
        if name == self._stage and not self.happened:
            self.happened = True
            self._act()

    def advance(self, **_: Any) -> None: ...


def worn(path: Path) -> og.Graph:
    graph = og.init(path, BEFORE)
    for k in range(4):
        rows = [{"name": f"p{2 * k + i}", "age": k, "bio": f"words {k}"} for i in range(2)]
        graph.insert({"Person": rows})
    graph.insert({"Knows": [{"from": "p0", "to": "p1"}]})
    graph.insert({"Knows": [{"from": "p2", "to": "p1"}]})
    return graph


def require_usable(path: Path) -> None:
    """Rows are found through the indices and changed, and there is nothing left to do or to mend."""
    graph = og.open(path, engine="local")
    for i in range(8):
        assert graph.nodes("Person", where={"id": f"p{i}"})["age"].to_pylist() == [i // 2]
    assert sorted(graph.nodes("Person", where={"age": 2})["id"].to_pylist()) == ["p4", "p5"]
    graph.upsert({"Person": [{"name": "p0", "age": 9}]})
    graph.delete({"Person": ["p7"]})
    assert graph.nodes("Person", where={"id": "p0"})["age"].to_pylist() == [9]
    assert graph.optimize().ok
    assert graph.optimize().commit is None
    assert graph.verify(full=True).findings == ()


@pytest.mark.parametrize(
    ("change", "stage"),
    [
        ("dropped", REWRITING),
        ("dropped", BUILDING),
        ("dropped for good", REWRITING),
        ("added", BUILDING),
        ("renamed", BUILDING),
        ("edge type dropped", REWRITING),
        *(
            pytest.param(change, stage, marks=pytest.mark.long)
            for change, stage in (
                ("dropped for good", BUILDING),
                ("added", REWRITING),
                ("renamed", REWRITING),
                ("edge type dropped", BUILDING),
            )
        ),
    ],
)
def test_a_schema_change_beside_optimize_leaves_a_whole_table(tmp_path: Path, change: str, stage: str) -> None:
    path = tmp_path / "graph"
    worn(path)
    text, options = CHANGES[change]
    between = At(stage, lambda: og.open(path).apply_schema(text, **options))
    result = og.open(path, engine="local", watcher=between).optimize()
    assert between.happened
    assert [t.error for t in result.tables if t.error] == []
    require_usable(path)


def test_a_property_dropped_between_plan_and_apply_makes_the_plan_stale(tmp_path: Path) -> None:
    graph = worn(tmp_path / "graph")
    plan = graph.plan_optimize()
    graph.apply_schema(DROPPED)
    with pytest.raises(og.errors.StaleView, match="the schema has changed"):
        graph.optimize(plan=plan)
    require_usable(tmp_path / "graph")


def test_an_index_over_a_property_that_is_gone_is_dropped(tmp_path: Path) -> None:
    """Lance takes it at any time, and refuses every filter of the table from then on."""
    path = tmp_path / "graph"
    graph = worn(path)
    before = opened(graph, "Person")
    every = [f.fragment_id for f in before.get_fragments()]
    late = before.create_index_uncommitted("bio", "BTREE", name="late", replace=True, fragment_ids=every)
    graph.apply_schema(DROPPED)
    now = lance.dataset(before.uri)
    operation = lance.LanceOperation.CreateIndex([late], [])
    lance.LanceDataset.commit(now, lance.Transaction(read_version=now.version, operation=operation))
    graph.repair(force=True, confirm=True)
    with pytest.raises(og.errors.StorageError):
        graph.nodes("Person", where={"id": "p1"})
    plan = graph.plan_optimize().tables[0]
    told = [(i.action, i.reason) for i in plan.indexes if i.name == "late"]
    assert told == [("drop", "the property that it is over was removed")]
    assert graph.optimize().table("node:Person").committed
    require_usable(path)
