"""Every rule of the envelope, with the message it gives, whether a line stands alone or among thousands."""

from __future__ import annotations

import gzip
import io
import itertools
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from omnigraph.storage.lance.columns import arrow_schema
from omnigraph.write.envelope import blocks as blocks_module
from omnigraph.write.envelope import chunks_of, parse, reading
from tests.write.lines import SCHEMA, expected, good_lines, verdicts

# (line, rule, a part of the reason)
REFUSED: list[tuple[bytes, str, str]] = [
    # what is no record
    (b"null", "record", "a record is an object, not null"),
    (b"[]", "record", "a record is an object, not a list"),
    (b"5", "record", "a record is an object, not the number 5"),
    (b'"x"', "record", "a record is an object, not the string 'x'"),
    (b"{", "record", "not JSON"),
    (b'{"type":"Person","data":{"name":"a"}', "record", "not JSON"),
    (b'{"type":"Person","data":{"name":"a"}}}', "record", "not JSON: Extra data"),
    (b'{"type":"Person","data":{"name":"a"}}{"type":"Person","data":{"name":"b"}}', "record", "not JSON: Extra data"),
    (b'{"type":"Person","data":{"name":"a"}}null', "record", "not JSON"),
    (b'{"type":"Person","data":{"name":"a"},}', "record", "not JSON"),
    (b'{"type":"Thing",}', "record", "not JSON"),
    (b"{'type':'Person'}", "record", "not JSON"),
    (b'\xef\xbb\xbf{"type":"Person","data":{"name":"a"}}', "record", "BOM"),
    (b'{"type":"Person","data":{"name":"\xff"}}', "record", "not UTF-8 at byte 33"),
    (b'{"type":"Person","data":{"name":"a\tb"}}', "record", "not JSON: Invalid control character"),
    (b'{"type":"Person","data":{"name":"a\x00b"}}', "record", "not JSON: Invalid control character"),
    (b'{"type":"Person","data":{"name":"a"}}\x00', "record", "not JSON"),
    (b'{"type":"Person","data":{"name":"\\x41"}}', "record", "not JSON: Invalid \\escape"),
    (b'{"type":"Thing","data":{"d":NaN}}', "record", "NaN is not a number"),
    (b'{"type":"Thing","data":{"d":Infinity}}', "record", "Infinity is not a number"),
    (b'{"type":"Thing","data":{"d":-Infinity}}', "record", "-Infinity is not a number"),
    (b'{"type":"Thing","data":{"v":[1,NaN]}}', "record", "NaN is not a number"),
    (b'{"type":"Thing","data":{"d":01}}', "record", "not JSON"),
    (b'{"type":"Thing","data":{"d":1.}}', "record", "not JSON"),
    (b'{"type":"Thing","data":{"d":+1}}', "record", "not JSON"),
    (b"[" * 100_000, "record", "nested too deeply"),
    (b'{"type":"Person","data":' * 50_000, "record", "nested too deeply"),
    # a member twice
    (b'{"type":"Person","type":"Person","data":{"name":"a"}}', "record", "the member 'type' occurs twice"),
    (b'{"type":"Person","data":{"name":"a"},"data":{"name":"a"}}', "record", "the member 'data' occurs twice"),
    (b'{"type":"Person","data":{"name":"a","name":"a"}}', "record", "the member 'name' occurs twice"),
    (b'{"type":"Person","data":{"name":"a","n\\u0061me":"b"}}', "record", "the member 'name' occurs twice"),
    (b'{"type":"Person","data":{"name":"a","age":null,"age":null}}', "record", "the member 'age' occurs twice"),
    (b'{"type":"Thing","data":{"x":[{"y":1,"y":1}]}}', "record", "the member 'y' occurs twice"),
    # type and edge
    (b"{}", "record", "this one has neither"),
    (b'{"data":{}}', "record", "this one has neither"),
    (b'{"type":"Person","edge":"Knows","data":{"name":"a"}}', "record", "this one has both"),
    (b'{"type":null,"data":{"name":"a"}}', "record", '"type" is a string, not null'),
    (b'{"type":7,"data":{"name":"a"}}', "record", '"type" is a string, not the number 7'),
    (b'{"edge":["Knows"],"from":"a","to":"b"}', "record", '"edge" is a string, not a list'),
    (b'{"type":"Persn","data":{"name":"a"}}', "record", "no node type named 'Persn' (did you mean 'Person'?)"),
    (b'{"type":"Knows","data":{}}', "record", "no node type named 'Knows'"),
    (b'{"edge":"Person","from":"a","to":"b"}', "record", "no edge type named 'Person'"),
    # other fields of the envelope
    (b'{"type":"Person","data":{"name":"a"},"extra":1}', "unknown_field", "no field 'extra'"),
    (b'{"type":"Person","name":"a"}', "unknown_field", "no field 'name' (properties go into \"data\")"),
    (b'{"type":"Person","id":"a","data":{"name":"a"}}', "unknown_field", "no field 'id'"),
    (b'{"type":"Person","from":"a","data":{"name":"a"}}', "unknown_field", "no field 'from'"),
    (b'{"type":"Person","data":null}', "record", '"data" is an object, not null'),
    (b'{"type":"Thing","data":null}', "record", '"data" is an object, not null'),
    (b'{"edge":"Knows","from":"a","to":"b","data":null}', "record", '"data" is an object, not null'),
    (b'{"type":"Person","data":[]}', "record", '"data" is an object, not a list'),
    (b'{"edge":"Knows","to":"b"}', "endpoint", "from: is required"),
    (b'{"edge":"Knows","from":"a"}', "endpoint", "to: is required"),
    (b'{"edge":"Knows","from":1,"to":"b"}', "endpoint", "from: expected String, not the number 1"),
    (b'{"edge":"Knows","from":"a","to":null}', "endpoint", "to: expected String, not null"),
    (b'{"edge":"Knows","from":"\\ud800","to":"b"}', "endpoint", "surrogate"),
    # fields of data
    (
        b'{"type":"Person","data":{"name":"a","agee":1}}',
        "unknown_field",
        "no property named 'agee' (did you mean 'age'?)",
    ),
    (b'{"type":"Person","data":{"name":"a","agee":null}}', "unknown_field", "no property named 'agee'"),
    (b'{"type":"Person","data":{"name":"a","\\ud800":1}}', "unknown_field", "no property named '\\ud800'"),
    (b'{"type":"Person","\\ud800":1}', "unknown_field", "no field '\\ud800'"),
    (b'{"type":"\\ud800"}', "record", "no node type named '\\ud800'"),
    (b'{"type":"Person","data":{"name":"a","_rowid":1}}', "unknown_field", "'_rowid' is reserved"),
    (b'{"edge":"Knows","from":"a","to":"b","data":{"src":"a"}}', "unknown_field", "'src' is reserved"),
    (b'{"edge":"Knows","from":"a","to":"b","data":{"dst":"a"}}', "unknown_field", "'dst' is reserved"),
    # ids
    (b'{"type":"Person","data":{"name":"a","id":"b"}}', "id", "id: is 'b', but the key gives 'a'"),
    (b'{"type":"Person","data":{"name":"a","id":null}}', "id", "id: expected String, not null"),
    (b'{"type":"Thing","data":{"id":null}}', "id", "id: expected String, not null"),
    (b'{"type":"Thing","data":{"id":\rnull}}', "id", "id: expected String, not null"),
    (b'{"type":"Thing","data":\rnull}', "record", '"data" is an object, not null'),
    (b'{"type":"Thing","data":{"\\u0069d":null}}', "id", "id: expected String, not null"),
    (b'{"edge":"Knows","from":"a","to":"b","data":{"id":7}}', "id", "id: expected String, not the number 7"),
    # values
    (b'{"type":"Person","data":{}}', "null", "name: is required"),
    (b'{"type":"Person"}', "null", "name: is required"),
    (b'{"type":"Person","data":{"name":null}}', "null", "name: is required"),
    (b'{"edge":"Knows","from":"a","to":"b","data":{"weight":null}}', "null", "weight: is required"),
    (b'{"type":"Person","data":{"name":5}}', "type", "name: expected String, not the number 5"),
    (b'{"type":"Person","data":{"name":"\\udc00"}}', "type", "surrogate"),
    (b'{"type":"Thing","data":{"b":1}}', "type", "b: expected Bool, not the number 1"),
    (b'{"type":"Thing","data":{"i":1.5}}', "type", "i: expected I32, not the number 1.5"),
    (b'{"type":"Thing","data":{"i":1.0}}', "type", "i: expected I32, not the number 1.0"),
    (b'{"type":"Thing","data":{"i":1e2}}', "type", "i: expected I32, not the number 1e2"),
    (b'{"type":"Thing","data":{"i":"1"}}', "type", "i: expected I32, not the string '1'"),
    (b'{"type":"Thing","data":{"i":true}}', "type", "i: expected I32, not the boolean true"),
    (b'{"type":"Thing","data":{"i":2147483648}}', "type", "i: the number 2147483648 is outside of the range of I32"),
    (b'{"type":"Thing","data":{"l":9223372036854775808}}', "type", "outside of the range of I64"),
    (b'{"type":"Thing","data":{"l":' + b"9" * 5000 + b"}}", "type", "outside of the range of I64"),
    (b'{"type":"Thing","data":{"u":-1}}', "type", "outside of the range of U32"),
    (b'{"type":"Thing","data":{"w":18446744073709551616}}', "type", "outside of the range of U64"),
    (b'{"type":"Thing","data":{"f":1e39}}', "type", "f: the number 1e39 is not a finite F32"),
    (b'{"type":"Thing","data":{"d":1e400}}', "type", "d: the number 1e400 is not a finite F64"),
    (b'{"type":"Thing","data":{"d":"1"}}', "type", "d: expected F64, not the string '1'"),
    (b'{"type":"Thing","data":{"day":"2023-02-29"}}', "type", "day: the string '2023-02-29' is not a date"),
    (b'{"type":"Thing","data":{"day":"0000-01-01"}}', "type", "is not a date"),
    (b'{"type":"Thing","data":{"day":19000}}', "type", "day: expected Date, not the number 19000"),
    (b'{"type":"Thing","data":{"at":"2024-01-01T25:00:00Z"}}', "type", "is not a datetime"),
    (b'{"type":"Thing","data":{"at":"0001-01-01T00:00:00+01:00"}}', "type", "is not a datetime"),
    (b'{"type":"Thing","data":{"at":0}}', "type", "at: expected DateTime, not the number 0"),
    (b'{"type":"Thing","data":{"blob":"A"}}', "type", "blob: the text is not base64"),
    (b'{"type":"Thing","data":{"blob":"AA==AA=="}}', "type", "blob: the text is not base64"),
    (b'{"type":"Thing","data":{"blob":"\xc3\xa9"}}', "type", "blob: the text is not base64"),
    (b'{"type":"Thing","data":{"blob":[1]}}', "type", "blob: expected Blob as base64 text, not a list"),
    (b'{"type":"Thing","data":{"v":[1]}}', "vector", "v: expected 2 numbers, not 1"),
    (b'{"type":"Thing","data":{"v":[1,2,3]}}', "vector", "v: expected 2 numbers, not 3"),
    (b'{"type":"Thing","data":{"v":[1,null]}}', "vector", "v: item 1 is null"),
    (b'{"type":"Thing","data":{"v":[1,"2"]}}', "vector", "v: item 1: expected F32, not the string '2'"),
    (b'{"type":"Thing","data":{"v":[1,1e39]}}', "vector", "v: item 1: the number 1e39 is not a finite F32"),
    (b'{"type":"Thing","data":{"v":"12"}}', "vector", "v: expected Vector(2), not the string '12'"),
    (b'{"type":"Thing","data":{"tags":["a",null]}}', "list", "tags: item 1 is null"),
    (b'{"type":"Thing","data":{"tags":["a",1]}}', "list", "tags: item 1: expected String, not the number 1"),
    (b'{"type":"Thing","data":{"tags":[["a"]]}}', "list", "tags: item 0: expected String, not a list"),
    (b'{"type":"Thing","data":{"tags":"a"}}', "type", "tags: expected [String], not the string 'a'"),
    (b'{"type":"Thing","data":{"tags":{"a":1}}}', "type", "tags: expected [String], not an object"),
    (b'{"type":"Thing","data":{"nums":[1e39]}}', "list", "nums: item 0: the number 1e39 is not a finite F32"),
    (b'{"type":"Thing","data":{"days":["2023-02-29"]}}', "list", "days: item 0: the string '2023-02-29' is not a date"),
    (b'{"type":"Thing","data":{"times":["0000-01-01"]}}', "list", "is not a datetime"),
    (b'{"type":"Visit","data":{"who":"a","day":"2024-01-01","n":1,"level":1e39}}', "type", "not a finite F32"),
]

