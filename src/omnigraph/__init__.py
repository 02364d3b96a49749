"""Omnigraph: a typed, versioned property-graph database on the Lance format.

    import omnigraph as og

    graph = og.init("people", 'node Person { name: String @key  age: I32? }')
    graph.insert({"Person": [{"name": "Ada", "age": 36}]})
    graph.snapshot().read("Person")

Names are loaded when they are first used, so that importing the package costs little.
The logger `omnigraph` has a NullHandler: a program that configures no logging sees no log lines.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omnigraph import errors as errors
    from omnigraph.graph.create import init_graph as init
    from omnigraph.graph.handle import Graph
    from omnigraph.graph.handle import open_graph as open
    from omnigraph.graph.results import (
        BranchInfo,
        CommitInfo,
        EmbedResult,
        ExportResult,
        LoadResult,
        ResetResult,
        SchemaResult,
        TagInfo,
        WriteResult,
    )
    from omnigraph.graph.snapshot import Snapshot
    from omnigraph.graph.transaction import Transaction
    from omnigraph.maintenance.clone import clone_graph as clone
    from omnigraph.pipeline.datasource.source import register
    from omnigraph.pipeline.load.table_sources import TableSource

logging.getLogger(__name__).addHandler(logging.NullHandler())

__version__ = "0.1.0"

__all__ = [
    "BranchInfo",
    "CommitInfo",
    "EmbedResult",
    "ExportResult",
    "Graph",
    "LoadResult",
    "ResetResult",
    "SchemaResult",
    "Snapshot",
    "TableSource",
    "TagInfo",
    "Transaction",
    "WriteResult",
    "__version__",
    "clone",
    "errors",
    "init",
    "open",
    "register",
]

_HOMES = {
    "init": ("omnigraph.graph.create", "init_graph"),
    "open": ("omnigraph.graph.handle", "open_graph"),
    "clone": ("omnigraph.maintenance.clone", "clone_graph"),
    "Graph": ("omnigraph.graph.handle", "Graph"),
    "Snapshot": ("omnigraph.graph.snapshot", "Snapshot"),
    "Transaction": ("omnigraph.graph.transaction", "Transaction"),
    "register": ("omnigraph.pipeline.datasource.source", "register"),
    "TableSource": ("omnigraph.pipeline.load.table_sources", "TableSource"),
    **{
        name: ("omnigraph.graph.results", name)
        for name in (
            "BranchInfo",
            "CommitInfo",
            "EmbedResult",
            "ExportResult",
            "LoadResult",
            "ResetResult",
            "SchemaResult",
            "TagInfo",
            "WriteResult",
        )
    },
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("omnigraph.errors")
    if name in _HOMES:
        module, attribute = _HOMES[name]
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module 'omnigraph' has no attribute {name!r}")
