"""Pack the heads of idle branches, so that the manifest grows with the branches and not with their square.

Every version of the manifest holds the whole config. With one key `head:<branch>` per branch, N creations write N
versions of O(N) bytes. So only LOOSE_MAX heads are *loose*, which is a key of the config; the others are *packed*, many
in one row of the manifest, as git does with its refs. The key `packed` lists the rows that count.

    head of a branch = its key `head:<branch>`; without one, its entry in the newest pack that has one; otherwise none

A commit on a packed branch sets its key, which makes it loose. A branch is deleted by setting its key to a tombstone.
The head of main is never packed: a reader of main reads no pack.

1. choose   of one version of the manifest: tombstones, and the loose heads but those of the LOOSE_KEPT branches that
            were written last
2. merge    the new pack with the newest packs that are less than twice as large: sizes at least halve from pack to
            pack, so that there are O(log N) and every entry is written O(log N) times. Entries that a loose head or a
            newer entry hides are dropped, and tombstones that hide nothing
3. append   the `recent` records of the chosen heads and the new pack, as rows, synced
4. swap     one `UpdateConfig`: set `packed`, remove the keys of 1. The first one in a graph also sets the format,
            because older programs see no packed branches, and `refs`

Invariants: (incarnation, epoch) of every branch, and so its state, stays; every record is always in a head or in a row.
A crash before 4 leaves rows without a reference; after 4 nothing remains to do. Replaced packs also stay as rows.

Why no race loses a head: Lance refuses a swap if a version since its base has set one of its keys, or deleted one that
it sets.
* A commit, creation or deletion sets a key that 4 removes: the second one is refused. A writer that is refused
  continues if the branch still has the incarnation and epoch that it read (`Manifest.update`), packed or not.
* Two packings both set `packed`.
* Two deletes of one key do not conflict. So in a graph with packs a branch is deleted by setting its key. Before the
  first packing it is deleted by removing its key, and `refs` makes these two exclude each other.
* A packed head, or one that was deleted, has no key or one that only packing removes: a commit or creation that read it
  conflicts with every other that set the key since, also if that was packed again in between.
* A packing that was stopped inside its swap for longer than versions of the manifest are kept compares the version
  below its own, and restores the newer values that it replaced.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from omnigraph.config.logs import log_event
from omnigraph.errors import HostileOrDamagedManifest, StorageError
from omnigraph.storage.durability import NotDurable
from omnigraph.storage.lance import lance_api
from omnigraph.storage.manifest.config import HEAD, PACKED, REFS, SUSPICIOUS_S, SwapLost
from omnigraph.storage.manifest.head_packs import Body, Entries, Pack, dump_packs, load_packs, merge, pack_row
from omnigraph.storage.manifest.records import MAIN, Head
from omnigraph.storage.manifest.rows import FORMAT_PACKED, record_row

if TYPE_CHECKING:
    from omnigraph.storage.manifest.table import Manifest

logger = logging.getLogger(__name__)

LOOSE_MAX = 48
"""The number of keys `head:` above which a writer packs."""
LOOSE_KEPT = 16
"""How many loose heads a packing keeps."""
SWAP_MAX_S = 2.0
"""How long a packing repeats its swap against writers of other branches."""


def pack_if_due(manifest: Manifest) -> None:
    """Pack if the version that was read last has more than LOOSE_MAX loose heads.

    The caller did not request it: errors of the store, a lost race and damage of other heads are ignored. NotDurable is
    raised: a disk that fails to sync must be reported.
    """
    if manifest.known_loose() <= LOOSE_MAX:
        return
    try:
        pack_heads(manifest, keep=LOOSE_KEPT)
    except NotDurable:
        raise
    except (StorageError, HostileOrDamagedManifest):
        return


def pack_heads(manifest: Manifest, *, keep: int = LOOSE_KEPT) -> bool:
    """Pack all loose heads but `keep`. False if there is nothing to pack, or if another process changed the keys."""
    plan = _plan(manifest, keep)
    if plan is None:
        return False
    manifest.append_rows(plan.rows)
    manifest.fold()
    started_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    try:
        version = manifest.update(
            plan.updates,
            read_version=plan.version,
            format_stamp=FORMAT_PACKED if plan.is_first else None,
            timeout_s=SWAP_MAX_S,
        )
    except SwapLost:
        return False
    if time.clock_gettime(time.CLOCK_BOOTTIME) - started_s > SUSPICIOUS_S:
        return _is_still_valid(manifest, plan, version)
    heads = sum(key.startswith(HEAD) for key in plan.updates)
    log_event(logger, logging.DEBUG, "heads packed", graph=manifest.location.uri, heads=heads, manifest_version=version)
    return True


@dataclass(frozen=True)
class _Plan:
    version: int
    is_first: bool
    rows: Sequence[tuple[Any, ...]]
    updates: Mapping[str, str | None]
    seen: Mapping[str, object]
    """What the keys of `updates` mean at `version`."""


def _plan(manifest: Manifest, keep: int) -> _Plan | None:
    """Steps 1 and 2, of one version of the manifest."""
    table, heads = manifest.table(), manifest.reader
    loose, deleted = heads.loose_of(table)
    chosen = _idle((head for head in loose.values() if head.branch != MAIN), keep=keep)
    if not chosen and not deleted:
        return None
    stored: dict[str, Body | None] = {head.branch: replace(head, recent=()).to_json() for head in chosen}
    new_entries: Entries = {**stored, **dict.fromkeys(deleted)}
    packs = load_packs(heads.config_of(table).get(PACKED))
    old_entries = heads.packs.entries_of(table, packs)
    kept = _unmerged(packs, len(new_entries))
    hidden = loose.keys() - stored.keys()
    older_branches = set[str]().union(*old_entries[:kept])
    entries = {
        branch: body
        for branch, body in merge([*old_entries[kept:], new_entries]).items()
        if branch not in hidden and (body is not None or branch in older_branches)
    }
    row = pack_row(entries)
    new_packs = [*packs[:kept], *([Pack(str(row[0]), len(entries))] if entries else [])]
    is_first = heads.format_of(table) < FORMAT_PACKED
    updates: dict[str, str | None] = {PACKED: dump_packs(new_packs), **{HEAD + branch: None for branch in new_entries}}
    if is_first:
        updates[REFS] = secrets.token_hex(6)
    return _Plan(
        version=int(table.version),
        is_first=is_first,
        rows=[*(record_row(r) for head in chosen for r in head.recent), *([row] if entries else [])],
        updates=updates,
        seen={key: heads.meaning(table, key) for key in updates},
    )


def _idle(heads: Iterable[Head], *, keep: int) -> list[Head]:
    """All but the `keep` heads that were written last; heads without an own record come first, by name."""
    order = sorted(heads, key=lambda head: (head.recent[-1].created_at_us if head.recent else 0, head.branch))
    return order[: max(0, len(order) - keep)]


def _unmerged(packs: Sequence[Pack], entries: int) -> int:
    """How many of the oldest packs stay unchanged if a pack with this number of entries is added."""
    kept = len(packs)
    while kept and packs[kept - 1].entries < 2 * entries:
        kept -= 1
        entries += packs[kept].entries
    return kept


def _is_still_valid(manifest: Manifest, plan: _Plan, version: int) -> bool:
    """Whether the swap that became `version` replaced no newer values; else swap these back. Lance detects conflicts
    only with versions that still exist.
    """
    location = manifest.location
    previous = lance_api.open_table(location, location.manifest_uri, version=version - 1)
    reader = manifest.reader.apart()
    if all(reader.meaning(previous, key) == seen for key, seen in plan.seen.items()):
        return True
    config = reader.config_of(previous)
    manifest.update({key: config.get(key) for key in plan.updates}, read_version=version)
    return False
