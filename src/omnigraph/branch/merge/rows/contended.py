"""Entities that both sides changed, or that a resolution names: decided by value.

A resolution replaces the decision of the truth table for its entity. It applies only if its digest is that of the three
images as they are now; otherwise the entity has moved since, and the merge is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.branch.merge.model import Conflict, MergeOptions, Resolution, digest_of, json_image
from omnigraph.branch.merge.rows.changes import RowChanges, TargetRows
from omnigraph.branch.merge.rows.entity_images import EntityImages
from omnigraph.branch.three_way import (
    COMBINE,
    CONFLICT,
    CONFLICT_KINDS,
    DELETE,
    KEEP_OURS,
    TAKE_THEIRS,
    Images,
    decide,
)
from omnigraph.errors import ResolutionStale, UsageError
from omnigraph.language.schema.model import EntityType
from omnigraph.storage.lance.columns import arrow_schema
from omnigraph.write.delta import flat
from omnigraph.write.rows import set_to_table

MESSAGES = {
    "divergent_insert": "both sides inserted it with different values",
    "divergent_update": "both sides changed {properties} to different values",
    "delete_vs_update": "theirs deleted it, ours updated it",
    "update_vs_delete": "theirs updated it, ours deleted it",
}


class ContendedRows:
    def __init__(
        self, t: EntityType, columns: list[str], options: MergeOptions, resolutions: Mapping[str, Resolution]
    ) -> None:
        self.type = t
        self.columns = columns
        self.options = options
        self.resolutions = resolutions

    def apply(self, changes: RowChanges, images: EntityImages) -> RowChanges:
        """The changes with those of the contended entities."""
        ours = Images.aligned(images.ids, images.ours)
        decision = decide(
            self.type,
            images.base,
            images.theirs,
            Images(ours.rows.select(self.columns), ours.exists),
            grain=self.options.grain,
            is_unknown=images.is_unknown,
            favour=self.options.favour,
        )
        actions, combined = decision.actions, decision.combined.select(self.columns)
        if self.resolutions:
            combined = self._resolve(images, ours, actions, combined)
        conflicts = [
            self._conflict(images, ours, row, CONFLICT_KINDS[decision.kinds[row]], decision.clashing.get(row, ()))
            for row in np.flatnonzero(actions == CONFLICT).tolist()
        ]
        return self._collected(changes, images, ours, actions, combined, conflicts)

    def _collected(
        self,
        changes: RowChanges,
        images: EntityImages,
        ours: Images,
        actions: np.ndarray,
        combined: pa.Table,
        conflicts: Sequence[Conflict],
    ) -> RowChanges:
        takes, combines = actions == TAKE_THEIRS, actions == COMBINE
        theirs = images.theirs.rows.select(self.columns)
        copied = [
            theirs.take(pa.array(np.flatnonzero(takes & ~ours.exists))),
            combined.take(pa.array(np.flatnonzero(combines & ~ours.exists))),
        ]
        replaced_at = np.concatenate([np.flatnonzero(takes & ours.exists), np.flatnonzero(combines & ours.exists)])
        replaced = [
            theirs.take(pa.array(np.flatnonzero(takes & ours.exists))),
            combined.take(pa.array(np.flatnonzero(combines & ours.exists))),
        ]
        deleted = _target_rows(images.ids, ours, np.flatnonzero((actions == DELETE) & ours.exists))
        return replace(
            changes,
            copied=_concat(copied),
            replaced=_concat(replaced),
            replaced_rows=_target_rows(images.ids, ours, replaced_at),
            taken_counts=(copied[0].num_rows, replaced[0].num_rows),
            deleted=TargetRows.concat([changes.deleted, deleted]),
            conflicts=(*changes.conflicts, *conflicts),
        )

    # ---- conflicts and resolutions -----------------------------------------------------------------------------------

    def _shown(self, images: EntityImages, ours: Images, row: int) -> tuple[dict[str, Any] | None, ...]:
        return tuple(json_image(_row(side, row)) for side in (images.base, ours, images.theirs))

    def _conflict(
        self, images: EntityImages, ours: Images, row: int, kind: str, properties: tuple[str, ...]
    ) -> Conflict:
        base, mine, theirs = self._shown(images, ours, row)
        return Conflict(
            kind=kind,
            table_key=self.type.key,
            id=images.ids[row].as_py(),
            properties=properties,
            base=base,
            ours=mine,
            theirs=theirs,
            message=MESSAGES[kind].format(properties=", ".join(properties)),
            digest=digest_of(base, mine, theirs),
        )

    def _resolve(self, images: EntityImages, ours: Images, actions: np.ndarray, combined: pa.Table) -> pa.Table:
        positions = {entity_id: row for row, entity_id in enumerate(images.ids.to_pylist())}
        for entity_id, resolution in self.resolutions.items():
            row = positions[entity_id]
            shown = self._shown(images, ours, row)
            if resolution.digest is not None and resolution.digest != digest_of(*shown):
                raise ResolutionStale(table_key=self.type.key, entity_id=entity_id)
            if resolution.values is not None:
                image = self._with_values(images, ours, row, resolution.values)
                actions[row] = COMBINE
            elif resolution.take == "ours":
                actions[row] = KEEP_OURS
                continue
            elif resolution.take == "theirs":
                actions[row] = TAKE_THEIRS if images.theirs.exists[row] else DELETE
                continue
            else:
                actions[row] = COMBINE if images.base.exists[row] else DELETE
                image = images.base.rows.select(self.columns).slice(row, 1)
            combined = pa.concat_tables([combined.slice(0, row), image.cast(combined.schema), combined.slice(row + 1)])
        return combined.combine_chunks()

    def _with_values(self, images: EntityImages, ours: Images, row: int, values: Mapping[str, Any]) -> pa.Table:
        """The image of ours, else of theirs, else of the base, with some values of the resolution's own."""
        sides = (ours, images.theirs, images.base)
        side = next((s for s in sides if s.exists[row]), None)
        names = arrow_schema(self.type).names
        if side is None:
            raise UsageError(detail=f"{self.type.key} {images.ids[row].as_py()!r} exists in no side of the merge.")
        image = side.rows.slice(row, 1).select(self.columns)
        own = {k: v for k, v in values.items() if not self._is_identity(k)}
        typed = set_to_table(self.type, _typed(self.type, own), image.select(names)).checked()
        for name in names:
            column = typed[name].cast(image.schema.field(name).type)
            image = image.set_column(image.schema.get_field_index(name), image.schema.field(name), column)
        return image

    def _is_identity(self, name: str) -> bool:
        """A whole image may be given as values: its id and key are those of the entity anyway."""
        return name == "id" or name in self.type.key_properties


def _typed(t: EntityType, values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON values as a caller of Python would give them: blobs as bytes."""
    from omnigraph.write.values import convert

    typed: dict[str, Any] = {}
    for name, value in values.items():
        p = t.by_name.get(name)
        is_blob = p is not None and p.type.kind == "Blob" and isinstance(value, str)
        typed[name] = convert(p.type, value, from_json=True) if is_blob and p is not None else value
    return typed


def _row(images: Images, row: int) -> dict[str, Any] | None:
    if not images.exists[row]:
        return None
    first: dict[str, Any] = images.rows.slice(row, 1).to_pylist()[0]
    return first


def _target_rows(ids: pa.Array, ours: Images, positions: np.ndarray) -> TargetRows:
    rows = pa.array(positions)
    addresses, row_ids = (
        np.asarray(flat(ours.rows[name]).take(rows).fill_null(0)).astype(np.uint64) for name in ("_rowaddr", "_rowid")
    )
    return TargetRows(ids.take(rows), addresses, row_ids)


def _concat(parts: Sequence[pa.Table]) -> pa.Table | None:
    filled = [part for part in parts if part.num_rows]
    return pa.concat_tables(filled) if filled else None
