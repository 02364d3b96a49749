"""Load: from a parsed input to the deltas of one write, by mode, with bad lines refused or put aside.

1. parsed    lines that are no records: refused, or put aside
2. ids       an id twice: refused in `append` and `overwrite`, and for a @key in `merge`, where else the last line wins
3. mode      append: an id that exists is a KeyConflict; merge: rows replace by id, identical ones are dropped;
             overwrite: the rows replace the image of each type that the input holds
4. validate  all rules of the schema; or, putting aside, `settle`: also what points to a line that was put aside

An input without a fault is found so by the cheap way. One that is refused is gone through again as if its bad lines
were put aside, so that the error tells of all of them, and both choices give the same counts.

Parsing is separate, because it does not depend on the graph: when another writer was faster, 2 to 4 run again on the
new state with the same parsed input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from omnigraph.errors import RowsRefused, Violation
from omnigraph.language.schema.model import Schema
from omnigraph.write.changes import conflicts, existing_ids, merged, repeated_ids
from omnigraph.write.delta import OneInput, Places, TypeDelta, delta
from omnigraph.write.envelope import Parsed, RejectedLine
from omnigraph.write.reader import Reader
from omnigraph.write.validate import faults, reject, settle, validate
from omnigraph.write.violations import SHOWN_MAX, refusal, unplaced_order

Mode = Literal["append", "merge", "overwrite"]
OnError = Literal["fail", "quarantine"]


@dataclass(frozen=True, eq=False)
class Prepared:
    """`rejected` is in the order of lines."""

    deltas: dict[str, TypeDelta]
    rejected: tuple[RejectedLine, ...]


def prepare_load(
    schema: Schema,
    parsed: Parsed,
    reader: Reader,
    *,
    mode: Mode,
    on_error: OnError = "fail",
    places: Places | None = None,
) -> Prepared:
    """Raises RecordError, ConstraintViolation or KeyConflict; with `quarantine` only where no line is to blame.

    To put lines aside, the input must have been parsed with `keep_text`. `places` says where lines are, if the input
    is not one nameless file.
    """
    places = places or OneInput()
    if on_error == "fail":
        deltas = None if parsed.rejected else _valid(schema, parsed, reader, mode, places)
        if deltas is None:
            raise _refusal(schema, parsed, reader, mode, places)
        return Prepared(deltas, ())
    first = _counting(parsed, reader, mode, places)
    rejected = first.repeated + first.existing
    already = [*first.no_records, *rejected]
    deltas, gone = settle(schema, first.deltas, reader, already_rejected=already)
    texts = parsed.records(v.line for v in (*rejected, *gone) if v.line is not None)
    lines = [_rejected_line(v, texts) for v in (*rejected, *gone)]
    return Prepared(deltas, tuple(sorted((*parsed.rejected, *lines), key=lambda line: line.line)))


def _initial(parsed: Parsed, mode: Mode, places: Places) -> dict[str, TypeDelta]:
    return {
        name: delta(
            rows.type,
            rows=rows.table,
            lines=rows.lines,
            replaces_all=mode == "overwrite",
            all_new=not rows.has_own_ids,
            places=places,
        )
        for name, rows in parsed.rows.items()
    }


def _repeated(d: TypeDelta, mode: Mode) -> list[Violation]:
    # Where all ids are new ULIDs, none comes twice.
    return repeated_ids(d) if not d.all_new and (mode != "merge" or d.type.key_properties) else []


def _merged(d: TypeDelta, reader: Reader) -> TypeDelta:
    return d if d.all_new else merged(d, reader)


def _valid(schema: Schema, parsed: Parsed, reader: Reader, mode: Mode, places: Places) -> dict[str, TypeDelta] | None:
    """The deltas of an input without any fault; None if there is one, wherever."""
    deltas = _initial(parsed, mode, places)
    if any(_repeated(d, mode) for d in deltas.values()):
        return None
    if mode == "append":
        if any(len(existing_ids(d, reader)) for d in deltas.values()):
            return None
        deltas = {name: replace(d, all_new=True) for name, d in deltas.items()}
    if mode == "merge":
        deltas = {name: _merged(d, reader) for name, d in deltas.items()}
    return None if validate(schema, deltas, reader) else deltas


@dataclass(frozen=True, eq=False)
class _Counting:
    """The deltas without rows whose ids refuse them, and those."""

    deltas: dict[str, TypeDelta]
    no_records: list[Violation]
    repeated: list[Violation]
    existing: list[Violation]


def _counting(parsed: Parsed, reader: Reader, mode: Mode, places: Places) -> _Counting:
    deltas = _initial(parsed, mode, places)
    deltas, repeated = reject(deltas, [v for d in deltas.values() for v in _repeated(d, mode)])
    existing: list[Violation] = []
    if mode == "append":
        deltas, existing = reject(deltas, [v for d in deltas.values() for v in conflicts(d, reader)])
        deltas = {name: replace(d, all_new=True) for name, d in deltas.items()}
    if mode == "merge":
        deltas = {name: _merged(d, reader) for name, d in deltas.items()}
    return _Counting(deltas, [line.violation() for line in parsed.rejected], repeated, existing)


def _refusal(schema: Schema, parsed: Parsed, reader: Reader, mode: Mode, places: Places) -> RowsRefused:
    """Everything that is wrong with the input, as `quarantine` would find it."""
    first = _counting(parsed, reader, mode, places)
    already = [*first.no_records, *first.repeated, *first.existing]
    found = [*already, *faults(schema, first.deltas, reader, already_rejected=already)]
    found.sort(key=_order)
    return refusal(
        [_placed(v, places) for v in found[:SHOWN_MAX]],
        Counter(v.rule for v in found),
        no_records=bool(parsed.rejected),
        repeated=bool(first.repeated),
        existing=first.existing[0] if first.existing else None,
    )


def _order(v: Violation) -> tuple[bool, int, tuple[str, ...]]:
    """Lines in their order; what no line is to blame for comes last."""
    return (True, 0, unplaced_order(v)) if v.line is None else (False, v.line, ())


def _placed(v: Violation, places: Places) -> Violation:
    """The violation where users find it: a file and a line of it, instead of the row among those of its type."""
    if v.line is None:
        return v
    source, line = places.place(v.line)
    return replace(v, source=source, line=line, row=None)


def _rejected_line(v: Violation, texts: Mapping[int, bytes]) -> RejectedLine:
    assert v.line is not None
    return RejectedLine(v.line, v.rule, v.message, texts[v.line], v.table_key, v.entity_id, v.property)
