"""Merge a branch, or any commit, into a branch. `operation` has the algorithm."""

from omnigraph.branch.merge.model import Conflict, MergeOptions, MergePlan, Resolution, TableMerge
from omnigraph.branch.merge.operation import Merge

__all__ = ["Conflict", "Merge", "MergeOptions", "MergePlan", "Resolution", "TableMerge"]
