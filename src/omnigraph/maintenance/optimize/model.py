"""What optimize plans, does and reports, as frozen values. Plans and results are JSON contracts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from omnigraph.errors import PlanUnusable, UsageError
from omnigraph.index.segments import IndexPlan
from omnigraph.language import identifiers as form
from omnigraph.maintenance.concurrency import default_concurrency
from omnigraph.maintenance.selection import table_names
from omnigraph.storage.lance.edits import ROWS_PER_FRAGMENT
from omnigraph.storage.manifest.records import Pin

if TYPE_CHECKING:
    from omnigraph.graph.results import CommitInfo

MANIFEST_KEY = "__manifest"
DRIFT = "DriftNeedsRepair"
CHANGED_SINCE_PLAN = "ChangedSincePlan"
"""A saved plan names fragments or indices of the table that have changed since: nothing was done to it."""
CHANGED_MEANWHILE = "ChangedMeanwhile"
"""Others changed the table during every round in a way that can't be replayed: nothing was done to it."""
PLAN_FORMAT = 2
_LEFT = ("left_fragments", "left_indexes")


def _fields(body: Mapping[str, Any], check: Callable[[Any], Any], *names: str) -> dict[str, Any]:
    return {name: check(body[name]) for name in names}


@dataclass(frozen=True)
class OptimizeOptions:
    """`tables` are table keys or type names. Budgets count what is read: planning stops when one is spent."""

    tables: tuple[str, ...] | None = None
    target_rows_per_fragment: int = ROWS_PER_FRAGMENT
    max_bytes: int | None = None
    max_rows: int | None = None
    max_time_s: float | None = None
    concurrency: int = field(default_factory=default_concurrency)
    defer_index_remap: bool = False
    drain: bool = False
    rebuild_indexes: bool = False

    def __post_init__(self) -> None:
        for name, minimum in (("target_rows_per_fragment", 2), ("concurrency", 1), ("max_bytes", 1), ("max_rows", 1)):
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise UsageError(detail=f"{name} is a number of at least {minimum}, not {value}.")
        if self.max_time_s is not None and self.max_time_s <= 0:
            raise UsageError(detail=f"max_time_s is more than 0 seconds, not {self.max_time_s}.")
        if self.defer_index_remap and self.drain:
            raise UsageError(detail="defer_index_remap opens the window that drain closes: give one of them.")

    def with_limits(self, *, max_time_s: float | None, concurrency: int | None) -> OptimizeOptions:
        """The same work with this time limit and this concurrency, where they are set."""
        return replace(
            self,
            max_time_s=self.max_time_s if max_time_s is None else max_time_s,
            concurrency=self.concurrency if concurrency is None else concurrency,
        )

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "tables": None if self.tables is None else list(self.tables)}

    @staticmethod
    def of(body: Mapping[str, Any]) -> OptimizeOptions:
        tables = form.optional(form.sequence, body["tables"])
        return OptimizeOptions(
            tables=None if tables is None else tuple(map(form.text, tables)),
            **_fields(body, form.count, "target_rows_per_fragment", "concurrency"),
            **_fields(body, partial(form.optional, form.count), "max_bytes", "max_rows"),
            max_time_s=form.optional(form.number, body["max_time_s"]),
            **_fields(body, form.flag, "defer_index_remap", "drain", "rebuild_indexes"),
        )


def options_of(*, tables: Sequence[str] | None, **options: Any) -> OptimizeOptions:
    """Options where None means the default."""
    present = {name: value for name, value in options.items() if value is not None}
    return OptimizeOptions(tables=table_names(tables), **present)


@dataclass(frozen=True)
class Bin:
    """Neighbouring fragments that become one: `rows` live rows, `deleted` rows, `read_bytes` of data files."""

    fragments: tuple[int, ...]
    new_id: int
    rows: int
    deleted: int
    read_bytes: int
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "fragments": list(self.fragments)}

    @staticmethod
    def of(body: Mapping[str, Any]) -> Bin:
        return Bin(
            fragments=tuple(map(form.fragment, form.sequence(body["fragments"]))),
            new_id=form.fragment(body["new_id"]),
            **_fields(body, form.count, "rows", "deleted", "read_bytes"),
            reason=form.text(body["reason"]),
        )


