"""The fast way: many lines of one type at once, by Arrow's JSON reader, straight into the stored schema.

`TypeReader.read` returns the rows of the lines, in order, or None. None means only: not plainly right. The caller
then splits the lines and asks again, down to few lines, which the judge decides. So this code must accept nothing that
the judge would refuse and give no other value, but may give up at will.

`forms` says why the reader's answer holds one row per line, and what it refuses itself. What it lets pass is looked for
here: invalid UTF-8, NaN and infinity (also from overflow), absent required values, dates outside of the years 1 to
9999, nulls in lists, lengths of vectors, base64, ids. And it does not tell null from absent: where that matters (`id`,
`data`, or a property with @default), lines that hold such a null are not read here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.language.schema.model import EntityType, Property, PropertyType
from omnigraph.storage.columns import arrow_schema, arrow_type
from omnigraph.write.arrays import all_finite, vectors_of
from omnigraph.write.envelope.forms import DATA, LineReader, Prefix
from omnigraph.write.keys import Ulids, canonical_ids
from omnigraph.write.problems import Problem
from omnigraph.write.temporal import DAY_MAX, DAY_MIN, MS_MAX, MS_MIN
from omnigraph.write.values import convert


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows of the stored schema. `has_own_ids` is false where all ids are new ULIDs, which nothing can hold already."""

    table: pa.Table
    has_own_ids: bool


class TypeReader:
    """Reads lines of one type; holds what does not change from call to call."""

    def __init__(self, t: EntityType, ulids: Ulids) -> None:
        self._type = t
        self._ulids = ulids
        self._schema = arrow_schema(t)
        self._defaults = {p.name: _default(p) for p in t.properties if p.default is not None}
        self._without_id = LineReader(t, with_id=False)
        self._with_id = LineReader(t, with_id=True)

    def read(self, lines: pa.Array, prefix: Prefix, numbers: np.ndarray) -> Piece | None:
        """`lines` are whole lines, each with its line feed; `numbers` are those of their ULIDs."""
        try:
            columns = self._members(lines, prefix)
            if columns is None or self._has_telling_nulls(lines, columns):
                return None
            return self._stored(columns, len(lines), numbers)
        except pa.ArrowInvalid:
            return None

    def _members(self, lines: pa.Array, prefix: Prefix) -> Mapping[str, pa.Array] | None:
        # An input brings ids in most lines or in none, and not to ask for any is faster.
        if b'"id"' in lines[0].as_py():
            return self._with_id.columns(lines, prefix)
        try:
            return self._without_id.columns(lines, prefix)
        except pa.ArrowInvalid:
            if not pc.any(pc.match_substring(lines, '"id"')).as_py():
                return None
        return self._with_id.columns(lines, prefix)

    def _has_telling_nulls(self, lines: pa.Array, columns: Mapping[str, pa.Array]) -> bool:
        """Whether a member is written as null that would mean something else if it were absent."""
        names = [name for name in ("id", DATA, *self._defaults) if name in columns and columns[name].null_count]
        if not names:
            return False
        nulls = pc.match_substring(lines, "null")
        if not pc.any(nulls).as_py():
            return False
        suspects = lines.filter(nulls)
        members = "|".join(re.escape("data" if name == DATA else name) for name in names)
        # A member's name can also be spelled with escapes.
        return bool(pc.any(pc.match_substring_regex(suspects, f'\\\\|"({members})"[ \\t]*:[ \\t]*null')).as_py())

    def _stored(self, read: Mapping[str, pa.Array], count: int, numbers: np.ndarray) -> Piece | None:
        columns: dict[str, pa.Array] = {}
        for p in self._type.properties:
            column = _stored_column(p.type, read[p.name])
            if column is not None and column.null_count and p.name in self._defaults:
                column = column.fill_null(self._defaults[p.name])
            if column is None or (column.null_count and not p.nullable):
                return None
            columns[p.name] = column
        for name in ("src", "dst") if self._type.kind == "edge" else ():
            columns[name] = read[name]
            if columns[name].null_count:
                return None
        given = read.get("id")
        given = None if given is None or given.null_count == count else given
        if self._type.key_properties:
            columns["id"] = canonical_ids(self._type, pa.table(columns))
            if given is not None and pc.any(pc.not_equal(given, columns["id"])).as_py():
                return None
        elif given is None or given.null_count:
            fresh = self._ulids.ids(numbers)
            columns["id"] = fresh if given is None else pc.coalesce(given, fresh)
        else:
            columns["id"] = given
        table = pa.table([columns[name] for name in self._schema.names], schema=self._schema)
        return Piece(table, has_own_ids=bool(self._type.key_properties) or given is not None)


def _default(p: Property) -> pa.Scalar:
    value = convert(p.type, p.default, from_json=True)
    return pa.array([None if isinstance(value, Problem) else value], arrow_type(p.type))[0]


def _stored_column(p: PropertyType, column: pa.Array) -> pa.Array | None:
    if p.kind == "Vector":
        return _vectors(p, column)
    if p.kind == "List":
        return _lists(p, column)
    if p.kind in ("F32", "F64"):
        return column if all_finite(column) else None
    if p.kind == "Date":
        days = column.cast(pa.date32())
        return days if _is_within(days.cast(pa.int32()), DAY_MIN, DAY_MAX) else None
    if p.kind == "DateTime":
        return column if _is_within(column.cast(pa.int64()), MS_MIN, MS_MAX) else None
    if p.kind == "Blob":
        return _blobs(p, column.to_pylist())
    return column


def _is_within(column: pa.Array, low: int, high: int) -> bool:
    bounds = pc.min_max(column)
    return bounds["min"].as_py() is None or (bounds["min"].as_py() >= low and bounds["max"].as_py() <= high)


def _blobs(p: PropertyType, texts: Sequence[str | None]) -> pa.Array | None:
    values = [None if text is None else convert(p, text, from_json=True) for text in texts]
    return None if any(isinstance(v, Problem) for v in values) else pa.array(values, pa.large_binary())


def _lists(p: PropertyType, column: pa.Array) -> pa.Array | None:
    items = column.flatten()
    stored = _stored_column(PropertyType(p.item or ""), items)
    if stored is None or items.null_count:
        return None
    if stored is items:
        return column
    lengths = np.asarray(pc.list_value_length(column).fill_null(0), dtype=np.int64)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, stored, mask=column.is_null())


def _vectors(p: PropertyType, column: pa.Array) -> pa.Array | None:
    assert p.dimension is not None
    lengths = pc.all(pc.equal(pc.list_value_length(column), p.dimension)).as_py()
    items = column.flatten()
    if lengths is False or items.null_count or not all_finite(items):
        return None
    return vectors_of(items, p.dimension, column.is_valid())
