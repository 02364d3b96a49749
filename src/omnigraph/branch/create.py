"""Create a branch: one small change of the manifest's config, whatever the number of tables.

1. read     the head to start from
2. swap     set `head:<name>` and rewrite `refs`, which excludes every other creation and deletion since 1
3. ask      after an error: is the branch there, with the incarnation that only I know?

The new head holds no pins, only the commit that it starts from. Tables are forked by the first write on the branch.
A crash leaves the branch or no trace.
"""

from __future__ import annotations

import secrets
from dataclasses import replace

from omnigraph.branch.names import require_free, require_name
from omnigraph.commit.migrate import require_current
from omnigraph.errors import BranchNotFound, PreconditionFailed, StorageError, WriterBusy
from omnigraph.storage.manifest import HEAD, REFS, Manifest, SwapLost, fresh_incarnation
from omnigraph.storage.records import Head

TRIES_MOST = 20


def create_branch(manifest: Manifest, name: str, *, from_branch: str, if_commit: str | None = None) -> Head:
    """The head of the new branch, which stands where `from_branch` stands."""
    require_name(name)
    require_current(manifest)
    incarnation = fresh_incarnation()
    for _ in range(TRIES_MOST):
        heads = manifest.heads()
        if name in heads and heads[name].incarnation == incarnation:
            return heads[name]
        require_free(name, heads)
        if from_branch not in heads:
            raise BranchNotFound(branch=from_branch, uri=manifest.location.uri)
        start = heads[from_branch]
        if if_commit is not None and start.commit != if_commit:
            raise PreconditionFailed(expected=if_commit, actual=start.commit, branch=from_branch)
        head = replace(
            start,
            branch=name,
            incarnation=incarnation,
            epoch=0,
            base=start.commit,
            pins={},
            recent=(),
            made_from=(start.branch, start.incarnation),
        )
        try:
            manifest.update({HEAD + name: head.dumps(), REFS: secrets.token_hex(6)}, read_version=start.version)
        except SwapLost:
            continue
        except StorageError:
            if _is_there(manifest, name, incarnation):
                continue
            raise
        return manifest.head(name)
    raise WriterBusy(branch=name, waited_s=0.0)


def _is_there(manifest: Manifest, name: str, incarnation: str) -> bool:
    found = manifest.heads().get(name)
    return found is not None and found.incarnation == incarnation
