"""The longest record that a load takes: one limit, one error with file and line, on every way that a text is read."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import OmnigraphError, PipelineFileError, RecordError, RecordTooLong, UsageError
from omnigraph.pipeline.bulk.input import input_splits
from omnigraph.pipeline.csv import blocks, read
from omnigraph.pipeline.file.run import plan_pipeline, run_pipeline
from omnigraph.pipeline.load import chunks, planner

SCHEMA = "node Text { name: String @key  text: String? }"
LIMIT = 100
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: pa.Codec("zstd").compress(data, asbytes=True),
}


def records(sizes: list[int]) -> bytes:
    """NDJSON whose lines have these lengths."""
    lines = []
    for i, size in enumerate(sizes):
        line = json.dumps({"type": "Text", "data": {"name": f"n{i:03}", "text": ""}})
        lines.append(line[:-3] + "x" * (size - len(line)) + line[-3:])
    assert [len(line) for line in lines] == sizes
    return "\n".join(lines).encode()


def objects(sizes: list[int]) -> bytes:
    """JSON lines of a table."""
    return b"\n".join(b'{"name":"n%03d","text":"%s"}' % (i, b"x" * (size - 25)) for i, size in enumerate(sizes))


def csv_of(sizes: list[int]) -> bytes:
    """CSV whose records have these lengths, every third with line breaks within quotes; the header is line 1."""
    rows = [b'n%03d,"%s"' % (i, (b"\n" if i % 3 == 0 else b"x") * (size - 7)) for i, size in enumerate(sizes)]
    return b"\n".join([b"name,text", *rows])


def csv_line(sizes: list[int], at: int) -> int:
    return 2 + sum(1 + (size - 7 if i % 3 == 0 else 0) for i, size in enumerate(sizes[:at]))


def load(graph: og.Graph, form: str, path: Path, **options: Any) -> og.LoadResult:
    given: dict[str, Any] = {"source": path} if form == "records" else {"nodes": {"Text": path}}
    return graph.load(**given, **{"mode": "append", "engine": "local", "max_line_bytes": LIMIT, **options})


FORMS = {"records": (records, ".jsonl"), "objects": (objects, ".jsonl"), "csv": (csv_of, ".csv")}


@pytest.mark.parametrize("packing", PACKERS)
@pytest.mark.parametrize("form", FORMS)
def test_a_record_above_the_limit_is_refused_with_file_and_line(
    form: str, packing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = og.init(tmp_path / "g", SCHEMA)
    make, ending = FORMS[form]
    sizes = [80, 60, 100, 61, LIMIT + 1, 70, 100]
    path = tmp_path / f"in{ending}{packing}"
    path.write_bytes(PACKERS[packing](make(sizes)))
    line = csv_line(sizes, 4) if form == "csv" else 5
    for in_memory, piece, chunk in ((1 << 20, 1 << 20, 1 << 20), (-1, 1 << 20, 7), (-1, 150, 64), (1 << 20, 30, 1)):
        monkeypatch.setattr(planner, "IN_MEMORY_BYTES", in_memory)
        monkeypatch.setattr(input_splits, "PIECE_BYTES", (piece, piece))
        monkeypatch.setattr(chunks, "CHUNK_BYTES", chunk)
        monkeypatch.setattr(blocks, "BLOCK_BYTES", chunk)
        with pytest.raises(RecordTooLong) as refused:
            load(graph, form, path, on_error="quarantine", quarantine=tmp_path / "aside.jsonl")
        assert refused.value.fields == {"path": str(path), "line": line, "limit_bytes": LIMIT}
        assert "--max-line-bytes" in refused.value.remedy
    assert graph.snapshot().count("Text") == 0
    assert load(graph, form, path, max_line_bytes=LIMIT + 1).inserted == {"node:Text": len(sizes)}


def test_streams_and_several_files_name_the_file_and_its_line(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", SCHEMA)
    (tmp_path / "a.jsonl").write_bytes(records([60, 70]))
    (tmp_path / "b.jsonl").write_bytes(records([60, 70, 101]))
    with pytest.raises(RecordTooLong) as refused:
        graph.load(str(tmp_path / "*.jsonl"), mode="append", max_line_bytes=LIMIT)
    assert refused.value.message == f"line 3 of {tmp_path / 'b.jsonl'} is longer than 100 bytes."
    with pytest.raises(RecordTooLong, match="line 2 of <input>"):
        graph.load(io.BytesIO(records([60, 101])), mode="append", max_line_bytes=LIMIT)
    with pytest.raises(RecordTooLong, match="line 1 of <input>"):
        graph.load([b" " * 60] * 2, mode="append", max_line_bytes=LIMIT)


@pytest.mark.parametrize("size", [0, -1, (1 << 30) + 1])
def test_a_limit_that_can_not_be_is_wrong_usage(tmp_path: Path, size: int) -> None:
    graph = og.init(tmp_path / "g", SCHEMA)
    with pytest.raises(UsageError, match="max_line_bytes is from 1 byte to 1024 MiB"):
        graph.load([b""], mode="append", max_line_bytes=size)


def test_a_csv_header_or_comment_above_the_limit_is_refused(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", SCHEMA)
    path = tmp_path / "x.csv"
    for text, line, options in (
        (b"\n\nname," + b"x" * 200 + b"\n", 3, {}),
        (b"name,text\na,b\n#" + b"x" * 200 + b"\nc,d\n", 3, {"comment": "#"}),
        (b'name,text\na,b\nc,"' + b"x\n" * 200, 3, {}),
    ):
        path.write_bytes(text)
        source = og.TableSource(str(path), options=options)
        with pytest.raises(RecordTooLong) as refused:
            graph.load(nodes={"Text": source}, mode="append", engine="local", max_line_bytes=LIMIT)
        assert refused.value.fields["line"] == line


def test_a_csv_file_of_blank_lines_has_no_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "LEADING_BYTES_MAX", 1 << 20)
    graph = og.init(tmp_path / "g", SCHEMA)
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"\n" * (2 << 20) + b"name,text\n"))
    with pytest.raises(OmnigraphError, match="are blank lines and comments, without a record"):
        graph.load(nodes={"Text": path}, mode="append", engine="local")


def test_a_pipeline_file_sets_the_limit(tmp_path: Path) -> None:
    (tmp_path / "s.pg").write_text(SCHEMA)
    (tmp_path / "in.jsonl").write_bytes(records([60, 101]))
    file = tmp_path / "p.yaml"
    text = "graph: g\nschema: s.pg\nmode: append\nengine: local\nmax_line_bytes: {}\ndata: [in.jsonl]\n"
    file.write_text(text.format("100"))
    with pytest.raises(RecordTooLong) as refused:
        run_pipeline(file)
    assert refused.value.fields["line"] == 2
    file.write_text(text.format("1KiB"))
    assert run_pipeline(file).load.inserted == {"node:Text": 2}  # type: ignore[union-attr]
    for wrong in ("much", "2GiB", "0", "[1]"):
        file.write_text(text.format(wrong))
        with pytest.raises(PipelineFileError, match=r"p\.yaml:5:17: max_line_bytes is"):
            plan_pipeline(file)


def test_random_lines_are_refused_alike_in_chunks_of_any_size() -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    text = b"".join(rng.choice((b"a", b"\n", b"\r\n", b"bcdefgh")) for _ in range(400))
    lines = text.split(b"\n")
    first = next((i for i, line in enumerate(lines, 1) if len(line) > 20), len(lines) - 1)
    for size in (1, 3, 16, 50, 1000):
        assert _long_line([text[at : at + size] for at in range(0, len(text), size)]) == first


def _long_line(parts: list[bytes]) -> int:
    """The line that is refused, or how many there are."""
    limit = chunks.LineLimit("x", 20)
    try:
        for part in parts:
            limit.add(part)
    except RecordTooLong as error:
        return int(error.fields["line"])
    return limit.line_count


# ---- memory ----------------------------------------------------------------------------------------------------------

UNIT_BYTES = 4 << 20
UNITS = 48
"""A packed file of 192 MiB, made of one packed block again and again."""
BOMBS: dict[str, tuple[str, bytes, bytes, dict[str, object]]] = {
    "blank records": ("records", b"", b"\n", {"inserted": {}, "lines": UNITS * UNIT_BYTES}),
    "blank JSON lines": ("table", b"", b"\n", {"inserted": {}, "lines": UNITS * UNIT_BYTES}),
    "blank CSV": ("table", b"text\n", b"\n", {"inserted": {}, "lines": UNITS * UNIT_BYTES + 1}),
    "long record": ("records", b'{"type":"', b"x", {"condition": "record_too_long", "line": 1}),
    "long JSON line": ("table", b"{}\n", b"x", {"condition": "record_too_long", "line": 2}),
    "long CSV": ("table", b'text\n"', b"x" * 63 + b"\n", {"condition": "record_too_long", "line": 2}),
    "spaces": ("records", b"\n", b" ", {"condition": "record_too_long", "line": 2}),
}


@pytest.mark.parametrize(
    "bomb", [b if b in ("blank records", "long JSON line") else pytest.param(b, marks=pytest.mark.slow) for b in BOMBS]
)
def test_memory_does_not_follow_what_a_file_unpacks_to(bomb: str, tmp_path: Path) -> None:
    form, head, unit, expected = BOMBS[bomb]
    path = tmp_path / ("in.csv.gz" if "CSV" in bomb else "in.jsonl.gz")
    path.write_bytes(gzip.compress(head) + gzip.compress(unit * (UNIT_BYTES // len(unit)), 1) * UNITS)
    assert path.stat().st_size < 2 << 20
    told = _in_a_process(tmp_path, form, path, 1 << 20)
    assert told.pop("grown_mib") < 144, "the file has 192 MiB"
    assert told == expected


@pytest.mark.slow
def test_a_packed_file_takes_no_more_memory_than_a_plain_one(tmp_path: Path) -> None:
    line = b'{"text":"%s"}\n' % (b"x" * 4000)
    count = UNIT_BYTES // len(line)
    plain, packed = tmp_path / "plain" / "in.jsonl", tmp_path / "packed" / "in.jsonl.gz"
    grown = {}
    for path, data in ((plain, line * count * UNITS), (packed, gzip.compress(line * count, 1) * UNITS)):
        path.parent.mkdir()
        path.write_bytes(data)
        told = _in_a_process(path.parent, "table", path, 1 << 20)
        assert told["inserted"] == {"node:Note": count * UNITS}
        grown[path] = told["grown_mib"]
    assert grown[packed] < grown[plain] + 96, "the file has 192 MiB"


def _in_a_process(tmp_path: Path, form: str, path: Path, limit: int) -> dict[str, Any]:
    og.init(tmp_path / "g", "node Note { text: String }").close()
    words = [sys.executable, "-m", "tests.pipeline.bomb", str(tmp_path / "g"), form, str(path), str(limit)]
    root = Path(__file__).parents[2]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=root)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_packed_file_that_does_not_fit_in_memory_is_loaded_by_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "IN_MEMORY_BYTES", 3000)
    monkeypatch.setattr(input_splits, "PIECE_BYTES", (2000, 2000))
    graph = og.init(tmp_path / "g", SCHEMA)
    path = tmp_path / "in.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n" * 5000 + records([80] * 60) + b"\nno record\n" + b"\n" * 5000))
    assert path.stat().st_size < 3000
    aside = tmp_path / "aside.jsonl"
    done = load(graph, "records", path, on_error="quarantine", quarantine=aside)
    assert (done.inserted, done.lines, done.rejected) == ({"node:Text": 60}, 10_061, 1)
    [rejected] = [json.loads(line) for line in aside.read_text().splitlines()]
    assert (rejected["source"], rejected["line"], rejected["record"]) == (str(path), 5061, "no record")
    assert not (tmp_path / "g" / "__staging").exists()


# ---- single values ---------------------------------------------------------------------------------------------------

VALUES = {
    "nested lists": b"[" * 50_000 + b"]" * 50_000,
    "nested objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "open lists": b"[" * 50_000,
    "digits": b"1" * 100_000,
    "exponent": b"1e999999999",
    "surrogate": b'"\\ud800"',
}


@pytest.mark.parametrize("way", ["memory", "tasks"])
@pytest.mark.parametrize("value", VALUES)
def test_values_beyond_all_measure_are_refused_with_their_line(
    value: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "IN_MEMORY_BYTES", 1 << 30 if way == "memory" else -1)
    graph = og.init(tmp_path / "g", "node T { name: String @key  n: I64?  f: F64?  tags: [String]?  text: String? }")
    members = ("n", "f", "tags", "text", "other")
    lines = [
        b'{"type":"T","data":{"name":"%d","%s":%s}}' % (i, m.encode(), VALUES[value]) for i, m in enumerate(members)
    ]
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\n".join([*lines, VALUES[value]]))
    with pytest.raises(RecordError) as refused:
        graph.load(path, mode="append", engine="local")
    assert [v["line"] for v in refused.value.fields["violations"]] == [1, 2, 3, 4, 5, 6]
    table = tmp_path / "in.csv"
    table.write_bytes(b'name,n,tags\na,,"%s"\nb,"%s",\n' % ((VALUES[value].replace(b'"', b'""'),) * 2))
    with pytest.raises(OmnigraphError) as told:
        graph.load(nodes={"T": table}, mode="append", engine="local")
    assert [v["line"] for v in told.value.fields["violations"]] == [2, 3]
