"""Loads of DataFrames: their files are inputs, and a frame without rows names its type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import RecordTooLong, UsageError

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


def test_a_line_above_the_limit_is_refused_as_in_this_process(tmp_path: Path, spark: Any) -> None:
    og.init(tmp_path / "g", SCHEMA).close()
    graph = og.open(tmp_path / "g", spark=spark)
    lines = tmp_path / "in.jsonl"
    lines.write_text('{"name":"Ada"}\n{"name":"' + "x" * 100 + '"}\n')
    table = tmp_path / "in.csv"
    table.write_text('name,age\n"A\nda",1\n' + "x" * 100 + ",2\n")
    for path, line in ((lines, 2), (table, 4)):
        for engine in ("spark", "local"):
            with pytest.raises(RecordTooLong) as refused:
                graph.load(nodes={"Person": path}, mode="append", engine=engine, max_line_bytes=100)
            assert refused.value.fields == {"path": str(path), "line": line, "limit_bytes": 100}
