"""Test-only operations that do what a merge does to the manifest and to tables, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from omnigraph.commit.committer import Committer
from omnigraph.commit.operation import Prepared, TableWork, View, work_on
from omnigraph.commit.request import Outcome, Request
from omnigraph.storage.manifest.records import Pin


@dataclass(frozen=True)
class Lineage:
    """Records a second parent and moves no table."""

    merged_parent: str
    kind: str = "merge"
    quick: bool = True

    def scope(self, view: View) -> frozenset[str]:
        return frozenset(view.pins)

    def prepare(self, view: View) -> Prepared:
        return Prepared(view=view, merged_parent=self.merged_parent)


@dataclass(frozen=True)
class Adopt:
    """Appends to a table those fragments of another version of it whose files it does not refer to, without copying."""

    source: Pin
    type_name: str = "Person"
    merged_parent: str | None = None
    kind: str = "merge"
    quick: bool = True

    def scope(self, view: View) -> frozenset[str]:
        return frozenset({self.source.table})

    def leased_pins(self, view: View) -> Iterable[Pin]:
        return [self.source]

    def prepare(self, view: View) -> Prepared:
        t = view.type(self.type_name)
        source = view.tables.open(self.source, table_key=t.key)
        pin, handle, editor = work_on(view, t)
        base = editor._root_base()
        known = {file.path for fragment in handle.get_fragments() for file in fragment.metadata.files}
        new = [f.metadata for f in source.get_fragments() if known.isdisjoint(file.path for file in f.metadata.files)]
        steps = (editor.appended([adopted(f, None if base is None else base.id) for f in new]),) if new else ()
        tables = {t.id: TableWork(pin=pin, source=view.pins[t.id], steps=steps, handle=handle)} if steps else {}
        return Prepared(view=view, tables=tables, merged_parent=self.merged_parent)


def adopted(fragment: Any, base_id: int | None) -> Any:
    """A fragment as new rows of another line; its data files lie in the root's `data/`."""
    from lance.fragment import FragmentMetadata

    body = fragment.to_json()
    for file in body["files"]:
        file["base_id"] = base_id
    notes = ("deletion_file", "row_id_meta", "created_at_version_meta", "last_updated_at_version_meta")
    return FragmentMetadata.from_json(json.dumps({**body, "id": 0, **dict.fromkeys(notes)}))


def run(graph: Any, operation: Any, *, branch: str = "main", committer: Committer | None = None) -> Outcome:
    return (committer or graph._committer).run(operation, Request(branch=branch))


def record_merge(graph: Any, source: str, *, into: str = "main") -> str:
    """Record `source`, a branch or a commit, as a parent of a new commit of `into`; the new commit."""
    heads = {branch.name: branch.commit for branch in graph.branches()}
    record = run(graph, Lineage(heads.get(source, source)), branch=into).record
    assert record is not None
    assert record.commit is not None
    return record.commit
