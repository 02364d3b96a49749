"""Tables and rewrites of plain Lance, for tests of what Lance does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import FragmentMetadata
from lance.optimize import Compaction, CompactionTask
from lance.query import MatchQuery

ROWS = 40


def table(folder: Path, fragments: int = 4, rows: int = ROWS, **options: Any) -> Any:
    """`id` counts through all fragments; `word`, `kind` and `tags` follow from it; `v` is a vector."""
    options = {"enable_stable_row_ids": True, **options}
    for k in range(fragments):
        made = lance.write_dataset(
            batch(range(k * rows, (k + 1) * rows)), str(folder / "t"), mode="append" if k else "create", **options
        )
    return made


def batch(numbers: Any, *, word: str = "old") -> Any:
    vectors = np.random.default_rng(len(numbers)).uniform(0.1, 1, (len(numbers), 8)).astype("f4")
    return pa.table(
        {
            "id": pa.array(list(numbers), pa.int64()),
            "word": [f"{word}{n % 4}" for n in numbers],
            "kind": [f"{word}{n % 3}" for n in numbers],
            "tags": [[f"{word}{n % 5}"] for n in numbers],
            "v": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 8),
        }
    )


def commit(base: Any, operation: Any, **properties: str) -> Any:
    return LanceDataset.commit(
        base, Transaction(read_version=base.version, operation=operation, transaction_properties=properties)
    )


def words(found: Any, text: str) -> int:
    return int(found.to_table(columns=["id", "_score"], full_text_query=MatchQuery(text, "word")).num_rows)


def nearest(found: Any, k: int) -> int:
    query = found.to_table(columns=["v"])["v"][0].values.to_numpy()
    return int(found.to_table(columns=["id", "_distance"], nearest={"column": "v", "q": query, "k": k}).num_rows)


def rewrite(base: Any, fragments: list[int], new_id: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `storage.rewrite` does: compact outside, commit an own Rewrite with an explicit id."""
    options = {"target_rows_per_fragment": 1_000_000, "num_threads": 1}
    plan = json.loads(Compaction.plan(base, options).json())
    chosen = [base.get_fragment(n).metadata.to_json() for n in fragments]
    task = {"task": {"fragments": chosen}, "read_version": base.version, "options": plan["options"]}
    done = json.loads(CompactionTask.from_json(json.dumps(task)).execute(base).json())
    return done, {**done["new_fragments"][0], "id": new_id}


def rewritten(base: Any, done: dict[str, Any], new: dict[str, Any]) -> Any:
    def read(bodies: list[dict[str, Any]]) -> list[FragmentMetadata]:
        return [FragmentMetadata.from_json(json.dumps(body)) for body in bodies]

    group = LanceOperation.RewriteGroup(read(done["original_fragments"]), read([new]))
    return commit(base, LanceOperation.Rewrite([group], []))


def updated(made: Any, numbers: range) -> Any:
    """Rows that get new values, keep their row ids and move to a new fragment, as `storage.edit` replaces rows."""
    found = made.to_table(columns=["id"], filter=f"id >= {numbers.start} AND id < {numbers.stop}", with_row_id=True)
    made.merge_insert("id").when_matched_update_all().execute(batch(sorted(found["id"].to_pylist()), word="new"))
    return lance.dataset(made.uri)


KINDS = {"word": "INVERTED", "kind": "BITMAP", "tags": "LABEL_LIST"}


ASKED = {"kind": "kind = 'old0'", "tags": "array_has(tags, 'old0')"}
