"""Where rejected rows go: never over an input, never where the next load would read them as input."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import UsageError
from omnigraph.pipeline.load import planner

GOOD = '{"type": "Person", "data": {"name": "Ada"}}\n'
WRONG = '{"type": "Person", "data": {"name": "Eve", "age": 300}}\n'


@pytest.fixture(params=["memory", "bulk"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways that a load goes in this process; Spark goes the second."""
    if request.param == "bulk":
        monkeypatch.setattr(planner, "IN_MEMORY_BYTES", -1)
    return str(request.param)


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_text(GOOD + WRONG)
    (folder / "b.jsonl").write_text('{"type": "Person", "data": {"name": "Bob"}}\n')
    monkeypatch.chdir(tmp_path)
    return folder


def load(graph: og.Graph, source: Any, **options: Any) -> og.LoadResult:
    options = {"mode": "merge", "on_error": "quarantine", "engine": "local", **options}
    return graph.load(source, **options)


@pytest.mark.parametrize(
    ("source", "aside"),
    [
        ("in/a.jsonl", "in/a.jsonl"),
        ("in/a.jsonl", "{tmp}/in/../in/a.jsonl"),
        ("in/a.jsonl", "file://{tmp}/in/a.jsonl"),
        ("file://{tmp}/in/a.jsonl", "in/a.jsonl"),
        ("in/a.jsonl", "link.jsonl"),
        ("link.jsonl", "in/a.jsonl"),
        ("in", "in/b.jsonl"),
        ("in", "in/new.jsonl"),
        ("in", "in/deep/new.jsonl"),
        ("in", "folder-link/new.jsonl"),
        ("folder-link", "in/new.jsonl"),
        ("in/*.jsonl", "in/new.jsonl"),
        ("in/[a-z]*", "in/new.parquet"),
        ("i*", "in/new.jsonl"),
        ("**/*.jsonl", "in/deep/new.jsonl"),
        ("folder-link/*.jsonl", "in/new.jsonl"),
    ],
)
def test_a_quarantine_that_is_read_as_input_is_refused_before_anything_is_read(
    graph: og.Graph, inputs: Path, tmp_path: Path, way: str, source: str, aside: str
) -> None:
    (inputs / "deep").mkdir()
    (tmp_path / "link.jsonl").symlink_to(inputs / "a.jsonl")
    (tmp_path / "folder-link").symlink_to(inputs)
    before = {p: p.read_bytes() for p in inputs.rglob("*.jsonl")}
    with pytest.raises(UsageError, match="input"):
        load(graph, source.format(tmp=tmp_path), quarantine=aside.format(tmp=tmp_path))
    assert {p: p.read_bytes() for p in inputs.rglob("*.jsonl")} == before
    assert len(graph.commits()) == 1


@pytest.mark.parametrize(
    ("source", "aside"),
    [
        ("in/a.jsonl", "in/b.jsonl.aside"),
        ("in/*.jsonl", "in/rejects.parquet"),
        ("in/*.jsonl", "other.jsonl"),
        ("in", "in-other.jsonl"),
        ("in", "in/mine.rejected.jsonl"),
        ("in", "in/_aside/mine.jsonl"),
    ],
)
def test_a_quarantine_beside_the_inputs_is_taken(
    graph: og.Graph, inputs: Path, way: str, source: str, aside: str
) -> None:
    (inputs / "_aside").mkdir()
    first = load(graph, source, quarantine=aside)
    assert (first.rejected, first.quarantine) == (1, os.path.abspath(aside))
    again = load(graph, source, quarantine=aside)
    assert (again.rejected, again.lines) == (1, first.lines)


def test_a_table_is_not_overwritten_by_its_own_rejects(graph: og.Graph, inputs: Path) -> None:
    table = inputs / "people.csv"
    table.write_text("name,age\nAda,5\nEve,300\n")
    for given in ("in/people.csv", og.TableSource("in", format="csv"), "in/*.csv"):
        with pytest.raises(UsageError, match="input"):
            load(graph, None, nodes={"Person": given}, quarantine="in/people.csv")
    assert table.read_text() == "name,age\nAda,5\nEve,300\n"
    table.rename("other.csv")
    pa.ipc.new_file("people.arrow", pa.schema([("name", pa.string())])).close()
    with pytest.raises(UsageError, match="input"):
        load(graph, "in/a.jsonl", nodes={"Person": "people.arrow"}, quarantine="people.arrow")


