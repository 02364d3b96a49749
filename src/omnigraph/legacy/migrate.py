"""The first write on an older graph migrates it to the current format.

1. refuse   a graph of a newer format, or with an intent that can't be parsed: nothing is changed
2. step     from the graph's format to the next one, until it is current; step 2 → 3 recovers pending intents
3. delete   the recovered intents; after a crash before this, the committer's next sweep deletes them

Any number of processes may migrate at once: one compare-and-swap of the stamp decides each step, and a process that
loses it reads again. Programs of older generations do not take part in this: they must not write meanwhile.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from omnigraph.commit.effects import EffectMissed
from omnigraph.commit.phases import Observer, silent
from omnigraph.config.backoff import Backoff
from omnigraph.config.logs import log_event
from omnigraph.errors import StorageError
from omnigraph.legacy.formats import to_three, to_two
from omnigraph.legacy.intents import delete_recovered, read_intents, recover_intents
from omnigraph.storage.durability import NotDurable
from omnigraph.storage.manifest.table import FORMAT, Manifest, SwapLost
from omnigraph.storage.objects.control_objects import ControlObjects

logger = logging.getLogger(__name__)

TRIES_MAX = 20
FAILURES_MAX = 6


def require_current(manifest: Manifest, *, observe: Observer = silent) -> None:
    """Make sure that the graph has the current format before anything is written to it."""
    writer_pause = Backoff(first_s=0.005, max_s=0.1)
    store_pause = Backoff(first_s=0.1, max_s=1.6)
    failures = 0
    last_error: Exception | None = None
    for attempt in range(TRIES_MAX):
        generation = manifest.require_writable()
        if generation >= FORMAT:
            if attempt:
                _delete_intents(manifest)
            return
        try:
            _step(manifest, generation, observe)
            fields = {"graph": manifest.location.uri, "from_format": generation, "to_format": generation + 1}
            log_event(logger, logging.WARNING, "format migrated", **fields)
        except (SwapLost, EffectMissed) as error:
            last_error = error
            writer_pause()
        except NotDurable:
            raise
        except StorageError:
            failures += 1
            if failures == FAILURES_MAX:
                raise
            store_pause()
    raise StorageError(doing=f"migrating the graph to format {FORMAT}", detail=str(last_error))


def _step(manifest: Manifest, generation: int, observe: Observer) -> None:
    intents = read_intents(ControlObjects(manifest.location))
    observe("migrate")
    if generation == 1:
        to_two(manifest)
    else:
        to_three(manifest, recover=lambda heads: recover_intents(manifest, heads, intents, observe=observe))


def _delete_intents(manifest: Manifest) -> None:
    with suppress(StorageError):  # the next sweep tries again
        delete_recovered(ControlObjects(manifest.location))
