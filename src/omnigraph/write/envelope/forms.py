"""The forms in which lines of one type are written, and how Arrow's JSON reader is made to read them.

Lines are cut so that the reader has less to do, and so that its answer can be trusted:

1. Where all lines start with one prefix, `{"type":"T","data":{` or `{"type":"T","` in some spacing, it is cut off, so
   that `type` can't come twice unnoticed, and in the first form the last `}` of each line with it; the rest of a line
   is an object exactly when the line is a record of that form. Other lines are read whole, and must name the type.
2. Each rest starts with `{` and ends with `}`. After a `}` inside of a value JSON continues with `,`, `]` or `}`, never
   with a line feed and `{`. So every line holds at least one whole value, and as many rows as lines means exactly one.
3. The reader refuses unknown members, members twice, wrong kinds of values, fractions and overflow in integers, and
   control characters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from omnigraph.language.schema.model import EntityType, PropertyType
from omnigraph.storage.lance.columns import arrow_type
from omnigraph.write.delta import flat

# A line may hold spaces, tabs and carriage returns wherever JSON allows white space.
PREFIX_PATTERN = r'^[ \t\r]*\{[ \t\r]*"(type|edge)"[ \t\r]*:[ \t\r]*"([^"\\\x00-\x1f]*)"[ \t\r]*(,)[ \t\r]*"'

_PREFIX = re.compile(PREFIX_PATTERN.encode() + rb'(?:data"[ \t\r]*:[ \t\r]*(\{))?')
_OPEN, _CLOSE, _RETURN, _SPACE = b"{}\r "
_AS_TEXT = {"Date": pa.string(), "Blob": pa.string()}
_LENGTH_MAX = 1 << 30

# The name of the column for `data` itself, which no property can have.
DATA = "{data}"


@dataclass(frozen=True)
class Prefix:
    """How the lines of a group start, and of which type they are.

    `comma_at` is where the comma after the type's name stands, None where the type does not come first. `data_at` is
    where the object of `data` starts, if that follows the type of a node at once.
    """

    text: bytes
    kind: str
    name: str
    comma_at: int | None
    data_at: int | None


def prefix_of(line: bytes) -> Prefix | None:
    found = _PREFIX.match(line)
    if found is None:
        return None
    try:
        name = found[2].decode("utf-8")
    except UnicodeDecodeError:
        return None
    data_at = found.start(4) if found[4] is not None and found[1] == b"type" else None
    return Prefix(found[0], found[1].decode(), name, found.start(3), data_at)


class LineReader:
    """Lines of one type to their JSON members. `with_id` says whether `data.id` is read or is an unknown member."""

    def __init__(self, t: EntityType, *, with_id: bool) -> None:
        self._type = t
        ids = [pa.field("id", pa.string())] if with_id else []
        data = ids + [pa.field(p.name, _json_type(p.type)) for p in t.properties]
        ends = [] if t.kind == "node" else [pa.field("from", pa.string()), pa.field("to", pa.string())]
        outer = [*ends, pa.field("data", pa.struct(data))]
        kind = pa.field("type" if t.kind == "node" else "edge", pa.string())
        self._data = _options(data)
        self._outer = _options(outer)
        self._whole = _options([kind, *outer])

    def columns(self, lines: pa.Array, prefix: Prefix) -> dict[str, pa.Array] | None:
        """The members of `data` by name, and `src` and `dst` of edges; None, or ArrowInvalid, where that fails.

        `lines` are whole lines, each with its line feed. `data` itself comes with the rows in which it is null or
        absent, if there are any.
        """
        if prefix.data_at is not None:
            rests, text, ends = _rests(lines, prefix.data_at)
            last = _last(text, ends)
            if (text[last] == _CLOSE).all() and (text[last - 1] == _CLOSE).all():
                text[last] = _SPACE
                table = _read(rests, self._data)
                return None if table.num_rows != len(lines) else {n: flat(table.column(n)) for n in table.column_names}
        rests, text, ends = _rests(lines, prefix.comma_at or 0)
        if not (text[_last(text, ends)] == _CLOSE).all():
            return None
        if prefix.comma_at is None:
            table = _read(rests, self._whole)
        else:
            # The rest starts at the comma after the type's name, which becomes the brace that opens the object.
            text[ends - np.diff(ends, prepend=0)] = _OPEN
            table = _read(rests, self._outer)
        return None if table.num_rows != len(lines) else self._flattened(table)

    def _flattened(self, table: pa.Table) -> dict[str, pa.Array] | None:
        if table.schema.names[0] in ("type", "edge"):
            named = pc.fill_null(pc.equal(table.column(0), self._type.name), False)
            if not pc.all(named).as_py():
                return None
        data = flat(table.column("data"))
        columns = dict(zip((f.name for f in data.type), data.flatten(), strict=True))
        for name, column in (("from", "src"), ("to", "dst")) if self._type.kind == "edge" else ():
            columns[column] = flat(table.column(name))
        return {**columns, DATA: data} if data.null_count else columns


def _json_type(p: PropertyType) -> pa.DataType:
    """What the JSON reader is asked for: dates and base64 come as text, vectors as lists."""
    if p.kind == "List":
        assert p.item is not None
        return pa.list_(_AS_TEXT.get(p.item, arrow_type(PropertyType(p.item))))
    if p.kind == "Vector":
        return pa.list_(pa.float32())
    return _AS_TEXT.get(p.kind, arrow_type(p))


def _options(fields: list[pa.Field]) -> pj.ParseOptions:
    schema = pa.schema(fields)
    return pj.ParseOptions(explicit_schema=schema, newlines_in_values=False, unexpected_field_behavior="error")


def _rests(lines: pa.Array, start: int) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """The lines from byte `start` on, as a new array; its bytes, which may be changed; and where each line ends."""
    rests = pc.binary_slice(lines, start, _LENGTH_MAX)
    _, offsets, text = rests.buffers()
    assert rests.offset == 0
    assert text.is_mutable
    ends = np.frombuffer(offsets, dtype=np.int32)[1 : len(rests) + 1].astype(np.int64)
    return rests, np.frombuffer(text, dtype=np.uint8), ends


def _last(text: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Where each line's last character before its line end stands."""
    return np.asarray(ends - 2 - (text[ends - 2] == _RETURN))


def _read(rests: pa.Array, options: pj.ParseOptions) -> pa.Table:
    _, offsets, text = rests.buffers()
    text = text.slice(0, int(np.frombuffer(offsets, dtype=np.int32)[len(rests)]))
    # One block, read in this thread: the caller reads other blocks in other threads.
    whole = pj.ReadOptions(use_threads=False, block_size=text.size + 1)
    table = pj.read_json(pa.BufferReader(text), read_options=whole, parse_options=options)
    table.validate(full=True)
    return table
