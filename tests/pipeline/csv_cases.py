"""CSV as it is found in the world, and what Python's csv module makes of it."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PACKINGS = ("small", "cut", "gz", "folder")
Row = list[str | None]


@dataclass(frozen=True)
class Case:
    """`rows` says which values are null, where the reference can't: Python's csv does not tell quoted from plain."""

    name: str
    data: bytes
    options: Mapping[str, str] = field(default_factory=dict)
    rows: Sequence[Row] | None = None
    ending: str = "csv"

    @property
    def text(self) -> str:
        return self.data.decode(self.options.get("encoding", "utf-8-sig"))


@dataclass(frozen=True)
class Reference:
    header: list[str]
    rows: list[tuple[int, list[str]]]
    """With the line on which each begins."""
    ragged: list[int]


def reference(case: Case) -> Reference:
    """What Python's csv reads. It has no comments: lines that are some, between records, are not handed to it."""
    options = case.options
    quote = options.get("quote", '"')
    lines = _Lines(case.text, options.get("comment"))
    reader = csv.reader(
        lines,
        delimiter=options.get("delimiter", "\t" if case.ending == "tsv" else ","),
        quotechar=quote or None,
        quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
        escapechar=options.get("escape"),
    )
    found: list[tuple[int, list[str]]] = []
    for row in reader:
        if row:
            found.append((lines.record_line, row))
        lines.is_between = True
    has_header = options.get("header") != "false"
    header = found.pop(0)[1] if has_header else [f"c{i}" for i in range(1, len(found[0][1]) + 1)]
    rows = [(line, row) for line, row in found if len(row) == len(header)]
    return Reference(header, rows, [line for line, row in found if len(row) != len(header)])


class _Lines:
    """The lines of a text, as the reader asks for them, and the line on which its record begins."""

    def __init__(self, text: str, comment: str | None) -> None:
        self._lines = enumerate(io.StringIO(text, newline=""), 1)
        self._comment = comment
        self.is_between = True
        self.record_line = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        number, line = next(self._lines)
        while self.is_between and self._comment and line.startswith(self._comment):
            number, line = next(self._lines)
        if self.is_between:
            self.record_line = number
            self.is_between = False
        return line


def write(case: Case, folder: Path, packing: str) -> Path:
    """The case as a file, packed or not, or as a folder of one file."""
    if packing == "gz":
        path = folder / f"{case.name}.{case.ending}.gz"
        path.write_bytes(gzip.compress(case.data))
        return path
    if packing != "folder":
        path = folder / f"{case.name}-{packing}.{case.ending}"
        path.write_bytes(case.data)
        return path
    path = folder / f"{case.name}-folder"
    path.mkdir()
    (path / f"1.{case.ending}").write_bytes(case.data)
    return path


