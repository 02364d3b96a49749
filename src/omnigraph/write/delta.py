"""What a write does to one type: the new images of some rows, and the ids that go away.

A write of many types is a mapping from type name to TypeDelta. The final image of a type is
`rows ∪ (committed − ids of rows − deleted)`, or `rows` alone where `replaces_all` is set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.language.schema.model import EntityType
from omnigraph.storage.lance.columns import arrow_schema


class Places(Protocol):
    """Where the lines of an input are, which may be several files that are read as one."""

    def place(self, line: int) -> tuple[str | None, int]:
        """The source of a line, and its number there."""

    def text(self, line: int) -> str:
        """The line, as a message names it."""


@dataclass(frozen=True)
class OneInput:
    """An input that needs no name."""

    def place(self, line: int) -> tuple[str | None, int]:
        return None, line

    def text(self, line: int) -> str:
        return f"line {line}"


@dataclass(frozen=True, eq=False)
class TypeDelta:
    """`rows` has the schema of the type, with unique ids; `deleted` holds ids that are not among them.

    A deleted id need not exist: deleting nothing is no error and no change. `lines`, where given, says for each row
    which line of the input it came from (int64), so that a violation can name it; `places` says where those are.
    `all_new` says that none of the rows' ids is in the graph, which spares looking them up.
    """

    type: EntityType
    rows: pa.Table
    deleted: pa.Array
    replaces_all: bool = False
    lines: pa.Array | None = None
    all_new: bool = False
    places: Places = field(default_factory=OneInput)

    @property
    def is_empty(self) -> bool:
        return self.rows.num_rows == 0 and len(self.deleted) == 0 and not self.replaces_all

    @property
    def ids(self) -> pa.Array:
        return flat(self.rows.column("id"))

    def kept(self, mask: pa.Array) -> TypeDelta:
        """The same delta with only the rows for which `mask` is true."""
        lines = None if self.lines is None else self.lines.filter(mask)
        return replace(self, rows=self.rows.filter(mask), lines=lines)


Deltas = Mapping[str, TypeDelta]


def no_ids() -> pa.Array:
    return pa.array([], pa.string())


def delta(
    t: EntityType,
    *,
    rows: pa.Table | None = None,
    deleted: pa.Array | None = None,
    replaces_all: bool = False,
    lines: pa.Array | None = None,
    all_new: bool = False,
    places: Places | None = None,
) -> TypeDelta:
    return TypeDelta(
        type=t,
        rows=arrow_schema(t).empty_table() if rows is None else rows,
        deleted=no_ids() if deleted is None else deleted,
        replaces_all=replaces_all,
        lines=lines,
        all_new=all_new,
        places=places or OneInput(),
    )


def flat(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """One contiguous array, without a copy where the column is one already."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def is_in(values: pa.Array, among: pa.Array) -> pa.Array:
    """Which `values` are among the others; a null never is."""
    if len(among) == 0 or len(values) == 0:
        return pa.repeat(pa.scalar(False), len(values))
    return pc.is_in(values, value_set=among, skip_nulls=True)


def not_in(values: pa.Array, others: pa.Array) -> pa.Array:
    """The `values` that are not among `others`."""
    return values if len(others) == 0 or len(values) == 0 else values.filter(pc.invert(is_in(values, others)))


def distinct(*arrays: pa.Array) -> pa.Array:
    """The different values of all arrays, nulls left out."""
    filled = [a for a in arrays if len(a)]
    if not filled:
        return arrays[0].slice(0, 0)
    return pc.unique(pc.drop_null(pa.concat_arrays(filled) if len(filled) > 1 else filled[0]))


def first_positions(values: pa.Array) -> np.ndarray:
    """For each value the position at which the same value occurs first; its own where it is the first or null."""
    n = len(values)
    encoded = values.dictionary_encode()
    positions = np.arange(n, dtype=np.int64)
    if len(encoded.dictionary) == n - values.null_count:
        return positions
    codes = np.asarray(encoded.indices.fill_null(-1), dtype=np.int64)
    first = np.empty(len(encoded.dictionary) + 1, dtype=np.int64)
    first[codes[::-1]] = positions[::-1]
    return np.where(codes < 0, positions, first[codes])
