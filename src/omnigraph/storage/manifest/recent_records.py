"""The records in the heads of one version of the manifest, indexed by commit, by epoch and by operation.

There are as many heads as branches; without this index, reading one record per branch would take quadratic time.
"""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.storage.manifest.records import Head, Record


class RecentRecords:
    """Of several records with the same key, the one of the first head counts."""

    def __init__(self, heads: Iterable[Head]) -> None:
        self._by_commit: dict[str, Record] = {}
        self._by_epoch: dict[str, dict[int, Record]] = {}
        self._by_operation: dict[tuple[str, str], Record] = {}
        for head in heads:
            for record in head.recent:
                self._add(record)

    def _add(self, record: Record) -> None:
        if record.commit is not None:
            self._by_commit.setdefault(record.commit, record)
            if record.operation_id is not None:
                self._by_operation.setdefault((record.incarnation, record.operation_id), record)
        self._by_epoch.setdefault(record.incarnation, {})[record.epoch] = record

    def of_commit(self, commit: str) -> Record | None:
        return self._by_commit.get(commit)

    def of_epochs(self, incarnation: str, first: int, last: int) -> dict[int, Record]:
        return {e: r for e, r in self._by_epoch.get(incarnation, {}).items() if first <= e <= last}

    def of_operation(self, incarnation: str, operation_id: str) -> Record | None:
        return self._by_operation.get((incarnation, operation_id))
