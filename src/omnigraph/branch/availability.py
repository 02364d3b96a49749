"""Whether a commit of the past can still be used: by a new branch, a tag, a branch that is reset to it.

A commit that a branch is at is safe: cleanup keeps what heads pin. Of any other one all versions have to be there, and
no cleanup may have announced one of them. The caller has read the manifest before, and then swaps `refs` over that very
reading: a cleanup that comes between makes it lose.
"""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.commit import owner
from omnigraph.errors import VersionReclaimed
from omnigraph.storage.manifest.records import Head
from omnigraph.storage.manifest.table import Manifest
from omnigraph.storage.objects import leases


def require_available(manifest: Manifest, commit: str, heads: Mapping[str, Head]) -> None:
    """VersionReclaimed or VersionMissing, with the table's name, if a pinned version is announced or removed."""
    if any(head.commit == commit for head in heads.values()):
        return
    pins = tuple(manifest.pins_at(commit).values())
    try:
        leases.require_staying(manifest.location, pins, owner.is_gone)
    except VersionReclaimed as error:
        body = manifest.schema_body(manifest.record(commit).schema)
        keys = {t["id"]: f"{kind}:{t['name']}" for kind in ("node", "edge") for t in body[f"{kind}s"]}
        table = error.fields["table_key"]
        raise type(error)(table_key=keys.get(table, table), version=error.fields["version"]) from error
