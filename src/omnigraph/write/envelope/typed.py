"""The fast way: many lines of one type at once, by Arrow's JSON reader, straight into the stored schema.

`TypeReader.read` returns the rows of the lines that are plainly right, in order, and marks the others; or it says that
the reader failed, and where, if that is known. Whatever is not read goes to the judge in the end. So this code must
accept nothing that the judge would refuse and give no other value, but may give up at will.

`forms` says why the reader's answer holds one row per line, and what it refuses itself. What it lets pass is looked for
here: invalid UTF-8, NaN and infinity (also from overflow), absent required values, dates outside of the years 1 to
9999, nulls in lists, lengths of vectors, base64, ids. And it does not tell null from absent: where that matters (`id`,
`data`, or a property with @default), lines that hold such a null are marked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.language.schema.model import EntityType, Property, PropertyType
from omnigraph.rules.problem import Problem
from omnigraph.storage.lance.columns import arrow_schema, arrow_type
from omnigraph.storage.ulids import Ulids
from omnigraph.write.arrays import vectors_of
from omnigraph.write.envelope.forms import DATA, LineReader, Prefix
from omnigraph.write.keys import canonical_ids
from omnigraph.write.temporal import DAY_MAX, DAY_MIN, MS_MAX, MS_MIN, day_of_text
from omnigraph.write.values import convert

_ROW = re.compile(r" in row ([0-9]+)$")


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows of the stored schema, of the lines that are not marked in `unsure` (None: of all lines).

    `has_own_ids` is false where all ids are new ULIDs, which nothing can hold already.
    """

    table: pa.Table
    unsure: np.ndarray | None
    has_own_ids: bool


@dataclass(frozen=True)
class Failed:
    """The reader gave up. `row` is a hint: the first line that it stumbled over, if it said so."""

    row: int | None = None


class TypeReader:
    """Reads lines of one type; holds what does not change from call to call."""

    def __init__(self, t: EntityType, ulids: Ulids) -> None:
        self._type = t
        self._ulids = ulids
        self._schema = arrow_schema(t)
        self._defaults = {p.name: _default(p) for p in t.properties if p.default is not None}
        self._without_id = LineReader(t, with_id=False)
        self._with_id = LineReader(t, with_id=True)

    def read(self, lines: pa.Array, prefix: Prefix, numbers: np.ndarray) -> Piece | Failed:
        """`lines` are whole lines, each with its line feed; `numbers` are those of their ULIDs."""
        try:
            columns = self._members(lines, prefix)
        except pa.ArrowInvalid as e:
            found = _ROW.search(str(e))
            row = None if found is None else int(found[1])
            return Failed(row if row is not None and row < len(lines) else None)
        if columns is None:
            return Failed()
        return self._stored(columns, numbers, _Doubts(self._telling_nulls(lines, columns)))

    def _members(self, lines: pa.Array, prefix: Prefix) -> Mapping[str, pa.Array] | None:
        # An input brings ids in most lines or in none, and not to ask for any is faster.
        if b'"id"' in lines[0].as_py():
            return self._with_id.columns(lines, prefix)
        try:
            return self._without_id.columns(lines, prefix)
        except pa.ArrowInvalid:
            if not pc.any(pc.match_substring(lines, '"id"')).as_py():
                raise
        return self._with_id.columns(lines, prefix)

    def _telling_nulls(self, lines: pa.Array, columns: Mapping[str, pa.Array]) -> np.ndarray | None:
        """Lines in which a member is written as null that would mean something else if it were absent."""
        names = [name for name in ("id", DATA, *self._defaults) if name in columns and columns[name].null_count]
        if not names:
            return None
        nulls = pc.match_substring(lines, "null")
        if not pc.any(nulls).as_py():
            return None
        members = "|".join(re.escape("data" if name == DATA else name) for name in names)
        # A member's name can also be spelled with escapes.
        telling = pc.match_substring_regex(lines, f'\\\\|"({members})"[ \\t\\r]*:[ \\t\\r]*null')
        return np.asarray(pc.and_(nulls, telling))

    def _stored(self, read: Mapping[str, pa.Array], numbers: np.ndarray, doubts: _Doubts) -> Piece | Failed:
        t = self._type
        columns: dict[str, pa.Array] = {}
        for p in t.properties:
            column = _stored_column(p.type, read[p.name], doubts)
            if column.null_count and p.name in self._defaults:
                column = column.fill_null(self._defaults[p.name])
            if column.null_count and not p.nullable:
                doubts.add(column.is_null())
            columns[p.name] = column
        for name in ("src", "dst") if t.kind == "edge" else ():
            columns[name] = read[name]
            if columns[name].null_count:
                doubts.add(columns[name].is_null())
        unsure = doubts.mask
        given = read.get("id")
        if unsure is not None:
            # Before ids are made: a key in a doubtful line may be anything.
            sure = pa.array(~unsure)
            columns = {name: column.filter(sure) for name, column in columns.items()}
            given = None if given is None else given.filter(sure)
            numbers = numbers[~unsure]
        ids = self._ids(columns, given, numbers)
        if ids is None:
            return Failed()
        table = pa.table([{**columns, "id": ids}[name] for name in self._schema.names], schema=self._schema)
        own = given is not None and given.null_count < len(given)
        return Piece(table, unsure, has_own_ids=bool(t.key_properties) or own)

    def _ids(self, columns: Mapping[str, pa.Array], given: pa.Array | None, numbers: np.ndarray) -> pa.Array | None:
        """None where a line brings another id than its key gives."""
        if self._type.key_properties:
            ids = canonical_ids(self._type, pa.table(dict(columns)))
            is_other = given is not None and pc.any(pc.not_equal(given, ids)).as_py()
            return None if is_other else ids
        if given is not None and given.null_count == 0:
            return given
        fresh = self._ulids.ids(numbers)
        return fresh if given is None else pc.coalesce(given, fresh)


