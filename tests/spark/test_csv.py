"""CSV on Spark: `source` and `sql` of a pipeline file give the rows that the csv module reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import omnigraph as og
from omnigraph.errors import RecordError
from omnigraph.pipeline.bulk.input import input_splits
from omnigraph.pipeline.file.run import run_pipeline
from tests.pipeline.csv_cases import (
    CASES,
    COLUMNS,
    PACKINGS,
    Case,
    cells_of,
    expected_cells,
    reference,
    schema_of,
    write,
)


def pipeline(folder: Path, cases: list[Case], packings: list[str]) -> Path:
    """A file that loads every case as a source, and all of them by one sql."""
    sources: dict[str, Any] = {}
    nodes: dict[str, Any] = {}
    selects: list[str] = []
    for i, (case, packing) in enumerate(zip(cases, packings, strict=True)):
        path = write(case, folder, packing)
        names = dict(zip(reference(case).header, COLUMNS, strict=False))
        sources[f"s{i}"] = {"path": str(path), "options": dict(case.options)}
        nodes[f"T{i}"] = {"source": f"s{i}", "map": names}
        cells = [f"`{name}` as {column}" for name, column in names.items()]
        cells += [f"cast(null as string) as {column}" for column in COLUMNS[len(names) :]]
        selects.append(f"select 's{i}' as origin, {', '.join(cells)} from s{i}")
    (folder / "orders").mkdir()
    (folder / "orders/1.csv").write_text('a,b\nAda,"say ""x"""\nBob,""\n')
    (folder / "orders/2.csv").write_text("b,a\nswapped,Eve\n,Max\n")
    (folder / "orders/3.csv").write_text("a\nSue\n")
    sources["orders"] = {"path": "orders"}
    selects.append("select 'orders' as origin, a, b, cast(null as string) as c from orders")
    nodes["Selected"] = {"sql": " union all ".join(selects)}
    (folder / "s.pg").write_text(schema_of([case.name for case in cases]))
    file = folder / "p.yaml"
    file.write_text(
        yaml.safe_dump({"graph": "g", "schema": "s.pg", "mode": "append", "sources": sources, "nodes": nodes})
    )
    return file


def load(spark: Any, folder: Path, cases: list[Case], packings: list[str]) -> None:
    run_pipeline(pipeline(folder, cases, packings), spark=spark)
    snapshot = og.open(folder / "g").snapshot()
    selected = snapshot.read("Selected").to_pylist()
    for i, case in enumerate(cases):
        assert cells_of(case, snapshot.read(f"T{i}").to_pylist()) == expected_cells(case), case.name
        rows = [row for row in selected if row["origin"] == f"s{i}"]
        assert cells_of(case, rows) == expected_cells(case), case.name

    orders = [(row["a"], row["b"]) for row in selected if row["origin"] == "orders"]
    assert sorted(orders) == [("Ada", 'say "x"'), ("Bob", ""), ("Eve", "swapped"), ("Max", None), ("Sue", None)]


WITH_ROWS_ONLY = [case for case in CASES if not reference(case).ragged]


SAMPLE = {"breaks": "cut", "null-escape": "small", "comment": "gz", "latin": "folder", "no-header": "cut"}


def test_source_and_sql_give_the_same_rows(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_splits, "PIECE_BYTES", (40, 40))
    by_name = {case.name: case for case in CASES}
    load(spark, tmp_path, [by_name[name] for name in SAMPLE], list(SAMPLE.values()))


@pytest.mark.long
@pytest.mark.parametrize("packing", PACKINGS)
def test_source_and_sql_give_the_same_rows_of_every_packing(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packing: str
) -> None:
    monkeypatch.setattr(input_splits, "PIECE_BYTES", (15, 15) if packing == "cut" else input_splits.PIECE_BYTES)
    load(spark, tmp_path, WITH_ROWS_ONLY, [packing] * len(WITH_ROWS_ONLY))


def test_sql_refuses_a_source_with_a_record_that_is_no_row(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "s.pg").write_text("node Person { name: String @key  note: String? }")
    (tmp_path / "p.csv").write_text('name,note\nKim,"a\nb"\nLea,1,2\n')
    (tmp_path / "p.yaml").write_text(
        "graph: g\nschema: s.pg\nmode: merge\non_error: quarantine\nsources: {p: {path: p.csv}}\n"
        'nodes: {Person: {sql: "select name, note from p"}}\n'
    )
    with pytest.raises(RecordError) as refused:
        run_pipeline(tmp_path / "p.yaml", spark=spark)
    [violation] = refused.value.fields["violations"]
    assert (violation["source"], violation["line"]) == (str(tmp_path / "p.csv"), 4)
    assert violation["message"] == "3 values for 2 columns"
    assert "without sql" in refused.value.remedy
    assert og.open(tmp_path / "g").snapshot().count("Person") == 0
