"""Stats: the health of a graph in figures, without changing anything and without reading data.

1. view     the branch's head and pins
2. tables   per table, some at a time: open the pinned version (its manifest has fragments, deletions and index
            coverage) and list its folder once (bytes, versions and forks)
3. graph    the manifest's own size and versions, branches, commits, undecided operations, drift, files of loads
4. advice   what to run, and why, in sentences

A table that can't be opened has its error in its row, with the figures of its folder; the others have all of theirs.
The cost is one open and one listing per table, whatever the number of rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from omnigraph.commit.committer import Committer
from omnigraph.commit.operation import View
from omnigraph.errors import OmnigraphError
from omnigraph.index.declared import declared
from omnigraph.language.schema.model import EntityType
from omnigraph.maintenance.drift import drift_of, published
from omnigraph.maintenance.recover import pending
from omnigraph.storage.files.blob_files import in_listing
from omnigraph.storage.lance import lance_api
from omnigraph.storage.lance.edits import ROWS_PER_FRAGMENT
from omnigraph.storage.lance.fragment_stats import DELETED_SHARE, Fragment, fragments_of
from omnigraph.storage.lance.indices import BuiltIndex, built_indices
from omnigraph.storage.layout import MANIFEST, STAGING
from omnigraph.storage.manifest.records import Record
from omnigraph.storage.manifest.table import FORMAT
from omnigraph.storage.manifest.tags import read_tags
from omnigraph.storage.objects.store import ObjectStore, StoredFile

if TYPE_CHECKING:
    from lance import LanceDataset

CONCURRENCY = 8
LOOK_BACK_EPOCHS = 512
"""How many epochs are searched for the last optimize: the cost must not grow with the history."""
SMALL_MAX = 8
"""More small fragments than this in a table give a line of advice."""
DISK_SHARE = 4
"""So does a folder this many times as large as its live data."""
_VERSION = re.compile(r"(^|/)_versions/\d+\.manifest$")


@dataclass(frozen=True)
class IndexStats:
    """`rows_covered` of `rows` live rows, in `fragments_covered` of `fragments`."""

    name: str
    kind: str
    property: str
    rows: int
    rows_covered: int
    fragments: int
    fragments_covered: int
    coverage: float
    segments: int
    bytes: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class TableStats:
    """One table of the branch. `small_fragments` have less than half the rows that optimize aims for.

    `bytes_live` are the data files of the pinned version and the blobs beside them; `bytes_on_disk`, `files`,
    `versions` and `forks` are of the table's whole folder, with all versions and the forks of all branches.
    `missing_indices` are declared and not built; `pending_indices` neither, because they wait for vectors. `error` says
    why there are no figures but those of the folder.
    """

    table_key: str
    path: str
    version: int
    rows: int = 0
    deleted_rows: int = 0
    fragments: int = 0
    small_fragments: int = 0
    bytes_live: int = 0
    bytes_on_disk: int = 0
    files: int = 0
    versions: int = 0
    forks: int = 0
    indices: tuple[IndexStats, ...] = ()
    missing_indices: tuple[str, ...] = ()
    pending_indices: tuple[str, ...] = ()
    drifted: bool = False
    error: str | None = None

    @property
    def deleted_fraction(self) -> float:
        every = self.rows + self.deleted_rows
        return 0.0 if every == 0 else self.deleted_rows / every

    @property
    def coverage(self) -> float:
        """The share of rows that indices cover, over all indices; declared ones that are missing cover none, pending
        ones do not count.
        """
        rows = self.rows * (len(self.indices) + len(self.missing_indices))
        return 1.0 if rows == 0 else sum(i.rows_covered for i in self.indices) / rows

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "indices": [i.to_json() for i in self.indices],
            "missing_indices": list(self.missing_indices),
            "pending_indices": list(self.pending_indices),
            "deleted_fraction": round(self.deleted_fraction, 4),
            "coverage": round(self.coverage, 4),
        }


@dataclass(frozen=True)
class GraphStats:
    """The figures of one branch's tables, and those of the graph as a whole.

    `commits` counts the commits on record, of all branches, deleted ones included. `pending` are undecided
    operations, of which `pending_dead` by crashed writers. `last_optimize` is the time of the newest optimize of this
    branch, in ISO form; None if there was no recent one.
    """

    uri: str
    branch: str
    commit: str
    row_ids: str
    tables: tuple[TableStats, ...]
    branches: int
    tags: int
    commits: int
    manifest_versions: int
    manifest_fragments: int
    manifest_bytes: int
    pending: int
    pending_dead: int
    staging_bytes: int
    last_optimize: str | None
    last_optimize_commit: str | None
    advice: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return sum(t.rows for t in self.tables)

    @property
    def fragments(self) -> int:
        return sum(t.fragments for t in self.tables)

    @property
    def small_fragments(self) -> int:
        return sum(t.small_fragments for t in self.tables)

    @property
    def bytes_live(self) -> int:
        return sum(t.bytes_live for t in self.tables)

    @property
    def bytes_on_disk(self) -> int:
        return sum(t.bytes_on_disk for t in self.tables) + self.manifest_bytes + self.staging_bytes

    @property
    def versions(self) -> int:
        return sum(t.versions for t in self.tables)

    @property
    def forks(self) -> int:
        return sum(t.forks for t in self.tables)

    @property
    def ok(self) -> bool:
        """Every table could be opened."""
        return all(t.error is None for t in self.tables)

    @property
    def drifted_tables(self) -> tuple[str, ...]:
        return tuple(t.table_key for t in self.tables if t.drifted)

    @property
    def coverage(self) -> float:
        """As of a table, over all of them, weighted by rows."""
        rows = sum(t.rows * (len(t.indices) + len(t.missing_indices)) for t in self.tables)
        return 1.0 if rows == 0 else sum(i.rows_covered for t in self.tables for i in t.indices) / rows

    def to_json(self) -> dict[str, Any]:
        own = {k: v for k, v in asdict(self).items() if k not in ("tables", "advice")}
        totals = ("rows", "fragments", "small_fragments", "bytes_live", "bytes_on_disk", "versions", "forks")
        return {
            "ok": self.ok,
            "graph": self.uri,
            **own,
            **{name: getattr(self, name) for name in totals},
            "coverage": round(self.coverage, 4),
            "drifted_tables": list(self.drifted_tables),
            "tables": [t.to_json() for t in self.tables],
            "advice": list(self.advice),
        }


def stats(committer: Committer, *, branch: str) -> GraphStats:
    """The figures as they are now. Nothing is written."""
    view = committer.view(branch)
    types = [t for t in view.schema.types() if t.id in view.pins]
    with ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="omnigraph-stats") as pool:
        manifest_files = pool.submit(ObjectStore(view.tables.location, MANIFEST).list_files)
        staging_files = pool.submit(ObjectStore(view.tables.location, STAGING).list_files)
        tables = tuple(pool.map(lambda t: _table(view, t), types))
    manifest = view.manifest.table()
    operations = pending(committer)
    newest = _last_optimize(view)
    graph_stats = GraphStats(
        uri=view.tables.location.uri,
        branch=branch,
        commit=view.head.commit,
        row_ids="stable" if view.manifest.stable_row_ids() else "address",
        tables=tables,
        branches=len(view.manifest.heads()),
        tags=len(read_tags(view.manifest)),
        commits=_commits(view, manifest),
        manifest_versions=_versions(manifest_files.result()),
        manifest_fragments=len(manifest.get_fragments()),
        manifest_bytes=sum(f.size for f in manifest_files.result()),
        pending=len(operations),
        pending_dead=sum(not p.alive for p in operations),
        staging_bytes=sum(f.size for f in staging_files.result()),
        last_optimize=None if newest is None else newest.created_at.isoformat(timespec="seconds"),
        last_optimize_commit=None if newest is None else newest.commit,
    )
    return replace(graph_stats, advice=tuple(_advice(graph_stats)))


def _versions(files: Sequence[StoredFile]) -> int:
    """Files of versions that are in a table's history; detached ones, which optimize creates in between, are not."""
    return sum(_VERSION.search(f.path) is not None for f in files)


