"""Create and delete tags: one small change of the manifest's config each.

1. read    version, heads and tags of the manifest
2. check   the commit's versions are there, and no cleanup has announced one of them (`availability`)
3. swap    set or remove `tag:<name>` and rewrite `refs`, over exactly the version of 1
4. verify  after an error: does the tag exist with the nonce that only this call knows?

A cleanup announces what it removes, then swaps `refs`, then reads heads and tags. If that swap comes before 1, the
announcement is seen in 2, or its versions are missing; if it comes between 1 and 3, the swap of 3 is lost and all of it
is done again; if it comes after 3, cleanup reads the tag. A crash leaves the tag or no trace.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from omnigraph.branch.availability import require_available
from omnigraph.branch.names import require_tag_name
from omnigraph.commit.backoff import attempts
from omnigraph.errors import BranchExists, StorageError, TagExists, TagNotFound
from omnigraph.legacy.migrate import require_current
from omnigraph.storage.manifest.table import REFS, Manifest, SwapLost
from omnigraph.storage.manifest.tags import TAG, Tag, read_tags


def create_tag(
    manifest: Manifest, name: str, commit: Callable[[], str], *, actor: str | None = None, message: str | None = None
) -> Tag:
    """The new tag. `commit` gives the id of the commit to name; it is called again if the swap was lost."""
    require_tag_name(name)
    require_current(manifest)
    nonce = secrets.token_hex(6)
    for _ in attempts(f"the tag {name!r}", local=manifest.location.is_local):
        version, _ = manifest.settings()
        heads, tags = manifest.heads(), read_tags(manifest)
        if name in tags and tags[name].nonce == nonce:
            return tags[name]
        if name in tags:
            raise TagExists(tag=name, commit=tags[name].commit)
        if name in heads:
            raise BranchExists(branch=name, why="")
        tag = Tag(name, commit(), time.time_ns() // 1000, nonce, actor, message)
        require_available(manifest, tag.commit, heads)
        try:
            manifest.update({tag.key: tag.dumps(), REFS: secrets.token_hex(6)}, read_version=version)
        except SwapLost:
            continue
        except StorageError:
            if read_tags(manifest).get(name) != tag:
                raise
        return tag
    raise AssertionError("unreachable")


def delete_tag(manifest: Manifest, name: str) -> Tag:
    """The tag that was there. What only it has kept goes with the next cleanup."""
    require_current(manifest)
    tried: Tag | None = None
    for _ in attempts(f"the tag {name!r}", local=manifest.location.is_local):
        version, _ = manifest.settings()
        tag = read_tags(manifest).get(name)
        if tried is not None and tag != tried:
            return tried  # the answer was lost, or another process deleted it at the same time
        if tag is None:
            raise TagNotFound(tag=name, uri=manifest.location.uri)
        tried = tag
        try:
            manifest.update({TAG + name: None, REFS: secrets.token_hex(6)}, read_version=version)
        except SwapLost:
            continue
        except StorageError:
            if read_tags(manifest).get(name) == tag:
                raise
        return tag
    raise AssertionError("unreachable")
