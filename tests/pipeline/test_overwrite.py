"""Overwrite: a type that the input names has exactly the rows of the input that are accepted, in each way of a load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import ConstraintViolation
from omnigraph.pipeline.load import planner

SCHEMA = """
node Person { name: String @key  age: I32?  @range(age, 0..150) }
node Note { text: String }
edge Knows: Person -> Person { since: I32? }
"""
ASIDE: dict[str, Any] = {"mode": "overwrite", "on_error": "quarantine", "engine": "local"}


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> og.Graph:
    monkeypatch.chdir(tmp_path)
    made = og.init(tmp_path / "graph", SCHEMA)
    made.insert({"Person": [{"name": "Ada"}, {"name": "Bob"}], "Note": [{"text": "x"}]})
    return made


@pytest.fixture(params=["memory", "bulk"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "bulk":
        monkeypatch.setattr(planner, "IN_MEMORY_BYTES", -1)
    return str(request.param)


def counts(graph: og.Graph) -> dict[str, int]:
    state = graph.snapshot()
    return {name: state.count(name) for name in ("Person", "Note", "Knows")}


@pytest.mark.parametrize(
    "record",
    [
        '{"type": "Person", "data": {"name": "Eve", "age": 300}}',
        '{"type": "Person", "data": {"name": "Eve", "age": "old"}}',
        '{"type": "Person", "data": {"name": "Eve", "wrong": 1}}',
        '{"type": "Person", "data": {"age": 3}}',
        '{"type": "Person", "more": 1, "data": {"name": "Eve"}}',
        '{"type": "Person", "data": {"name": "Eve"}}\n{"type": "Person", "data": 3}',
    ],
)
def test_a_rejected_record_touches_its_type_whatever_rule_rejects_it(graph: og.Graph, way: str, record: str) -> None:
    Path("in.jsonl").write_text(record + "\n")
    done = graph.load("in.jsonl", **ASIDE)
    accepted = record.count("\n")
    assert done.rejected == 1
    assert done.deleted == {"node:Person": 2}
    assert done.emptied == ({} if accepted else {"node:Person": 2})
    assert done.to_json()["emptied"] == dict(done.emptied)
    assert done.commit is not None
    assert counts(graph) == {"Person": accepted, "Note": 1, "Knows": 0}


@pytest.mark.parametrize("record", ["no record", '{"type": "Persn", "data": {}}', '{"data": {"name": "Eve"}}'])
def test_a_line_that_names_no_type_touches_none(graph: og.Graph, way: str, record: str) -> None:
    Path("in.jsonl").write_text(record + "\n")
    done = graph.load("in.jsonl", **ASIDE)
    assert (done.rejected, done.commit, done.deleted, done.emptied) == (1, None, {}, {})
    assert counts(graph) == {"Person": 2, "Note": 1, "Knows": 0}


@pytest.mark.parametrize(
    ("text", "on_error"),
    [
        ("name,age\nEve,300\n", "quarantine"),
        ("name,age\nEve,old\n", "quarantine"),
        ("name,age\n", "quarantine"),
        ("name,age\n", "fail"),
    ],
)
def test_a_table_touches_its_type_even_without_a_row(graph: og.Graph, text: str, on_error: str) -> None:
    Path("in.csv").write_text(text)
    done = graph.load(nodes={"Person": "in.csv"}, **{**ASIDE, "on_error": on_error})
    assert (done.deleted, done.emptied) == ({"node:Person": 2}, {"node:Person": 2})
    assert counts(graph) == {"Person": 0, "Note": 1, "Knows": 0}
    again = graph.load(nodes={"Person": "in.csv"}, **{**ASIDE, "on_error": on_error})
    assert (again.commit, again.emptied) == (None, {})


@pytest.mark.parametrize("form", ["arrow", "parquet", "jsonl", "table"])
def test_an_empty_table_of_any_format_empties_its_type(graph: og.Graph, form: str) -> None:
    import pyarrow.parquet as pq

    empty = pa.schema([("name", pa.string()), ("age", pa.int32())]).empty_table()
    given: Any = f"in.{form}"
    if form == "arrow":
        pa.ipc.new_file("in.arrow", empty.schema).close()
    elif form == "parquet":
        pq.write_table(empty, "in.parquet")
    elif form == "jsonl":
        Path("in.jsonl").write_text("")
    else:
        given = empty
    done = graph.load(nodes={"Person": given}, mode="overwrite", engine="local")
    assert (done.deleted, done.emptied) == ({"node:Person": 2}, {"node:Person": 2})
    assert counts(graph) == {"Person": 0, "Note": 1, "Knows": 0}


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_an_empty_table_changes_nothing_in_other_modes(graph: og.Graph, mode: Any) -> None:
    Path("in.csv").write_text("name,age\n")
    done = graph.load(nodes={"Person": "in.csv"}, mode=mode, engine="local")
    assert (done.commit, done.emptied) == (None, {})


def test_nodes_that_edges_still_need_are_not_emptied(graph: og.Graph, way: str) -> None:
    graph.insert({"Knows": [{"src": "Ada", "dst": "Bob"}]})
    Path("in.jsonl").write_text('{"type": "Person", "data": {"name": "Eve", "age": "old"}}\n')
    with pytest.raises(ConstraintViolation, match="Ada"):
        graph.load("in.jsonl", **ASIDE)
    assert counts(graph) == {"Person": 2, "Note": 1, "Knows": 1}
    Path("in.jsonl").write_text(
        '{"type": "Person", "data": {"name": "Eve", "age": "old"}}\n{"edge": "Knows", "from": "Ada", "to": 3}\n'
    )
    assert graph.load("in.jsonl", **ASIDE).emptied == {"node:Person": 2, "edge:Knows": 1}
    assert counts(graph) == {"Person": 0, "Note": 1, "Knows": 0}


def test_edges_that_a_node_must_have_are_not_emptied(tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    graph = og.init(tmp_path / "g", "node A { name: String @key }\nedge E: A -> A @card(1..) { n: I32? }")
    graph.insert({"A": [{"name": "a"}], "E": [{"src": "a", "dst": "a"}]})
    Path("in.jsonl").write_text('{"edge": "E", "from": "a", "to": "a", "data": {"n": "x"}}\n')
    with pytest.raises(ConstraintViolation, match="E"):
        graph.load("in.jsonl", **ASIDE)
    assert graph.snapshot().count("E") == 1