@dataclass(frozen=True)
class PendingIndex:
    """A declared index that can't be built yet."""

    property: str
    kind: str
    reason: str

    @staticmethod
    def of(body: Mapping[str, Any]) -> PendingIndex:
        return PendingIndex(*(form.text(body[name]) for name in ("property", "kind", "reason")))


@dataclass(frozen=True)
class TablePlan:
    """What one table needs. `left_fragments` and `left_indexes` are what the budgets did not allow.

    `bytes` are those of the data files and of the blobs beside them; `blob_bytes` is the part of the latter.
    """

    table: str
    table_key: str
    pin: Pin
    lance_head_version: int
    fragments: int
    rows: int
    bytes: int
    blob_bytes: int = 0
    bins: tuple[Bin, ...] = ()
    indexes: tuple[IndexPlan, ...] = ()
    pending_indexes: tuple[PendingIndex, ...] = ()
    stale_config: tuple[str, ...] = ()
    coverage: float = 1.0
    skipped: str | None = None
    left_fragments: int = 0
    left_indexes: int = 0
    deferred: bool = False
    drain: bool = False
    error: str | None = None
    """Why nothing could be planned: the other tables are worked on."""

    @property
    def has_work(self) -> bool:
        if self.skipped is not None or self.error is not None:
            return False
        return bool(self.bins or self.indexes or self.stale_config or self.drain)

    @property
    def read_bytes(self) -> int:
        """Bytes that are read: the rewritten fragments, with their blobs, and for indices their columns, by the
        row.
        """
        return sum(b.read_bytes for b in self.bins) + self.index_bytes(sum(i.rows for i in self.indexes))

    def index_bytes(self, rows: int) -> int:
        """The bytes that indices read of this many rows: one column each, counted as a fourth of a row."""
        return int(rows * (self.bytes - self.blob_bytes) / max(1, self.rows) / 4)

    @property
    def read_rows(self) -> int:
        return sum(b.rows for b in self.bins) + sum(i.rows for i in self.indexes)

    def to_json(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "table_key": self.table_key,
            "pin": self.pin.to_json(),
            "manifest_version": self.pin.version,
            "lance_head_version": self.lance_head_version,
            "skipped": self.skipped,
            "fragments": self.fragments,
            "rows": self.rows,
            "bytes": self.bytes,
            "blob_bytes": self.blob_bytes,
            "fragments_in": sum(len(b.fragments) for b in self.bins),
            "fragments_out": len(self.bins),
            "bytes_to_read": self.read_bytes,
            "bytes_to_write": sum(b.read_bytes * b.rows // max(1, b.rows + b.deleted) for b in self.bins),
            "rows_deleted": sum(b.deleted for b in self.bins),
            "coverage": self.coverage,
            "rewrites": [b.to_json() for b in self.bins],
            "indexes": [i.to_json() for i in self.indexes],
            "pending_indexes": [asdict(p) for p in self.pending_indexes],
            "stale_config": list(self.stale_config),
            "left_fragments": self.left_fragments,
            "left_indexes": self.left_indexes,
            "deferred": self.deferred,
            "drain": self.drain,
            "error": self.error,
        }

    @staticmethod
    def of(body: Mapping[str, Any]) -> TablePlan:
        """Malformed, or another ValueError, KeyError or TypeError, for what is not a plan."""
        counts = ("lance_head_version", "fragments", "rows", "bytes", "blob_bytes", *_LEFT)
        orjson.dumps(body)  # parts of it are sent to tasks
        return TablePlan(
            table=form.type_id(body["table"]),
            table_key=form.text(body["table_key"]),
            **_fields(body, form.count, *counts),
            coverage=form.number(body["coverage"]),
            **_fields(body, partial(form.optional, form.text), "skipped", "error"),
            **_fields(body, form.flag, "deferred", "drain"),
            pin=Pin.from_json(body["table"], body["pin"]),
            bins=tuple(map(Bin.of, form.sequence(body["rewrites"]))),
            indexes=tuple(map(IndexPlan.of, form.sequence(body["indexes"]))),
            pending_indexes=tuple(map(PendingIndex.of, form.sequence(body["pending_indexes"]))),
            stale_config=tuple(map(form.text, form.sequence(body["stale_config"]))),
        )


@dataclass(frozen=True)
class OptimizePlan:
    """What a run would do, and on which state: printable, saved as JSON, executed unchanged later."""

    graph: str
    branch: str
    incarnation: str
    commit: str
    schema: str
    options: OptimizeOptions
    tables: tuple[TablePlan, ...]
    manifest_fragments: int = 0
    """Fragments of the manifest that would be merged into one."""

    @property
    def has_work(self) -> bool:
        return any(t.has_work for t in self.tables)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": PLAN_FORMAT,
            "kind": "optimize",
            "graph": self.graph,
            "branch": self.branch,
            "incarnation": self.incarnation,
            "commit": self.commit,
            "schema": self.schema,
            "manifest_fragments": self.manifest_fragments,
            "options": self.options.to_json(),
            "tables": [t.to_json() for t in self.tables],
        }

    @staticmethod
    def of(body: Mapping[str, Any], *, path: str = "the plan") -> OptimizePlan:
        """PlanUnusable for what is not a plan of this program; `path` is its file."""
        if body.get("kind") != "optimize" or "tables" not in body:
            raise PlanUnusable(path=path, detail="it is no plan that `omnigraph optimize --plan --json` made.")
        if body.get("format") != PLAN_FORMAT:
            raise PlanUnusable(path=path, detail="it was made by another version of omnigraph.")
        try:
            return OptimizePlan(
                graph=form.text(body["graph"]),
                branch=form.branch(body["branch"]),
                incarnation=form.incarnation(body["incarnation"]),
                commit=form.token(body["commit"]),
                schema=form.token(body["schema"]),
                manifest_fragments=form.count(body["manifest_fragments"]),
                options=OptimizeOptions.of(body["options"]),
                tables=tuple(map(TablePlan.of, form.sequence(body["tables"]))),
            )
        except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
            raise PlanUnusable(path=path, detail=f"it is damaged ({error!r}).") from error


