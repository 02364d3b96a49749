"""Optimize: compaction and index coverage, prepared outside the committer, published in one graph commit."""

from omnigraph.maintenance.optimize.model import (
    OptimizeOptions,
    OptimizePlan,
    OptimizeResult,
    PendingIndex,
    TablePlan,
    TableResult,
)
from omnigraph.maintenance.optimize.run import Optimize

__all__ = [
    "Optimize",
    "OptimizeOptions",
    "OptimizePlan",
    "OptimizeResult",
    "PendingIndex",
    "TablePlan",
    "TableResult",
]
