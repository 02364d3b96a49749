"""One pinned state of a graph: what a reader sees, however long it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from omnigraph.commit.door import Door
from omnigraph.commit.stage import View
from omnigraph.language.schema.model import Schema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class TableInfo:
    table_key: str
    version: int
    rows: int
    fragments: int
    path: str


@dataclass(frozen=True)
class Snapshot:
    branch: str
    commit: str
    manifest_version: int
    internal_schema_version: int
    view: View

    @staticmethod
    def take(door: Door, branch: str, commit: str | None) -> Snapshot:
        view = door.view(branch) if commit is None else door.view_at(branch, commit)
        return Snapshot(
            branch=branch,
            commit=view.head.commit if commit is None else commit,
            manifest_version=view.head.version,
            internal_schema_version=door.manifest.format(),
            view=view,
        )

    @property
    def schema(self) -> Schema:
        return self.view.schema

    def tables(self) -> list[TableInfo]:
        """Every table, nodes before edges, by name."""
        found = []
        for type_id, key in sorted(self.view.table_keys.items(), key=lambda item: (item[1][0] != "n", item[1])):
            pin = self.view.pins[type_id]
            if pin.rows is None or pin.fragments is None:
                pin = self.view.tables.measured(pin)
            assert pin.rows is not None
            assert pin.fragments is not None
            found.append(TableInfo(key, pin.version, pin.rows, pin.fragments, pin.path))
        return found

    def count(self, type_name: str) -> int:
        return self.view.count(self.view.type(type_name))

    def read(self, type_name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of a type, as one Arrow table."""
        from omnigraph.storage.columns import arrow_schema

        t = self.view.type(type_name)
        return self.view.scan(t, columns or arrow_schema(t).names).read_all()

    def to_json(self) -> dict[str, Any]:
        return {
            "branch": self.branch,
            "commit": self.commit,
            "manifest_version": self.manifest_version,
            "internal_schema_version": self.internal_schema_version,
            "tables": [asdict(t) for t in self.tables()],
        }