STORED = [
    b'{"type":"Person","data":{"name":"a"}}',
    b'{"type":"Person","data":{"name":"a","id":"a"}}',
    b' { "type" : "Person" , "data" : { "name" : "a" } } \r',
    b'{"data":{"name":"a"},"type":"Person"}',
    b'{"t\\u0079pe":"Person","d\\u0061ta":{"n\\u0061me":"\\u00e9\\ud83d\\ude00\\u0000"}}',
    b'{"type":"Person","data":{"name":""}}',
    b'{"type":"Thing"}',
    b'{"type":"Thing","data":{}}',
    b'{"type":"Thing","data":{"c":null}}',
    b'{"type":"Thing","data":{"\\u0063":null}}',
    b'{"type":"Thing","data":{"c"\r:\r\tnull}}',
    b'\r{\r"type"\r:\r"Thing"\r,\r"data"\r:\r{\r}\r}\r',
    b'{"type":"Thing","data":{"s":"null","c":1}}',
    b'{"type":"Thing","data":{"type":"Thing"}}',
    b'{"type":"Thing","data":{"l":9007199254740993,"w":18446744073709551615,"d":9007199254740993}}',
    b'{"type":"Thing","data":{"u":-0,"d":-0,"f":1e-60}}',
    b'{"type":"Thing","data":{"f":16777217,"nums":[16777217,0.1]}}',
    b'{"type":"Thing","data":{"f":1.00000029802322387695312500001}}',
    b'{"type":"Thing","data":{"at":"0000-12-31T23:00:00-02:00"}}',
    b'{"type":"Thing","data":{"at":"9999-12-31T23:59:59.999999999"}}',
    b'{"type":"Thing","data":{"day":"0001-01-01","days":[],"times":["2024-01-01","2024-01-01T00:00:00.5Z"]}}',
    b'{"type":"Thing","data":{"blob":"","v":[0,-0.0]}}',
    b'{"type":"Thing","data":{"e":"not checked here"}}',
    b'{"type":"Visit","data":{"who":"a\\"","day":"2024-01-01","n":1,"level":1e20}}',
    b'{"type":"Visit","data":{"who":"a","day":"2024-01-01","n":1,"level":-0.0,"id":"[\\"a\\",\\"19723\\",\\"0\\"]"}}',
    b'{"edge":"Knows","from":"a","to":"b"}',
    b'{"to":"a","from":"b","edge":"Knows","data":{"since":null}}',
    b'{"edge":"Knows","from":"a","to":"b","data":{"data":"x","id":"own00000000000000000000000"}}',
]


