"""The starting commits of branch incarnations, and the operations before a reset.

A new branch starts at a commit of another branch; a reset starts a new incarnation at an earlier commit
(`branch/reset.py`). The first record of an incarnation (`Record.starts_incarnation`) names that commit as its parent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from omnigraph.storage.lance import lance_api
from omnigraph.storage.manifest.records import RESET, Head, Record

if TYPE_CHECKING:
    from omnigraph.storage.manifest.table import Manifest


def resets(manifest: Manifest, *, incarnation: str | None = None) -> Iterator[Record]:
    """Every record of a reset, or that of one incarnation, from the heads and from the rows."""
    from omnigraph.storage.manifest.table import quote

    for head in manifest.heads().values():
        yield from (r for r in head.recent if r.kind == RESET and incarnation in (None, r.incarnation))
    kind = quote(f'"k":"{RESET}"')
    where = f"kind = 'commit' AND contains(body, {kind})"
    if incarnation is not None:
        where += f" AND inc = {quote(incarnation)}"
    with lance_api.reading("looking for resets in the manifest"):
        bodies = manifest.table().to_table(columns=["body"], filter=where)["body"].to_pylist()
    yield from (record for record in map(Record.loads, bodies) if record.kind == RESET)


def start_of(manifest: Manifest, incarnation: str) -> Record | None:
    """The record of the commit of another incarnation at which this one starts; None for the first incarnation of main,
    and for one without records.
    """
    firsts = manifest.records(incarnation, 0, 1) or list(resets(manifest, incarnation=incarnation))
    for first in firsts:
        parent = None if first.parent is None else manifest.record(first.parent)
        if parent is not None and parent.incarnation != incarnation:
            return parent
    return None


def operation_of(manifest: Manifest, head: Head, operation_id: str) -> Record | None:
    """The commit with a client's operation id in the history of this branch, also from before its resets."""
    record = manifest.operation(head.incarnation, operation_id)
    start = None if head.reset_to is None else manifest.record(head.reset_to)
    while record is None and start is not None and start.branch == head.branch:
        older = manifest.operation(start.incarnation, operation_id)
        if older is not None and older.epoch <= start.epoch:
            return older
        start = start_of(manifest, start.incarnation)
    return record