def test_a_folder_and_a_remote_address_are_refused_as_quarantine(graph: og.Graph, inputs: Path, way: str) -> None:
    (inputs.parent / "rejects").mkdir()
    with pytest.raises(UsageError, match="folder"):
        load(graph, "in/a.jsonl", quarantine="rejects")
    with pytest.raises(UsageError, match=r"local file.*s3://bucket/x\.jsonl"):
        load(graph, "in/a.jsonl", quarantine="s3://bucket/x.jsonl")


@pytest.mark.parametrize("source", ["in", "in/*.jsonl", "in/*", "**/*.jsonl"])
def test_the_rejects_of_one_run_are_no_input_of_the_next(graph: og.Graph, inputs: Path, way: str, source: str) -> None:
    first = load(graph, source)
    assert first.quarantine == str(inputs / "a.jsonl.rejected.jsonl")
    for _ in range(2):
        again = load(graph, source)
        assert (again.lines, again.rejected, again.quarantine) == (first.lines, 1, first.quarantine)


def test_the_rejects_of_a_folder_of_tables_are_no_input_of_the_next(graph: og.Graph, inputs: Path) -> None:
    table = inputs / "csv" / "people.csv"
    table.parent.mkdir()
    table.write_text("name,age\nAda,5\nEve,300\n")
    for _ in range(3):
        done = load(graph, None, nodes={"Person": og.TableSource("in/csv", format="csv")})
        assert (done.lines, done.rejected) == (3, 1)


def test_rejects_that_are_named_are_read(graph: og.Graph, inputs: Path, way: str) -> None:
    corrected = inputs / "a.jsonl.rejected.jsonl"
    corrected.write_text('{"type": "Person", "data": {"name": "Eve", "age": 30}}\n')
    for source in ("in/a.jsonl.rejected.jsonl", "in/*.rejected.jsonl"):
        assert load(graph, source, quarantine="again.jsonl").lines == 1
    with pytest.raises(UsageError, match="input"):
        load(graph, ["in/a.jsonl", "in/a.jsonl.rejected.jsonl"])
    assert json.loads(corrected.read_text())["type"] == "Person"


def test_every_way_of_a_load_finds_the_same_files(graph: og.Graph, inputs: Path, way: str) -> None:
    (inputs / "deep").mkdir()
    (inputs / "deep" / "c.jsonl").write_text('{"type": "Person", "data": {"name": "Cyd"}}\n')
    (inputs / "_draft.jsonl").write_text("no record\n")
    assert load(graph, "in").lines == 4
    assert load(graph, f"file://{inputs}").lines == 4


def test_a_pipeline_file_whose_quarantine_is_an_input_is_refused_at_its_place(inputs: Path, tmp_path: Path) -> None:
    from omnigraph.errors import PipelineFileError
    from omnigraph.pipeline.file.run import check_pipeline, run_pipeline

    (tmp_path / "people.pg").write_text("node Person { name: String @key  age: I32?  @range(age, 0..150) }")
    (inputs / "p.csv").write_text("name,age\nAda,5\nEve,300\n")
    before = (inputs / "p.csv").read_text()
    head = "graph: ./g\nschema: people.pg\nmode: merge\non_error: quarantine\n"
    for aside, rest in {
        "in/p.csv": "nodes: {Person: {path: in/p.csv}}",
        "in/": "data: [in/*.jsonl, in/p.rejected.jsonl]",
        "in/new.jsonl": "data: [in]",
        "in/p.csv ": "sources: {s: {path: in/*.csv}}\nnodes: {Person: {sql: select name from s}}",
        "s3://bucket/x.jsonl": "data: [in]",
    }.items():
        file = tmp_path / "p.yaml"
        file.write_text(f"{head}quarantine: {aside}\n{rest}\n")
        if "p.rejected" in rest:
            (inputs / "p.rejected.jsonl").write_text(WRONG)
        for step in (check_pipeline, run_pipeline):
            with pytest.raises(PipelineFileError, match=r"p\.yaml:5:.*rejected lines") as refused:
                step(file)
            assert refused.value.fields["line"] == 5
    assert (inputs / "p.csv").read_text() == before
    assert not (tmp_path / "g").exists()


def test_the_default_quarantine_of_a_pipeline_file_is_no_input_of_its_next_run(inputs: Path, tmp_path: Path) -> None:
    from omnigraph.pipeline.file.run import run_pipeline

    (tmp_path / "people.pg").write_text("node Person { name: String @key  age: I32?  @range(age, 0..150) }")
    file = inputs / "p.yaml"
    file.write_text("graph: ../g\nschema: ../people.pg\nmode: merge\non_error: quarantine\ndata: ['*.jsonl']\n")
    for _ in range(2):
        done = run_pipeline(file).load
        assert done is not None
        assert (done.lines, done.rejected) == (3, 1)
