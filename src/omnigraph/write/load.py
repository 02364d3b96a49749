"""Load: from a parsed input to the deltas of one write, by mode, with bad lines refused or put aside.

1. parsed    lines that are no records: refused together (RecordError), or put aside
2. ids       an id twice: refused in `append` and `overwrite`, and for a @key in `merge`, where else the last line wins
3. mode      append: an id that exists is a KeyConflict; merge: rows replace by id, identical ones are dropped;
             overwrite: the rows replace the image of each type that the input holds
4. validate  all rules of the schema; or, putting aside, `settle`: also what points to a line that was put aside

Parsing is separate, because it does not depend on the graph: when another writer was faster, 2 to 4 run again on the
new state with the same parsed input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from omnigraph.errors import KeyConflict, RecordError, Violation
from omnigraph.language.schema.model import Schema
from omnigraph.write.changes import conflicts, existing_ids, merged, repeated_ids
from omnigraph.write.delta import TypeDelta, delta
from omnigraph.write.envelope import Parsed, RejectedLine
from omnigraph.write.problems import SHOWN_MAX, refuse_if_any, shown
from omnigraph.write.reader import Reader
from omnigraph.write.validate import reject, settle, validate

Mode = Literal["append", "merge", "overwrite"]
OnError = Literal["fail", "quarantine"]


@dataclass(frozen=True, eq=False)
class Prepared:
    """`rejected` is in the order of lines."""

    deltas: dict[str, TypeDelta]
    rejected: tuple[RejectedLine, ...]


def prepare_load(schema: Schema, parsed: Parsed, reader: Reader, *, mode: Mode, on_error: OnError = "fail") -> Prepared:
    """Raises RecordError, ConstraintViolation or KeyConflict; with `quarantine` only where no line is to blame.

    To put lines aside, the input must have been parsed with `keep_text`.
    """
    if on_error == "fail":
        refuse_lines(parsed.rejected)
        return Prepared(_strict(schema, parsed, reader, mode), ())
    deltas, gone = _tolerant(schema, parsed, reader, mode)
    texts = parsed.records(v.line for v in gone if v.line is not None)
    lines = [_rejected_line(v, texts) for v in gone]
    return Prepared(deltas, tuple(sorted((*parsed.rejected, *lines), key=lambda line: line.line)))


def refuse_lines(rejected: Sequence[RejectedLine]) -> None:
    if rejected:
        violations = [line.violation() for line in rejected[:SHOWN_MAX]]
        more = len(rejected) - len(violations)
        text = shown(violations) + (f"\n… and {more} more" if more else "")
        by_rule = dict(Counter(line.rule for line in rejected))
        raise RecordError(
            count=len(rejected), shown=text, violations=[v.to_json() for v in violations], by_rule=by_rule
        )


def _initial(parsed: Parsed, mode: Mode) -> dict[str, TypeDelta]:
    return {
        name: delta(
            rows.type,
            rows=rows.table,
            lines=rows.lines,
            replaces_all=mode == "overwrite",
            all_new=not rows.has_own_ids,
        )
        for name, rows in parsed.rows.items()
    }


def _repeated(d: TypeDelta, mode: Mode) -> list[Violation]:
    # Where all ids are new ULIDs, none comes twice.
    return repeated_ids(d) if not d.all_new and (mode != "merge" or d.type.key_properties) else []


def _merged(d: TypeDelta, reader: Reader) -> TypeDelta:
    return d if d.all_new else merged(d, reader)


def _strict(schema: Schema, parsed: Parsed, reader: Reader, mode: Mode) -> dict[str, TypeDelta]:
    deltas = _initial(parsed, mode)
    # Lines say where; the number of a row among those of its type would only confuse.
    refuse_if_any([replace(v, row=None) for d in deltas.values() for v in _repeated(d, mode)])
    if mode == "append":
        for d in deltas.values():
            existing = existing_ids(d, reader)
            if len(existing):
                raise KeyConflict(table_key=d.type.key, entity_id=existing[0].as_py(), count=len(existing))
        deltas = {name: replace(d, all_new=True) for name, d in deltas.items()}
    if mode == "merge":
        deltas = {name: _merged(d, reader) for name, d in deltas.items()}
    refuse_if_any(validate(schema, deltas, reader))
    return deltas


def _tolerant(
    schema: Schema, parsed: Parsed, reader: Reader, mode: Mode
) -> tuple[dict[str, TypeDelta], list[Violation]]:
    deltas = _initial(parsed, mode)
    deltas, rejected = reject(deltas, [v for d in deltas.values() for v in _repeated(d, mode)])
    if mode == "append":
        deltas, existing = reject(deltas, [v for d in deltas.values() for v in conflicts(d, reader)])
        rejected += existing
        deltas = {name: replace(d, all_new=True) for name, d in deltas.items()}
    if mode == "merge":
        deltas = {name: _merged(d, reader) for name, d in deltas.items()}
    bad_records = [line.violation() for line in parsed.rejected]
    deltas, gone = settle(schema, deltas, reader, already_rejected=[*bad_records, *rejected])
    return deltas, rejected + gone


def _rejected_line(v: Violation, texts: Mapping[int, bytes]) -> RejectedLine:
    assert v.line is not None
    return RejectedLine(v.line, v.rule, v.message, texts[v.line], v.table_key, v.entity_id, v.property)
