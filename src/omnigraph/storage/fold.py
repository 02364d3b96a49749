"""Fold: merge the small fragments that small writes leave behind, as one stamped Rewrite.

1. choose   fragments with few rows that no index covers (covered and uncovered ones must not mix in a rewrite)
2. execute  Lance's own compaction task writes the merged file
3. number   the new fragments get explicit ids above every live one, so that indices over other fragments stay valid
4. return   the Rewrite as an uncommitted transaction; the door commits it with its stamp

Keeps: every row, its stable row id and its values. A crash leaves a file that nobody refers to.
"""

from __future__ import annotations

import json
from collections.abc import Set
from typing import TYPE_CHECKING, Any

from omnigraph.storage import durable, lancefs
from omnigraph.storage.layout import Location

if TYPE_CHECKING:
    from lance import LanceDataset, Transaction

SMALL_ROWS = 50_000
"""A fragment below this many rows is folded; larger ones are optimize's business."""
FOLD_AT = 32
"""How many small fragments may pile up before a write folds them."""


def small_fragments(table: LanceDataset) -> list[int]:
    """Ids of the fragments that a fold would merge."""
    covered = _covered(table)
    return [
        f.fragment_id
        for f in table.get_fragments()
        if f.fragment_id not in covered and f.metadata.physical_rows < SMALL_ROWS
    ]


def _covered(table: LanceDataset) -> set[int]:
    found: set[int] = set()
    for index in table.describe_indices():
        for segment in index.segments:
            found.update(segment.fragment_ids or ())
    return found


def fold_transaction(
    location: Location, table: LanceDataset, *, leave: Set[int] = frozenset(), first_id_gap: int = 0
) -> Transaction | None:
    """The Rewrite that merges the table's small fragments except `leave`; None if there is nothing to merge.

    `first_id_gap` keeps as many ids free above the live ones as steps committed before this one will take.
    """
    from lance.fragment import FragmentMetadata
    from lance.optimize import Compaction

    small = set(small_fragments(table)) - leave
    live = [f.fragment_id for f in table.get_fragments()]
    options: dict[str, Any] = {
        "excluded_fragment_ids": [i for i in live if i not in small],
        "materialize_deletions_threshold": 0.0,
        "target_rows_per_fragment": 4 * SMALL_ROWS,
        "num_threads": 1,
    }
    plan = Compaction.plan(table, options)
    next_id = max(live, default=0) + first_id_gap + 1
    op = lancefs.operations()
    groups = []
    written: list[dict[str, Any]] = []
    for task in plan.tasks:
        result = json.loads(task.execute(table).json())
        for fragment in result["new_fragments"]:
            fragment["id"] = next_id
            next_id += 1
        written += result["new_fragments"]
        old, new = (
            [FragmentMetadata.from_json(json.dumps(f)) for f in result[side]]
            for side in ("original_fragments", "new_fragments")
        )
        groups.append(op.RewriteGroup(old, new))
    if not groups:
        return None
    if location.is_local:
        durable.sync_files(durable.new_files(table.uri, written))
    return lancefs.transaction(op.Rewrite(groups, []), read_version=table.version)
