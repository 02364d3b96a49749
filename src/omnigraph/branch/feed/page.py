"""What a change feed gives: pages of row changes, and a baseline to start from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import orjson
import pyarrow as pa

from omnigraph.branch.diff.change_rows import INSERT, ChangeShape, change_rows, image_columns
from omnigraph.commit.operation import View
from omnigraph.graph.results import CommitInfo
from omnigraph.write.values import json_value


@dataclass(frozen=True, eq=False)
class ChangePage:
    """Row changes of one type in one commit.

    `commits` has several commits, oldest first, where cleanup removed the states between them: `rows` are their net
    changes. `rows` is None where the commits changed no row. `cursor` is the position behind the page;
    `completes_commit` is whether it is the last page of its commits.
    """

    commits: tuple[CommitInfo, ...]
    rows: pa.Table | None
    schema_steps: tuple[str, ...]
    cursor: str
    completes_commit: bool
    shape: ChangeShape | None = None
    """The type of the rows in both states."""

    @property
    def commit(self) -> CommitInfo:
        """The commit that the page leads to."""
        return self.commits[-1]

    @property
    def merged_parent(self) -> str | None:
        return self.commit.merged_parent

    def changes(self) -> list[dict[str, Any]]:
        """The rows as dictionaries of JSON values."""
        return change_documents(self.rows)

    def to_json(self) -> dict[str, Any]:
        return {
            "commits": [commit.to_json() for commit in self.commits],
            "merged_parent": self.merged_parent,
            "schema_steps": list(self.schema_steps),
            "changes": self.changes(),
            "completes_commit": self.completes_commit,
            "cursor": self.cursor,
        }


def change_documents(rows: pa.Table | None) -> list[dict[str, Any]]:
    if rows is None:
        return []
    return cast("list[dict[str, Any]]", orjson.loads(orjson.dumps(rows.to_pylist(), default=json_value)))


@dataclass(frozen=True, eq=False)
class Baseline:
    """One state of a branch, and the cursor from which a feed continues after it."""

    branch: str
    commit: str
    cursor: str
    view: View
    types: Sequence[str] | None = None

    def batches(self) -> Iterator[pa.Table]:
        """All rows as inserts, in the columns of a change feed."""
        return baseline_rows(self.view, self.types)


def baseline_rows(view: View, types: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """All rows of a state as inserts, nodes before edges, then by type name; within a type in the order of storage."""
    names = None if types is None else {view.type(name).name for name in types}
    for t in sorted(view.schema.types(), key=lambda t: (t.kind == "edge", t.name)):
        if names is not None and t.name not in names:
            continue
        shape = ChangeShape(None, t)
        for batch in view.scan(t, image_columns(t)):
            if batch.num_rows:
                yield change_rows(shape, np.full(batch.num_rows, INSERT), None, pa.table(batch))
