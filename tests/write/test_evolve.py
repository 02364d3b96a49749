"""Table work for arbitrary steps between two schemas with ids, on real tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.commit.operation import Prepared, View
from omnigraph.language.schema import Annotation, Property, PropertyType, Schema
from omnigraph.language.schema.merge.schemas import merge_schemas
from omnigraph.language.schema.model import NodeType
from omnigraph.language.schema.plan.steps import AddProperty, AddType, DropProperty, DropType, RenameProperty, Step
from omnigraph.write.evolve import new_table, reshape_table, steps_by_type

I32 = PropertyType("I32")


@dataclass(frozen=True)
class Move:
    """The operation: to the given schema, by the given steps."""

    target: Schema
    steps: tuple[Step, ...]
    kind: str = "schema_apply"
    quick: bool = False

    def scope(self, view: View) -> frozenset[str]:
        return frozenset(view.pins)

    def prepare(self, view: View) -> Prepared:
        before, after = view.schema.by_id, self.target.by_id
        tables = {s.type_id: new_table(view, after[s.type_id]) for s in self.steps if isinstance(s, AddType)}
        for type_id, steps in steps_by_type(self.steps).items():
            tables[type_id] = reshape_table(view, before[type_id], after[type_id], steps)
        dropped = frozenset(s.type_id for s in self.steps if isinstance(s, DropType))
        return Prepared(view=view, tables=tables, dropped=dropped, schema=("s0123456789abcdef", self.target))


def rows_of(graph: og.Graph, type_name: str) -> list[dict[str, Any]]:
    return graph.snapshot().read(type_name).to_pylist()


def test_names_may_be_exchanged_and_taken_over_from_dropped_properties(tmp_path: Path) -> None:
    graph = og.init(str(tmp_path / "g"), "node P { k: String @key  a: I32?  b: I32?  c: I32?  d: I32? }")
    graph.insert({"P": [{"k": "x", "a": 1, "b": 2, "c": 3, "d": 4}]})
    schema = graph._committer.view("main").schema
    (node,) = schema.nodes
    a, b, c, d = (node.by_name[name] for name in "abcd")
    added = (Property("c", I32, True, id="p0c"), Property("d", I32, False, (Annotation("default", 9),), id="p0d"))
    moved = replace(node, properties=(node.by_name["k"], replace(a, name="b"), replace(b, name="a"), *added))
    other = NodeType("Q", (Property("x", I32, True, id="p0x"),), id="n0q")
    where = ("node", "P", node.id)
    steps = (
        RenameProperty(*where, "b", a.id, "a"),
        RenameProperty(*where, "a", b.id, "b"),
        DropProperty(*where, "c", c.id, "soft"),
        DropProperty(*where, "d", d.id, "soft"),
        AddProperty(*where, "c", "p0c", "I32", True),
        AddProperty(*where, "d", "p0d", "I32", False, 9),
        AddType("node", "Q", "n0q"),
    )
    graph._run(Move(replace(schema, nodes=(moved, other)), steps), branch="main")

    rows = rows_of(graph, "P")
    assert rows == [{"id": "x", "k": "x", "b": 1, "a": 2, "c": None, "d": 9}]
    graph.insert({"P": [{"k": "y", "a": 5, "d": 6}], "Q": [{"x": 7}]})
    values = {r["k"]: (r["a"], r["c"], r["d"]) for r in rows_of(graph, "P")}
    assert values == {"x": (2, None, 9), "y": (5, None, 6)}
    assert [r["x"] for r in rows_of(graph, "Q")] == [7]


def test_a_branch_takes_over_the_merged_schema_of_another_branch(tmp_path: Path) -> None:
    text = "node P { k: String @key  a: I32?  b: I32? } node Q { x: I32? }"
    graph = og.init(str(tmp_path / "g"), text)
    graph.insert({"P": [{"k": "x", "a": 1, "b": 2}]})
    graph.create_branch("side")
    base = graph._committer.view("main").schema
    graph.apply_schema("node P { k: String @key  z: I32? @rename_from(a)  b: I32? } node Q { x: I32? }")
    graph.apply_schema("node P { k: String @key  a: I32? } node Q { x: I32? }", branch="side")
    graph.apply_schema('node P { k: String @key  a: I32?  b: String @default("new") } node R {}', branch="side")
    ours, theirs = (graph._committer.view(branch).schema for branch in ("main", "side"))
    merged = merge_schemas(base, ours, theirs)
    assert merged.conflicts == ()
    assert [s.kind for s in merged.steps] == ["drop_property", "add_property", "add_type", "drop_type"]
    graph._run(Move(merged.result, merged.steps), branch="main")

    assert rows_of(graph, "P") == [{"id": "x", "k": "x", "z": 1, "b": "new"}]
    assert graph._committer.view("main").schema == merged.result
    assert {t.name for t in merged.result.nodes} == {"P", "R"}
    assert rows_of(graph, "R") == []
    # The text of the result says what the graph has, so that it can be changed and applied again.
    assert not graph.plan_schema(merged.result.source).changed
