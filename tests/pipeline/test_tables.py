"""Tables as inputs of a load: formats, columns, and what is wrong with them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import lance
import orjson
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph.errors import (
    ConstraintViolation,
    FileUnreadable,
    KeyConflict,
    UnknownProperty,
    UnknownType,
    UsageError,
)
from omnigraph.pipeline.bulk.input import input_splits
from omnigraph.pipeline.load.table_sources import TableSource, parse_option

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  @range(age, 0..120)
  born: Date?
  seen: DateTime?
  score: F64?
  good: Bool?
  tags: [String]?
  vec: Vector(2)?
  photo: Blob?
}
edge Knows: Person -> Person { since: I32? }
"""
CSV = """name,age,born,seen,score,good,tags,vec,photo
anna,30,2001-02-03,2024-01-02T03:04:05Z,1.5,true,"[""a"",""b""]","[1,2]",AAE=
ben,,,,,,,,
"carl, jr.",7,,,-0.25,false,[],,
"""


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "g.omni", SCHEMA)


def rows(graph: og.Graph, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = graph.snapshot().read(name).sort_by("id").to_pylist()
    return found


def people() -> pa.Table:
    return pa.table({"name": ["anna", "ben"], "age": pa.array([30, None], pa.int64()), "vec": [[1.0, 2.0], None]})


def test_csv_text_becomes_every_kind_of_property(graph: og.Graph, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(CSV)
    done = graph.load(nodes={"Person": tmp_path / "people.csv"}, mode="append", engine="local")
    assert done.inserted == {"node:Person": 3}
    assert done.lines == 4
    anna, ben, carl = rows(graph, "Person")
    assert (anna["age"], anna["born"].isoformat(), anna["score"], anna["good"]) == (30, "2001-02-03", 1.5, True)
    assert (anna["tags"], anna["vec"], anna["photo"]) == (["a", "b"], [1.0, 2.0], b"\x00\x01")
    assert anna["seen"].isoformat() == "2024-01-02T03:04:05+00:00"
    assert {k: v for k, v in ben.items() if v is not None} == {"id": "ben", "name": "ben"}
    assert (carl["id"], carl["tags"], carl["score"]) == ("carl, jr.", [], -0.25)


@pytest.mark.parametrize("kind", ["parquet", "arrow", "orc", "lance", "jsonl", "table"])
def test_every_format_gives_the_same_rows(kind: str, graph: og.Graph, tmp_path: Path) -> None:
    table, path = people(), tmp_path / f"people.{kind}"
    given: Any = path
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=1)
    elif kind == "arrow":
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=1)
    elif kind == "orc":
        orc.write_table(table, str(path))
    elif kind == "lance":
        lance.write_dataset(table, str(path), max_rows_per_file=1)
    elif kind == "jsonl":
        path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in table.to_pylist()))
    else:
        given = table
    edges = pa.table({"from": ["anna"], "to": ["ben"], "since": [2001]})
    graph.load(nodes={"Person": given}, edges={"Knows": edges}, mode="append", engine="local")
    found = [{k: v for k, v in row.items() if v is not None} for row in rows(graph, "Person")]
    assert found == [{"id": "anna", "name": "anna", "age": 30, "vec": [1.0, 2.0]}, {"id": "ben", "name": "ben"}]
    assert [(e["src"], e["dst"], e["since"]) for e in rows(graph, "Knows")] == [("anna", "ben", 2001)]


def test_rows_of_a_file_that_is_cut_anywhere_keep_their_lines(
    graph: og.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_splits, "PIECE_BYTES", (40, 90))
    lines = ["name,age", *(f"p{i},{500 if i in (0, 7, 199) else i % 100}" for i in range(200)), "broken", "", "q,1"]
    path = tmp_path / "people.csv"
    path.write_text("\n".join(lines))
    done = graph.load(
        nodes={"Person": path}, mode="append", on_error="quarantine", quarantine=tmp_path / "aside", engine="local"
    )
    told = [orjson.loads(line) for line in (tmp_path / "aside").read_bytes().splitlines()]
    assert [(t["line"], t["rule"], t["record"]) for t in told] == [
        (2, "range", '{"name":"p0","age":"500"}'),
        (9, "range", '{"name":"p7","age":"500"}'),
        (201, "range", '{"name":"p199","age":"500"}'),
        (202, "record", "broken"),
    ]
    assert done.inserted == {"node:Person": 198}
    assert done.rejected_by_rule == {"range": 3, "record": 1}