@pytest.mark.parametrize(("line", "rule", "reason"), REFUSED, ids=[repr(line[:70]) for line, _, _ in REFUSED])
def test_a_line_that_breaks_a_rule_is_refused_for_that_reason(line: bytes, rule: str, reason: str) -> None:
    [rejected] = parse(SCHEMA, [line]).rejected
    assert (rejected.line, rejected.rule, rejected.record) == (1, rule, line)
    assert reason in rejected.reason
    orjson.dumps([rejected.to_json(), rejected.violation().to_json()])


@pytest.mark.parametrize("line", STORED, ids=[repr(line[:70]) for line in STORED])
def test_a_line_that_keeps_all_rules_is_stored(line: bytes) -> None:
    parsed = parse(SCHEMA, [line])
    assert parsed.rejected == ()
    assert sum(rows.table.num_rows for rows in parsed.rows.values()) == 1


def test_every_line_gets_the_same_verdict_among_thousands() -> None:
    """The lines above, planted among good ones that take the fast way; the judge alone is the oracle."""
    planted = [line for line, _, _ in REFUSED] + STORED
    plain = [
        b'{"type":"Thing","data":{"s":"x"}}',
        b'{"type":"Person","data":{"name":"p"}}',
        b'{"edge":"Knows","from":"a","to":"b"}',
    ]
    lines: list[bytes] = []
    for line in planted:
        lines += [line, *(plain * 20)]
    text = b"\n".join(lines)
    assert verdicts(parse(SCHEMA, [text], threads=2, block_bytes=20_000)) == expected(SCHEMA, lines)


