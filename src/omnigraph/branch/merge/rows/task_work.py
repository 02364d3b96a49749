"""The tasks of a large merge, as they run on workers: compare, decide and write the rows of one chunk.

A task reads pinned versions, which the driver has leased, and is the same whenever it runs. Memory follows the chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from omnigraph.branch.diff.states import full_schema, reshaped, stored_columns, stored_names
from omnigraph.branch.merge.model import MergeOptions
from omnigraph.branch.merge.rows.changes import RowChanges, TargetRows, rule_columns
from omnigraph.branch.merge.rows.contended import ContendedRows
from omnigraph.branch.merge.rows.entity_images import (
    EntityImages,
    StoredRows,
    entity_ids,
    entity_images,
    looked_up_images,
)
from omnigraph.branch.merge.rules import value_violations
from omnigraph.commit.operation import View
from omnigraph.language.schema.model import EntityType
from omnigraph.language.schema.serial import type_from_json
from omnigraph.storage.array_text import packed_text, table_text, unpacked_text
from omnigraph.storage.diff.table_version import TableVersion
from omnigraph.storage.lance import lance_api
from omnigraph.storage.lance.edits import Editor
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin
from omnigraph.storage.manifest.table import Manifest
from omnigraph.write.compare import unchanged_mask

Task = Mapping[str, Any]


def compare_rows(task: Task) -> dict[str, Any]:
    """The positions at which two versions differ in a value."""
    t, columns = type_from_json(task["type"]), task["columns"]
    before, after = (reshaped(*_stored_rows(task, name, t), t, columns) for name in ("base", "theirs"))
    changed = np.flatnonzero(~np.asarray(unchanged_mask(before, after)))
    return {"changed": packed_text(changed), "rows_done": after.num_rows}


def decide_rows(task: Task) -> dict[str, Any]:
    """What becomes of the entities: of images only the columns that rules look at."""
    changes = _decide(task)
    columns = rule_columns(changes.type)
    taken = dict(zip(("copied", "replaced"), changes.taken_counts, strict=True))
    return {
        **{name: _decided(changes, name, columns, taken[name]) for name in taken},
        "targets": _target_rows(changes.replaced_rows),
        "deleted": _target_rows(changes.deleted),
        "conflicts": [c.__dict__ for c in changes.conflicts],
        "violations": [[*rank, violation.to_json()] for rank, violation in value_violations(changes)],
        "rows_done": changes.insert_count + changes.update_count + changes.delete_count,
    }


def write_rows(task: Task) -> dict[str, Any]:
    """Write one uncommitted fragment, chunk by chunk: copies of rows of the source, or what `decide_rows` decided."""
    location = Location(**task["location"])
    t = type_from_json(task["type"])
    into = task["into"]
    pin = Pin.from_json(into["table"], into["pin"])
    row_count = 0

    def parts() -> Iterator[tuple[pa.Table, np.ndarray | None]]:
        nonlocal row_count
        for chunk in task["chunks"]:
            rows, row_ids = _copies(chunk) if "addresses" in chunk else _decided_images(chunk, task["rows"])
            row_count += rows.num_rows
            yield rows, row_ids

    with lance_api.reading(f"writing {t.key}"):
        table = lance_api.open_table(location, location.join(pin.path), version=into["version"])
        fragments = Editor(location, pin, table, t).write_parts(parts())
    return {"fragments": [fragment.to_json() for fragment in fragments], "rows_done": row_count}


def _copies(task: Task) -> tuple[pa.Table, np.ndarray | None]:
    t, theirs = type_from_json(task["type"]), _version(task, "theirs")
    columns: list[str] = task["columns"]
    names = [n for n in dict.fromkeys(["id", *stored_names(theirs.type, t, columns)]) if n in theirs.table.schema.names]
    rows = theirs.rows_in_order(unpacked_text(task["addresses"]), names, bounded=True)
    row_ids = None if task["row_ids"] is None else unpacked_text(task["row_ids"])
    return reshaped(rows, theirs.type, t, columns), row_ids


def _decided_images(task: Task, sort_of_rows: str) -> tuple[pa.Table, np.ndarray | None]:
    changes = _decide(task)
    rows: pa.Table = getattr(changes, sort_of_rows)
    return rows, changes.replaced_rows.row_ids if sort_of_rows == "replaced" else None


# ---- deciding --------------------------------------------------------------------------------------------------------


def _decide(task: Task) -> RowChanges:
    t, columns = type_from_json(task["type"]), task["columns"]
    options = MergeOptions(strategy=task["strategy"], grain=task["grain"])
    images = _looked_up(task, t, columns, options) if "ids" in task else _at_places(task, t, columns)
    return ContendedRows(t, columns, options, {}).apply(RowChanges(t, columns), images)


def _at_places(task: Task, t: EntityType, columns: list[str]) -> EntityImages:
    theirs, base, ours = (_stored_rows(task, name, t) for name in ("theirs", "base", "ours"))
    return entity_images(t, columns, entity_ids(theirs[0], base[0]), theirs=theirs, base=base, ours=ours)


def _looked_up(task: Task, t: EntityType, columns: list[str], options: MergeOptions) -> EntityImages:
    ids = pa.array(task["ids"], pa.string())
    location = Location(**task["location"])
    manifest = Manifest(location)
    head = manifest.head(task["branch"])
    view = View(head=head, pins=manifest.pins(head), manifest=manifest, tables=_tables(_key(location)))
    bases = [view.at(commit) for commit in task["base_commits"]]
    ours = None if task["ours"] is None else _version(task, "ours")
    return looked_up_images(
        t, columns, ids, bases=bases, theirs=_version(task, "theirs"), ours=ours, grain=options.grain
    )


def _decided(changes: RowChanges, name: str, columns: list[str], taken: int) -> dict[str, Any]:
    schema = pa.schema([full_schema(changes.type).field(c).with_nullable(True) for c in columns])
    rows: pa.Table | None = getattr(changes, name)
    shown = schema.empty_table() if rows is None else rows.select(columns).cast(schema)
    return {"rows": table_text(shown), "taken": taken, "count": shown.num_rows}


def _target_rows(rows: TargetRows) -> dict[str, Any]:
    ids = table_text(pa.table({"id": rows.ids.cast(pa.string())}))
    return {"ids": ids, "addresses": packed_text(rows.addresses), "row_ids": packed_text(rows.row_ids)}


# ---- reading ---------------------------------------------------------------------------------------------------------


def _version(task: Task, name: str) -> TableVersion:
    body = task[name]
    pin = Pin.from_json(body["table"], body["pin"])
    return TableVersion.open(_tables(_key(Location(**task["location"]))), pin, type_from_json(body["type"]))


def _stored_rows(task: Task, name: str, t: EntityType) -> StoredRows:
    """The rows of one state that the task names, in their order."""
    if task[name] is None:
        return full_schema(t).empty_table(), t
    version = _version(task, name)
    rows = version.rows_in_order(unpacked_text(task["at"][name]), stored_columns(version), bounded=True)
    return rows, version.type


def _key(location: Location) -> bytes:
    return orjson.dumps([location.uri, location.is_local, dict(location.options)], option=orjson.OPT_SORT_KEYS)


@lru_cache(maxsize=2)
def _tables(key: bytes) -> Tables:
    """Handles for all tasks of a worker."""
    return Tables(Location(*orjson.loads(key)))
