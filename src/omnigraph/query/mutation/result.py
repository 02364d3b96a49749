"""The result of a mutation: its commit, the number of rows changed per type, and the rows that it returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from omnigraph.commit.request import Outcome
from omnigraph.graph.results import CommitInfo
from omnigraph.query.result import Result


@dataclass(frozen=True, eq=False)
class MutationResult:
    """`commit` is None if nothing changed. Counts are of rows changed by the commit, by table key.

    `graph_commit_id` is the commit, or without one the head that the mutation ran on. `ids` are those of rows that
    inserts and merges wrote, by type, in their order. `repeated`: an operation with this id was committed before; then
    nothing ran, and no rows are returned.
    """

    name: str
    branch: str
    commit: CommitInfo | None
    graph_commit_id: str | None
    inserted: Mapping[str, int]
    updated: Mapping[str, int]
    deleted: Mapping[str, int]
    ids: Mapping[str, list[str]] = field(default_factory=dict)
    returned: pa.Table | None = None
    """The rows of the last statement with `returning`, ordered by id; None if there is none."""
    repeated: bool = False

    @staticmethod
    def of(outcome: Outcome, *, name: str, branch: str) -> MutationResult:
        commit = None if outcome.record is None else CommitInfo.of(outcome.record)
        counts = (commit.summary if commit is not None else None) or {}
        result = outcome.result or {}
        return MutationResult(
            name=name,
            branch=branch,
            commit=commit,
            graph_commit_id=commit.id if commit is not None else result.get("base"),
            inserted=counts.get("inserted", {}),
            updated=counts.get("updated", {}),
            deleted=counts.get("deleted", {}),
            ids=result.get("ids") or counts.get("ids", {}),
            returned=result.get("returned"),
            repeated=outcome.repeated,
        )

    @property
    def affected(self) -> int:
        """Rows that the commit inserts, updates or deletes."""
        return sum(sum(part.values()) for part in (self.inserted, self.updated, self.deleted))

    @property
    def columns(self) -> list[str]:
        return [] if self.returned is None else list(self.returned.schema.names)

    def __len__(self) -> int:
        return 0 if self.returned is None else int(self.returned.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.to_pylist())

    def to_arrow(self) -> pa.Table:
        """The returned rows; an empty table without a `return`."""
        return self.returned if self.returned is not None else pa.table({})

    def to_pylist(self) -> list[dict[str, Any]]:
        """One dictionary per returned row, in the order of the columns."""
        return [] if self.returned is None else list(self.returned.to_pylist())

    def rows(self) -> Result:
        """The returned rows like those of a read query."""
        table = self.to_arrow().combine_chunks()

        def batch(start: int, stop: int) -> pa.RecordBatch:
            columns = [c.slice(start, stop - start).combine_chunks() for c in table.columns]
            plain = [pa.concat_arrays(c.chunks) if isinstance(c, pa.ChunkedArray) else c for c in columns]
            return pa.RecordBatch.from_arrays(plain, schema=table.schema)

        return Result(
            self.name,
            table.schema,
            len(self),
            batch,
            branch=self.branch,
            commit=self.graph_commit_id or "",
            steps=[],
            seconds=0.0,
        )

    def __str__(self) -> str:
        if self.repeated:
            return f"{self.name} had been done before, {self.graph_commit_id}"
        if self.commit is None:
            return f"{self.name} changed nothing on {self.branch}"
        parts = ((self.inserted, "inserted"), (self.updated, "updated"), (self.deleted, "deleted"))
        changed = ", ".join(f"{sum(counts.values()):,} {word}" for counts, word in parts if counts)
        return f"{changed} on {self.branch}, commit {self.commit.id}"

    def to_json(self) -> dict[str, Any]:
        """Without the returned rows, which the caller formats."""
        return {
            "query_name": self.name,
            "branch": self.branch,
            "commit": None if self.commit is None else self.commit.to_json(),
            "graph_commit_id": self.graph_commit_id,
            "affected": self.affected,
            "inserted": dict(self.inserted),
            "updated": dict(self.updated),
            "deleted": dict(self.deleted),
            "ids": {k: list(v) for k, v in self.ids.items()},
            "repeated": self.repeated,
        }
