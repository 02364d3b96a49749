"""How the demo reports: its output, its progress and the engine that runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import omnigraph as og
from omnigraph.tasks.progress import Watcher
from omnigraph.tasks.session import SparkSettings


@dataclass(frozen=True)
class Narrator:
    """Where texts and progress go, and the engine: the same as for any pipeline."""

    say: Callable[[str], None]
    watch: Callable[[], Any]
    """Returns a context manager of a Watcher."""
    engine: str | None = None
    settings: SparkSettings | None = None

    def opened(self, uri: str, watcher: Watcher) -> og.Graph:
        settings = self.settings or SparkSettings()
        return og.open(
            uri, actor="demo", engine=self.engine, master=settings.master, conf=settings.conf, watcher=watcher
        )
