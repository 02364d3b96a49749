"""The layers of the package: imports go from a higher one to a lower one."""

from __future__ import annotations

LAYERS = (
    {"errors"},
    {"config", "arguments"},
    {"language"},
    {"config.yaml", "storage", "legacy.heads", "legacy.formats"},
    {"commit", "legacy"},
    {"graph.snapshot", "graph.results", "graph.commits"},
    {"tasks"},
    {"rules"},
    {"write", "branch", "index"},
    {"pipeline", "graph.reads"},
    {"maintenance", "query"},
    {"graph.maintenance", "graph.queries", "graph.prepared_query", "graph.branches", "graph.versions"},
    {"graph"},
    {"pipeline.file"},
    {"demo"},
    {"cli"},
)
"""From the lowest to the highest. A part of a package may stand elsewhere than the package: the longest name counts."""
