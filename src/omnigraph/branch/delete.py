"""Delete a branch: its head goes, in one change of the manifest's config; its storage is left to cleanup.

1. refuse   main, a branch that others were made from, and one whose forks of tables another branch reads
2. keep     its newest commit records become rows, so that they can still be looked up
3. swap     remove `head:<name>` and rewrite `refs`
4. sweep    its tickets and plans; a writer that is still at work there finds its branch gone

A crash leaves the branch or no trace of it but unreferenced forks. The name can be used again at once: a new branch has
a new incarnation, and nothing of the old one can be mistaken for its own.
"""

from __future__ import annotations

import secrets

from omnigraph.commit.door import Door
from omnigraph.commit.migrate import require_current
from omnigraph.errors import BranchInUse, BranchNotFound, StorageError, WriterBusy
from omnigraph.storage.manifest import REFS, SwapLost
from omnigraph.storage.records import MAIN, Head

TRIES_MOST = 20


def delete_branch(door: Door, name: str) -> Head:
    """The head that the branch had."""
    manifest = door.manifest
    require_current(manifest, observe=door.observe)
    tried: Head | None = None
    for _ in range(TRIES_MOST):
        heads = manifest.heads()
        head = heads.get(name)
        if tried is not None and (head is None or head.incarnation != tried.incarnation):
            door.sweep()
            return tried  # the answer was lost, or somebody else deleted it at the same time: it is gone
        if head is None:
            raise BranchNotFound(branch=name, uri=manifest.location.uri)
        _require_unused(head, heads)
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
        door.sweep()
        return head
    raise WriterBusy(branch=name, waited_s=0.0)


def _require_unused(head: Head, heads: dict[str, Head]) -> None:
    if head.branch == MAIN:
        raise BranchInUse(branch=MAIN, detail="it is the main branch.")
    for other in heads.values():
        if other.made_from is not None and other.made_from[1] == head.incarnation:
            raise BranchInUse(branch=head.branch, detail=f"the branch {other.branch!r} was made from it.")
        for pin in other.pins.values():
            if other.branch != head.branch and pin and (pin.fork or "").startswith(f"{head.incarnation}-"):
                raise BranchInUse(branch=head.branch, detail=f"the branch {other.branch!r} reads its tables.")
