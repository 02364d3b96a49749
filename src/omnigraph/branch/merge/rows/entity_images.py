"""The images of some entities in the three states of a merge, in the shape of the merged type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.branch.diff.states import full_schema, reshaped
from omnigraph.branch.merge.rows.virtual_base import images_at, rows_by_id, virtual_images
from omnigraph.branch.three_way import Grain, Images
from omnigraph.commit.operation import View
from omnigraph.language.schema.model import EntityType
from omnigraph.storage.diff.table_version import TableVersion
from omnigraph.storage.lance.tables import ROW_COLUMNS
from omnigraph.write.delta import flat


@dataclass(frozen=True, eq=False)
class EntityImages:
    """The three images of some entities. `ours` are target rows with `_rowid` and `_rowaddr`, not yet aligned."""

    ids: pa.Array
    base: Images
    theirs: Images
    ours: pa.Table
    is_unknown: np.ndarray | None = None


StoredRows = tuple[pa.Table, EntityType]
"""Rows as one state stores them, and the type there."""


def entity_ids(*rows: pa.Table) -> pa.Array:
    """The ids of entities, each once, in the order in which they come."""
    return pc.unique(pa.concat_arrays([flat(part["id"]).cast(pa.string()) for part in rows]))


def entity_images(
    t: EntityType, columns: list[str], ids: pa.Array, *, theirs: StoredRows, base: StoredRows, ours: StoredRows
) -> EntityImages:
    """Images in the shape of the merged type; `ours` with row id and address."""
    base_images, theirs_images, our_rows = (reshaped(*side, t, columns) for side in (base, theirs, ours))
    return EntityImages(
        ids, Images.aligned(ids, base_images), Images.aligned(ids, theirs_images), _placed(our_rows, ours[0])
    )


def _placed(images: pa.Table, rows: pa.Table) -> pa.Table:
    """Images with the row id and address of the rows that they were read from."""
    for name in ROW_COLUMNS:
        column = rows[name] if name in rows.column_names else pa.nulls(images.num_rows, pa.uint64())
        images = images.append_column(name, column)
    return images


def looked_up_images(
    t: EntityType,
    columns: list[str],
    ids: pa.Array,
    *,
    bases: Sequence[View],
    theirs: TableVersion,
    ours: TableVersion | None,
    grain: Grain,
) -> EntityImages:
    """Images that are looked up by id, with what a merge of several bases would hold as the base."""
    base, is_unknown = virtual_images(bases, t, columns, ids, grain=grain)
    rows, stored = full_schema(t).empty_table(), t
    if ours is not None:
        rows, stored = rows_by_id(ours, ids), ours.type
    our_rows = _placed(reshaped(rows, stored, t, columns), rows)
    return EntityImages(ids, base, images_at(theirs, t, columns, ids), our_rows, is_unknown)
