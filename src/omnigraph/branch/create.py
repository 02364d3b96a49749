"""Create a branch: one small change of the manifest's config, whatever the number of tables.

1. read     the commit to start from: the newest of a branch, or any that a revision names
2. check    of a commit that no branch is at: its versions are there, and no cleanup has announced one (`availability`)
3. swap     set `head:<name>` and rewrite `refs`, which excludes every other creation and deletion since 1, and cleanup
4. verify   after an error: does the branch exist with the incarnation that only this call knows?
5. pack     the heads of idle branches, once there are many loose ones (`storage/manifest/packed_heads.py`)

The new head holds no pins, only the commit that it starts from. Tables are forked by the first write on the branch.
A crash leaves the branch or no trace.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from omnigraph.branch.availability import require_available
from omnigraph.branch.names import require_free, require_name
from omnigraph.branch.revisions import resolve
from omnigraph.commit.backoff import attempts
from omnigraph.errors import PreconditionFailed, StorageError
from omnigraph.legacy.migrate import require_current
from omnigraph.storage.manifest.packed_heads import pack_if_due
from omnigraph.storage.manifest.records import Head, Record
from omnigraph.storage.manifest.table import HEAD, REFS, Manifest, SwapLost, fresh_incarnation
from omnigraph.storage.manifest.tags import read_tags


def create_branch(manifest: Manifest, name: str, *, from_branch: str, if_commit: str | None = None) -> Head:
    """The head of the new branch, which is at the commit that the revision `from_branch` names."""
    require_name(name)
    require_current(manifest)
    incarnation = fresh_incarnation()
    for _ in attempts(name, local=manifest.location.is_local):
        table, reader = manifest.table(), manifest.reader
        created = reader.find(table, name)
        if created is not None and created.incarnation == incarnation:
            return created
        require_free(name, reader.names_of(table), read_tags(manifest))
        source = reader.find(table, from_branch)
        heads = manifest.heads() if source is None else {from_branch: source}
        head = _start(manifest, name, incarnation, from_branch, heads)
        if if_commit is not None and head.commit != if_commit:
            raise PreconditionFailed(expected=if_commit, actual=head.commit, branch=from_branch)
        if source is None:
            require_available(manifest, head.commit, heads)
        try:
            manifest.update({HEAD + name: head.dumps(), REFS: secrets.token_hex(6)}, read_version=table.version)
        except SwapLost:
            continue
        except StorageError:
            if _is_there(manifest, name, incarnation):
                continue
            raise
        created = manifest.head(name)
        pack_if_due(manifest)
        return created
    raise AssertionError("unreachable")


def _start(manifest: Manifest, name: str, incarnation: str, from_branch: str, heads: Mapping[str, Head]) -> Head:
    """The head of a branch that has not been written to."""
    source = heads.get(from_branch)
    commit = resolve(manifest, from_branch) if source is None else source.commit
    record = manifest.record(commit)
    return Head(
        branch=name,
        commit=commit,
        parent=record.parent,
        epoch=0,
        incarnation=incarnation,
        schema=record.schema,
        pins={},
        base=commit,
        depth=record.depth,
        made_from=origin_of(from_branch, record, heads),
    )


def origin_of(revision: str, record: Record, heads: Mapping[str, Head]) -> tuple[str, str] | None:
    """The branch that something is made from, and its incarnation: the one that the revision names, or else the one
    that the commit belongs to; None if that is not there any more.
    """
    source = heads.get(revision)
    if source is None:
        source = next((head for head in heads.values() if head.incarnation == record.incarnation), None)
    return None if source is None else (source.branch, source.incarnation)


def _is_there(manifest: Manifest, name: str, incarnation: str) -> bool:
    head = manifest.find(name)
    return head is not None and head.incarnation == incarnation
