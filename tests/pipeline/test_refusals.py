"""What a refused load tells: every fault, counted per rule, the first 20 with their source and line; in memory and in
bulk alike, and as many as a quarantine would hold.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.cli.text import load_text
from omnigraph.pipeline.load import planner
from omnigraph.pipeline.load.table_sources import TableSource, parse_option

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  @range(age, 0..120)
  kind: enum(a, b)?
  email: String? @unique
  code: String?
  @check(code, "^[a-z]+$")
  score: F64?
  born: Date?
}
edge Knows: Person -> Person @card(0..2)
"""

Load = Callable[..., og.LoadResult]


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    made = og.init(tmp_path / "g.omni", SCHEMA)
    made.insert({"Person": [{"name": "here", "email": "here@x"}, {"name": "there"}]})
    return made


@pytest.fixture(params=["memory", "bulk"])
def load(request: pytest.FixtureRequest, graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> Load:
    """The same call, by the way through memory and by that of big loads."""
    monkeypatch.setattr(planner, "IN_MEMORY_BYTES", 1 << 30 if request.param == "memory" else -1)
    return lambda *given, **options: graph.load(*given, **{"engine": "local", "mode": "append", **options})


def person(name: str, **data: object) -> dict[str, object]:
    return {"type": "Person", "data": {"name": name, **data}}


def knows(a: str, b: str) -> dict[str, object]:
    return {"edge": "Knows", "from": a, "to": b}


def write(path: Path, *records: object) -> Path:
    path.write_bytes(b"".join((r if isinstance(r, bytes) else json.dumps(r).encode()) + b"\n" for r in records))
    return path


FAULTS: tuple[object, ...] = (
    person("ok"),
    b"{no json",
    person("t", age="old"),
    person("f", nope=1),
    *(person(f"r{i}", age=500 + i) for i in range(4)),
    person("e", kind="z"),
    person("c", code="A1"),
    person("ok", age=3),
    person("here"),
    person("u1", email="u@x"),
    person("u2", email="u@x"),
    person("u3", email="here@x"),
    knows("ok", "nobody"),
    knows("ok", "r0"),
    knows("t", "ok"),
    *(knows("u1", "ok") for _ in range(4)),
)
COUNTS = {
    "record": 1,
    "type": 1,
    "unknown_field": 1,
    "range": 4,
    "enum": 1,
    "check": 1,
    "key": 2,
    "unique": 2,
    "endpoint": 3,
    "cardinality": 2,
}


def test_fail_tells_of_every_fault_that_quarantine_puts_aside(load: Load, graph: og.Graph, tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", *FAULTS)
    with pytest.raises(errors.RecordError) as refused:
        load(str(path))
    told = refused.value.fields
    assert (told["count"], told["by_rule"]) == (18, COUNTS)
    assert graph.snapshot().count("Person") == 2
    aside = tmp_path / "aside.jsonl"
    done = load(str(path), on_error="quarantine", quarantine=aside)
    assert dict(done.rejected_by_rule) == COUNTS
    rejected = [json.loads(line) for line in aside.read_text().splitlines()]
    keys = ("source", "line", "rule")
    assert [tuple(v[k] for k in keys) for v in told["violations"]] == [tuple(r[k] for k in keys) for r in rejected]
    assert [v["message"] for v in told["violations"]] == [r["reason"] for r in rejected]


def test_the_message_lists_the_first_twenty_in_order_and_counts_per_rule(load: Load, tmp_path: Path) -> None:
    bad = [person(f"r{i}", age=-1) if i % 2 else person(f"e{i}", kind="z") for i in range(30)]
    path = write(tmp_path / "in.jsonl", *bad)
    with pytest.raises(errors.ConstraintViolation) as refused:
        load(str(path))
    first, *rows, last = refused.value.message.splitlines()
    assert first == "30 rows break a rule of the schema (enum 15, range 15)."
    assert rows[0] == f"{path}, line 1, node:Person 'e0': kind: 'z' is not one of a, b"
    assert [row.split(",")[1] for row in rows] == [f" line {i}" for i in range(1, 21)]
    assert last == "… and 10 more"
    assert [v["line"] for v in refused.value.fields["violations"]] == list(range(1, 21))
    assert refused.value.remedy == (
        "Correct these rows, or load the rest with --on-error quarantine; nothing was written."
    )


def test_one_input_is_named_as_several_are(load: Load, tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", person("x"), person("y", age=200))
    with pytest.raises(errors.ConstraintViolation) as refused:
        load(str(path))
    [violation] = refused.value.fields["violations"]
    assert (violation["source"], violation["line"]) == (str(path), 2)
    assert refused.value.message.startswith(f"1 row breaks a rule of the schema (range 1).\n{path}, line 2, ")


def test_several_inputs_still_say_how_many_more_there_are(load: Load, tmp_path: Path) -> None:
    write(tmp_path / "1.jsonl", *(person(f"a{i}", age=-1) for i in range(15)))
    write(tmp_path / "2.jsonl", *(person(f"b{i}", age=-1) for i in range(15)))
    with pytest.raises(errors.ConstraintViolation) as refused:
        load(str(tmp_path / "?.jsonl"))
    assert refused.value.message.endswith("\n… and 10 more")
    last = refused.value.fields["violations"][-1]
    assert (Path(last["source"]).name, last["line"]) == ("2.jsonl", 5)


def test_ids_that_exist_are_listed_with_source_and_line(load: Load, tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", person("new"), person("there"), person("here"), person("r", age=500))
    with pytest.raises(errors.KeyConflict) as refused:
        load(str(path))
    told = refused.value.fields
    assert (told["table_key"], told["entity_id"]) == ("node:Person", "there")
    assert (told["count"], told["by_rule"]) == (3, {"key": 2, "range": 1})
    assert [(v["source"], v["line"], v["entity_id"]) for v in told["violations"]] == [
        (str(path), 2, "there"),
        (str(path), 3, "here"),
        (str(path), 4, "r"),
    ]
    first, *rows = refused.value.message.splitlines()
    assert first == (
        "node:Person already has an entity with the id 'there'. 3 rows of the input can't be loaded (key 2, range 1)."
    )
    assert rows[0] == f"{path}, line 2, node:Person 'there': key: 'there' exists already"
    assert "mode merge" in refused.value.remedy
    assert "--on-error quarantine" in refused.value.remedy


def test_messages_name_other_lines_by_their_file(load: Load, tmp_path: Path) -> None:
    one = write(tmp_path / "1.jsonl", person("m1"), person("m2"), person("m3", email="m@x"), person("bad", age=999))
    two = write(tmp_path / "2.jsonl", person("m3"), person("m4", email="m@x"), knows("m1", "bad"))
    told = [
        f"key: 'm3' is already given by line 3 of {one}",
        f"email: 'm@x' is also held by 'm3', line 3 of {one}, in the same write",
        f"to: Person 'bad' was rejected (line 4 of {one})",
    ]
    with pytest.raises(errors.ConstraintViolation) as refused:
        load([str(one), str(two)])
    found = [v for v in refused.value.fields["violations"] if v["source"] == str(two)]
    assert [(v["line"], v["message"]) for v in found] == list(enumerate(told, 1))
    aside = tmp_path / "aside.jsonl"
    load([str(one), str(two)], on_error="quarantine", quarantine=aside)
    assert [json.loads(line)["reason"] for line in aside.read_text().splitlines()][1:] == told


def test_what_no_line_is_to_blame_for_is_told_after_the_lines(load: Load, graph: og.Graph, tmp_path: Path) -> None:
    graph.insert({"Knows": [{"from": "here", "to": "there"}]})
    path = write(tmp_path / "in.jsonl", person("here"), person("x", age=-1))
    with pytest.raises(errors.ConstraintViolation) as refused:
        load(str(path), mode="overwrite")
    told = refused.value.fields
    assert (told["count"], told["by_rule"]) == (2, {"range": 1, "endpoint": 1})
    assert [v.get("line") for v in told["violations"]] == [2, None]


def test_a_mark_in_front_of_utf8_is_no_part_of_the_first_line(load: Load, graph: og.Graph, tmp_path: Path) -> None:
    paths = [tmp_path / "1.jsonl", tmp_path / "2.jsonl"]
    for i, path in enumerate(paths):
        path.write_bytes(b"\xef\xbb\xbf" + json.dumps(person(f"p{i}")).encode() + b"\n")
    assert load([str(path) for path in paths]).inserted == {"node:Person": 2}


def test_a_mark_in_pieces_of_a_stream_is_no_part_of_the_first_line(graph: og.Graph) -> None:
    line = json.dumps(person("p")).encode()
    for given in (
        io.BytesIO(b"\xef\xbb\xbf" + line),
        [b"\xef", b"\xbb\xbf" + line],
        [b"\xef\xbb", b"\xbf"],
        [b"{", b"}"],
    ):
        if given == [b"{", b"}"]:
            with pytest.raises(errors.RecordError):
                graph.load(given, mode="append")
        else:
            graph.load(given, mode="merge")
    assert graph.snapshot().count("Person") == 3


# ---- tables ----------------------------------------------------------------------------------------------------------


def quarantined(graph: og.Graph, aside: Path, **tables: Any) -> list[dict[str, Any]]:
    graph.load(**tables, mode="append", on_error="quarantine", quarantine=aside, engine="local")
    return [json.loads(line) for line in aside.read_text().splitlines()]


def test_a_quarantined_csv_row_holds_its_own_columns_and_texts_whatever_is_wrong(
    graph: og.Graph, tmp_path: Path
) -> None:
    path = tmp_path / "p.csv"
    path.write_text("full,age,born,score,extra\na,300,,1,x\nb,old,2024-13-01,NaN,y\nc,1,,NaN,z\nhere,,,,\nd,1\n")
    source = TableSource(str(path), columns={"full": "name"}, skip=("extra",))
    told = quarantined(graph, tmp_path / "aside", nodes={"Person": source})
    assert [(t["line"], t["rule"]) for t in told] == [
        (2, "range"),
        (3, "type"),
        (4, "type"),
        (5, "key"),
        (6, "record"),
    ]
    assert [json.loads(t["record"]) for t in told[:4]] == [
        {"full": "a", "age": "300", "born": None, "score": "1", "extra": "x"},
        {"full": "b", "age": "old", "born": "2024-13-01", "score": "NaN", "extra": "y"},
        {"full": "c", "age": "1", "born": None, "score": "NaN", "extra": "z"},
        {"full": "here", "age": None, "born": None, "score": None, "extra": None},
    ]
    assert told[4]["record"] == "d,1"


def test_a_quarantined_line_of_json_lines_is_the_line_whatever_is_wrong(graph: og.Graph, tmp_path: Path) -> None:
    lines = [b'{"name": "a", "age": 300}', b'{"name": "b", "age": "old"}\r', b"[1]", b'{"name"', b'{"name": "here"}']
    (tmp_path / "p.jsonl").write_bytes(b"\xef\xbb\xbf" + b"\n".join(lines))
    told = quarantined(graph, tmp_path / "aside", nodes={"Person": tmp_path / "p.jsonl"})
    assert [t["rule"] for t in told] == ["range", "type", "record", "record", "key"]
    assert told[3]["reason"] == "not JSON: Expecting ':' delimiter at character 7"
    assert [t["record"].encode() for t in told] == [line.rstrip(b"\r") for line in lines]


def test_a_quarantined_row_of_a_typed_table_shows_what_is_no_number(graph: og.Graph, tmp_path: Path) -> None:
    table = pa.table({"who": ["a", "b", "c"], "score": [float("nan"), 1.0, float("-inf")], "age": [1, 300, 2]})
    pq.write_table(table, tmp_path / "p.parquet", row_group_size=1)
    source = TableSource(str(tmp_path / "p.parquet"), columns={"who": "name"})
    told = quarantined(graph, tmp_path / "aside", nodes={"Person": source})
    assert [(t["line"], t["rule"], json.loads(t["record"])) for t in told] == [
        (1, "type", {"who": "a", "score": "NaN", "age": 1}),
        (2, "range", {"who": "b", "score": 1.0, "age": 300}),
        (3, "type", {"who": "c", "score": "-Infinity", "age": 2}),
    ]


def test_rows_over_several_lines_are_found_again(graph: og.Graph, tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text('name,age\n"a\nb",1\n"c\nd",300\n')
    source = TableSource(str(path), options={"multiline": "true"})
    [told] = quarantined(graph, tmp_path / "aside", nodes={"Person": source})
    assert json.loads(told["record"]) == {"name": "c\nd", "age": "300"}


def test_a_column_of_another_type_is_told_with_file_column_and_remedy(graph: og.Graph, tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({"name": ["a"], "years": ["old"]}), path)
    source = TableSource(str(path), columns={"years": "age"})
    with pytest.raises(errors.ConstraintViolation) as refused:
        graph.load(nodes={"Person": source}, mode="append", engine="local")
    assert refused.value.condition == "constraint_violation"
    assert refused.value.message == (
        "1 column of the input can't be taken.\n"
        f"{path}, node:Person: age: I32 is expected, and the column 'years' holds string"
    )
    assert "map=COLUMN:PROPERTY" in refused.value.remedy
    assert refused.value.fields["violations"][0]["source"] == str(path)


def test_a_csv_row_that_is_not_utf8_is_told_as_a_row_and_names_the_option(graph: og.Graph, tmp_path: Path) -> None:
    path = tmp_path / "latin.csv"
    path.write_bytes("name,kind\nanna,a\nrené,a\nben,b\n".encode("latin-1"))
    with pytest.raises(errors.RecordError) as refused:
        graph.load(nodes={"Person": path}, mode="append", engine="local")
    [violation] = refused.value.fields["violations"]
    assert (violation["source"], violation["line"], violation["rule"]) == (str(path), 3, "record")
    assert violation["message"] == "name: not UTF-8; for a file in another encoding say so, as in encoding=latin-1"
    [told] = quarantined(graph, tmp_path / "aside", nodes={"Person": path})
    assert (told["line"], told["record"]) == (3, '{"name":"ren\\\\xe9","kind":"a"}')
    assert graph.snapshot().count("Person") == 4
    source = TableSource(str(path), options={"encoding": "latin-1"})
    graph.load(nodes={"Person": source}, mode="merge", engine="local")
    assert "rené" in graph.snapshot().read("Person")["name"].to_pylist()


def test_a_csv_header_in_another_encoding_names_the_option(graph: og.Graph, tmp_path: Path) -> None:
    path = tmp_path / "latin.csv"
    path.write_bytes("name,né\nanna,2001-01-01\n".encode("latin-1"))
    with pytest.raises(
        errors.FileUnreadable, match=r"latin\.csv can't be read: its first line is not UTF-8"
    ) as refused:
        graph.load(nodes={"Person": path}, mode="append", engine="local")
    assert "encoding=latin-1" in refused.value.remedy
    source = TableSource(str(path), options={"encoding": "latin-1"}, columns={"né": "born"})
    assert graph.load(nodes={"Person": source}, mode="append", engine="local").inserted == {"node:Person": 1}
    for name in ("klingon", "hex", "utf-16"):
        wrong = TableSource(str(path), options={"encoding": name})
        with pytest.raises(errors.UsageError, match=f"encoding '{name}'"):
            graph.load(nodes={"Person": wrong}, mode="append", engine="local")


def test_tables_of_a_program_are_named_by_their_type(graph: og.Graph) -> None:
    people = pa.table({"name": ["a", "b"], "age": [1, 300]})
    edges = pa.table({"from": ["a"], "to": ["b"]})
    with pytest.raises(errors.ConstraintViolation) as refused:
        graph.load(nodes={"Person": people}, edges={"Knows": edges}, mode="append", engine="local")
    assert [(v["source"], v["line"], v["message"]) for v in refused.value.fields["violations"]] == [
        ("<table Person>", 2, "age: 300 is not between 0 and 120"),
        ("<table Knows>", 1, "to: Person 'b' was rejected (line 2 of <table Person>)"),
    ]


def test_the_command_line_says_how_many_rows_were_loaded_and_rejected(graph: og.Graph, tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", *FAULTS)
    done = graph.load(str(path), mode="append", on_error="quarantine", engine="local")
    first, *_, last = load_text(done)
    assert done.commit is not None
    assert first == f"loaded 4 rows into main, commit {done.commit.id}"
    assert last == (
        "18 rows were rejected (range 4, endpoint 3, cardinality 2, key 2, unique 2, check 1, enum 1, record 1, "
        f"type 1, unknown_field 1), see {done.quarantine}"
    )


def test_a_misspelt_type_of_a_table_gets_a_suggestion(graph: og.Graph, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("name\na\n")
    with pytest.raises(errors.UnknownType) as refused:
        graph.load(nodes={"Persn": tmp_path / "p.csv"}, mode="append", engine="local")
    assert refused.value.fields["suggestion"] == "Person"
    assert refused.value.remedy.startswith("Did you mean Person?")


@pytest.mark.parametrize(("header", "missing"), [("a,b", "from=COLUMN and to=COLUMN"), ("from,b", "to=COLUMN")])
def test_edges_without_columns_of_their_nodes_are_told_which_option_names_them(
    header: str, missing: str, graph: og.Graph, tmp_path: Path
) -> None:
    (tmp_path / "k.csv").write_text(f"{header}\nhere,there\n")
    name, source = parse_option(f"Knows={tmp_path / 'k.csv'}", edges=True)
    with pytest.raises(errors.UsageError, match=f"name them by {missing}|name it by {missing}"):
        graph.load(edges={name: source}, mode="append", engine="local")
