"""The reject task: the refused rows of one piece in the order of lines, each with its reason.

1. gather    which rows were refused, by which rule, on which line: lines that are no rows, rows that break a rule of
             their own, rows that checks told of; counted per rule
2. cut       for an error, to the first ones: the others are not explained
3. explain   what checks told, in words
4. record    for a quarantine: the line as it stands in the input, or the row as JSON where rows are not lines of their
             own; the piece is read again for it
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.errors import Violation
from omnigraph.pipeline.bulk.context import ROW_BITS, Context, context_of
from omnigraph.pipeline.bulk.explain import Explainer, Places
from omnigraph.pipeline.bulk.read import LINE, line_chunks_of
from omnigraph.pipeline.bulk.source_rows import given_rows
from omnigraph.pipeline.bulk.violation_codes import WIDTH, Phase, in_order, rule_of
from omnigraph.pipeline.load.quarantine_file import SHAPE
from omnigraph.tasks.digest_index import Gone
from omnigraph.write.envelope.blocks import blocks

_NO_WORDS = np.empty((0, WIDTH), dtype=np.uint64)


@dataclass(frozen=True, eq=False)
class _Refused:
    """A row: its line in the piece, the rule, and what is known of it so far. `told` is what a check told."""

    line: int
    rule: str
    violation: Violation | None = None
    record: bytes | None = None
    told: np.ndarray | None = None


def reject_piece(task: Mapping[str, Any]) -> dict[str, Any]:
    """For a quarantine one staged table of the piece, as `aside.SHAPE` has it; for an error the first violations."""
    context = context_of(task)
    about = context.staging.get_json(task["about"])
    places = Places(about["pieces"], about["segments"])
    gone = Gone(context.staging, about["gone"])
    found = _no_records(context, task["rejected"])
    for key, types in task["types"].items():
        found += _of_type(context, about["told"], gone, task["piece"], key, types)
    found.sort(key=lambda one: one.line)
    by_rule = dict(Counter(one.rule for one in found))
    found = found[: about["first_most"]]
    explainer = Explainer(context, places, about["tables"], about["pins"])
    violations = [_violation(one, explainer, places, task["piece"]) for one in found]
    done = {"by_rule": by_rule, "rows_done": sum(by_rule.values()), "bytes_done": 0, "table": None, "first": []}
    if about["first_most"] is not None:
        return {**done, "first": [v.to_json() for v in violations]}
    records = _records(context, about["pieces"][task["piece"]], [one.line for one in found if one.record is None])
    told = [
        {
            "source": v.source,
            "line": v.line,
            "rule": v.rule,
            "reason": v.message,
            "record": (records[one.line] if one.record is None else one.record).decode("utf-8", "backslashreplace"),
        }
        for one, v in zip(found, violations, strict=True)
    ]
    return (
        {**done, "table": context.staging.put_table("quarantine", pa.Table.from_pylist(told, SHAPE))} if told else done
    )


def _no_records(context: Context, name: str | None) -> list[_Refused]:
    rows = [] if name is None else context.staging.get_table(name).to_pylist()
    return [
        _Refused(
            row["line"],
            row["rule"],
            Violation(
                rule=row["rule"],
                table_key=row["table_key"] or "record",
                message=row["reason"],
                entity_id=row["entity_id"],
                property=row["property"],
            ),
            row["record"],
        )
        for row in rows
    ]


def _of_type(
    context: Context,
    told_files: Sequence[Any],
    gone: Gone,
    piece: int,
    key: str,
    types: Mapping[str, Any],
) -> list[_Refused]:
    base = piece << ROW_BITS
    phases = gone.phases(key, np.arange(base, base + types["rows"], dtype=np.uint64))
    told, at = _first_told(context, told_files, phases, context.type_index(key), piece)
    broken = (phases == Phase.FIELDS).any()
    if len(told) == 0 and not broken:
        return []
    rows = context.staging.get_table(types["table"], ["id", LINE])
    lines = rows.column(LINE).to_numpy()
    t = context.type(key)
    found = [
        _Refused(int(lines[row]), rule_of(int(words[0]), t), told=words) for row, words in zip(at, told, strict=True)
    ]
    seen: set[int] = set()
    for one in context.staging.get_table(types["broken"]).to_pylist() if broken else ():
        row = one["row"]
        if phases[row] == Phase.FIELDS and row not in seen:
            seen.add(row)
            entity_id = rows.column("id")[row].as_py()
            v = Violation(one["rule"], key, one["message"], entity_id=entity_id, property=one["property"])
            found.append(_Refused(int(lines[row]), one["rule"], v))
    return found


def _first_told(
    context: Context, told_files: Sequence[Any], phases: np.ndarray, number: int, piece: int
) -> tuple[np.ndarray, list[int]]:
    """What the rows of one type of a piece went for: of each the first that was told, and its row."""
    found = [_NO_WORDS]
    for verdict, name in told_files:
        told = context.staging.get_array(name, width=WIDTH)
        told = told[(told[:, 1] == number) & ((told[:, 4] >> np.uint64(ROW_BITS)) == np.uint64(piece))]
        at = (told[:, 4] & np.uint64(2**ROW_BITS - 1)).astype(np.int64)
        found.append(told[(phases[at] == verdict)])
    whole = in_order(np.concatenate(found))
    # In the order of rows, and within one row as told: an edge may miss both its nodes, in two buckets.
    first = np.unique(whole[:, 4], return_index=True)[1]
    whole = whole[first]
    return whole, (whole[:, 4] & np.uint64(2**ROW_BITS - 1)).astype(np.int64).tolist()


def _violation(one: _Refused, explainer: Explainer, places: Places, piece: int) -> Violation:
    if one.violation is None:
        assert one.told is not None
        return explainer.violations(one.told.reshape(1, WIDTH))[0]
    source, line = places.place(piece, one.line)
    return replace(one.violation, source=source, line=line)


def _records(context: Context, piece: Mapping[str, Any], lines: Sequence[int]) -> dict[int, bytes]:
    """What stands in the input on some lines of a piece."""
    found: dict[int, bytes] = {}
    wanted = set(lines)
    before = 0
    for segment in piece["segments"] if wanted else ():
        if piece["kind"] == "records" or piece["format"] == "jsonl":
            for block in blocks(line_chunks_of(segment)):
                count = block.text.count(b"\n")
                if any(before < line <= before + count for line in lines):
                    numbered = enumerate(block.text.split(b"\n"), before + 1)
                    found |= {line: text.rstrip(b"\r") for line, text in numbered if line in wanted}
                before += count
            continue
        given = given_rows(context, piece, segment)
        rows = {line: row for row, line in enumerate((given.lines + before).tolist()) if line in wanted}
        found |= {line: given.record(row) for line, row in rows.items()}
        before += given.line_count
    return found
