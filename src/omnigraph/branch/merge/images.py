"""The three images of entities that a rule names: looked up by id, for conflicts as data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from omnigraph.branch.diff.states import table_version
from omnigraph.branch.merge.model import Conflict, EntityKey, digest_of, json_image
from omnigraph.branch.merge.rows.virtual_base import images_at, virtual_images
from omnigraph.branch.three_way import Images
from omnigraph.commit.operation import View
from omnigraph.language.schema.model import EntityType, Schema
from omnigraph.storage.lance.columns import arrow_schema


def conflict_images(
    schema: Schema, ours: View, theirs: View, bases: Sequence[View], entities: Iterable[EntityKey]
) -> dict[EntityKey, Conflict]:
    """Per entity a conflict without a kind, which holds the three images and their digest."""
    by_table: dict[str, list[str]] = {}
    for table_key, entity_id in sorted(entities):
        by_table.setdefault(table_key, []).append(entity_id)
    conflicts: dict[EntityKey, Conflict] = {}
    for t in schema.types():
        if t.key in by_table:
            ids = pa.array(by_table[t.key], pa.string())
            conflicts.update(_images(t, ours, theirs, bases, ids))
    return conflicts


def _images(t: EntityType, ours: View, theirs: View, bases: Sequence[View], ids: pa.Array) -> dict[EntityKey, Conflict]:
    columns = arrow_schema(t).names
    if len(bases) == 1:
        base = images_at(table_version(bases[0], t), t, columns, ids)
    else:
        base, _ = virtual_images(bases, t, columns, ids, grain="properties")
    sides = [base, *(images_at(table_version(view, t), t, columns, ids) for view in (ours, theirs))]
    conflicts = {}
    for row, entity_id in enumerate(ids.to_pylist()):
        base_image, our_image, their_image = (_row(side, row) for side in sides)
        digest = digest_of(base_image, our_image, their_image)
        conflicts[t.key, entity_id] = Conflict(
            "", t.key, entity_id, base=base_image, ours=our_image, theirs=their_image, digest=digest
        )
    return conflicts


def _row(images: Images, row: int) -> dict[str, object] | None:
    return json_image(images.rows.slice(row, 1).to_pylist()[0]) if images.exists[row] else None