def _commits(view: View, manifest: LanceDataset) -> int:
    with lance_api.reading("counting commits"):
        where = "object_id LIKE 'commit:%' OR object_id LIKE 'graph_commit:%'"
        ids = set(manifest.to_table(columns=["object_id"], filter=where)["object_id"].to_pylist())
    if view.manifest.format_of(manifest) < FORMAT:
        return len(ids)  # the heads of older formats carry the same records
    ids.update(r.object_id for head in view.manifest.heads().values() for r in head.recent if r.commit is not None)
    return len(ids)


def _last_optimize(view: View) -> Record | None:
    head = view.head
    first = max(0, head.epoch - LOOK_BACK_EPOCHS)
    records = view.manifest.records(head.incarnation, first, head.epoch)
    return next((r for r in reversed(records) if r.kind == "optimize" and r.commit is not None), None)


# ---- one table -------------------------------------------------------------------------------------------------------


def _table(view: View, t: EntityType) -> TableStats:
    pin = view.pins[t.id]
    figures = TableStats(table_key=t.key, path=pin.path, version=pin.version)
    try:
        files = ObjectStore(view.tables.location, pin.root).list_files()
        figures = replace(
            figures,
            bytes_on_disk=sum(f.size for f in files),
            files=len(files),
            versions=_versions(files),
            forks=len({f.path.split("/")[1] for f in files if f.path.startswith("tree/")}),
        )
        table = published(view, t.id)
        with lance_api.reading(f"looking at {t.key}"):
            beside = in_listing((f.path, f.size) for f in files)
            fragments, built = fragments_of(table, beside), built_indices(table)
        drifted = drift_of(view, t.id) is not None
    except OmnigraphError as error:
        return replace(figures, error=error.message)
    return replace(
        figures,
        rows=sum(f.rows for f in fragments),
        deleted_rows=sum(f.deleted for f in fragments),
        fragments=len(fragments),
        small_fragments=sum(2 * f.rows < ROWS_PER_FRAGMENT for f in fragments) if len(fragments) > 1 else 0,
        bytes_live=sum(f.size_bytes for f in fragments),
        indices=tuple(_index(index, fragments) for index in built),
        missing_indices=tuple(_missing(t, built, waiting=False)) if fragments else (),
        pending_indices=tuple(_missing(t, built, waiting=True)) if fragments else (),
        drifted=drifted,
    )


