"""Loads of DataFrames: their files are inputs, and a frame without rows names its type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import UsageError

SCHEMA = "node Person { name: String @key  age: I32?  @range(age, 0..150) }"


def test_a_frame_without_accepted_rows_empties_its_type(tmp_path: Path, spark: Any) -> None:
    graph = og.init(tmp_path / "g", SCHEMA)
    for given in ([], [("Eve", 300)]):
        graph.upsert({"Person": [{"name": "Ada"}, {"name": "Bob"}]})
        frame = spark.createDataFrame(given, "name string, age int")
        aside = tmp_path / "aside.jsonl"
        done = graph.load(nodes={"Person": frame}, mode="overwrite", on_error="quarantine", quarantine=aside)
        assert (done.engine, done.rejected, done.emptied) == ("spark", len(given), {"node:Person": 2})
        assert graph.snapshot().count("Person") == 0


def test_the_files_of_a_frame_are_not_overwritten_by_its_rejects(tmp_path: Path, spark: Any) -> None:
    graph = og.init(tmp_path / "g", SCHEMA)
    path = tmp_path / "in.csv"
    path.write_text("name,age\nEve,300\n")
    frame = spark.read.csv(str(path), header=True, schema="name string, age int")
    with pytest.raises(UsageError, match="input"):
        graph.load(nodes={"Person": frame}, mode="merge", on_error="quarantine", quarantine=path)
    assert path.read_text() == "name,age\nEve,300\n"
