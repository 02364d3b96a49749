"""Where the demo is told: who watches, and what runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import omnigraph as og
from omnigraph.tasks.progress import Watcher
from omnigraph.tasks.session import SparkSettings


@dataclass(frozen=True)
class Stage:
    """Who watches and what runs: the same as for any pipeline."""

    say: Callable[[str], None]
    watch: Callable[[], Any]
    """Makes a context manager that gives a Watcher."""
    engine: str | None = None
    settings: SparkSettings | None = None

    def opened(self, uri: str, watcher: Watcher) -> og.Graph:
        settings = self.settings or SparkSettings()
        return og.open(
            uri, actor="demo", engine=self.engine, master=settings.master, conf=settings.conf, watcher=watcher
        )
