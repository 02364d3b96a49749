"""Load in this process: NDJSON records to one graph commit, validated as a whole.

1. read      parse and type every line, once, against the branch's schema
2. prepare   on the view: mode, validation, table work; again, from the same parsed lines, if others were quicker
3. commit    through the door
4. put aside with `quarantine`: the rejected lines with line, rule and reason go to a file, the rest is loaded

A crash before 3 leaves unreferenced files, after 3 a commit that happened; the quarantine file is written whole or
not at all.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa

from omnigraph.commit.request import Outcome
from omnigraph.commit.stage import Prepared, View
from omnigraph.errors import (
    ConstraintViolation,
    InputError,
    RecordError,
    StaleView,
    UsageError,
    Violation,
)
from omnigraph.language.schema.model import Schema
from omnigraph.pipeline.aside import SHAPE, write_aside
from omnigraph.pipeline.sources import Lines, lines_of
from omnigraph.results import LoadResult
from omnigraph.write.apply import apply_deltas
from omnigraph.write.envelope import Parsed, RejectedLine, parse
from omnigraph.write.load import prepare_load
from omnigraph.write.mutate import QUICK_ROWS_MOST, consulted
from omnigraph.write.problems import SHOWN_MAX, shown

Mode = Literal["append", "merge", "overwrite"]
OnError = Literal["fail", "quarantine"]
MODES = ("append", "merge", "overwrite")


@dataclass
class _Last:
    """What the last preparation put aside; the commit that is acknowledged is the last one that was prepared."""

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
        return bool(sum(rows.table.num_rows for rows in self.parsed.rows.values()) <= QUICK_ROWS_MOST)

    def scope(self, view: View) -> frozenset[str]:
        return frozenset(view.type(name).id for name in self.parsed.rows)

    def prepare(self, view: View) -> Prepared:
        if view.schema != self.schema:
            raise StaleView(detail="the branch's schema was changed while its input was being read.")
        try:
            ready = prepare_load(view.schema, self.parsed, view, mode=self.mode, on_error=self.on_error)
        except (RecordError, ConstraintViolation) as error:
            raise _placed(error, self.lines) from None
        self.last.rejected = ready.rejected
        deltas = {name: d for name, d in ready.deltas.items() if not d.is_empty}
        applied = apply_deltas(view, deltas)
        counts = applied.counts.to_json()
        return Prepared(view=view, tables=applied.tables, reads=consulted(view, deltas), summary=counts, result=counts)

    def finish(self, outcome: Outcome, *, branch: str) -> LoadResult:
        """Write the quarantine, now that the rest is loaded, and say what happened."""
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
    source: Any, schema: Schema, *, mode: Mode, on_error: OnError, quarantine: str | os.PathLike[str] | None
) -> LocalLoad:
    """Step 1. Whatever is wrong with the call, or with where rejected lines would go, is said before reading."""
    checked_options(mode, on_error, quarantine)
    lines = lines_of(source)
    named = lines.parts[0][0] if lines.can_repeat else None
    aside = quarantine_path(named, quarantine) if on_error == "quarantine" else None
    parsed = parse(schema, lines.chunks(), keep_text=on_error == "quarantine")
    return LocalLoad(lines=lines, schema=schema, parsed=parsed, mode=mode, on_error=on_error, quarantine=aside)


def checked_options(mode: str, on_error: str, quarantine: str | os.PathLike[str] | None) -> None:
    """UsageError for what can't be meant, before anything is read."""
    if mode not in MODES:
        raise UsageError(detail=f"the mode of a load is one of {', '.join(MODES)}, not {mode!r}.")
    if on_error not in ("fail", "quarantine"):
        raise UsageError(detail=f"on_error is 'fail' or 'quarantine', not {on_error!r}.")
    if quarantine is not None and on_error == "fail":
        raise UsageError(detail="a quarantine file goes with on_error 'quarantine'.")


def quarantine_path(first_file: str | None, given: str | os.PathLike[str] | None) -> str:
    """Where rejected lines go: as given, or beside the first file."""
    if given is not None:
        path = os.path.abspath(os.fspath(given))
    elif first_file is not None and "://" not in first_file:
        path = os.path.abspath(first_file) + ".rejected.jsonl"
    else:
        raise UsageError(detail="say where rejected lines shall go: the input has no name to derive one from.")
    folder = os.path.dirname(path)
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise UsageError(detail=f"rejected lines can't be written to {path}: the folder is missing or read-only.")
    return path


def _write_quarantine(path: str, lines: Lines, rejected: tuple[RejectedLine, ...]) -> None:
    rows = []
    for line in rejected:
        source, number = lines.place(line.line)
        rows.append({"source": source, **line.to_json(), "line": number})
    write_aside(path, [pa.Table.from_pylist(rows, SHAPE)])


def _placed(error: InputError, lines: Lines) -> InputError:
    """The same error with every line number as the user counts it, and its file where there are several."""
    if len(lines.parts) == 1:
        return error
    found = []
    for body in error.fields.get("violations", [])[:SHOWN_MAX]:
        violation = Violation(**body)
        if violation.line is not None:
            source, number = lines.place(violation.line)
            violation = replace(violation, line=number, source=source)
        found.append(violation)
    return type(error)(**{**error.fields, "violations": [v.to_json() for v in found], "shown": shown(found)})
