"""Merges of branches whose schemas differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from tests.branch.merge.support import conflicts_of, require_clean
from tests.support.graphs import Templates

BASE = """node Person { name: String @key  age: I64? }
edge Knows: Person -> Person { w: I64? }"""
WITH_NICK = BASE.replace("age: I64?", "age: I64?  nick: String?")
WITH_CITY = BASE.replace("age: I64?", 'age: I64?  city: String? @default("Bern")')
WITH_TYPE = BASE + "\nnode Place { title: String @key  size: I64? }\nedge In: Person -> Place"
RENAMED = BASE.replace("age: I64?", 'years: I64? @rename_from("age")')
WITHOUT_AGE = "node Person { name: String @key }\nedge Knows: Person -> Person { w: I64? }"
WITHOUT_EDGE = "node Person { name: String @key  age: I64? }"


def _build(path: Path) -> og.Graph:
    graph = og.init(path, BASE)
    graph.insert({"Person": [{"name": n, "age": i} for i, n in enumerate(("Ada", "Bob", "Cy"))]})
    graph.insert({"Knows": [{"from": "Ada", "to": "Bob", "w": 1}]})
    graph.create_branch("x")
    return graph


@pytest.fixture
def graph(graph_templates: Templates, tmp_path: Path) -> og.Graph:
    return graph_templates.open(_build, tmp_path / "graph")


def rows(graph: og.Graph, type_name: str = "Person", branch: str = "main") -> dict[str, dict[str, Any]]:
    found = graph.scan(type_name, branch=branch).read_all().to_pylist()
    return {r.pop("id"): r for r in found}


def test_a_property_added_on_the_branch_comes_with_its_values(graph: og.Graph) -> None:
    graph.apply_schema(WITH_NICK, branch="x")
    graph.update("Person", {"nick": "a"}, ids=["Ada"], branch="x")
    graph.update("Person", {"age": 9}, ids=["Bob"])
    result = graph.merge("x")
    assert result.schema_steps == ("add property Person.nick: String?",)
    assert rows(graph)["Ada"] == {"name": "Ada", "age": 0, "nick": "a"}
    assert rows(graph)["Bob"] == {"name": "Bob", "age": 9, "nick": None}
    graph.update("Person", {"nick": "b"}, ids=["Bob"])
    assert graph.merge("main", into="x").outcome == "fast_forward"
    assert rows(graph, branch="x") == rows(graph)
    require_clean(graph)


def test_a_fast_forward_takes_the_schema(graph: og.Graph) -> None:
    graph.apply_schema(WITH_CITY, branch="x")
    graph.insert({"Person": [{"name": "Dee"}]}, branch="x")
    assert graph.merge("x").outcome == "fast_forward"
    assert rows(graph) == rows(graph, branch="x")
    assert rows(graph)["Ada"]["city"] == "Bern"
    assert graph.schema() == graph.schema("x")
    require_clean(graph)


def test_properties_added_on_both_sides_are_both_there(graph: og.Graph) -> None:
    graph.apply_schema(WITH_NICK, branch="x")
    graph.update("Person", {"nick": "a"}, ids=["Ada"], branch="x")
    graph.apply_schema(WITH_CITY)
    graph.update("Person", {"city": "Rome"}, ids=["Bob"])
    graph.merge("x")
    assert rows(graph)["Ada"] == {"name": "Ada", "age": 0, "city": "Bern", "nick": "a"}
    assert rows(graph)["Bob"] == {"name": "Bob", "age": 1, "city": "Rome", "nick": None}
    require_clean(graph)


def test_the_same_property_added_on_both_sides_is_one_property(graph: og.Graph) -> None:
    for branch in ("x", "main"):
        graph.apply_schema(WITH_NICK, branch=branch)
    graph.update("Person", {"nick": "a"}, ids=["Ada"], branch="x")
    graph.update("Person", {"nick": "b"}, ids=["Bob"])
    graph.merge("x")
    assert {i: r["nick"] for i, r in rows(graph).items()} == {"Ada": "a", "Bob": "b", "Cy": None}
    graph.update("Person", {"nick": "c"}, ids=["Cy"], branch="x")
    graph.merge("x")
    assert {i: r["nick"] for i, r in rows(graph).items()} == {"Ada": "a", "Bob": "b", "Cy": "c"}
    graph.merge("main", into="x")
    assert rows(graph, branch="x") == rows(graph)
    require_clean(graph)


def test_the_same_property_added_with_two_types_is_a_conflict(graph: og.Graph) -> None:
    graph.apply_schema(WITH_NICK, branch="x")
    graph.apply_schema(WITH_NICK.replace("nick: String?", "nick: I64?"))
    (conflict,) = conflicts_of(graph, "x")
    assert conflict.kind == "schema_divergent_property"
    assert "nick" in conflict.ours
    assert "I64" in conflict.ours
    assert "String" in conflict.theirs


def test_a_renamed_property_follows_its_identity(graph: og.Graph) -> None:
    graph.apply_schema(RENAMED, branch="x")
    graph.update("Person", {"years": 50}, ids=["Ada"], branch="x")
    graph.update("Person", {"age": 60}, ids=["Bob"])
    graph.merge("x")
    assert {i: r["years"] for i, r in rows(graph).items()} == {"Ada": 50, "Bob": 60, "Cy": 2}
    require_clean(graph)


def test_a_rename_on_the_target_holds_for_rows_of_the_branch(graph: og.Graph) -> None:
    graph.update("Person", {"age": 50}, ids=["Ada"], branch="x")
    graph.insert({"Person": [{"name": "Eve", "age": 5}]}, branch="x")
    graph.apply_schema(RENAMED)
    graph.merge("x")
    assert {i: r["years"] for i, r in rows(graph).items()} == {"Ada": 50, "Bob": 1, "Cy": 2, "Eve": 5}


def test_types_added_on_the_branch_come_with_their_rows(graph: og.Graph) -> None:
    graph.apply_schema(WITH_TYPE, branch="x")
    graph.insert({"Place": [{"title": f"t{i}", "size": i} for i in range(1_100)]}, branch="x")
    graph.insert({"In": [{"from": "Ada", "to": "t7"}]}, branch="x")
    graph.update("Person", {"age": 9}, ids=["Bob"])
    result = graph.merge("x", delete_branch=True)
    by_key = {t.table_key: t for t in result.tables}
    assert (by_key["node:Place"].inserted, by_key["node:Place"].adopted_fragments) == (1_100, 1)
    graph.cleanup(keep=1, older_than="0s", confirm=True)
    fresh = og.open(graph.uri)
    assert len(rows(fresh, "Place")) == 1_100
    assert [(r["src"], r["dst"]) for r in rows(fresh, "In").values()] == [("Ada", "t7")]
    fresh.insert({"Place": [{"title": "new"}]})
    fresh.optimize()
    require_clean(fresh)


def test_a_type_added_on_the_branch_and_changed_there_before_the_merge(graph: og.Graph) -> None:
    graph.apply_schema(WITH_TYPE, branch="x")
    graph.insert({"Place": [{"title": "t"}]}, branch="x")
    graph.apply_schema(WITH_TYPE.replace("size: I64?", "size: I64?  kind: String?"), branch="x")
    graph.update("Place", {"kind": "k"}, ids=["t"], branch="x")
    graph.create_branch("y")
    for target in ("main", "y"):
        graph.merge("x", into=target)
        assert rows(graph, "Place", target) == {"t": {"title": "t", "size": None, "kind": "k"}}
    assert graph.merge("y").outcome == "merged"
    require_clean(graph)


def test_a_property_dropped_from_a_type_added_on_the_branch_is_not_there_after_the_merge(graph: og.Graph) -> None:
    graph.apply_schema(WITH_TYPE, branch="x")
    without_size = WITH_TYPE.replace("  size: I64?", "")
    graph.apply_schema(without_size, branch="x", allow_data_loss=True)
    graph.update("Person", {"age": 9}, ids=["Bob"])
    graph.merge("x")
    require_clean(graph)
    graph.apply_schema(without_size.replace("title: String @key", "title: String @key  size: String?"))
    graph.insert({"Place": [{"title": "Rome", "size": "large"}]})
    assert rows(graph, "Place") == {"Rome": {"title": "Rome", "size": "large"}}
    require_clean(graph)


def test_the_same_type_added_on_both_sides_is_one_type(graph: og.Graph) -> None:
    for branch, title in (("x", "a"), ("main", "b")):
        graph.apply_schema(WITH_TYPE, branch=branch)
        graph.insert({"Place": [{"title": title, "size": 1}]}, branch=branch)
        graph.insert({"In": [{"from": "Ada", "to": title}]}, branch=branch)
    graph.merge("x")
    assert set(rows(graph, "Place")) == {"a", "b"}
    assert {r["dst"] for r in rows(graph, "In").values()} == {"a", "b"}
    graph.update("Place", {"size": 2}, ids=["a"], branch="x")
    graph.merge("x")
    assert rows(graph, "Place")["a"]["size"] == 2
    graph.merge("main", into="x")
    assert rows(graph, "Place", "x") == rows(graph, "Place")
    require_clean(graph)


def test_a_dropped_type_is_dropped_unless_the_other_side_wrote_to_it(graph: og.Graph) -> None:
    graph.create_branch("y")
    graph.apply_schema(WITHOUT_EDGE, branch="x")
    graph.insert({"Knows": [{"from": "Ada", "to": "Cy"}]}, branch="y")
    (conflict,) = conflicts_of(graph, "x", into="y")
    assert (conflict.kind, conflict.table_key) == ("schema_dropped_type", "edge:Knows")
    (conflict,) = conflicts_of(graph, "y", into="x")
    assert conflict.kind == "schema_dropped_type"
    graph.merge("x")
    assert [t.name for t in graph.schema().types()] == ["Person"]
    require_clean(graph)


def test_a_dropped_property_is_a_conflict_if_the_other_side_changed_its_values(graph: og.Graph) -> None:
    graph.create_branch("y")
    graph.apply_schema(WITHOUT_AGE, branch="x")
    graph.update("Person", {"age": 9}, ids=["Bob"], branch="y")
    for source, target in (("x", "y"), ("y", "x")):
        (conflict,) = conflicts_of(graph, source, into=target)
        assert (conflict.kind, conflict.properties) == ("schema_dropped_property", ("age",))
    graph.insert({"Person": [{"name": "New"}]})
    graph.merge("x")
    assert rows(graph)["New"] == {"name": "New"}


def test_a_required_property_that_rows_of_the_target_do_not_have_is_a_conflict(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", "node A { k: String @key }")
    graph.create_branch("x")
    graph.apply_schema("node A { k: String @key  must: I64 }", branch="x")
    graph.insert({"A": [{"k": "theirs", "must": 1}]}, branch="x")
    graph.insert({"A": [{"k": "ours"}]})
    (conflict,) = conflicts_of(graph, "x")
    assert conflict.kind == "schema_required_property"
    graph.delete({"A": ["ours"]})
    graph.merge("x")
    assert rows(graph, "A") == {"theirs": {"k": "theirs", "must": 1}}


def test_enums_extended_on_both_sides_hold_the_values_of_both(tmp_path: Path) -> None:
    text = "node A { k: String @key  e: enum(a, b)? }"
    graph = og.init(tmp_path / "g", text)
    graph.create_branch("x")
    graph.apply_schema(text.replace("a, b", "a, b, c"), branch="x")
    graph.insert({"A": [{"k": "1", "e": "c"}]}, branch="x")
    graph.apply_schema(text.replace("a, b", "a, b, d"))
    graph.insert({"A": [{"k": "2", "e": "d"}]})
    graph.merge("x")
    assert {i: r["e"] for i, r in rows(graph, "A").items()} == {"1": "c", "2": "d"}
    assert set(graph.schema().node["A"].by_name["e"].type.values) == {"a", "b", "c", "d"}


def test_two_branches_that_use_one_field_id_for_different_properties(graph: og.Graph) -> None:
    """Adoption across that would read the values of one property as those of the other."""
    graph.apply_schema(WITH_NICK, branch="x")
    graph.apply_schema(BASE.replace("age: I64?", "age: I64?  town: String?"))
    graph.insert({"Person": [{"name": f"x{i}", "nick": "n"} for i in range(1_050)]}, branch="x")
    graph.insert({"Person": [{"name": f"m{i}", "town": "t"} for i in range(1_050)]})
    graph.merge("x")
    found = rows(graph)
    assert found["x3"] == {"name": "x3", "age": None, "nick": "n", "town": None}
    assert found["m3"] == {"name": "m3", "age": None, "nick": None, "town": "t"}
    require_clean(graph)