def test_columns_are_mapped_skipped_or_refused(graph: og.Graph, tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("full_name;years;note\nanna;30;x\n")
    source = TableSource(str(path), options={"delimiter": ";"}, columns={"full_name": "name", "years": "age"})
    with pytest.raises(UnknownProperty, match="note"):
        graph.load(nodes={"Person": source}, mode="append", engine="local")
    with pytest.raises(UsageError, match="no column 'nme'"):
        bad = TableSource(str(path), options={"delimiter": ";"}, columns={"nme": "name"})
        graph.load(nodes={"Person": bad}, mode="append", engine="local")
    _, source = parse_option(f"Person={path},delimiter=;,map=full_name:name,map=years:age,skip=*", edges=False)
    assert graph.load(nodes={"Person": source}, mode="append", engine="local").inserted == {"node:Person": 1}
    assert rows(graph, "Person")[0]["age"] == 30


def test_wrong_inputs_are_told_with_their_name(graph: og.Graph, tmp_path: Path) -> None:
    broken = tmp_path / "x.parquet"
    broken.write_bytes(b"no parquet")
    with pytest.raises(FileUnreadable, match=r"x\.parquet"):
        graph.load(nodes={"Person": broken}, mode="append", engine="local")
    with pytest.raises(UnknownType, match="Persn"):
        graph.load(nodes={"Persn": people()}, mode="append", engine="local")
    with pytest.raises(UsageError, match="nothing to load"):
        graph.load(mode="append")
    with pytest.raises(FileUnreadable, match="there is no such file"):
        graph.load(nodes={"Person": tmp_path / "none.csv"}, mode="append")
    with pytest.raises(UsageError, match="format"):
        graph.load(nodes={"Person": broken.rename(tmp_path / "x.bin")}, mode="append")
    with pytest.raises(ConstraintViolation, match="age"):
        graph.load(nodes={"Person": pa.table({"name": ["a"], "age": ["old"]})}, mode="append", engine="local")
    with pytest.raises(UsageError, match="engine spark"):
        graph.load(nodes={"Person": TableSource("x.avro", format="avro")}, mode="append", engine="local")
    assert rows(graph, "Person") == []
    assert not (tmp_path / "g.omni" / "__staging").exists()


def test_a_merge_replaces_what_differs_keeps_row_identity_and_commits_nothing_twice(graph: og.Graph) -> None:
    first = pa.table({"name": [f"p{i}" for i in range(1000)], "age": [i % 100 for i in range(1000)]})
    graph.load(nodes={"Person": first}, mode="append", engine="local")
    view = graph._committer.view("main")
    person = view.schema.node["Person"]
    before = view.open(person).to_table(columns=["id"], with_row_id=True).sort_by("id").to_pydict()
    assert graph.load(nodes={"Person": first}, mode="merge", engine="local").commit is None
    second = pa.table({"name": [f"p{i}" for i in range(0, 1100, 10)], "age": [1 for _ in range(0, 1100, 10)]})
    done = graph.load(nodes={"Person": second}, mode="merge", engine="local")
    assert done.inserted == {"node:Person": 10}
    # Of the hundred that were there, the one with this age already is no change.
    assert done.updated == {"node:Person": sum(1 for i in range(0, 1000, 10) if i % 100 != 1)}
    table = graph._committer.view("main").open(person)
    after = {r["id"]: r for r in table.to_table(columns=["id", "age"], with_row_id=True).to_pylist()}
    assert len(after) == 1010
    for entity, row_id in zip(before["id"], before["_rowid"], strict=True):
        assert after[entity]["_rowid"] == row_id
        number = int(entity[1:])
        assert after[entity]["age"] == (1 if number % 10 == 0 else number % 100)
    with pytest.raises(KeyConflict) as caught:
        graph.load(nodes={"Person": second}, mode="append", engine="local")
    assert caught.value.fields["count"] == 110


def test_on_a_branch_tables_are_forked_and_main_stays(graph: og.Graph) -> None:
    graph.load(nodes={"Person": people()}, mode="append", engine="local")
    more = pa.table({"name": ["ben", "cora"], "age": [50, 60]})
    graph.load(nodes={"Person": more}, mode="merge", branch="trial", from_branch="main", engine="local")
    assert [r["age"] for r in rows(graph, "Person")] == [30, None]
    found = graph.snapshot("trial").read("Person").sort_by("id").to_pylist()
    assert [(r["id"], r["age"]) for r in found] == [("anna", 30), ("ben", 50), ("cora", 60)]


def test_a_parquet_quarantine_holds_the_same_as_lines(graph: og.Graph, tmp_path: Path) -> None:
    table = pa.table({"name": ["a", "b", "a"], "age": [300, 1, 2]})
    aside = tmp_path / "aside.parquet"
    graph.load(nodes={"Person": table}, mode="append", on_error="quarantine", quarantine=aside, engine="local")
    told = pq.read_table(aside).to_pylist()
    assert [(t["source"], t["line"], t["rule"]) for t in told] == [
        ("<table Person>", 1, "range"),
        ("<table Person>", 3, "key"),
    ]
    assert json.loads(told[0]["record"]) == {"name": "a", "age": 300}


def test_new_ids_of_json_lines_differ_across_pieces(tmp_path: Path) -> None:
    """The records made of short lines are longer than the lines: their numbers ran into those of the next piece."""
    graph = og.init(tmp_path / "notes", "node Note { text: String }")
    count = 270_000
    path = tmp_path / "notes.jsonl"
    path.write_text("".join(f'{{"text":"{i}"}}\n' for i in range(count)))
    assert path.stat().st_size > input_splits.PIECE_BYTES[0]
    graph.load(nodes={"Note": str(path)}, mode="append", engine="local")
    ids = graph.nodes("Note", columns=["id"]).column("id")
    assert len(ids) == len(ids.unique()) == count


def test_the_load_in_memory_writes_a_parquet_quarantine_too(graph: og.Graph, tmp_path: Path) -> None:
    aside = tmp_path / "aside.parquet"
    graph.load([b"nonsense\n"], mode="append", on_error="quarantine", quarantine=aside)
    assert [(t["line"], t["rule"], t["record"]) for t in pq.read_table(aside).to_pylist()] == [
        (1, "record", "nonsense")
    ]


def test_the_examples_of_the_page_on_loading_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs" / "loading.md").read_text()
    og.init("people", SCHEMA)
    (tmp_path / "people.csv").write_text("full_name,age\nAnna,30\nBob,31\n")
    (tmp_path / "knows.csv").write_text("a,b,since\nAnna,Bob,2001\n")
    pq.write_table(pa.table({"name": ["Cora"], "age": [9]}), "more-people.parquet")
    pq.write_table(pa.table({"from": ["Cora"], "to": ["Anna"]}), "more-knows.parquet")
    command = re.search(r"```bash\n(.*?)```", text, re.S)
    program = re.search(r"```python\n(.*?)```", text, re.S)
    assert command is not None
    assert program is not None
    words = shlex.split(command[1].replace("\\\n", " "))
    done = subprocess.run(
        [Path(sys.executable).parent / "omnigraph", *words[1:]], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    exec(compile(program[1], "loading.md", "exec"), {})
    graph = og.open("people")
    assert [r["id"] for r in rows(graph, "Person")] == ["Anna", "Bob", "Cora"]
    assert len(rows(graph, "Knows")) == 2
