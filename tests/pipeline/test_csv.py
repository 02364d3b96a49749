"""CSV is read as Python's csv module reads it, whatever its size, packing and options."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import FileUnreadable, UsageError
from omnigraph.pipeline.bulk.input import input_splits
from omnigraph.pipeline.csv import blocks
from omnigraph.pipeline.csv.options import csv_format
from omnigraph.pipeline.csv.read import read_csv
from omnigraph.pipeline.csv.splits import csv_segments, split_files, with_headers
from omnigraph.pipeline.load.input_files import find_files
from omnigraph.pipeline.load.table_sources import TableSource
from omnigraph.tasks.runner import LocalRunner
from tests.pipeline.csv_cases import (
    CASES,
    COLUMNS,
    PACKINGS,
    Case,
    Reference,
    cells_of,
    expected_cells,
    reference,
    schema_of,
    write,
)

Rows = list[tuple[int, list[str | None]]]


def read(path: Path, options: dict[str, str], *, size: int) -> tuple[list[str], Rows, list[int]]:
    """Header, rows and records that are no rows, with their lines, of a path that is cut about every `size` bytes."""
    files = split_files(
        LocalRunner(parallelism=2), [(f, options) for f in with_headers(find_files(path), options)], size=size
    )
    rows: Rows = []
    bad: list[int] = []
    for file in files:
        before = 0
        for segment in csv_segments(file):
            found = read_csv(segment, options)
            values = zip(*(column.to_pylist() for column in found.table.columns), strict=True)
            rows += [(int(line) + before, list(row)) for line, row in zip(found.lines, values, strict=True)]
            bad += [line + before for line, _, _ in found.bad]
            before += found.line_count
    return files[0].header.names, rows, bad


def agrees(case: Case, expected: Reference, found: tuple[list[str], Rows, list[int]]) -> None:
    header, rows, bad = found
    assert header == expected.header
    assert [line for line, _ in rows] == [line for line, _ in expected.rows]
    assert bad == expected.ragged
    if case.rows is not None:
        assert [row for _, row in rows] == case.rows
    else:
        assert [[value or "" for value in row] for _, row in rows] == [row for _, row in expected.rows]


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_packing_is_read_as_the_csv_module_reads_it(
    case: Case, packing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(case, tmp_path, packing)
    for size in (1, 2, 3, 5, 8, 13, 40) if packing == "cut" else (1 << 20,):
        agrees(case, reference(case), read(path, dict(case.options), size=size))
    for block_bytes in (1, 2, 3, 5, 8, 13, 40):
        monkeypatch.setattr(blocks, "BLOCK_BYTES", block_bytes)
        agrees(case, reference(case), read(path, dict(case.options), size=40 if packing == "cut" else 1 << 20))


def test_random_bytes_are_read_as_the_csv_module_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    path = tmp_path / "x.csv"
    tried = 0
    while tried < 250:
        escape = rng.random() < 0.4
        data = bytes(rng.choice(b'ab"",,\n\r\\') for _ in range(rng.randrange(1, 40)))
        options = {"header": "false", **({"escape": "\\"} if escape else {})}
        if escape and (b'"\\' in data or data.endswith(b"\\")):
            continue  # the csv module takes an escape behind a closing quote, and one at the end, for itself
        path.write_bytes(data)
        case = Case("x", data, options)
        if not any(csv.reader(io.StringIO(data.decode(), newline=""), escapechar="\\" if escape else None)):
            continue
        tried += 1
        for size in (rng.randrange(1, 6), 1 << 20):
            monkeypatch.setattr(blocks, "BLOCK_BYTES", rng.randrange(1, 20))
            found = _read_or_open(path, options, size)
            if found is not None:
                agrees(case, reference(case), found)
            else:
                with pytest.raises(csv.Error):
                    list(csv.reader(io.StringIO(case.text, newline=""), escapechar=options.get("escape"), strict=True))


def _read_or_open(path: Path, options: dict[str, str], size: int) -> tuple[list[str], Rows, list[int]] | None:
    """None for a file that ends within quotes, which the csv module closes by itself unless it is strict."""
    try:
        return read(path, options, size=size)
    except FileUnreadable as error:
        if "is not closed before the file ends" not in error.message:
            raise
        return None


def test_a_quote_that_never_closes_is_told_with_its_line(tmp_path: Path) -> None:
    data = b'k,v\n1,a\n2,"b\n\nc"\n3,"d\n' + b"4,e\n" * 30
    for packing, size in (("small", 1 << 20), ("cut", 9), ("cut", 60), ("gz", 9), ("folder", 9)):
        path = write(Case(f"open{size}", data), tmp_path / "", packing)
        with pytest.raises(FileUnreadable, match=r"the quote that opens in line 6 is not closed") as refused:
            read(path, {}, size=size)
        assert "quote=" in refused.value.remedy


def test_an_escape_at_the_end_of_a_file_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"k,v\n1,a\n2,b\\")
    for size in (3, 1 << 20):
        with pytest.raises(FileUnreadable, match="ends with the escape character, in line 3"):
            read(tmp_path / "x.csv", {"escape": "\\"}, size=size)


def test_line_breaks_within_values_can_be_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b'k,v\n1,"a\nb"\n2,c\n3,"d\r\ne"\n4,f\n')
    for size in (3, 1 << 20):
        _, rows, bad = read(tmp_path / "x.csv", {"multiline": "false"}, size=size)
        assert (rows, bad) == ([(4, ["2", "c"]), (7, ["4", "f"])], [2, 5])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"quote": ","}, "delimiter and quote can't both be ','"),
        ({"escape": '"'}, "quote and escape can't both be '\"'. Two quotes within quotes"),
        ({"escape": ";", "delimiter": ";"}, "delimiter and escape"),
        ({"comment": "#", "quote": "#"}, "quote and comment"),
        ({"comment": "\\", "escape": "\\"}, "escape and comment"),
        ({"null": "a,b"}, "null='a,b' holds the delimiter ','"),
        ({"null": "a\nb"}, "holds a line break"),
        ({"null": '"NA"'}, "null='\"NA\"' begins with the quote"),
        ({"null": "\\", "escape": "\\"}, "null='\\\\\\\\' ends with the escape"),
        ({"delimiter": ""}, "delimiter is one ASCII character"),
        ({"delimiter": "||"}, "delimiter is one ASCII character"),
        ({"delimiter": "§"}, "delimiter is one ASCII character"),
        ({"quote": "\n"}, "quote is one ASCII character"),
        ({"header": "maybe"}, "header is true or false"),
        ({"multiline": "1"}, "multiline is true or false"),
        ({"encoding": "utf-16"}, "encoding 'utf-16'"),
        ({"sep": ";"}, "no option 'sep'"),
        ({"header": True}, "header is a text, not bool"),
    ],
)
def test_options_that_mean_nothing_are_refused_by_name(options: Any, told: str) -> None:
    with pytest.raises(UsageError, match=re.escape(told).replace(r"\\\\\\\\", r"\\\\")):
        csv_format(options, path="x.csv")


# ---- loads -----------------------------------------------------------------------------------------------------------

SCHEMA = "node Text { name: String @key  text: String? }"


def test_a_load_of_texts_that_look_like_records_has_no_other_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_splits, "PIECE_BYTES", (200, 200))
    texts = ["\n".join(f"n{i}-{j},fake" for j in range(20)) for i in range(30)]
    buffer = io.StringIO(newline="")
    csv.writer(buffer).writerows([["name", "text"], *([f"t{i}", text] for i, text in enumerate(texts))])
    data = buffer.getvalue().encode()
    (tmp_path / "a.csv").write_bytes(data)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(data))
    for name in ("a.csv", "b.csv.gz"):
        graph = og.init(tmp_path / f"{name}.omni", SCHEMA)
        assert graph.load(nodes={"Text": tmp_path / name}, mode="append", engine="local").inserted == {"node:Text": 30}
        rows = {row["name"]: row["text"] for row in graph.snapshot().read("Text").to_pylist()}
        assert rows == {f"t{i}": text for i, text in enumerate(texts)}


def test_lines_of_rejected_rows_count_the_breaks_within_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_splits, "PIECE_BYTES", (30, 30))
    rows = "".join(f'a{i},"1\n2\n3"\n' for i in range(9))
    (tmp_path / "x.csv").write_text(f'name,text\n{rows}broken\nb,"x\ny",z\nc,d\n')
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    aside = tmp_path / "aside.jsonl"
    source = TableSource(str(tmp_path / "x.csv"))
    done = graph.load(nodes={"Text": source}, mode="append", on_error="quarantine", quarantine=aside, engine="local")
    told = [json.loads(line) for line in aside.read_text().splitlines()]
    assert [(t["line"], t["record"]) for t in told] == [(29, "broken"), (30, 'b,"x\ny",z')]
    assert done.inserted == {"node:Text": 10}


def test_all_cases_in_one_load_give_the_rows_of_the_csv_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_splits, "PIECE_BYTES", (20, 20))
    cases = [case for case in CASES if not reference(case).ragged]
    nodes = {}
    for i, case in enumerate(cases):
        path = write(case, tmp_path, PACKINGS[i % len(PACKINGS)])
        names = dict(zip(reference(case).header, COLUMNS, strict=False))
        nodes[f"T{i}"] = TableSource(str(path), format="csv", options=case.options, columns=names)
    graph = og.init(tmp_path / "g.omni", schema_of([case.name for case in cases]))
    graph.load(nodes=nodes, mode="append", engine="local")
    snapshot = graph.snapshot()
    for i, case in enumerate(cases):
        assert cells_of(case, snapshot.read(f"T{i}").to_pylist()) == expected_cells(case), case.name
