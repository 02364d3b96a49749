"""What field ids mean: two lines of one table may give one id to different properties."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.storage.lance.fields import property_ids

SCHEMA = "node Doc {{ name: String @key  tags: [String]?  {more} }}\nedge Cites: Doc -> Doc {{ weight: F64? }}"


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "graph", SCHEMA.format(more=""))
    graph.insert({"Doc": [{"name": "a", "tags": ["x"]}]})
    graph.create_branch("side")
    return graph


def meanings(graph: og.Graph, branch: str, type_name: str = "Doc") -> dict[int, str]:
    view = og.open(graph.uri)._committer.view(branch)
    t = view.type(type_name)
    names = {p.id: f"property {p.name}" for p in t.properties}
    return {field: names.get(meaning, meaning) for field, meaning in property_ids(view.open(t), t).items()}


def test_fields_inside_of_others_mean_their_property(graph: og.Graph) -> None:
    assert meanings(graph, "main") == {0: "id", 1: "property name", 2: "property tags", 3: "property tags"}
    assert meanings(graph, "main", "Cites") == {0: "id", 1: "src", 2: "dst", 3: "property weight"}


def test_two_lines_give_one_field_id_to_different_properties(graph: og.Graph) -> None:
    graph.apply_schema(SCHEMA.format(more="p: I64?"), branch="side")
    graph.apply_schema(SCHEMA.format(more="q: String?"))
    ours, theirs = meanings(graph, "main"), meanings(graph, "side")
    assert (ours[4], theirs[4]) == ("property q", "property p")
    assert {f for f in ours if ours[f] == theirs[f]} == {0, 1, 2, 3}


def test_a_renamed_property_keeps_its_meaning(graph: og.Graph) -> None:
    view = graph._committer.view("main")
    before = property_ids(view.open(view.type("Doc")), view.type("Doc"))
    graph.apply_schema(SCHEMA.format(more="").replace("tags:", "words:").replace("]?", ']? @rename_from("tags")'))
    view = graph._committer.view("main")
    assert property_ids(view.open(view.type("Doc")), view.type("Doc")) == before


def test_one_line_uses_a_field_id_again_that_no_file_needs_any_more(graph: og.Graph) -> None:
    """So two versions of one line are to be compared as well, for instance by a revert."""
    graph.apply_schema(SCHEMA.format(more="p: I64?"))
    with_p = meanings(graph, "main")
    graph.apply_schema(SCHEMA.format(more="q: I64?"))
    assert (with_p[4], meanings(graph, "main")[4]) == ("property p", "property q")


def test_the_mark_of_a_vector_stands_for_itself(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "graph", "node Post { name: String @key  text: String?  v: Vector(4)? @embed(text) }")
    vector = graph.schema().node["Post"].properties[-1]
    assert f"__embedded_{vector.id}" in meanings(graph, "main", "Post").values()
