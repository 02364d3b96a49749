"""Graphs that many tests start from: built once in a process, copied for each test."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import omnigraph as og

Build = Callable[[Path], object]
"""Creates a graph at a path. What it returns is not used, and closed if it is a handle."""


@dataclass(frozen=True)
class Templates:
    """Copying a small graph takes a tenth of the time of writing it."""

    folder: Path
    _built: dict[Build, Path] = field(default_factory=dict)

    def copy(self, build: Build, path: Path) -> Path:
        """A graph at `path` as `build` makes it. `build` is a function of a module: it is called once.

        It writes to no branch but main: a fork has the absolute path of the table that it was made from.
        """
        if build not in self._built:
            template = self.folder / str(len(self._built))
            graph = build(template)
            if isinstance(graph, og.Graph):
                graph.close()
            self._built[build] = template
        return Path(shutil.copytree(self._built[build], path))

    def open(self, build: Build, path: Path) -> og.Graph:
        return og.open(self.copy(build, path))
