"""Load in process: files of records to one commit, in each mode, with bad lines refused or put aside."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import errors


def person(name: str, **data: object) -> dict[str, object]:
    return {"type": "Person", "data": {"name": name, **data}}


def knows(a: str, b: str, **data: object) -> dict[str, object]:
    return {"edge": "Knows", "from": a, "to": b, "data": data}


def lines(*records: object) -> bytes:
    return b"".join((r if isinstance(r, bytes) else json.dumps(r).encode()) + b"\n" for r in records)


def people(graph: og.Graph, branch: str = "main") -> dict[str, int | None]:
    table = graph.snapshot(branch).read("Person")
    return dict(zip(table["name"].to_pylist(), table["age"].to_pylist(), strict=True))


def test_append_adds_and_refuses_what_exists(graph: og.Graph) -> None:
    result = graph.load(io.BytesIO(lines(person("a", age=1), person("b"), knows("a", "b"))), mode="append")
    assert result.inserted == {"node:Person": 2, "edge:Knows": 1}
    with pytest.raises(errors.KeyConflict):
        graph.load(io.BytesIO(lines(person("c"), person("a"))), mode="append")
    assert people(graph) == {"a": 1, "b": None}


def test_merge_replaces_by_id_and_is_repeatable(graph: og.Graph) -> None:
    data = lines(person("a", age=1), {**knows("a", "a"), "data": {"id": "e1"}})
    assert graph.load(io.BytesIO(data), mode="merge").commit is not None
    assert graph.load(io.BytesIO(data), mode="merge").commit is None
    result = graph.load(io.BytesIO(lines(person("a", age=2), person("b"))), mode="merge")
    assert (result.inserted, result.updated) == ({"node:Person": 1}, {"node:Person": 1})
    assert people(graph) == {"a": 2, "b": None}


def test_merge_rechecks_the_cardinality_of_a_vacated_and_a_new_source(graph: og.Graph) -> None:
    graph.load(
        io.BytesIO(lines(*map(person, "abc"), *({**knows("a", x), "data": {"id": f"a{x}"}} for x in "bc"))),
        mode="append",
    )
    moved = {**knows("b", "c"), "data": {"id": "ac"}}
    graph.load(io.BytesIO(lines(moved, {**knows("a", "a"), "data": {"id": "aa"}})), mode="merge")
    with pytest.raises(errors.ConstraintViolation, match="at most 2"):
        graph.load(io.BytesIO(lines(knows("a", "c"))), mode="append")


def test_overwrite_replaces_the_types_that_the_file_holds(graph: og.Graph) -> None:
    graph.load(io.BytesIO(lines(person("a"), person("b"), {"type": "Note", "data": {"text": "n"}})), mode="append")
    result = graph.load(io.BytesIO(lines(person("c", age=3))), mode="overwrite")
    assert (result.inserted, result.deleted) == ({"node:Person": 1}, {"node:Person": 2})
    assert people(graph) == {"c": 3}
    assert graph.snapshot().count("Note") == 1


def test_overwrite_that_would_orphan_kept_edges_is_refused(graph: og.Graph) -> None:
    graph.load(io.BytesIO(lines(person("a"), person("b"), knows("a", "b"))), mode="append")
    with pytest.raises(errors.ConstraintViolation) as refused:
        graph.load(io.BytesIO(lines(person("a"))), mode="overwrite")
    assert refused.value.fields["violations"][0]["rule"] == "endpoint"
    assert people(graph) == {"a": None, "b": None}


def test_bad_lines_are_named_with_their_numbers_and_nothing_is_loaded(graph: og.Graph) -> None:
    data = lines(person("a"), b"", b"{not json}", person("b", age="old"), person("c", nope=1), person("d"))
    with pytest.raises(errors.RecordError) as refused:
        graph.load(io.BytesIO(data), mode="append")
    assert [(v["line"], v["rule"]) for v in refused.value.fields["violations"]] == [
        (3, "record"),
        (4, "type"),
        (5, "unknown_field"),
    ]
    assert refused.value.fields["count"] == 3
    assert graph.snapshot().count("Person") == 0


def test_quarantine_puts_bad_lines_aside_with_what_they_orphan(graph: og.Graph, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(lines(person("a"), person("b", age=999), knows("a", "b"), knows("a", "a"), b"oops"))
    aside = tmp_path / "aside.jsonl"
    result = graph.load(source, mode="append", on_error="quarantine", quarantine=aside)
    assert (result.inserted, result.rejected) == ({"node:Person": 1, "edge:Knows": 1}, 3)
    rejected = [json.loads(line) for line in aside.read_text().splitlines()]
    assert [(r["line"], r["rule"]) for r in rejected] == [(2, "range"), (3, "endpoint"), (5, "record")]
    assert json.loads(rejected[0]["record"]) == person("b", age=999)
    assert rejected[1]["source"] == str(source)
    assert result.rejected_by_rule == {"range": 1, "endpoint": 1, "record": 1}


def test_without_bad_lines_there_is_no_quarantine_file(graph: og.Graph, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(lines(person("a")))
    assert graph.load(source, mode="append", on_error="quarantine").quarantine is None
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".jsonl"] == ["in.jsonl"]


def test_several_files_name_the_file_of_a_bad_line(graph: og.Graph, tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_bytes(lines(person("a"), person("b")).rstrip(b"\n"))
    (tmp_path / "2.jsonl.gz").write_bytes(gzip.compress(lines(person("c"), person("d", age=-1))))
    with pytest.raises(errors.ConstraintViolation) as refused:
        graph.load(str(tmp_path / "*.jsonl*"), mode="append")
    found = refused.value.fields["violations"][0]
    assert (Path(found["source"]).name, found["line"]) == ("2.jsonl.gz", 2)
    assert "2.jsonl.gz" in refused.value.message


def test_load_forks_a_missing_branch_only_when_told_from_where(graph: og.Graph) -> None:
    with pytest.raises(errors.BranchNotFound):
        graph.load(io.BytesIO(lines(person("a"))), mode="append", branch="new")
    graph.load(io.BytesIO(lines(person("a"))), mode="append", branch="new", from_branch="main")
    assert (people(graph), people(graph, "new")) == ({}, {"a": None})


def test_wrong_calls_are_told_before_anything_is_read(graph: og.Graph, tmp_path: Path) -> None:
    for bad in (
        {"mode": "replace"},
        {"mode": "append", "on_error": "ignore"},
        {"mode": "append", "quarantine": tmp_path / "x"},
        {"mode": "append", "on_error": "quarantine", "quarantine": tmp_path / "no" / "such" / "folder"},
    ):
        with pytest.raises(errors.UsageError):
            graph.load(tmp_path / "absent.jsonl", **bad)  # type: ignore[arg-type]
    with pytest.raises(errors.FileUnreadable, match="there is no such file"):
        graph.load(tmp_path / "absent.jsonl", mode="append")


def test_an_empty_file_changes_nothing(graph: og.Graph) -> None:
    result = graph.load(io.BytesIO(b"\n\n"), mode="overwrite")
    assert (result.commit, result.lines) == (None, 2)


def test_a_branch_that_was_made_for_a_failed_load_is_taken_back(graph: og.Graph) -> None:
    with pytest.raises(errors.ConstraintViolation):
        graph.load(io.BytesIO(lines(person("a", age=999))), mode="append", branch="new", from_branch="main")
    assert [b.name for b in graph.branches()] == ["main"]


def test_a_damaged_file_is_named(graph: og.Graph, tmp_path: Path) -> None:
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(lines(person("a")))[:-9])
    with pytest.raises(errors.FileUnreadable, match=r"cut\.jsonl\.gz"):
        graph.load(tmp_path / "cut.jsonl.gz", mode="append")
