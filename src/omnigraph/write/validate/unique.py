"""@unique: no two rows of the final image hold the same tuple. A tuple with a null member holds no key.

1. Each row's tuple becomes one text (as keys are spelled). A text that occurs twice in the delta is a violation of the
   later rows.
2. The committed rows that hold one of the values are fetched by the member that narrows most; those that the write
   replaces or removes do not count; the rest must not share a text with a row of the delta.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import Violation
from omnigraph.language.schema.model import EntityType, PropertyType
from omnigraph.rules.problem import Problem
from omnigraph.rules.unique import repeated_tuple, taken_tuple
from omnigraph.write.delta import TypeDelta, distinct, first_positions, flat
from omnigraph.write.keys import TEXT, tuple_texts
from omnigraph.write.pending_view import Image
from omnigraph.write.validate.fields import row_violations


def check_unique(image: Image) -> list[Violation]:
    found: list[Violation] = []
    for d in image.deltas.values():
        for constraint in d.type.constraints:
            if constraint.kind == "unique" and d.rows.num_rows:
                found.extend(_check(image, d, constraint.properties))
    return found


def _check(image: Image, d: TypeDelta, names: Sequence[str]) -> Iterator[Violation]:
    held = texts_of(d.type, d.rows, names)
    firsts = first_positions(held)
    repeats = np.flatnonzero(firsts != np.arange(len(firsts))).tolist()

    def repeated(row: int) -> Problem:
        first = int(firsts[row])
        where = None if d.lines is None else d.places.text(d.lines[first].as_py())
        return repeated_tuple(names, _values(d, names, row), d.rows.column("id")[first].as_py(), where)

    yield from row_violations(d, repeats, repeated)

    committed = _committed(image, d, names)
    if committed.num_rows == 0:
        return
    holders = committed.column("id")
    index = pc.index_in(held, value_set=texts_of(d.type, committed, names), skip_nulls=True)
    known = set(repeats)
    taken = [row for row in pc.indices_nonzero(pc.is_valid(index)).to_pylist() if row not in known]
    yield from row_violations(
        d, taken, lambda row: taken_tuple(names, _values(d, names, row), holders[index[row].as_py()].as_py())
    )


def _type(t: EntityType, name: str) -> PropertyType:
    return t.by_name[name].type if name in t.by_name else TEXT


def texts_of(t: EntityType, table: pa.Table, names: Sequence[str]) -> pa.Array:
    """One text per row that two rows share exactly when their tuples are equal; null where a member is null."""
    return tuple_texts([(_type(t, name), table.column(name)) for name in names])


def _values(d: TypeDelta, names: Sequence[str], row: int) -> list[object]:
    return [d.rows.column(name)[row].as_py() for name in names]


def _committed(image: Image, d: TypeDelta, names: Sequence[str]) -> pa.Table:
    """Retained rows that might share a tuple with the delta."""
    if d.replaces_all or image.reader.count(d.type) == 0:
        return pa.table({"id": pa.array([], pa.string())})
    values = {name: distinct(flat(d.rows.column(name))) for name in names}
    by = max(names, key=lambda name: len(values[name]))
    return image.retained(d.type, by, _both_zeros(values[by]), names)


def _both_zeros(values: pa.Array) -> pa.Array:
    """0.0 and -0.0 are one value to @unique; a look-up may tell them apart."""
    if not pa.types.is_floating(values.type) or not pc.any(pc.equal(values, 0.0)).as_py():
        return values
    return pa.concat_arrays([values, pa.array([0.0, -0.0], values.type)])