HEAD = b"k,v\n"
CASES = [
    Case("plain", HEAD + b"1,a\n2,b\n3,c\n"),
    Case(
        "breaks",
        HEAD + b'1,"a\nb"\n2,"9,x\n8,y\n7,""z""\n"\n3,c\n',
        rows=[["1", "a\nb"], ["2", '9,x\n8,y\n7,"z"\n'], ["3", "c"]],
    ),
    Case("crlf-in-quotes", b'k,v\r\n1,"a\r\nb"\r\n2,"c\nd"\r\n3,"e\rf"\r\n'),
    Case("cr", b'k,v\r1,a\r2,"b\rc"\r3,d\r'),
    Case("mixed-ends", b"k,v\n1,a\r\n2,b\r3,c\n"),
    Case("blank-lines", b"\nk,v\n\n1,a\n\r\n\n2,b\n\n\n"),
    Case("blank-line-in-quotes", HEAD + b'1,"a\n\n\nb"\n2,c\n'),
    Case("no-last-end", HEAD + b"1,a\n2,b"),
    Case("no-last-end-quoted", HEAD + b'1,a\n2,"b"'),
    Case("doubled", HEAD + b'1,"say ""x"""\n2,""""\n3,"""\n"""\n'),
    Case("lone", HEAD + b'1,5" pipe\n2,a"b"c\n3,"x"\n4,6"\n'),
    Case("after-close", HEAD + b'1,"a"b"c\n2,"d" \n3,e\n'),
    Case("nothing", HEAD + b'1,\n2,""\n3," "\n', rows=[["1", None], ["2", ""], ["3", " "]]),
    Case("nul", HEAD + b"1,a\0b\n2,\0\n"),
    Case("bom", b"\xef\xbb\xbf" + HEAD + b'1,"a\nb"\n2,c\n'),
    Case("bom-no-header", b"\xef\xbb\xbf1,a\n2,b\n", {"header": "false"}),
    Case("bom-within", HEAD + "\ufeff1,a\n\ufeff2,b\n".encode()),
    Case("semicolon", b'k;v\n1;a,b\n2;"c;d"\n', {"delimiter": ";"}),
    Case("tab", b'k\tv\n1\ta b\n2\t"c\td"\n', {"delimiter": "\t"}),
    Case("tsv", b'k\tv\n1\ta,b\n2\t"c\td"\n', ending="tsv"),
    Case("apostrophe", HEAD + b"1,'a\nb'\n2,'it''s'\n3,\"c\"\n", {"quote": "'"}),
    Case("no-quote", HEAD + b'1,"a\n2,b"\n3,""\n', {"quote": ""}, rows=[["1", '"a'], ["2", 'b"'], ["3", '""']]),
    Case("escape", HEAD + b'1,a\\,b\n2,"c\\"d\ne"\n3,f\\\ng\n4,\\\\\n5,"h\\\\"\n6,i\n', {"escape": "\\"}),
    Case(
        "null",
        HEAD + b'1,NA\n2,"NA"\n3,NAN\n4,\n5,""\n',
        {"null": "NA"},
        rows=[["1", None], ["2", "NA"], ["3", "NAN"], ["4", None], ["5", ""]],
    ),
    Case(
        "null-escape",
        HEAD + b'1,\\N\n2,"\\N"\n\\N,"x\n,\\N,\n"\n4,a\\,\\N\n5,\\\\N\n6,N\n',
        {"null": "\\N", "escape": "\\"},
        rows=[["1", None], ["2", "N"], [None, "x\n,N,\n"], ["4", "a,N"], ["5", "\\N"], ["6", "N"]],
    ),
    Case("null-plain", HEAD + b'1,\\N\n2,"\\N"\n', {"null": "\\N"}, rows=[["1", None], ["2", "\\N"]]),
    Case("one-null", b"k\n\\N\n\n1\n", {"null": "\\N", "escape": "\\"}, rows=[[None], ["1"]]),
    Case("no-header", b'1,"a\nb"\n2,c\n', {"header": "false"}),
    Case("comment", b'# about, "this\nk,v\n#,"\n1,"a\n# b"\n# c\n2,#d\n', {"comment": "#"}),
    Case("latin", 'k,v\n1,é\n2,"ü\nß"\n'.encode("latin-1"), {"encoding": "latin-1"}),
    Case("shift-jis", "k|v\n1|ソ\n2|ポ\n".encode("shift_jis"), {"encoding": "shift_jis", "delimiter": "|"}),
    Case("ragged", HEAD + b'1,a\n2\n3,b,c\n4,"d\ne"\n5,"f\ng",h\n6,i\n'),
    Case("ragged-tabs", b"k\tv\tw\n1\ta\tb\n\t\n2\tc\td\n", {"delimiter": "\t"}),
    Case("header-over-lines", b'k,"v\nw"\n1,a\n2,b\n'),
    Case("unicode", 'k,v\n1,😀\n2,"日\n本"\n'.encode()),
    Case("wide", HEAD + b"1," + b"x" * 300 + b'\n2,"' + b"y\n" * 60 + b'"\n3,z\n'),
]


# ---- all of them in one load -----------------------------------------------------------------------------------------

COLUMNS = ("a", "b", "c")
Cells = list[list[str | None]]


def schema_of(names: Sequence[str]) -> str:
    """A type per case, and one for the rows that SQL selects of all of them."""
    cells = "  ".join(f"{column}: String?" for column in COLUMNS)
    types = [f"node T{i} {{ {cells} }}" for i in range(len(names))]
    return "\n".join([*types, f"node Selected {{ origin: String  {cells} }}"])


def expected_cells(case: Case) -> Cells:
    """The rows of a case over all columns, sorted; nothing and an empty text are the same where no rows are given."""
    rows = case.rows if case.rows is not None else [[value or None for value in row] for _, row in reference(case).rows]
    return sorted(([*row, None, None, None][:3] for row in rows), key=repr)


def cells_of(case: Case, rows: Sequence[Mapping[str, str | None]]) -> Cells:
    found = [[row[column] for column in COLUMNS] for row in rows]
    if case.rows is None:
        found = [[value or None for value in row] for row in found]
    return sorted(found, key=repr)