class _Doubts:
    """Lines of one piece that are not plainly right, as they are found."""

    def __init__(self, mask: np.ndarray | None) -> None:
        self.mask = mask if mask is not None and mask.any() else None

    def add(self, mask: pa.Array | np.ndarray) -> None:
        more = np.asarray(mask)
        if more.any():
            self.mask = more.copy() if self.mask is None else self.mask | more


def _default(p: Property) -> pa.Scalar:
    value = convert(p.type, p.default, from_json=True)
    return pa.array([None if isinstance(value, Problem) else value], arrow_type(p.type))[0]


def _stored_column(p: PropertyType, column: pa.Array, doubts: _Doubts) -> pa.Array:
    """The column as it is stored; what it holds in doubtful lines does not matter."""
    if p.kind == "Vector":
        return _vectors(p, column, doubts)
    if p.kind == "List":
        return _lists(p, column, doubts)
    stored, bad = _scalars(p, column)
    if bad is not None:
        doubts.add(bad)
    return stored


def _scalars(p: PropertyType, column: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """The stored scalars, and which of them are not plainly right, if any."""
    if p.kind in ("F32", "F64"):
        finite = pc.is_finite(column)
        return column, None if pc.all(finite).as_py() in (True, None) else pc.fill_null(pc.invert(finite), False)
    if p.kind == "DateTime":
        return column, _outside(column.cast(pa.int64()), MS_MIN, MS_MAX)
    if p.kind == "Date":
        try:
            days = column.cast(pa.date32())
        except pa.ArrowInvalid:
            days = _days(column)
        bad = _outside(days.cast(pa.int32()), DAY_MIN, DAY_MAX)
        unread = None if days.null_count == column.null_count else pc.xor(days.is_null(), column.is_null())
        return days, unread if bad is None else bad if unread is None else pc.or_(bad, unread)
    if p.kind == "Blob":
        values = [None if text is None else convert(p, text, from_json=True) for text in column.to_pylist()]
        bad = [isinstance(value, Problem) for value in values]
        stored = pa.array([None if isinstance(v, Problem) else v for v in values], pa.large_binary())
        return stored, pa.array(bad, pa.bool_()) if any(bad) else None
    return column, None


def _days(column: pa.Array) -> pa.Array:
    """Dates of which some are none: those become null. Every different text is read once."""
    encoded = column.dictionary_encode()
    days = pa.array([day_of_text(text) for text in encoded.dictionary.to_pylist()], pa.int32()).cast(pa.date32())
    return days.take(encoded.indices)


def _outside(column: pa.Array, low: int, high: int) -> pa.Array | None:
    bounds = pc.min_max(column)
    if bounds["min"].as_py() is None or (bounds["min"].as_py() >= low and bounds["max"].as_py() <= high):
        return None
    return pc.fill_null(pc.or_(pc.less(column, low), pc.greater(column, high)), False)


def _lists(p: PropertyType, column: pa.Array, doubts: _Doubts) -> pa.Array:
    items = column.flatten()
    stored, bad = _scalars(PropertyType(p.item or ""), items)
    if bad is not None or items.null_count:
        wrong = np.asarray(items.is_null()) | (np.zeros(len(items), dtype=bool) if bad is None else np.asarray(bad))
        doubts.add(_owners(column, wrong))
    if stored is items:
        return column
    offsets = pa.array(np.concatenate([[0], np.cumsum(_lengths(column))]), pa.int32())
    return pa.ListArray.from_arrays(offsets, stored, mask=column.is_null())


def _lengths(column: pa.Array) -> np.ndarray:
    return np.asarray(pc.list_value_length(column).fill_null(0), dtype=np.int64)


def _owners(column: pa.Array, wrong: np.ndarray) -> np.ndarray:
    """The lists that hold an item that is marked."""
    owners = np.repeat(np.arange(len(column)), _lengths(column))
    mask = np.zeros(len(column), dtype=bool)
    mask[owners[wrong]] = True
    return mask


def _vectors(p: PropertyType, column: pa.Array, doubts: _Doubts) -> pa.Array:
    assert p.dimension is not None
    valid = np.asarray(column.is_valid())
    items = column.flatten()
    bad = valid & (_lengths(column) != p.dimension)
    finite = np.asarray(pc.fill_null(pc.is_finite(items), False))
    if not finite.all():
        bad |= _owners(column, ~finite)
    if bad.any():
        doubts.add(bad)
        valid &= ~bad
        items = column.filter(pa.array(valid)).flatten()
    return vectors_of(items, p.dimension, pa.array(valid))
