"""Exchange of digests between the tasks that compute them and the tasks that check them.

A relation is one column of look-ups: `id` of a type, `src` or `dst` of an edge type, `u0`, `u1`, … its unique tuples,
`bad` ids in records that could not be read. A sending task writes all its relations into one file, grouped by bucket
and, within a bucket, by relation; a checking task reads its bucket's slice of every file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from omnigraph.tasks.digests import buckets_of
from omnigraph.tasks.staging import Staging


def relation(name: str, type_key: str) -> str:
    return f"{name}|{type_key}"


class Sender:
    """Collects the relations of one task. Rows are digests (two words) and `width - 2` words of payload."""

    def __init__(self, buckets: int, *, width: int) -> None:
        self._buckets = buckets
        self._width = width
        self._rows: dict[str, list[np.ndarray]] = {}

    def add(self, name: str, digests: np.ndarray, *payload: np.ndarray) -> None:
        if len(digests):
            self._rows.setdefault(name, []).append(np.column_stack([digests, *payload]))

    def send(self, staging: Staging, stem: str) -> dict[str, Any] | None:
        """Write the file; its description goes into the task's result. None if there is nothing."""
        if not self._rows:
            return None
        names = list(self._rows)
        counts = np.zeros((self._buckets, len(names)), dtype=np.int64)
        sorted_rows: list[np.ndarray] = []
        for column, name in enumerate(names):
            rows = np.concatenate(self._rows[name])
            bucket = buckets_of(rows, self._buckets)
            # Small integers are sorted by radix, and stable: rows stay in the order of the input.
            order = np.argsort(bucket.astype(np.uint16), kind="stable")
            sorted_rows.append(rows[order])
            counts[:, column] = np.bincount(bucket, minlength=self._buckets)
        sent_rows = np.empty((int(counts.sum()), self._width), dtype=np.uint64)
        starts = np.concatenate([[0], np.cumsum(counts.ravel())])[:-1].reshape(counts.shape)
        for column, rows in enumerate(sorted_rows):
            sent_count = 0
            for bucket_number in range(self._buckets):
                count = counts[bucket_number, column]
                start = starts[bucket_number, column]
                sent_rows[start : start + count] = rows[sent_count : sent_count + count]
                sent_count += count
        name = staging.put_array(stem, sent_rows)
        return {"file": name, "width": self._width, "relations": names, "counts": counts.tolist()}


@dataclass(frozen=True)
class Received:
    """The rows of one bucket by relation, in the order of the input."""

    rows: Mapping[str, np.ndarray]

    def of(self, name: str, type_key: str, *, width: int) -> np.ndarray:
        rows = self.rows.get(relation(name, type_key))
        return np.empty((0, width), dtype=np.uint64) if rows is None else rows


def addressed(sent: Sequence[dict[str, Any] | None], bucket: int) -> list[dict[str, Any]]:
    """The parts of some files that belong to one bucket, for a task."""
    parts = []
    for file in sent:
        if file is None or not any(file["counts"][bucket]):
            continue
        start = sum(sum(counts) for counts in file["counts"][:bucket])
        parts.append(
            {
                "file": file["file"],
                "width": file["width"],
                "start": start,
                "parts": [[n, c] for n, c in zip(file["relations"], file["counts"][bucket], strict=True) if c],
            }
        )
    return parts


def receive(staging: Staging, parts: Sequence[Mapping[str, Any]]) -> Received:
    parts_by_relation: dict[str, list[np.ndarray]] = {}
    for part in parts:
        total = sum(count for _, count in part["parts"])
        rows = staging.get_array(part["file"], width=part["width"], start=part["start"], count=total)
        offset = 0
        for name, count in part["parts"]:
            parts_by_relation.setdefault(name, []).append(rows[offset : offset + count])
            offset += count
    return Received(
        {name: rows[0] if len(rows) == 1 else np.concatenate(rows) for name, rows in parts_by_relation.items()}
    )
