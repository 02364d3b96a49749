"""The schema of a merge: three-way by element id, and the conflicts that only rows can show.

A type or property that one side dropped is a conflict only if the other side changed its rows or values since the base:
they would be lost without a word. A required property without a default, added by theirs, is one if rows that only ours
has would not have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.branch.ancestry import merge_bases
from omnigraph.branch.diff.states import table_version
from omnigraph.branch.merge.model import Conflict, MergeOptions
from omnigraph.branch.merge.rows.changes import RowChanges
from omnigraph.branch.merge.rows.tasks import RowTasks
from omnigraph.branch.merge.rows.type_merge import TypeStates, merge_type
from omnigraph.commit.operation import View
from omnigraph.language.schema.identity import counterpart
from omnigraph.language.schema.merge.schemas import SchemaMerge, merge_schemas
from omnigraph.language.schema.model import EntityType, Schema
from omnigraph.storage.diff.row_diff import diff_rows
from omnigraph.storage.diff.table_version import TableVersion
from omnigraph.write.compare import equal_mask
from omnigraph.write.delta import flat

_ALL_ROWS = 1 << 62


def merged_schema(ours: View, theirs: View, bases: Sequence[View]) -> SchemaMerge:
    if ours.head.schema == theirs.head.schema:
        return SchemaMerge(result=ours.schema, steps=(), conflicts=(), changed=False)
    return merge_schemas(_base_schema(bases), ours.schema, theirs.schema)


def _base_schema(bases: Sequence[View]) -> Schema:
    """The schema of the base; of several bases, what a merge of them would have."""

    def joined(merged: tuple[Schema, View], view: View) -> tuple[Schema, View]:
        schema, before = merged
        if before.head.schema == view.head.schema:
            return merged
        commits = merge_bases(view.manifest, before.head.commit, view.head.commit)
        below = _base_schema([view.at(commit) for commit in commits])
        return merge_schemas(below, schema, view.schema).result, view

    return reduce(joined, bases[1:], (bases[0].schema, bases[0]))[0]


def schema_conflicts(
    merged: SchemaMerge, ours: View, theirs: View, bases: Sequence[View], tasks: RowTasks | None = None
) -> list[Conflict]:
    """Conflicts of definitions, and of drops with what the other side changed."""
    conflicts = [
        Conflict(c.kind, c.table_key, None, base=c.base, ours=c.ours, theirs=c.theirs, message=c.message)
        for c in merged.conflicts
    ]
    conflicts += _dropped_types(merged.dropped_types, ours, bases, tasks, dropped_by="theirs", changed_by="ours")
    conflicts += _dropped_types(merged.missing_types, theirs, bases, tasks, dropped_by="ours", changed_by="theirs")
    conflicts += _dropped_properties(merged.dropped_properties, ours, bases, dropped_by="theirs", changed_by="ours")
    conflicts += _dropped_properties(merged.missing_properties, theirs, bases, dropped_by="ours", changed_by="theirs")
    return conflicts


def required_conflicts(merged: SchemaMerge, ours: View, changes: Sequence[RowChanges]) -> Iterator[Conflict]:
    """Required properties that rows of ours, which the merge leaves as they are, would not have."""
    by_type = {c.type.id: c for c in changes}
    for type_id, property_id in merged.required_properties:
        t = merged.result.by_id[type_id]
        version, change = table_version(ours, t), by_type.get(type_id)
        kept = 0 if version is None else version.row_count
        if change is not None:
            kept -= change.update_count + change.delete_count
        if kept > 0:
            name = next(p.name for p in t.properties if p.id == property_id)
            message = f"theirs added the required property {name}, and {kept} rows of ours do not have it"
            yield Conflict("schema_required_property", t.key, None, (name,), message=message)


def _dropped_types(
    type_ids: Sequence[str],
    view: View,
    bases: Sequence[View],
    tasks: RowTasks | None,
    *,
    dropped_by: str,
    changed_by: str,
) -> Iterator[Conflict]:
    for type_id in type_ids:
        t = view.schema.by_id[type_id]
        version = table_version(view, t)
        if version is None:
            continue
        states = TypeStates(t, None, version, tuple(table_version(base, t) for base in bases), tuple(bases))
        changes = merge_type(states, MergeOptions(strategy="theirs"), tasks)
        count = changes.insert_count + changes.update_count + changes.delete_count
        if count:
            message = f"{dropped_by} dropped {t.name}, {changed_by} changed {count} of its rows"
            yield Conflict("schema_dropped_type", t.key, None, message=message)


def _dropped_properties(
    properties: Sequence[tuple[str, str]], view: View, bases: Sequence[View], *, dropped_by: str, changed_by: str
) -> Iterator[Conflict]:
    for type_id, property_id in properties:
        t = view.schema.by_id[type_id]
        name = next(p.name for p in t.properties if p.id == property_id)
        version = table_version(view, t)
        count = 0 if version is None else max(_changed_values(table_version(b, t), version, t, name) for b in bases)
        if count:
            message = f"{dropped_by} dropped {name}, {changed_by} changed its value in {count} rows"
            yield Conflict("schema_dropped_property", t.key, None, (name,), message=message)


def _changed_values(base: TableVersion | None, version: TableVersion, t: EntityType, name: str) -> int:
    """How many rows hold another value of a property than in the base, or are new and hold one."""
    before = None if base is None else counterpart(t.by_name[name], base.type)
    if base is None or before is None:
        return 0
    diff = diff_rows(base, version, columns=(["id", before.name], ["id", name]), rows_max=_ALL_ROWS)
    added, removed = diff.added_rows, diff.removed_rows
    positions = pc.index_in(flat(added["id"]), value_set=flat(removed["id"]))
    is_update = np.asarray(positions.is_valid())
    values = flat(added[name])
    count = int(np.sum(~is_update & np.asarray(values.is_valid())))
    if is_update.any():
        old = flat(removed[before.name]).take(positions.drop_null())
        count += int(np.sum(~equal_mask(old, values.filter(pa.array(is_update)))))
    return count
