"""The first write on an older graph brings it to the current format; every later one finds that done.

1. refuse   a graph of a newer format, and one with an intent that can't be understood: nothing is touched
2. step     from the format found to the next one, until it is the current one; 2 → 3 settles pending intents
3. delete   the settled intents; a crash before this leaves them to the door's next sweep

Any number of processes may do this at once: each step is decided by one compare-and-swap of the stamp, and whoever
loses it reads again. Programs of older generations know nothing of this: they must not be writing meanwhile.
"""

from __future__ import annotations

import random
import time
from contextlib import suppress

from omnigraph.commit.effects import EffectMissed
from omnigraph.commit.phases import Observer, silent
from omnigraph.errors import StorageError
from omnigraph.legacy.formats import to_three, to_two
from omnigraph.legacy.intents import discard_settled, read_intents, settle_intents
from omnigraph.storage.durability import NotDurable
from omnigraph.storage.manifest.table import FORMAT, Manifest, SwapLost
from omnigraph.storage.objects.control_objects import ControlObjects

TRIES_MAX = 20
FAILURES_MAX = 6


def require_current(manifest: Manifest, *, observe: Observer = silent) -> None:
    """Make sure that the graph has the current format before anything is written to it."""
    failures = 0
    trouble: Exception | None = None
    for turn in range(TRIES_MAX):
        found = manifest.require_writable()
        if found >= FORMAT:
            if turn:
                _discard(manifest)
            return
        try:
            _step(manifest, found, observe)
        except (SwapLost, EffectMissed) as error:
            trouble = error
            time.sleep(random.uniform(0.0, 0.01) * turn)
        except NotDurable:
            raise
        except StorageError:
            failures += 1
            if failures == FAILURES_MAX:
                raise
            time.sleep(0.05 * 2**failures)
    raise StorageError(doing=f"migrating the graph to format {FORMAT}", detail=str(trouble))


def _step(manifest: Manifest, found: int, observe: Observer) -> None:
    intents = read_intents(ControlObjects(manifest.location))
    observe("migrate")
    if found == 1:
        to_two(manifest)
    else:
        to_three(manifest, settle=lambda heads: settle_intents(manifest, heads, intents, observe=observe))


def _discard(manifest: Manifest) -> None:
    with suppress(StorageError):  # the next sweep looks again
        discard_settled(ControlObjects(manifest.location))
