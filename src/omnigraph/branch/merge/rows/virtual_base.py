"""The base of a merge with several merge bases: per entity, what a merge of the bases would hold.

Bases are merged one after the other, each pair over its own merge bases, recursively. An entity on which they conflict
among themselves has no known base.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from omnigraph.branch.ancestry import merge_bases
from omnigraph.branch.diff.states import full_schema, reshaped, stored_columns, table_version
from omnigraph.branch.three_way import COMBINE, CONFLICT, DELETE, TAKE_THEIRS, Grain, Images, decide
from omnigraph.commit.operation import View
from omnigraph.language.schema.model import EntityType
from omnigraph.storage.diff.table_version import TableVersion
from omnigraph.storage.lance import tables as tables_of


def images_at(version: TableVersion | None, t: EntityType, columns: list[str], ids: pa.Array) -> Images:
    """Images of entities in one state, looked up by id, in the shape of `t`."""
    if version is None:
        return Images.aligned(ids, full_schema(t).empty_table().select(columns))
    return Images.aligned(ids, reshaped(rows_by_id(version, ids), version.type, t, columns))


def rows_by_id(version: TableVersion, ids: pa.Array) -> pa.Table:
    """Whole rows of some entities, with row id and address. Memory follows the entities, not the table."""
    columns = stored_columns(version)
    if len(ids) <= tables_of.FILTER_MAX:
        return tables_of.find(version.table, version.type, "id", ids, columns)
    rows = tables_of.find(version.table, version.type, "id", ids, ["id"])
    return version.rows_at(rows["_rowaddr"].to_numpy(), columns, bounded=True)


def virtual_images(
    bases: Sequence[View], t: EntityType, columns: list[str], ids: pa.Array, *, grain: Grain
) -> tuple[Images, np.ndarray]:
    """Images in the virtual base, and which of them are unknown."""
    merged = _images_in(bases[0], t, columns, ids)
    is_unknown = np.zeros(len(ids), dtype=bool)
    seen = [bases[0]]
    for view in bases[1:]:
        other = _images_in(view, t, columns, ids)
        commits = {c for s in seen for c in merge_bases(view.manifest, s.head.commit, view.head.commit)}
        below = [view.at(commit) for commit in sorted(commits)]
        base, unknown_below = virtual_images(below, t, columns, ids, grain=grain)
        decision = decide(t, base, other, merged, grain=grain, is_unknown=unknown_below)
        is_unknown = is_unknown | (decision.actions == CONFLICT)
        takes = decision.actions == TAKE_THEIRS
        exists = np.where(takes | (decision.actions == COMBINE), True, merged.exists) & (decision.actions != DELETE)
        merged = Images(_choose(decision.combined, other.rows, takes), exists)
        seen.append(view)
    return merged, is_unknown


def _images_in(view: View, t: EntityType, columns: list[str], ids: pa.Array) -> Images:
    return images_at(table_version(view, t), t, columns, ids)


def _choose(rows: pa.Table, other: pa.Table, takes_other: np.ndarray) -> pa.Table:
    """Rows of `other` where the mask is set, of `rows` elsewhere."""
    if not takes_other.any():
        return rows
    count = rows.num_rows
    both = pa.concat_tables([rows, other.select(rows.column_names).cast(rows.schema)])
    return both.take(pa.array(np.where(takes_other, np.arange(count) + count, np.arange(count))))
