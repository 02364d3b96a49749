"""Delete a branch: its head goes, in one change of the manifest's config; its storage is left to cleanup.

1. refuse   main, a branch that others were made from, and one whose forks of tables another branch reads
2. keep     its newest commit records become rows, so that they can still be looked up
3. swap     remove `head:<name>`, or set it to a tombstone where heads are packed, and rewrite `refs`
4. sweep    its advisory locks and plans; a writer that is still at work there fails with BranchNotFound

A crash leaves the branch or no trace of it but unreferenced forks. The name can be used again at once: a new branch has
a new incarnation, and nothing of the old one can be mistaken for its own.
"""

from __future__ import annotations

import secrets

from omnigraph.commit.backoff import attempts
from omnigraph.commit.committer import Committer
from omnigraph.errors import BranchInUse, BranchNotFound, StorageError
from omnigraph.legacy.migrate import require_current
from omnigraph.storage.manifest.records import MAIN, Head
from omnigraph.storage.manifest.table import REFS, SwapLost


def delete_branch(committer: Committer, name: str) -> Head:
    """The head that the branch had."""
    manifest = committer.manifest
    require_current(manifest, observe=committer.observe)
    tried: Head | None = None
    for _ in attempts(name, local=manifest.location.is_local):
        heads = manifest.heads()
        head = heads.get(name)
        if tried is not None and (head is None or head.incarnation != tried.incarnation):
            committer.sweep()
            return tried  # the answer was lost, or another process deleted it at the same time
        if head is None:
            raise BranchNotFound(branch=name, uri=manifest.location.uri)
        require_unused(head, heads, action="deleted")
        manifest.append_records(head.recent)
        tried = head
        try:
            manifest.swap(head, None, more={REFS: secrets.token_hex(6)})
        except SwapLost:
            continue
        except StorageError:
            if name in manifest.heads():
                raise
            continue
        committer.sweep()
        return head
    raise AssertionError("unreachable")


def require_unused(head: Head, heads: dict[str, Head], *, action: str) -> None:
    """BranchInUse if other branches were made from this one, or read its forks; main is never deleted."""
    if head.branch == MAIN and action == "deleted":
        raise BranchInUse(branch=MAIN, action=action, detail="it is the main branch.")
    for other in heads.values():
        if other.made_from is not None and other.made_from[1] == head.incarnation:
            detail = f"the branch {other.branch!r} was made from it."
            raise BranchInUse(branch=head.branch, action=action, detail=detail)
        for pin in other.pins.values():
            if other.branch != head.branch and pin and (pin.fork or "").startswith(f"{head.incarnation}-"):
                detail = f"the branch {other.branch!r} reads its tables."
                raise BranchInUse(branch=head.branch, action=action, detail=detail)
