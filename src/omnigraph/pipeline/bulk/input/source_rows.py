"""The rows of tables as they are in the input: with the input's column names, line numbers, and as JSON.

| input                          | a row as JSON                                                                     |
|--------------------------------|-----------------------------------------------------------------------------------|
| CSV                            | its own column names and their texts; nothing at all is null                      |
| formats with types, DataFrames | its own column names and values, nulls left out; bytes are base64                 |

JSON has no numbers that are not finite: they are written as text, so that they do not look like null.
"""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from omnigraph.errors import ConstraintViolation, Violation
from omnigraph.language.schema.model import EntityType
from omnigraph.pipeline.bulk.context import Context
from omnigraph.pipeline.bulk.input.tables import read_part, table_columns
from omnigraph.pipeline.csv.read import read_csv
from omnigraph.pipeline.load.table_sources import fields_of
from omnigraph.write.violations import told


@dataclass(frozen=True, eq=False)
class SourceRows:
    """`lines` and those of `bad`, which are no rows, count from 1 within the segment. `fields` maps columns to fields.

    `bad` holds (line, reason, text).
    """

    table: pa.Table
    fields: Mapping[str, str]
    lines: np.ndarray
    line_count: int
    is_text: bool = False
    bad: tuple[tuple[int, str, str], ...] = ()

    def as_fields(self) -> pa.Table:
        return self.table.select(list(self.fields)).rename_columns(list(self.fields.values()))

    def record(self, row: int) -> bytes:
        """A row as JSON."""
        row_table = self.table.slice(row, 1)
        for i, column in enumerate(row_table.schema):
            if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
                # Python has no nanoseconds.
                row_table = row_table.set_column(
                    i, column.name, row_table.column(i).cast(pa.timestamp("us", column.type.tz), safe=False)
                )
        values = row_table.to_pylist()[0]
        shown = values if self.is_text else {k: _visible(v) for k, v in values.items() if v is not None}
        return orjson.dumps(shown, default=_plain)


def read_source_rows(context: Context, piece: Mapping[str, Any], segment: Mapping[str, Any]) -> SourceRows:
    """The rows of a segment of a table that is not JSON lines."""
    t = context.type(piece["type"])
    renamed, skip = piece["columns"], piece["skip"]
    if piece["format"] == "csv":
        text = read_csv(segment, piece["options"])
        fields = fields_of(t, text.table.column_names, renamed, skip)
        return SourceRows(text.table, fields, text.lines, text.line_count, is_text=True, bad=text.bad)
    if piece["format"] == "staged":
        table = context.staging.get_table(segment["staged"])
        fields = fields_of(t, table.column_names, renamed, skip)
        table = table.select(list(fields))
    else:
        fields = fields_of(t, table_columns(piece["format"], segment["path"]), renamed, skip)
        table = read_part(piece["format"], segment, list(fields))
    return SourceRows(table, fields, np.arange(1, table.num_rows + 1), table.num_rows)


def column_mismatch(
    t: EntityType, whole: Sequence[Violation], source_rows: SourceRows, source: str
) -> ConstraintViolation:
    """The error for columns whose types do not fit their properties, with the file and the types it has."""
    columns = {name: column for column, name in source_rows.fields.items()}
    violations: list[Violation] = []
    for v in whole:
        if v.property not in columns:
            return ConstraintViolation(**told(whole, Counter(v.rule for v in whole)))
        expected = t.by_name[v.property].type if v.property in t.by_name else "String"
        column = columns[v.property]
        actual = source_rows.table.schema.field(column).type
        message = f"{v.property}: {expected} is expected, and the column {column!r} holds {actual}"
        violations.append(replace(v, message=message, source=source))
    named = [columns[v.property] for v in violations if v.property is not None]
    return ConstraintViolation(**told(violations, Counter(v.rule for v in violations)), columns=named)


def _visible(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return [_visible(item) for item in value]
    return value


def _plain(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
