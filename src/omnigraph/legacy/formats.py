"""Bring an older graph to the current format, one step at a time. Each step is one compare-and-swap of the stamp.

1 → 2   the primary key of `object_id` and the stamp "2", in one transaction
2 → 3   a. append    rows in the current form for all old commit records that have none yet (`commit:<id>`)
        b. swap      the heads as config keys, `refs` and the stamp "3", in one transaction

The stamp is in the schema's metadata, and two transactions that both change it conflict: of several processes that
migrate at once, one wins each step; the others get SwapLost, read again and see the new format. Nothing else changes
what a reader sees. A crash before a swap leaves rows that readers of generation 2 ignore and the next attempt reuses.
Rows that are appended twice are equal, because incarnations and epochs of old commits are derived from the old rows
(legacy/heads.py), and readers drop duplicates by `object_id`. The old rows stay without a reference.

legacy/migrate.py decides which process migrates, and recovers the unfinished operations of old programs.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.errors import StorageError
from omnigraph.storage.lance import lance_api
from omnigraph.storage.manifest.config import SUSPICIOUS_S
from omnigraph.storage.manifest.records import Head
from omnigraph.storage.manifest.rows import FORMAT_KEY, PRIMARY_KEY
from omnigraph.storage.manifest.table import HEAD, REFS, Manifest, SwapLost

if TYPE_CHECKING:
    from lance import LanceDataset

Heads = Mapping[str, Head]


def to_two(manifest: Manifest) -> None:
    """Step 1 → 2. Raises SwapLost if another process was first, or if the result is unknown."""
    table = _table_at(manifest, 1)
    manifest.older_heads(table)  # a table without a stamp may not be a graph: check it before changing it
    key = next(f.id() for f in table.lance_schema.fields() if f.name() == "object_id")
    _swap(manifest, stamp=2, config={}, fields={key: PRIMARY_KEY}, read_version=table.version)


def to_three(manifest: Manifest, *, recover: Callable[[Heads], Heads]) -> None:
    """Step 2 → 3. `recover` maps the heads of the old graph to the new ones, with its decisions in their `recent`.

    Raises SwapLost if another process was first, or if the result is unknown.
    """
    table = _table_at(manifest, 2)
    version = table.version
    old = manifest.older_heads(table)
    new = recover({branch: replace(head, recent=()) for branch, head in old.items()})
    existing = _existing_record_ids(manifest)
    manifest.append_records(r for head in old.values() for r in head.recent if r.object_id not in existing)
    config = {HEAD + branch: head.dumps() for branch, head in new.items()}
    _swap(manifest, stamp=3, config={**config, REFS: secrets.token_hex(6)}, fields={}, read_version=version)


def _table_at(manifest: Manifest, generation: int) -> LanceDataset:
    """The manifest, if it has this generation, else SwapLost: a step on a migrated manifest would undo that."""
    table = manifest.table()
    if manifest.format_of(table) != generation:
        raise SwapLost(f"the format is {manifest.format_of(table)} by now")
    return table


def _existing_record_ids(manifest: Manifest) -> set[str]:
    with lance_api.reading("reading the manifest", decodes=True):
        rows = manifest.table().to_table(columns=["object_id"], filter="kind = 'commit'")
    return set(rows["object_id"].to_pylist())


def _swap(
    manifest: Manifest,
    *,
    stamp: int,
    config: Mapping[str, str | None],
    fields: Mapping[int, Mapping[str, str]],
    read_version: int,
) -> None:
    started = time.clock_gettime(time.CLOCK_BOOTTIME)
    version = _commit(manifest, stamp, config, fields, read_version)
    if time.clock_gettime(time.CLOCK_BOOTTIME) - started <= SUSPICIOUS_S:
        return
    # Lance detects conflicts only with versions that still exist. If this swap replaced a migrated state, swap it back.
    before = lance_api.open_table(manifest.location, manifest.location.manifest_uri, version=version - 1)
    newer_format = manifest.format_of(before)
    if newer_format >= stamp:
        newer_config = before.config()
        _commit(manifest, newer_format, {key: newer_config.get(key) for key in config}, {}, version)
        raise SwapLost(f"the graph got format {newer_format} long ago")


def _commit(
    manifest: Manifest,
    stamp: int,
    config: Mapping[str, str | None],
    fields: Mapping[int, Mapping[str, str]],
    read_version: int,
) -> int:
    op = lance_api.operations()
    operation = op.UpdateConfig(
        config_updates=op.UpdateMap(dict(config)),
        schema_metadata_updates=op.UpdateMap({FORMAT_KEY: str(stamp)}),
        field_metadata_updates={field: op.UpdateMap(dict(values)) for field, values in fields.items()},
    )
    tx = lance_api.transaction(operation, read_version=read_version)
    try:
        return int(lance_api.commit(manifest.location, manifest.location.manifest_uri, tx).version)
    except StorageError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        raise SwapLost(str(error)) from error
