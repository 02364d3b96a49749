"""One pinned state of a graph: what a reader sees, however long it reads.

A state is named by nothing (the branch's newest), by a commit, or by a time: `as_of` takes the newest commit of the
branch that was made not after it. A datetime is exact, in UTC if it has no zone. A text is ISO 8601: a date means the
end of that day in UTC; a time without a fraction means the end of that second, because that is what listings show.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from omnigraph.arguments import checked
from omnigraph.commit.committer import Committer
from omnigraph.commit.operation import View
from omnigraph.errors import UsageError
from omnigraph.graph.commits import newest_at
from omnigraph.language.schema.model import EntityType, Schema

if TYPE_CHECKING:
    import pyarrow as pa

AsOf = datetime | date | str
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_US, _SECOND_US = 86_400_000_000, 1_000_000


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
    def take(committer: Committer, branch: str, commit: str | None, as_of: AsOf | None = None) -> Snapshot:
        if as_of is not None:
            if commit is not None:
                raise UsageError(detail="a state is named by a commit or by a time (as_of), not by both.")
            commit = newest_at(committer.manifest, branch, moment_us=moment_us(as_of), told=str(as_of))
        view = committer.view(branch) if commit is None else committer.view_at(branch, commit)
        return Snapshot(
            branch=branch,
            commit=view.head.commit if commit is None else commit,
            manifest_version=view.head.version,
            internal_schema_version=committer.manifest.known_format(),
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

    @checked
    def require_readable(self, types: Iterable[EntityType] | None = None) -> None:
        """VersionReclaimed if one of these tables, of all by default, has been collected since."""
        for t in self.schema.types() if types is None else types:
            self.view.open(t)

    @checked
    def count(self, type_name: str) -> int:
        return self.view.count(self.view.type(type_name))

    @checked
    def read(self, type_name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of a type, as one Arrow table."""
        from omnigraph.storage.lance.columns import arrow_schema

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


def moment_us(as_of: AsOf) -> int:
    """The last microsecond since 1970 that `as_of` means; UsageError if it is no time."""
    if isinstance(as_of, datetime):
        return _us(as_of)
    if isinstance(as_of, date):
        return _end_of_day_us(as_of)
    text = as_of.strip() if isinstance(as_of, str) else ""
    try:
        return _end_of_day_us(date.fromisoformat(text))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        detail = f"{as_of!r} is no time; give it as 2026-01-31, 2026-01-31T12:00:00 (UTC) or 2026-01-31T12:00:00+01:00."
        raise UsageError(detail=detail) from error
    is_exact = "." in text or "," in text
    return _us(moment) if is_exact else _us(moment) + _SECOND_US - 1


def _us(moment: datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


def _end_of_day_us(day: date) -> int:
    return (day.toordinal() - _EPOCH.toordinal() + 1) * _DAY_US - 1
