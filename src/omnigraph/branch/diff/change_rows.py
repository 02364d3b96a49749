"""Changes of one type as Arrow rows: operation, entity, changed properties, the image before and after.

An image is the row as its state has it: with the properties of that state's schema, under their names there. `changed`
names the properties whose values differ, as the newer state calls them; `src` and `dst` count as properties of an edge.
A property that the older state does not have reads there as null, or as the default with which it was added; one that
the newer state does not have is not compared. So the schema steps and then the changes, applied to the older state,
give the newer one, and a schema step alone changes no row. Null is not empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa

from omnigraph.branch.diff.states import reshaped, stored_name
from omnigraph.language.schema.model import EntityType
from omnigraph.storage.lance.columns import arrow_schema, physical_columns
from omnigraph.write.compare import equal_mask
from omnigraph.write.delta import flat

Operation = Literal["insert", "update", "delete"]
OPERATIONS: tuple[Operation, ...] = ("insert", "update", "delete")
INSERT, UPDATE, DELETE = range(3)


@dataclass(frozen=True)
class ChangeShape:
    """One type in the older and in the newer state; None where that state does not have it."""

    old: EntityType | None
    new: EntityType | None

    @property
    def type(self) -> EntityType:
        t = self.new or self.old
        assert t is not None
        return t

    @cached_property
    def schema(self) -> pa.Schema:
        before, after = _image_type(self.old or self.type), _image_type(self.new or self.type)
        return pa.schema(
            [
                pa.field("operation", pa.string(), nullable=False),
                pa.field("table_key", pa.string(), nullable=False),
                pa.field("id", pa.string(), nullable=False),
                pa.field("src", pa.string()),
                pa.field("dst", pa.string()),
                pa.field("changed", pa.list_(pa.string()), nullable=False),
                pa.field("before", before),
                pa.field("after", after),
            ]
        )

    @cached_property
    def compared(self) -> list[str]:
        """The columns of the newer state that are compared."""
        return [c for c in arrow_schema(self.type).names if c != "id"]

    @cached_property
    def old_names(self) -> dict[str, str]:
        """What the older state calls the columns of the newer one that it has."""
        if self.old is None or self.new is None:
            return {}
        names = {p.name: stored_name(p, self.old) for p in self.new.properties}
        physical = {c: c for c in physical_columns(self.new)}
        return physical | {new: old for new, old in names.items() if old is not None}


def _image_type(t: EntityType) -> pa.StructType:
    return pa.struct([f.with_nullable(True) for f in arrow_schema(t)])


def image_columns(t: EntityType) -> list[str]:
    return list(arrow_schema(t).names)


def change_rows(shape: ChangeShape, kinds: np.ndarray, before: pa.Table | None, after: pa.Table | None) -> pa.Table:
    """The rows of some entities, in their order, without those that are the same in both states.

    `kinds` are indices of OPERATIONS. `before` holds the images of updates and deletes, in their order, `after` those
    of inserts and updates.
    """
    has_before, has_after = kinds != INSERT, kinds != DELETE
    differing = _differing_columns(shape, kinds, before, after)
    is_kept = kinds != UPDATE
    is_kept[kinds == UPDATE] = differing.any(axis=0)
    rows = np.flatnonzero(is_kept)
    old_images = _aligned(before, has_before, rows, shape.schema.field("before").type)
    new_images = _aligned(after, has_after, rows, shape.schema.field("after").type)
    physical = {c: _either(new_images, old_images, c, has_after[rows]) for c in ("id", "src", "dst")}
    table_key = pa.repeat(pa.scalar(shape.type.key), len(rows))
    operation = pa.array(np.asarray(OPERATIONS, dtype=object)[kinds[rows]], pa.string())
    changed = _changed_names(shape, kinds[rows] == UPDATE, differing[:, differing.any(axis=0)])
    return pa.table([operation, table_key, *physical.values(), changed, old_images, new_images], schema=shape.schema)


def _differing_columns(
    shape: ChangeShape, kinds: np.ndarray, before: pa.Table | None, after: pa.Table | None
) -> np.ndarray:
    """Per compared column and update whether the values differ."""
    count = int((kinds == UPDATE).sum())
    if not count:
        return np.zeros((len(shape.compared), 0), dtype=bool)
    assert before is not None
    assert after is not None
    assert shape.old is not None
    assert shape.new is not None
    old = before.filter(pa.array(kinds[kinds != INSERT] == UPDATE))
    new = after.filter(pa.array(kinds[kinds != DELETE] == UPDATE))
    old = reshaped(old, shape.old, shape.new, shape.compared)
    return np.stack([~equal_mask(flat(old[c]), flat(new[c])) for c in shape.compared])


def _changed_names(shape: ChangeShape, is_update: np.ndarray, differing: np.ndarray) -> pa.ListArray:
    """Per change the names of the differing columns; `differing` has a column per update."""
    lengths = np.zeros(len(is_update), dtype=np.int32)
    lengths[is_update] = differing.sum(axis=0)
    _, columns = np.nonzero(differing.T)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(shape.compared, pa.string()).take(pa.array(columns)))


def _aligned(images: pa.Table | None, exists: np.ndarray, rows: np.ndarray, struct: pa.StructType) -> pa.StructArray:
    """The images of the entities at `rows`, null where there is none."""
    if images is None or not images.num_rows:
        return pa.nulls(len(rows), struct)
    missing = ~exists[rows]
    positions = (np.cumsum(exists) - 1)[rows]
    picked = pa.array(np.where(missing, 0, positions))
    children = [flat(images[field.name]).take(picked).cast(field.type) for field in struct]
    return pa.StructArray.from_arrays(children, fields=list(struct), mask=pa.array(missing))


def _either(new_images: pa.StructArray, old_images: pa.StructArray, column: str, is_new: np.ndarray) -> pa.Array:
    if new_images.type.get_field_index(column) < 0:
        return pa.nulls(len(new_images), pa.string())
    positions = np.where(is_new, np.arange(len(new_images)), np.arange(len(new_images)) + len(new_images))
    both = pa.concat_arrays([new_images.field(column), old_images.field(column)])
    return both.take(pa.array(positions))


def operation_kinds(operations: Sequence[str] | None) -> tuple[int, ...]:
    """The kinds of these operations; of all by default."""
    return tuple(i for i, name in enumerate(OPERATIONS) if operations is None or name in operations)
