"""Load in this process: NDJSON records to one graph commit, validated as a whole.

1. read       parse and type every line, once, against the branch's schema
2. prepare    on the view: mode, validation, table work; again, from the same parsed lines, if others committed first
3. commit     through the committer
4. quarantine with `quarantine`: the rejected lines with line, rule and reason go to a file, the rest is loaded

A crash before 3 leaves unreferenced files, after 3 a commit that happened; the quarantine file is written whole or
not at all.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa

from omnigraph.commit.operation import Prepared, View
from omnigraph.commit.request import Outcome
from omnigraph.errors import StaleView, UsageError
from omnigraph.graph.results import LoadResult
from omnigraph.language.schema.model import Schema
from omnigraph.pipeline.load.quarantine_file import SHAPE, write_quarantine_file
from omnigraph.pipeline.load.sources import Lines, lines_of
from omnigraph.storage.lance.columns import arrow_schema
from omnigraph.write.apply import apply_deltas
from omnigraph.write.envelope import Parsed, RejectedLine, TypeRows, parse
from omnigraph.write.envelope.blocks import is_blank
from omnigraph.write.load import prepare_load
from omnigraph.write.mutate import QUICK_ROWS_MAX, consulted

Mode = Literal["append", "merge", "overwrite"]
OnError = Literal["fail", "quarantine"]
MODES = ("append", "merge", "overwrite")


@dataclass
class _Last:
    """The rejects of the last preparation; the commit that is acknowledged is the last one that was prepared."""

    rejected: tuple[RejectedLine, ...] = ()


@dataclass(frozen=True, eq=False)
class LocalLoad:
    lines: Lines
    schema: Schema
    parsed: Parsed
    mode: Mode
    on_error: OnError
    quarantine: str | None
    kind: str = "load"
    last: _Last = field(default_factory=_Last)

    @property
    def quick(self) -> bool:
        return bool(sum(rows.table.num_rows for rows in self.parsed.rows.values()) <= QUICK_ROWS_MAX)

    def scope(self, view: View) -> frozenset[str]:
        return frozenset(view.type(name).id for name in self.parsed.rows)

    def prepare(self, view: View) -> Prepared:
        if view.schema != self.schema:
            raise StaleView(detail="the branch's schema was changed while its input was being read.")
        ready = prepare_load(view.schema, self.parsed, view, mode=self.mode, on_error=self.on_error, places=self.lines)
        self.last.rejected = ready.rejected
        deltas = {name: d for name, d in ready.deltas.items() if not d.is_empty}
        applied = apply_deltas(view, deltas)
        counts = applied.counts.to_json()
        return Prepared(view=view, tables=applied.tables, reads=consulted(view, deltas), summary=counts, result=counts)

    def finish(self, outcome: Outcome, *, branch: str) -> LoadResult:
        """Write the quarantine after the commit. Returns the result of the load."""
        rejected = () if outcome.repeated else self.last.rejected
        if rejected and self.quarantine is not None:
            _write_quarantine(self.quarantine, self.lines, rejected)
        counts: Mapping[str, Any] = (outcome.record.summary if outcome.record else None) or {}
        return LoadResult.of(
            outcome,
            branch=branch,
            mode=self.mode,
            counts=counts,
            lines=self.parsed.line_count,
            rejected=len(rejected),
            rejected_by_rule=dict(Counter(line.rule for line in rejected)),
            quarantine=self.quarantine if rejected else None,
        )


def read_load(
    source: Any,
    schema: Schema,
    *,
    mode: Mode,
    on_error: OnError,
    quarantine: str | None,
    max_line_bytes: int,
    max_bytes: int | None,
) -> LocalLoad | None:
    """Step 1; None if there are more than `max_bytes` once they are unpacked, blank chunks not counted.

    `quarantine` is the path of a file for rejected lines, checked by `quarantine_file`.
    """
    lines = lines_of(source, max_line_bytes=max_line_bytes)
    try:
        parsed = parse(schema, _within(lines.chunks(), max_bytes), keep_text=on_error == "quarantine")
    except _TooLarge:
        return None
    if mode == "overwrite":
        parsed = _with_named(schema, parsed)
    return LocalLoad(lines=lines, schema=schema, parsed=parsed, mode=mode, on_error=on_error, quarantine=quarantine)


class _TooLarge(Exception):
    """The input does not fit in memory. Caught in this module."""


def _within(chunks: Iterator[bytes], max_bytes: int | None) -> Iterator[bytes]:
    total = 0
    for chunk in chunks:
        if max_bytes is not None and not is_blank(chunk):
            total += len(chunk)
            if total > max_bytes:
                raise _TooLarge
        yield chunk


def _with_named(schema: Schema, parsed: Parsed) -> Parsed:
    """Add types of which every line was refused, without rows: the input names them, so they are overwritten."""
    keys = {line.table_key for line in parsed.rejected}
    named = {
        t.name: TypeRows(t, arrow_schema(t).empty_table(), pa.array([], pa.int64()), has_own_ids=False)
        for t in schema.types()
        if t.key in keys and t.name not in parsed.rows
    }
    return replace(parsed, rows={**parsed.rows, **named}) if named else parsed


def checked_options(mode: str, on_error: str, quarantine: str | os.PathLike[str] | None) -> None:
    """UsageError for invalid options, before anything is read."""
    if mode not in MODES:
        raise UsageError(detail=f"the mode of a load is one of {', '.join(MODES)}, not {mode!r}.")
    if on_error not in ("fail", "quarantine"):
        raise UsageError(detail=f"on_error is 'fail' or 'quarantine', not {on_error!r}.")
    if quarantine is not None and on_error == "fail":
        raise UsageError(detail="a quarantine file goes with on_error 'quarantine'.")


def _write_quarantine(path: str, lines: Lines, rejected: tuple[RejectedLine, ...]) -> None:
    rows = []
    for line in rejected:
        source, number = lines.place(line.line)
        rows.append({"source": source, **line.to_json(), "line": number})
    write_quarantine_file(path, [pa.Table.from_pylist(rows, SHAPE)])