@pytest.mark.parametrize("judged_max", [0, 16])
@pytest.mark.parametrize("line", [line for line, _, _ in REFUSED] + STORED, ids=lambda line: repr(line[:70]))
def test_a_line_gets_the_same_verdict_in_a_group_of_its_own_kind(
    line: bytes, judged_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "JUDGED_MAX", judged_max)
    monkeypatch.setattr(reading, "HALVED_MIN", judged_max + 1)
    lines = [line] * 40
    assert verdicts(parse(SCHEMA, [b"\n".join(lines)])) == expected(SCHEMA, lines)


def test_an_object_over_two_lines_is_refused_even_if_the_number_of_objects_fits() -> None:
    """Three objects on three lines, but not one on each."""
    lines = [b'{"type":"Thing","data":', b'{"type":"Thing"}}', b'{"type":"Thing"}{"type":"Thing","data":{}}'] * 20
    parsed = parse(SCHEMA, [b"\n".join(lines)])
    assert verdicts(parsed) == expected(SCHEMA, lines)
    assert len(parsed.rejected) == 60


def test_blank_lines_are_skipped_and_counted() -> None:
    text = b'\n  \n{"type":"Person","data":{"name":"a"}}\n\r\n\t\nx\n'
    parsed = parse(SCHEMA, [text])
    assert parsed.rows["Person"].lines.to_pylist() == [3]
    assert [r.line for r in parsed.rejected] == [6]
    assert parsed.line_count == 6


