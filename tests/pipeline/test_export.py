"""Export: stable bytes, and a graph that comes back the same."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path

import omnigraph as og
from tests.pipeline.conftest import SCHEMA


def exported(graph: og.Graph, **options: object) -> bytes:
    parts: list[bytes] = []
    graph.export(parts.append, **options)  # type: ignore[arg-type]
    return b"".join(parts)


def filled(graph: og.Graph) -> None:
    when = datetime(2026, 2, 3, 4, 5, 6, 789000, tzinfo=UTC)
    graph.insert(
        {
            "Person": [
                {"name": "b", "age": 0, "joined": when, "photo": b"\x00\xff", "v": [0.5, -1.0]},
                {"name": "a", "photo": b""},
                {"name": 'q"uote\n', "age": 150},
            ],
            "Note": [{"text": "n1", "tags": ["x", "y"]}, {"text": "n2", "tags": []}, {"text": "n3"}],
            "Knows": [{"from": "a", "to": "b", "since": "2020-01-01"}, {"from": "b", "to": "a"}],
        }
    )


def test_what_is_exported_loads_into_an_equal_graph(graph: og.Graph, tmp_path: Path) -> None:
    filled(graph)
    text = exported(graph)
    copy = og.init(tmp_path / "copy", SCHEMA)
    copy.load(io.BytesIO(text), mode="append")
    for name in ("Person", "Note", "Knows"):
        key = lambda row: row["id"]  # noqa: E731
        rows = [sorted(g.snapshot().read(name).to_pylist(), key=key) for g in (graph, copy)]
        assert rows[0] == rows[1]
    assert exported(copy) == text


def test_the_order_does_not_depend_on_how_rows_came(graph: og.Graph) -> None:
    filled(graph)
    first = exported(graph)
    graph.update("Person", {"age": 5}, ids=["a"])
    graph.update("Person", {"age": None}, ids=["a"])
    assert exported(graph) == first


def test_a_past_commit_and_chosen_types_can_be_exported(graph: og.Graph) -> None:
    filled(graph)
    commit = graph.snapshot().commit
    before = exported(graph)
    graph.delete({"Person": ["a"]})
    assert exported(graph, commit=commit) == before
    assert exported(graph, types=["Note"]).count(b"\n") == 3
