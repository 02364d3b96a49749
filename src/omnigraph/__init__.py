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
    from omnigraph.branch.diff.diff import Diff as Diff
    from omnigraph.branch.diff.entity_history import EntityHistory as EntityHistory
    from omnigraph.branch.feed.page import Baseline as Baseline
    from omnigraph.branch.feed.page import ChangePage as ChangePage
    from omnigraph.branch.merge.result import MergeResult as MergeResult
    from omnigraph.graph.create import init_graph as init
    from omnigraph.graph.handle import Graph as Graph
    from omnigraph.graph.handle import open_graph as open
    from omnigraph.graph.maintenance import Maintenance as Maintenance
    from omnigraph.graph.prepared_query import PreparedQuery as PreparedQuery
    from omnigraph.graph.results import BranchInfo as BranchInfo
    from omnigraph.graph.results import CommitInfo as CommitInfo
    from omnigraph.graph.results import EmbedResult as EmbedResult
    from omnigraph.graph.results import ExportResult as ExportResult
    from omnigraph.graph.results import LoadResult as LoadResult
    from omnigraph.graph.results import ResetResult as ResetResult
    from omnigraph.graph.results import SchemaResult as SchemaResult
    from omnigraph.graph.results import TagInfo as TagInfo
    from omnigraph.graph.results import WriteResult as WriteResult
    from omnigraph.graph.snapshot import Snapshot as Snapshot
    from omnigraph.graph.transaction import Transaction as Transaction
    from omnigraph.language.schema.model import Schema as Schema
    from omnigraph.language.schema.plan.planner import SchemaPlan as SchemaPlan
    from omnigraph.maintenance.cleanup import CleanupResult as CleanupResult
    from omnigraph.maintenance.cleanup import Policy as Policy
    from omnigraph.maintenance.clone import CloneResult as CloneResult
    from omnigraph.maintenance.clone import clone_graph as clone
    from omnigraph.maintenance.maintain.policy import MaintainPolicy as MaintainPolicy
    from omnigraph.maintenance.maintain.run import MaintainResult as MaintainResult
    from omnigraph.maintenance.optimize import OptimizePlan as OptimizePlan
    from omnigraph.maintenance.optimize import OptimizeResult as OptimizeResult
    from omnigraph.maintenance.relocate import RelocateResult as RelocateResult
    from omnigraph.maintenance.repair.run import RepairResult as RepairResult
    from omnigraph.maintenance.stats import GraphStats as GraphStats
    from omnigraph.maintenance.verify import VerifyResult as VerifyResult
    from omnigraph.pipeline.datasource.source import register as register
    from omnigraph.pipeline.file.run import run_pipeline as run_pipeline
    from omnigraph.pipeline.load.table_sources import TableSource as TableSource
    from omnigraph.query.mutation.result import MutationResult as MutationResult
    from omnigraph.query.result import Result as Result
    from omnigraph.tasks.progress import Watcher as Watcher

logging.getLogger(__name__).addHandler(logging.NullHandler())

__version__ = "0.1.0"

__all__ = [
    "Baseline",
    "BranchInfo",
    "ChangePage",
    "CleanupResult",
    "CloneResult",
    "CommitInfo",
    "Diff",
    "EmbedResult",
    "EntityHistory",
    "ExportResult",
    "Graph",
    "GraphStats",
    "LoadResult",
    "MaintainPolicy",
    "MaintainResult",
    "Maintenance",
    "MergeResult",
    "MutationResult",
    "OptimizePlan",
    "OptimizeResult",
    "Policy",
    "PreparedQuery",
    "RelocateResult",
    "RepairResult",
    "ResetResult",
    "Result",
    "Schema",
    "SchemaPlan",
    "SchemaResult",
    "Snapshot",
    "TableSource",
    "TagInfo",
    "Transaction",
    "VerifyResult",
    "Watcher",
    "WriteResult",
    "__version__",
    "clone",
    "errors",
    "init",
    "open",
    "register",
    "run_pipeline",
]

_EXPORTS = {
    "omnigraph.branch.diff.diff": ("Diff",),
    "omnigraph.branch.diff.entity_history": ("EntityHistory",),
    "omnigraph.branch.feed.page": (
        "Baseline",
        "ChangePage",
    ),
    "omnigraph.branch.merge.result": ("MergeResult",),
    "omnigraph.graph.handle": ("Graph",),
    "omnigraph.graph.maintenance": ("Maintenance",),
    "omnigraph.graph.prepared_query": ("PreparedQuery",),
    "omnigraph.graph.results": (
        "BranchInfo",
        "CommitInfo",
        "EmbedResult",
        "ExportResult",
        "LoadResult",
        "ResetResult",
        "SchemaResult",
        "TagInfo",
        "WriteResult",
    ),
    "omnigraph.graph.snapshot": ("Snapshot",),
    "omnigraph.graph.transaction": ("Transaction",),
    "omnigraph.language.schema.model": ("Schema",),
    "omnigraph.language.schema.plan.planner": ("SchemaPlan",),
    "omnigraph.maintenance.cleanup": (
        "CleanupResult",
        "Policy",
    ),
    "omnigraph.maintenance.clone": ("CloneResult",),
    "omnigraph.maintenance.maintain.policy": ("MaintainPolicy",),
    "omnigraph.maintenance.maintain.run": ("MaintainResult",),
    "omnigraph.maintenance.optimize": (
        "OptimizePlan",
        "OptimizeResult",
    ),
    "omnigraph.maintenance.relocate": ("RelocateResult",),
    "omnigraph.maintenance.repair.run": ("RepairResult",),
    "omnigraph.maintenance.stats": ("GraphStats",),
    "omnigraph.maintenance.verify": ("VerifyResult",),
    "omnigraph.pipeline.load.table_sources": ("TableSource",),
    "omnigraph.query.mutation.result": ("MutationResult",),
    "omnigraph.query.result": ("Result",),
    "omnigraph.tasks.progress": ("Watcher",),
}
_HOMES = {
    **{name: (module, name) for module, names in _EXPORTS.items() for name in names},
    "init": ("omnigraph.graph.create", "init_graph"),
    "open": ("omnigraph.graph.handle", "open_graph"),
    "clone": ("omnigraph.maintenance.clone", "clone_graph"),
    "register": ("omnigraph.pipeline.datasource.source", "register"),
    "run_pipeline": ("omnigraph.pipeline.file.run", "run_pipeline"),
}
"""Of every exported name but `errors`, the module and the name there."""


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("omnigraph.errors")
    if name in _HOMES:
        module, attribute = _HOMES[name]
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module 'omnigraph' has no attribute {name!r}")