@pytest.mark.parametrize("text", [b"", b"\n", b"  \n\n "])
def test_an_input_without_records_is_empty(text: bytes) -> None:
    parsed = parse(SCHEMA, [text])
    assert (parsed.rows, parsed.rejected) == ({}, ())


@pytest.mark.parametrize("block_bytes", [1, 100, 1000, 1 << 20])
@pytest.mark.parametrize("chunk_bytes", [1, 7, 1000, 1 << 20])
def test_how_the_bytes_arrive_and_how_they_are_cut_does_not_show(block_bytes: int, chunk_bytes: int) -> None:
    lines = [*good_lines(5, 60), b"", b"bad", *good_lines(6, 10)]
    text = b"\n".join(lines)
    chunks = [text[i : i + chunk_bytes] for i in range(0, len(text), chunk_bytes)]
    parsed = parse(SCHEMA, chunks, block_bytes=block_bytes, threads=3, keep_text=True)
    assert verdicts(parsed) == expected(SCHEMA, lines)
    assert parsed.line_count == len(lines)
    assert parsed.records(range(1, len(lines) + 1)) == {i: line.rstrip(b"\r") for i, line in enumerate(lines, 1)}


def test_a_compressed_file_is_read_through_its_file_object() -> None:
    lines = good_lines(7, 200)
    packed = io.BytesIO(gzip.compress(b"\n".join(lines)))
    with gzip.open(packed) as file:
        assert verdicts(parse(SCHEMA, chunks_of(file, chunk_bytes=999))) == expected(SCHEMA, lines)


