"""Pipeline files on Spark: SQL over the sources fills types, beside tables, in one commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import PipelineFileError
from omnigraph.pipeline.file.run import run_pipeline

SCHEMA = """
node Person { name: String @key  age: I32? }
node Company { name: String @key  staff: I64 }
edge WorksAt: Person -> Company
"""
FILE = """\
graph: graph
schema: s.pg
mode: merge
sources:
  people: {path: "people*.csv", options: {delimiter: ";"}}
nodes:
  Person: {source: people, skip: company}
  Company: {sql: "select company as firm, count(*) as staff from people group by company", map: {firm: name}}
edges:
  WorksAt: {sql: "select name as id, name as who, company as place from people", from: who, to: place}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "s.pg").write_text(SCHEMA)
    (tmp_path / "people1.csv").write_text("name;age;company\nAda;36;Acme\nBob;;Brew\n")
    (tmp_path / "people2.csv").write_text("name;age;company\nEve;40;Acme\n")
    (tmp_path / "p.yaml").write_text(FILE)
    return tmp_path / "p.yaml"


def test_sql_over_sources_fills_types_and_a_second_run_changes_nothing(file: Path, spark: Any) -> None:
    spark.sql("select 1 as mine").createOrReplaceTempView("people")
    result = run_pipeline(file, spark=spark)
    assert result.load is not None
    assert result.load.inserted == {"node:Person": 3, "node:Company": 2, "edge:WorksAt": 3}
    graph = og.open(file.parent / "graph")
    companies = graph.snapshot().read("Company").to_pylist()
    assert sorted((c["name"], c["staff"]) for c in companies) == [("Acme", 2), ("Brew", 1)]
    assert [c.kind for c in graph.commits()] == ["load", "init"]
    again = run_pipeline(file, spark=spark)
    assert again.load is not None
    assert again.load.commit is None
    assert spark.table("people").columns == ["mine"], "views of the caller's own session are left alone"


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("select nothing from people", "the sql of Company can't run: "),
        ("selec 1", "the sql of Company can't run: "),
        ("select company as name from people", "it gives no column firm; it gives name."),
    ],
)
def test_sql_that_can_not_run_is_told_at_its_place(file: Path, spark: Any, sql: str, told: str) -> None:
    file.write_text(FILE.replace("select company as firm, count(*) as staff from people group by company", sql))
    with pytest.raises(PipelineFileError) as caught:
        run_pipeline(file, spark=spark)
    assert told in caught.value.message
    assert caught.value.fields["line"] == 8
    assert "at org.apache" not in caught.value.message
