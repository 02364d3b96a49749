"""The reject task: the refused rows of one piece in the order of lines, each with its reason.

1. gather    which rows were refused, by which rule, on which line: lines that are no rows, rows that break a rule of
             their own, rows that checks refused; counted per rule
2. limit     for an error, to the first ones: the others get no message
3. explain   the messages of violations that checks found
4. record    for a quarantine: the line as it is in the input, or the row as JSON where rows are not lines of their own;
             the piece is read again for it
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
from omnigraph.pipeline.bulk.input.read import LINE, line_chunks_of
from omnigraph.pipeline.bulk.input.source_rows import read_source_rows
from omnigraph.pipeline.bulk.rejects.explain import Explainer, Places
from omnigraph.pipeline.bulk.rejects.violation_codes import WIDTH, Phase, in_order, rule_of
from omnigraph.pipeline.load.quarantine_file import SHAPE
from omnigraph.tasks.digest_index import RemovedRows
from omnigraph.write.envelope.blocks import blocks

_NO_WORDS = np.empty((0, WIDTH), dtype=np.uint64)


@dataclass(frozen=True, eq=False)
class _Refused:
    """A refused row: its line in the piece, the rule, and its violation, or the `codes` that a check returned."""

    line: int
    rule: str
    violation: Violation | None = None
    record: bytes | None = None
    codes: np.ndarray | None = None


def reject_piece(task: Mapping[str, Any]) -> dict[str, Any]:
    """For a quarantine one staged table of the piece with the schema `SHAPE`; for an error the first violations."""
    context = context_of(task)
    about = context.staging.get_json(task["about"])
    places = Places(about["pieces"], about["segments"])
    removed = RemovedRows(context.staging, about["gone"])
    refused = _rejected_lines(context, task["rejected"])
    for key, types in task["types"].items():
        refused += _of_type(context, about["told"], removed, task["piece"], key, types)
    refused.sort(key=lambda row: row.line)
    by_rule = dict(Counter(row.rule for row in refused))
    refused = refused[: about["first_most"]]
    explainer = Explainer(context, places, about["tables"], about["pins"])
    violations = [_violation(row, explainer, places, task["piece"]) for row in refused]
    result = {"by_rule": by_rule, "rows_done": sum(by_rule.values()), "bytes_done": 0, "table": None, "first": []}
    if about["first_most"] is not None:
        return {**result, "first": [v.to_json() for v in violations]}
    records = _records(context, about["pieces"][task["piece"]], [row.line for row in refused if row.record is None])
    lines = [
        {
            "source": v.source,
            "line": v.line,
            "rule": v.rule,
            "reason": v.message,
            "record": (records[row.line] if row.record is None else row.record).decode("utf-8", "backslashreplace"),
        }
        for row, v in zip(refused, violations, strict=True)
    ]
    return (
        {**result, "table": context.staging.put_table("quarantine", pa.Table.from_pylist(lines, SHAPE))}
        if lines
        else result
    )


def _rejected_lines(context: Context, name: str | None) -> list[_Refused]:
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
    violation_files: Sequence[Any],
    removed: RemovedRows,
    piece: int,
    key: str,
    types: Mapping[str, Any],
) -> list[_Refused]:
    base = piece << ROW_BITS
    phases = removed.phases(key, np.arange(base, base + types["rows"], dtype=np.uint64))
    codes, offsets = _first_codes(context, violation_files, phases, context.type_index(key), piece)
    broken = (phases == Phase.FIELDS).any()
    if len(codes) == 0 and not broken:
        return []
    rows = context.staging.get_table(types["table"], ["id", LINE])
    lines = rows.column(LINE).to_numpy()
    t = context.type(key)
    refused = [
        _Refused(int(lines[row]), rule_of(int(words[0]), t), codes=words)
        for row, words in zip(offsets, codes, strict=True)
    ]
    seen: set[int] = set()
    for violation in context.staging.get_table(types["broken"]).to_pylist() if broken else ():
        row = violation["row"]
        if phases[row] == Phase.FIELDS and row not in seen:
            seen.add(row)
            entity_id = rows.column("id")[row].as_py()
            v = Violation(
                violation["rule"], key, violation["message"], entity_id=entity_id, property=violation["property"]
            )
            refused.append(_Refused(int(lines[row]), violation["rule"], v))
    return refused


def _first_codes(
    context: Context, violation_files: Sequence[Any], phases: np.ndarray, number: int, piece: int
) -> tuple[np.ndarray, list[int]]:
    """The first violation of each removed row of one type of a piece, and the offset of that row."""
    parts = [_NO_WORDS]
    for verdict, name in violation_files:
        codes = context.staging.get_array(name, width=WIDTH)
        codes = codes[(codes[:, 1] == number) & ((codes[:, 4] >> np.uint64(ROW_BITS)) == np.uint64(piece))]
        offsets = (codes[:, 4] & np.uint64(2**ROW_BITS - 1)).astype(np.int64)
        parts.append(codes[(phases[offsets] == verdict)])
    codes_of_piece = in_order(np.concatenate(parts))
    # In the order of rows, and within one row of violations: an edge may miss both its nodes, in two buckets.
    first = np.unique(codes_of_piece[:, 4], return_index=True)[1]
    codes_of_piece = codes_of_piece[first]
    return codes_of_piece, (codes_of_piece[:, 4] & np.uint64(2**ROW_BITS - 1)).astype(np.int64).tolist()


def _violation(row: _Refused, explainer: Explainer, places: Places, piece: int) -> Violation:
    if row.violation is None:
        assert row.codes is not None
        return explainer.violations(row.codes.reshape(1, WIDTH))[0]
    source, line = places.place(piece, row.line)
    return replace(row.violation, source=source, line=line)


def _records(context: Context, piece: Mapping[str, Any], lines: Sequence[int]) -> dict[int, bytes]:
    """The input text of some lines of a piece."""
    records: dict[int, bytes] = {}
    numbers = set(lines)
    before = 0
    for segment in piece["segments"] if numbers else ():
        if piece["kind"] == "records" or piece["format"] == "jsonl":
            for block in blocks(line_chunks_of(segment)):
                count = block.text.count(b"\n")
                if any(before < line <= before + count for line in lines):
                    numbered = enumerate(block.text.split(b"\n"), before + 1)
                    records |= {line: text.rstrip(b"\r") for line, text in numbered if line in numbers}
                before += count
            continue
        source_rows = read_source_rows(context, piece, segment)
        rows = {line: row for row, line in enumerate((source_rows.lines + before).tolist()) if line in numbers}
        records |= {line: source_rows.record(row) for line, row in rows.items()}
        before += source_rows.line_count
    return records