def test_other_kinds_of_bytes_are_taken() -> None:
    line = b'{"type":"Person","data":{"name":"a"}}\n'
    for chunk in (bytearray(line), memoryview(line), pa.py_buffer(line)):
        assert parse(SCHEMA, [chunk]).rows["Person"].table.num_rows == 1


def test_new_ids_increase_with_the_lines_and_never_repeat() -> None:
    line = b'{"edge":"Knows","from":"a","to":"b"}\n'
    parsed = parse(SCHEMA, [line * 5000], block_bytes=4096, threads=4)
    ids = parsed.rows["Knows"].table["id"].to_pylist()
    assert ids == sorted(set(ids))
    assert not parsed.rows["Knows"].has_own_ids


def test_own_ids_are_kept_and_known() -> None:
    lines = [b'{"type":"Thing","data":{"id":"x%d"}}' % i for i in range(50)] + [b'{"type":"Thing"}'] * 50
    rows = parse(SCHEMA, [b"\n".join(lines)]).rows["Thing"]
    assert rows.has_own_ids
    assert rows.table["id"].to_pylist()[:50] == [f"x{i}" for i in range(50)]
    assert parse(SCHEMA, [b"\n".join(lines[50:])]).rows["Thing"].has_own_ids is False


def test_tables_have_the_stored_schema() -> None:
    parsed = parse(SCHEMA, [b"\n".join(good_lines(8, 300))])
    assert parsed.rejected == ()
    assert {name: rows.table.schema for name, rows in parsed.rows.items()} == {
        t.name: arrow_schema(t) for t in SCHEMA.types()
    }


def test_a_rejected_line_is_told_as_it_was() -> None:
    [rejected] = parse(SCHEMA, [b'\n{"type":"Visit","data":{"who":"a","day":"2024-01-01","level":0}}\r\n']).rejected
    assert rejected.to_json() == {
        "line": 2,
        "rule": "null",
        "reason": "n: is required",
        "record": '{"type":"Visit","data":{"who":"a","day":"2024-01-01","level":0}}',
    }
    assert (rejected.table_key, rejected.entity_id) == ("node:Visit", '["a","19723","0"]')
    [broken] = parse(SCHEMA, [b"\xff{"]).rejected
    assert broken.to_json()["record"] == "\\xff{"


def test_more_spellings_than_groups_still_give_the_same_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_module, "GROUPS_MAX", 3)
    lines = [b" " * n + line for n, line in itertools.product(range(5), STORED)]
    assert verdicts(parse(SCHEMA, [b"\n".join(lines)])) == expected(SCHEMA, lines)


def test_blank_lines_are_counted_and_never_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed_one_by_one: list[int] = []
    real = blocks_module._parsed_groups

    def parsed_groups(lines: pa.Array, places: np.ndarray) -> Any:
        parsed_one_by_one.append(len(lines))
        return real(lines, places)

    monkeypatch.setattr(blocks_module, "_parsed_groups", parsed_groups)
    parsed = parse(SCHEMA, [b"\n" * 5000, b"no record\n", b"\n" * 5000, b" \t\r\n"], block_bytes=1000)
    assert parsed.line_count == 10_002
    assert [line.line for line in parsed.rejected] == [5001]
    assert sum(parsed_one_by_one) <= 2, "the line that is no record, and the one of spaces"


def test_integers_beyond_two_to_the_53_are_exact_and_floats_are_rounded_once() -> None:
    lines = [
        b'{"type":"Thing","data":{"l":9007199254740993,"d":9007199254740993,"f":1.00000029802322387695312500001}}'
    ] * 40
    table = parse(SCHEMA, [b"\n".join(lines)]).rows["Thing"].table
    assert set(table["l"].to_pylist()) == {9007199254740993}
    assert set(table["d"].to_pylist()) == {9007199254740992.0}
    # Just above the middle of two floats; by way of a double it would be a tie, and the lower one.
    assert set(table["f"].to_pylist()) == {1.0000003576278687}
