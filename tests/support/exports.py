"""A graph with every kind of value, and what its export holds."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

import omnigraph as og
from omnigraph.pipeline.export.stream import Format


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


FORMATS: tuple[Format, ...] = ("jsonl", "parquet", "csv", "lance")


def worn(graph: og.Graph) -> None:
    """A graph with many fragments, some of them with rows that are gone or replaced."""
    filled(graph)
    for i in range(6):
        graph.insert({"Person": [{"name": f"p{i}{j}", "age": j, "v": [i, j / 3]} for j in range(4)]})
    graph.delete({"Person": ["p01", "p30", "p31", "p32", "p33"]})
    graph.update("Person", {"photo": b"late"}, ids=["p10", "p52"])


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: str(row["id"]))