@dataclass(frozen=True)
class TableResult:
    """What happened to one table. Versions are those after the run; coverage is a share of rows, 0 to 1."""

    table_key: str
    fragments_removed: int = 0
    fragments_added: int = 0
    committed: bool = False
    skipped: str | None = None
    manifest_version: int = 0
    lance_head_version: int = 0
    pending_indexes: tuple[PendingIndex, ...] = ()
    bytes_before: int = 0
    bytes_after: int = 0
    coverage_before: float = 1.0
    coverage_after: float = 1.0
    indexes_built: int = 0
    rows_replayed: int = 0
    left_fragments: int = 0
    left_indexes: int = 0
    seconds: float = 0.0
    error: str | None = None

    @property
    def why_skipped(self) -> str | None:
        """The reason as text, and what to do."""
        if self.skipped == DRIFT:
            versions = f"published {self.manifest_version}, newest {self.lance_head_version}"
            return f"it was changed without omnigraph ({versions}); see omnigraph repair"
        if self.skipped == CHANGED_SINCE_PLAN:
            return "what the plan names in it has changed since; make a new plan"
        if self.skipped == CHANGED_MEANWHILE:
            return "others changed it in every round; a later run does it"
        return self.skipped

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "pending_indexes": [asdict(p) for p in self.pending_indexes]}


@dataclass(frozen=True)
class OptimizeResult:
    """`commit` is None if nothing changed. `rounds` is more than 1 if other writers changed a table meanwhile.

    Each round publishes what it could in one commit: `commits` are all of them, `commit` is the last.
    """

    branch: str
    tables: tuple[TableResult, ...]
    commit: CommitInfo | None
    engine: str | None
    seconds: float
    rounds: int = 1
    commits: tuple[CommitInfo, ...] = ()

    @property
    def ok(self) -> bool:
        return all(t.error is None for t in self.tables)

    def table(self, table_key: str) -> TableResult:
        """The result of one table."""
        return next(t for t in self.tables if t.table_key == table_key)

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "branch": self.branch,
            "tables": [t.to_json() for t in self.tables],
            "commit": None if self.commit is None else self.commit.to_json(),
            "commits": [commit.to_json() for commit in self.commits],
            "engine": self.engine,
            "seconds": self.seconds,
            "rounds": self.rounds,
        }
