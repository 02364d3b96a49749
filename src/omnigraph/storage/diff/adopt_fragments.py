"""Adopt fragments: refer to data files of one line of a table from another line of it, without copying them.

Forks write their data files into the root table's `data/`, so every line can refer to them. An adopted fragment

* has the row ids that its rows have on the target's line, where they replace rows there, and none where its rows are
  new: the row ids of its own line mean other rows here
* has no version metadata: Lance derives it
* has a deletion file of the target's line where some of its rows do not apply. Lance writes one only for a fragment of
  an existing version: a detached version, which no other process sees, and a unique fragment id

Files in a fork's own folder are never adopted: they are removed with the fork. A crash leaves a detached version and
deletion files without a reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.storage import durability
from omnigraph.storage.diff.table_version import FragmentFile
from omnigraph.storage.lance import lance_api
from omnigraph.storage.lance.rewrites.rewrite import detached_commit, first_new_id, fragment_from_json, remove_detached
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin

if TYPE_CHECKING:
    from lance import FragmentMetadata, LanceDataset

_LINE_METADATA = ("deletion_file", "row_id_meta", "created_at_version_meta", "last_updated_at_version_meta")


@dataclass(frozen=True, eq=False)
class Adoption:
    """One fragment of another line. `row_ids` of all its physical rows, or None for new rows; `excluded_offsets` are
    rows that do not apply.
    """

    fragment: FragmentFile
    row_ids: np.ndarray | None
    excluded_offsets: np.ndarray


def adopted_fragments(
    location: Location, pin: Pin, table: LanceDataset, adoptions: Sequence[Adoption], *, root_base_id: int | None
) -> list[FragmentMetadata]:
    """The fragments as an uncommitted Append or Update of `table`, at `pin`, can add them."""
    bodies = [_without_line_metadata(adoption.fragment, root_base_id) for adoption in adoptions]
    partial = [i for i, adoption in enumerate(adoptions) if len(adoption.excluded_offsets)]
    if partial:
        for number, i in enumerate(partial, start=first_new_id(table)):
            bodies[i]["id"] = number
        _mark_excluded(location, pin, table, adoptions, bodies, partial)
    return [_with_row_ids(fragment_from_json(b), a.row_ids) for b, a in zip(bodies, adoptions, strict=True)]


def number_fragments(table: LanceDataset, fragments: Sequence[FragmentMetadata]) -> None:
    """Give every fragment an explicit id if one of them has one: Lance would assign an id twice otherwise."""
    taken = {fragment.id for fragment in fragments if fragment.id}
    if not taken:
        return
    number = max(taken) + 1
    for fragment in fragments:
        if not fragment.id:
            fragment.id, number = number, number + 1


def _mark_excluded(
    location: Location,
    pin: Pin,
    table: LanceDataset,
    adoptions: Sequence[Adoption],
    bodies: list[dict[str, Any]],
    partial: Sequence[int],
) -> None:
    append = lance_api.operations().Append([fragment_from_json(bodies[i]) for i in partial])
    private = detached_commit(location, table, lance_api.transaction(append, read_version=table.version))
    for i in partial:
        remaining = private.get_fragment(bodies[i]["id"]).delete_rows(adoptions[i].excluded_offsets.tolist())
        assert remaining is not None, "a fragment of which no row applies is not adopted"
        deletion_file = remaining.to_json()["deletion_file"]
        bodies[i]["deletion_file"] = deletion_file
        if location.is_local:
            written = [{"id": bodies[i]["id"], "files": [], "deletion_file": deletion_file}]
            durability.sync_fragments(location.join(pin.path), written)
    remove_detached(location, pin, [int(private.version)])


def _without_line_metadata(fragment: FragmentFile, root_base_id: int | None) -> dict[str, Any]:
    body: dict[str, Any] = fragment.metadata.to_json()
    for file in body["files"]:
        file["base_id"] = root_base_id
    return {**body, "id": 0, **dict.fromkeys(_LINE_METADATA)}


def _with_row_ids(fragment: FragmentMetadata, row_ids: np.ndarray | None) -> FragmentMetadata:
    from lance.fragment import RowIdSequence

    if row_ids is not None:
        fragment.row_id_meta = RowIdSequence(pa.array(row_ids, pa.uint64())).to_inline_metadata()
    return fragment
