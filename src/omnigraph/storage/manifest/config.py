"""Compare-and-swap of keys of the manifest's config. Only these changes make anything visible.

    head:<branch>   the head of a branch, or that it was deleted
    packed          the rows that hold the heads of the other branches (`storage/manifest/packed_heads.py`)
    refs            rewritten by creation and deletion of branches and by cleanup, so that these exclude each other
    omnigraph:…     settings that never change

Lance refuses an `UpdateConfig` if a version since `read_version` has set a key that it sets or deletes, or deleted one
that it sets. Two deletes of one key do not conflict, so a delete alone decides nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from omnigraph.config.backoff import Backoff
from omnigraph.config.logs import log_event
from omnigraph.errors import StorageError
from omnigraph.storage.lance import lance_api
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.rows import FORMAT_KEY

if TYPE_CHECKING:
    from lance import LanceDataset

logger = logging.getLogger(__name__)

HEAD = "head:"
PACKED = "packed"
REFS = "refs"
ROW_IDS_KEY = "omnigraph:row_ids"
SWAP_RETRIES, SWAP_MAX_S = 2, 60.0
"""How often Lance retries one attempt at a swap, and for how long attempts are made."""
SUSPICIOUS_S = 60.0
"""A swap that took longer may have been stopped for days: its caller reads the state again."""

IsUnchanged = Callable[["LanceDataset", "LanceDataset"], bool]
"""Whether the keys of a swap mean the same in both versions of the manifest."""


class SwapLost(Exception):
    """Another process changed the head, or the result is unknown. Read the outcome; do not infer it."""


def swap_config(
    location: Location,
    updates: Mapping[str, str | None],
    *,
    read_version: int,
    is_unchanged: IsUnchanged,
    format_stamp: int | None = None,
    timeout_s: float = SWAP_MAX_S,
) -> int:
    """One compare-and-swap of config keys, and of the format, against `read_version`; returns the new version.

    Writers of other branches constantly change other keys of the same table. Lance's own pause between retries grows
    until a writer that lost a few races waits for longer than a lease, so this function retries itself: while the keys
    are unchanged, the newest version is as good a base as the one that was read.
    """
    op = lance_api.operations()
    format_update = (
        {} if format_stamp is None else {"schema_metadata_updates": op.UpdateMap({FORMAT_KEY: str(format_stamp)})}
    )
    base, deadline = read_version, time.monotonic() + timeout_s
    pause = Backoff(first_s=0.005, max_s=0.005, jitter=0.8)
    while True:
        update = op.UpdateConfig(config_updates=op.UpdateMap(dict(updates)), **format_update)
        tx = lance_api.transaction(update, read_version=base)
        try:
            return int(lance_api.commit(location, location.manifest_uri, tx, retries=SWAP_RETRIES).version)
        except lance_api.conflicts() as error:
            if time.monotonic() > deadline:
                raise SwapLost(str(error)) from error
            newest = _newest_unchanged(location, read_version, is_unchanged)
            if newest is None:
                raise SwapLost(str(error)) from error
            base = newest
            branches = [key.removeprefix(HEAD) for key in updates if key.startswith(HEAD)]
            fields = {"graph": location.uri, "branch": branches, "manifest_version": base}
            log_event(logger, logging.DEBUG, "compare-and-swap retried", **fields)
        except (OSError, ValueError, RuntimeError) as error:
            raise StorageError(doing="publishing", detail=str(error)) from error
        pause()


def _newest_unchanged(location: Location, version: int, is_unchanged: IsUnchanged) -> int | None:
    """The newest version, if the keys have the same meaning there as at `version`; else None."""
    with lance_api.reading("reading the manifest", decodes=True):
        newest = lance_api.open_newest(location, location.manifest_uri)
        try:
            before = lance_api.open_table(location, location.manifest_uri, version=version)
        except lance_api.TableMissing:
            return None  # collected: a writer that was stopped for that long must read again
    return int(newest.version) if is_unchanged(before, newest) else None
