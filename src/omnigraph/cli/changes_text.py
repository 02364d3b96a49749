"""Changes of entities as lines for people: one line per change, cut to the width of a terminal.

+ node:Person Ada  name: Ada, age: 36
~ node:Person Bob  age: 30 → 31
- edge:Knows 01JABC…  Ada → Bob
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from omnigraph.cli.output import Table, count

if TYPE_CHECKING:
    from omnigraph.branch.diff.change_rows import ChangeShape
    from omnigraph.branch.diff.diff import Diff

SIGNS = {"insert": "+", "update": "~", "delete": "-"}
LINE_CHARS_MIN = 40


def change_lines(diff: Diff) -> Iterator[str]:
    """Schema steps first, then the changes of all types, then their counts."""
    for step in diff.schema:
        yield f"schema: {step}"
    counts = dict.fromkeys(SIGNS, 0)
    room = _room()
    for changes, batches in diff.by_type():
        for batch in batches:
            for row in batch.to_pylist():
                counts[row["operation"]] += 1
                yield _cut(_line(row, changes.shape), room)
    if any(counts.values()):
        yield f"{counts['insert']:,} inserted, {counts['update']:,} updated, {counts['delete']:,} deleted"
    else:
        yield "no entity differs"


def _line(row: Mapping[str, Any], shape: ChangeShape) -> str:
    head = f"{SIGNS[row['operation']]} {row['table_key']} {row['id']}"
    ends = "" if row["src"] is None else f"  {row['src']} → {row['dst']}"
    if row["operation"] == "update":
        before, after = row["before"], row["after"]
        parts = (f"{name}: {_old(before, shape, name)} → {value_text(after[name])}" for name in row["changed"])
        return f"{head}{ends}  {', '.join(parts)}"
    if row["operation"] == "insert":
        hidden = ("id", "src", "dst")
        values = [f"{k}: {value_text(v)}" for k, v in row["after"].items() if v is not None and k not in hidden]
        return f"{head}{ends}  {', '.join(values)}".rstrip()
    return f"{head}{ends}"


def _old(before: Mapping[str, Any], shape: ChangeShape, name: str) -> str:
    stored = shape.old_names.get(name)
    return "–" if stored is None else value_text(before[stored])


def value_text(value: Any) -> str:
    """A value on one line, not too long."""
    from omnigraph.query.result import cell

    if value is None:
        return "null"
    if isinstance(value, bytes):
        return count(len(value), "byte", "bytes")
    return '""' if value == "" else cell(value)


def stat_table(counts: Mapping[str, Mapping[str, int]]) -> Table:
    columns = ("type", "inserted", "updated", "deleted")
    rows = [[key, *(f"{by[operation]:,}" for operation in SIGNS)] for key, by in counts.items()]
    return Table(columns, rows, frozenset(columns[1:]), names=True)


def _room() -> int | None:
    return max(LINE_CHARS_MIN, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None


def _cut(line: str, room: int | None) -> str:
    return line if room is None or len(line) <= room else f"{line[: room - 1]}…"
