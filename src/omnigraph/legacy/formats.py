"""Bring an older graph to the current format, one step at a time. Each step is one compare-and-swap of the stamp.

1 → 2   the primary key of `object_id` and the stamp "2", in one transaction
2 → 3   a. append    today's rows of all old commit records that are not there yet (`commit:<id>`)
        b. swap      the heads as config keys, `refs` and the stamp "3", in one transaction

The stamp is in the schema's metadata, and two transactions that both change that conflict: of several processes that
migrate at once one wins every step, and the others get SwapLost, read again and find it done. Nothing else changes what
a reader sees. A crash before a swap leaves rows that readers of generation 2 don't look at and the next attempt finds
there. What is appended twice is the same twice, because incarnations and epochs of old commits are derived from the old
rows (legacy/heads.py), and readers drop duplicates by `object_id`. The old rows stay, referred to by nobody.

Who migrates, and what becomes of operations that an old program left half-done, is decided in legacy/migrate.py.
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
    """Step 1 → 2. SwapLost if another process was quicker, or the store's answer is unknown."""
    table = _found_at(manifest, 1)
    manifest.older_heads(table)  # what has no stamp may be no graph at all, and is not to be touched then
    key = next(f.id() for f in table.lance_schema.fields() if f.name() == "object_id")
    _swap(manifest, stamp=2, config={}, fields={key: PRIMARY_KEY}, read_version=table.version)


def to_three(manifest: Manifest, *, settle: Callable[[Heads], Heads]) -> None:
    """Step 2 → 3. `settle` gets the heads of the old graph and says what they shall be, in their `recent` what it did.

    SwapLost if another process was quicker, or the store's answer is unknown.
    """
    table = _found_at(manifest, 2)
    version = table.version
    old = manifest.older_heads(table)
    new = settle({branch: replace(head, recent=()) for branch, head in old.items()})
    there = _records_there(manifest)
    manifest.append_records(r for head in old.values() for r in head.recent if r.object_id not in there)
    config = {HEAD + branch: head.dumps() for branch, head in new.items()}
    _swap(manifest, stamp=3, config={**config, REFS: secrets.token_hex(6)}, fields={}, read_version=version)


def _found_at(manifest: Manifest, generation: int) -> LanceDataset:
    """The manifest at the version that the step starts from: a step on what is already migrated would undo it."""
    table = manifest.table()
    if manifest.format_of(table) != generation:
        raise SwapLost(f"the format is {manifest.format_of(table)} by now")
    return table


def _records_there(manifest: Manifest) -> set[str]:
    with lance_api.reading("reading the manifest", decodes=True):
        found = manifest.table().to_table(columns=["object_id"], filter="kind = 'commit'")
    return set(found["object_id"].to_pylist())


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
    # Lance sees conflicts only through versions that still exist. If mine buried a migrated graph, put that back.
    before = lance_api.open_table(manifest.location, manifest.location.manifest_uri, version=version - 1)
    found = manifest.format_of(before)
    if found >= stamp:
        held = before.config()
        _commit(manifest, found, {key: held.get(key) for key in config}, {}, version)
        raise SwapLost(f"the graph got format {found} long ago")


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