def _index(index: BuiltIndex, fragments: Sequence[Fragment]) -> IndexStats:
    covered = [f for f in fragments if f.id in index.covered]
    rows, rows_covered = sum(f.rows for f in fragments), sum(f.rows for f in covered)
    return IndexStats(
        name=index.name,
        kind=index.kind,
        property=index.column,
        rows=rows,
        rows_covered=rows_covered,
        fragments=len(fragments),
        fragments_covered=len(covered),
        coverage=1.0 if rows == 0 else round(rows_covered / rows, 4),
        segments=len(index.segments),
        bytes=sum(s.size_bytes for s in index.segments),
    )


def _missing(t: EntityType, built: Sequence[BuiltIndex], *, waiting: bool) -> Iterator[str]:
    """Declared indices that are not built: those that wait for vectors, or the others.

    A vector index that is still missing after an optimize is pending; counting its vectors would read data.
    """
    for want in declared(t):
        is_built = any(b.column == want.column and b.kind.startswith(want.kind) for b in built)
        if not is_built and waiting == (want.kind == "IVF" and bool(built)):
            yield f"{want.property} ({want.kind})"


# ---- advice ----------------------------------------------------------------------------------------------------------


def _advice(graph: GraphStats) -> Iterator[str]:
    """What to run, most urgent first."""
    on = f" --branch {graph.branch}" if graph.branch != "main" else ""
    if graph.pending_dead:
        text = _many(graph.pending_dead, "operation of a crashed writer is", "operations of crashed writers are")
        yield f"run omnigraph maintain: {text} not recovered"
    for table in graph.tables:
        if table.error is not None:
            yield f"run omnigraph verify{on}: {table.table_key} can't be opened"
        elif table.drifted:
            yield f"run omnigraph repair{on}: {table.table_key} was changed without omnigraph"
    for table in graph.tables:
        reasons = list(_optimize_reasons(table))
        if reasons:
            yield f"run omnigraph optimize{on}: {', '.join(reasons)} in {table.table_key}"
    # Of a table that can't be opened the older versions may be all that is left.
    whole = [t for t in graph.tables if t.error is None]
    old = [t for t in whole if t.versions > 1 and t.bytes_on_disk > DISK_SHARE * max(t.bytes_live, 1 << 20)]
    if old:
        size = sum(t.bytes_on_disk - t.bytes_live for t in old)
        names = ", ".join(t.table_key for t in old[:3]) + (" and others" if len(old) > 3 else "")
        yield f"run omnigraph cleanup: {size / 2**20:,.0f} MiB of older versions in {names}"
    if graph.staging_bytes and not graph.pending:
        yield f"run omnigraph cleanup: {graph.staging_bytes / 2**20:,.1f} MiB of files that loads left"


def _optimize_reasons(table: TableStats) -> Iterator[str]:
    if table.small_fragments > SMALL_MAX:
        yield f"{table.small_fragments:,} small fragments"
    if table.deleted_fraction > DELETED_SHARE:
        yield f"{100 * table.deleted_fraction:.0f} % deleted rows"
    uncovered = max((i.rows - i.rows_covered for i in table.indices), default=0)
    if uncovered:
        yield f"{_many(uncovered, 'row', 'rows')} that an index does not cover"
    if table.missing_indices:
        yield _many(len(table.missing_indices), "declared index that is", "declared indices that are") + " not built"


def _many(number: int, singular: str, plural: str) -> str:
    return f"{number:,} {singular if number == 1 else plural}"
