"""Fold: merge the small fragments that small writes leave behind, as one stamped Rewrite.

1. choose   fragments with few rows that no index covers (covered and uncovered ones must not mix in a rewrite)
2. execute  Lance's own compaction task writes the merged file
3. number   the new fragments get explicit ids above every one that was ever used, so that no index can mistake them
4. return   the Rewrite as an uncommitted transaction; the committer commits it with its stamp

Invariants: every row, its stable row id and its values stay. A crash leaves a file without a reference.
"""

from __future__ import annotations

import json
from collections.abc import Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omnigraph.storage import durability
from omnigraph.storage.lance import lance_api
from omnigraph.storage.layout import Location

if TYPE_CHECKING:
    from lance import LanceDataset, Transaction

SMALL_ROWS = 50_000
"""A fragment with fewer rows is folded; larger ones are left to optimize."""
FOLD_AT = 32
"""The number of small fragments from which a write folds them."""


def small_fragments(table: LanceDataset) -> list[int]:
    """Ids of the fragments that a fold would merge."""
    covered = _covered(table)
    return [
        f.fragment_id
        for f in table.get_fragments()
        if f.fragment_id not in covered and f.metadata.physical_rows < SMALL_ROWS
    ]


def _covered(table: LanceDataset) -> set[int]:
    covered: set[int] = set()
    for index in table.describe_indices():
        for segment in index.segments:
            covered.update(segment.fragment_ids or ())
    return covered


@dataclass(frozen=True)
class Fold:
    """Merged files, as the results of Lance's compaction tasks, that no version refers to yet."""

    results: tuple[dict[str, Any], ...]

    @property
    def files(self) -> list[str]:
        """Names of the new files in the table's `data/`."""
        return [file["path"] for r in self.results for fragment in r["new_fragments"] for file in fragment["files"]]

    def commit_on(self, newest: LanceDataset) -> Transaction:
        """The Rewrite. The numbering comes last, on a version whose newest fragment was just added: only there is the
        highest live id also the highest that was ever used.
        """
        return _numbered(newest, self.results)


def fold_work(location: Location, table: LanceDataset, *, leave: Set[int] = frozenset()) -> Fold | None:
    """Merge the table's small fragments except `leave`: writes the files. None if there is nothing to merge."""
    from lance.optimize import Compaction

    small = set(small_fragments(table)) - leave
    options: dict[str, Any] = {
        "excluded_fragment_ids": [f.fragment_id for f in table.get_fragments() if f.fragment_id not in small],
        "materialize_deletions_threshold": 0.0,
        "target_rows_per_fragment": 4 * SMALL_ROWS,
        "num_threads": 1,
    }
    with lance_api.reading(f"folding {table.uri}"):
        plan = Compaction.plan(table, options)
        results = [json.loads(task.execute(table).json()) for task in plan.tasks]
    if not results:
        return None
    if location.is_local:
        written = [fragment for result in results for fragment in result["new_fragments"]]
        durability.sync_fragments(table.uri, written)
    return Fold(tuple(results))


def _numbered(newest: LanceDataset, results: tuple[dict[str, Any], ...]) -> Transaction:
    from lance.fragment import FragmentMetadata

    op = lance_api.operations()
    next_id = max(f.fragment_id for f in newest.get_fragments()) + 1
    groups = []
    for result in results:
        for fragment in result["new_fragments"]:
            fragment["id"] = next_id
            next_id += 1
        old, new = (
            [FragmentMetadata.from_json(json.dumps(f)) for f in result[side]]
            for side in ("original_fragments", "new_fragments")
        )
        groups.append(op.RewriteGroup(old, new))
    return lance_api.transaction(op.Rewrite(groups, []), read_version=newest.version)
