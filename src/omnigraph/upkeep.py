"""The maintenance verbs of a graph handle: each is a module of `omnigraph.maintenance`; this gives it the handle's door.

Every verb is safe beside every other one and beside any number of writers, from any number of processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.commit.door import Door
    from omnigraph.pipeline.engine import Engines
    from omnigraph.storage.layout import Location


class Upkeep:
    """What `Graph` inherits: the verbs that keep a graph fast, small and whole."""

    _door: Door
    _location: Location

    @property
    def engines(self) -> Engines:
        raise NotImplementedError
