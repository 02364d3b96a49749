"""Revert and cherry-pick: merges with another base, which record one parent.

| verb        | base             | source           |
|-------------|------------------|------------------|
| revert C    | C                | the parent of C  |
| cherry-pick | the parent of C  | C                |

The parent of a merge commit is its first parent: what the branch was before.
"""

from __future__ import annotations

from omnigraph.branch.merge import Merge, MergeOptions
from omnigraph.errors import UsageError
from omnigraph.storage.manifest.table import Manifest


def revert_of(manifest: Manifest, commit: str, options: MergeOptions) -> Merge:
    parent = _parent(manifest, commit)
    return Merge(parent, options, base=commit, kind="revert", summary={"reverted": commit})


def cherry_pick_of(manifest: Manifest, commit: str, options: MergeOptions) -> Merge:
    parent = _parent(manifest, commit)
    return Merge(commit, options, base=parent, kind="cherry_pick", summary={"picked": commit})


def _parent(manifest: Manifest, commit: str) -> str:
    parent = manifest.record(commit).parent
    if parent is None:
        raise UsageError(detail=f"{commit} is the first commit of the graph: there is no state before it.")
    return parent
