"""Several writes as one commit, resting on what was read: optimistic, decided when the block ends.

Reads see the snapshot that the transaction started on. When it commits, every entity and every type that it has read
must be what it was, otherwise it is refused with ReadSetConflict and has no effect. What it did not read may change
freely.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from omnigraph.arguments import checked
from omnigraph.commit.committer import Committer
from omnigraph.graph.results import WriteResult
from omnigraph.write.mutate import Change, Put, Remove, Rows, Seen, Statement, Write, look


class Transaction:
    """Collects statements; `result` is set when the block has ended and the commit is there."""

    def __init__(self, committer: Committer, branch: str) -> None:
        self._view = committer.view(branch)
        self._seen: list[Seen] = []
        self.statements: list[Statement] = []
        self.result: WriteResult | None = None

    @property
    def base_commit(self) -> str:
        """The commit that this transaction reads."""
        return self._view.head.commit

    @property
    def commit(self) -> str:
        """Deprecated: use `base_commit`."""
        warnings.warn("Transaction.commit is deprecated; use base_commit", DeprecationWarning, stacklevel=2)
        return self.base_commit

    @checked
    def get(self, type_name: str, entity_id: str) -> dict[str, Any] | None:
        """One entity, or None. Its staying so is a condition of the commit."""
        seen = self._look(type_name, entity_id)
        return seen[0] if seen else None

    @checked
    def read(self, type_name: str) -> list[dict[str, Any]]:
        """All entities of a type. That none of them changes is a condition of the commit."""
        return self._look(type_name, None)

    def _look(self, type_name: str, entity_id: str | None) -> list[dict[str, Any]]:
        found = look(self._view, self._view.type(type_name), entity_id)
        self._seen.append(found)
        assert found.rows is not None
        return list(found.rows.to_pylist())

    @checked
    def insert(self, rows: Mapping[str, Rows]) -> None:
        self.statements += [Put(name, given, "insert") for name, given in rows.items()]

    @checked
    def upsert(self, rows: Mapping[str, Rows]) -> None:
        self.statements += [Put(name, given, "upsert") for name, given in rows.items()]

    @checked
    def update(
        self,
        type_name: str,
        values: Mapping[str, object],
        *,
        ids: Sequence[str] | None = None,
        where: Mapping[str, object] | None = None,
    ) -> None:
        self.statements.append(Change(type_name, values, ids=ids, where=where))

    @checked
    def delete(self, ids: Mapping[str, Sequence[str]]) -> None:
        self.statements += [Remove(name, ids=given) for name, given in ids.items()]

    def operation(self) -> Write:
        return Write(tuple(self.statements), tuple(self._seen))
