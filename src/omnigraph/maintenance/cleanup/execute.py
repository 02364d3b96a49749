"""Execute a cleanup plan: announce it, read again, remove.

1. announce  an object under `__cleanup` names every version and file that will be removed, also those that no version
             refers to
2. exclude   read the heads again; swap the manifest's `refs` over exactly that reading. A branch that is being created
             or deleted meanwhile loses this swap, or this cleanup does and reads again. From here on a new branch can
             only start from heads in this reading or from newer versions. Then check again what makes cleanup refuse,
             and read what is in flight (`in_flight`)
3. revise    a folder is planned again, and only what both plans name is removed, if the first plan names something
             that is retained by now or that no published version ever needed, if an operation on the table is in
             flight, or if any pin in it moved since the first plan: a new version may have adopted files that only
             removed versions referred to. Heads are read once more for that, after leases and locks: an operation that
             has adopted files was seen by its lease or its lock, or is in these heads. A writer that created its lock
             or its lease since 2 sees the announcement
4. remove    forks first; then versions, oldest first, each line's before the files that only they referred to; then
             staged files and arrays of queries
5. withdraw  the announcement

A reader's lease is written before the reader lists announcements, and leases are read in 2, after 1: one sees the
other. After a day others treat an announcement as that of a crashed cleanup; so a cleanup that was stopped for half a
day stops removing.

A crash in 1 to 3 leaves an announcement. In 4 it leaves versions for the next run to remove, and files that no version
refers to any more: the next run finds them in the announcement and need not wait until they are old. Every removal may
be repeated. A fork's ref is removed first, then its versions: an incomplete fork can't be opened, and the next run
removes it.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from omnigraph.commit import owner
from omnigraph.commit.committer import Committer
from omnigraph.config.logs import log_event
from omnigraph.errors import OmnigraphError, StaleView, StorageError, WriterBusy
from omnigraph.maintenance.cleanup import sightings
from omnigraph.maintenance.cleanup.document import CleanupResult, ForkResult, Refused, StagedResult, TableResult
from omnigraph.maintenance.cleanup.in_flight import InFlight
from omnigraph.maintenance.cleanup.orphans import Staged, table_of
from omnigraph.maintenance.cleanup.plan import CleanupPlan, RemovableFile, RemovableFork, TablePlan
from omnigraph.maintenance.cleanup.retained_versions import RetainedVersions, table_folder_of
from omnigraph.maintenance.concurrency import map_threads
from omnigraph.storage.files.references import version_number
from omnigraph.storage.layout import MANIFEST, Location
from omnigraph.storage.manifest.config import SUSPICIOUS_S
from omnigraph.storage.manifest.records import Head
from omnigraph.storage.manifest.table import REFS, Manifest, SwapLost
from omnigraph.storage.objects import leases, nofollow
from omnigraph.storage.objects.json_objects import forget_probes
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.tasks.progress import Watcher

logger = logging.getLogger(__name__)

EXCLUDE_MAX_S = 60.0
REMOVING_MAX_S = sightings.ANNOUNCED_MAX_S / 2
"""For how long a cleanup may remove things after its announcement."""


def announce(location: Location, plan: CleanupPlan) -> str:
    versions: dict[str, frozenset[int]] = {}
    files: dict[str, list[str]] = {}
    unreferenced: dict[str, list[str]] = {}
    for table in plan.tables:
        versions.update(table.by_line())
        named = [f.path for f in table.files if f.reason in ("only_in_removed_versions", "left_by_a_cleanup")]
        if named:
            files[table.path] = named
        others = sorted({f.path for f in table.files} - set(named))
        for fork in table.forks:
            others += [f.path for f in fork.files]
            numbers = (version_number(f.path) for f in fork.files)
            versions[fork.path] = frozenset(n for n in numbers if n is not None)
        others += [v.path for v in table.versions if table.whole is not None]
        if others:
            unreferenced[table.path] = others
    return leases.announce(
        location, versions, files, unreferenced=unreferenced, owner=owner.myself(), now_s=plan.made_at_s
    )


def exclude(manifest: Manifest) -> dict[str, Head]:
    """Step 2: heads, with a swap that no concurrent creation or deletion of a branch survives. Nothing else is done in
    between.
    """
    deadline = time.monotonic() + EXCLUDE_MAX_S
    while time.monotonic() < deadline:
        heads = manifest.heads()
        token, started = secrets.token_hex(6), time.clock_gettime(time.CLOCK_BOOTTIME)
        try:
            manifest.update({REFS: token}, read_version=min(head.version for head in heads.values()))
        except SwapLost:
            continue
        except StorageError:
            # The answer may have been lost: the manifest itself says whether the swap is there.
            if manifest.table().config().get(REFS) != token:
                raise
        if time.clock_gettime(time.CLOCK_BOOTTIME) - started < SUSPICIOUS_S:
            return heads
    raise WriterBusy(branch="the list of branches", waited_s=EXCLUDE_MAX_S)


# ---- revise ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SecondLook:
    """What is read after the announcement. `moved` are table folders in which a pin or a retained version changed since
    they were planned.
    """

    retained: RetainedVersions
    in_flight: InFlight
    moved: frozenset[str]

    def needs_second_plan(self, table: TablePlan) -> bool:
        """Whether this plan may name something that is needed by now."""
        is_written = table.path != MANIFEST and self.in_flight.writes(table_of(table.path))
        return table.may_be_in_flight or is_written or table.path in self.moved or _is_retained(table, self.retained)


def second_look(
    committer: Committer, planned: RetainedVersions, retained: RetainedVersions, in_flight: InFlight
) -> SecondLook:
    """`planned` belongs to the first plan; `retained`, and then `in_flight`, were read after the announcement."""
    # An operation that was stopped for longer than its lease lasts may still publish: its lock counts, and so does
    # the lease on what it has adopted files from. Of a crashed process only finished effects can be published.
    stopped = [
        lease
        for lease in retained.over
        if not owner.is_gone(lease.owner)
        and any(in_flight.writes(table_of(table_folder_of(line))) for line in lease.pins)
    ]
    retained = retained.holding(stopped)
    moved = {table_folder_of(line) for line, _ in retained.reasons.keys() ^ planned.reasons.keys()}
    heads = committer.manifest.heads()
    for branch in heads.keys() | planned.heads.keys():
        before, now = (of[branch].pins.items() if branch in of else () for of in (planned.heads, heads))
        moved |= {pin.root for _, pin in set(before) ^ set(now) if pin is not None}
    return SecondLook(retained, in_flight, frozenset(moved))


def _is_retained(table: TablePlan, retained: RetainedVersions) -> bool:
    if table.whole is not None and retained.is_read(table.path):
        return True
    if any(retained.why(v.line, v.version) for v in table.versions if v.line != MANIFEST):
        return True
    return any(retained.is_read(f.path) or f.fork.partition("-")[0] in retained.incarnations for f in table.forks)


def both(first: TablePlan, second: TablePlan) -> TablePlan:
    """What both plans name. A version, file or fork that only one of them names is kept."""
    if first.whole != second.whole:
        return TablePlan(second.table_key, second.path, kept=second.kept, error=second.error)
    versions = {(v.line, v.version) for v in first.versions}
    files = {f.path for f in first.files}
    forks = {f.path for f in first.forks}
    named = {f.path: {file.path for file in f.files} for f in first.forks}
    return replace(
        second,
        versions=tuple(v for v in second.versions if (v.line, v.version) in versions),
        files=tuple(f for f in second.files if f.path in files),
        forks=tuple(
            replace(f, files=tuple(file for file in f.files if file.path in named[f.path]))
            for f in second.forks
            if f.path in forks
        ),
    )


def refusals(
    saved: TablePlan, allowed: TablePlan, retained: RetainedVersions, exists: Callable[[str], bool]
) -> list[Refused]:
    """What a saved plan names, still exists, and is kept."""
    key = saved.table_key
    refused: list[Refused] = []
    versions = {(v.line, v.version) for v in allowed.versions}
    for v in saved.versions:
        if (v.line, v.version) not in versions and exists(f"{saved.path}/{v.path}"):
            because = retained.why(v.line, v.version) or _kept_because(allowed, v.line, v.version)
            refused.append(Refused(key, f"{v.line} version {v.version}", ", ".join(because)))
    files = {f.path for f in allowed.files}
    for f in saved.files:
        if f.path not in files and exists(f"{saved.path}/{f.path}"):
            refused.append(Refused(key, f"{saved.path}/{f.path}", "in_use"))
    forks = {f.path for f in allowed.forks}
    for fork in saved.forks:
        if fork.path not in forks and any(exists(f"{saved.path}/{f.path}") for f in fork.files):
            refused.append(Refused(key, fork.path, "in_use"))
    return refused


def _kept_because(allowed: TablePlan, line: str, version: int) -> tuple[str, ...]:
    for kept in allowed.kept:
        if (kept.line, kept.version) == (line, version):
            return kept.because
    return ("policy",)


# ---- remove ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Remover:
    """Step 4. `fresh` reads the retained versions again: a fork is removed only if that works and nothing pins it."""

    committer: Committer
    watcher: Watcher
    fresh: Callable[[], RetainedVersions]
    begun_s: float = field(default_factory=lambda: time.clock_gettime(time.CLOCK_BOOTTIME))

    @property
    def _location(self) -> Location:
        return self.committer.manifest.location

    def run(self, plan: CleanupPlan, *, refused: Sequence[Refused], started_s: float) -> CleanupResult:
        forks = tuple(self._fork(table, fork) for table in plan.tables for fork in table.forks)
        tables = self._tables(plan.tables)
        staging = tuple(self._staged(folder) for folder in plan.staging)
        caches = tuple(self._staged(folder) for folder in plan.caches)
        for fork_result in forks:
            fork = fork_result.fork
            self._log("fork removed", fork.path, fork_result.error, reason=fork.reason, bytes=fork.size)
        for staged in (*staging, *caches):
            folder = staged.staged
            self._log("staged files removed", folder.path, staged.error, reason=folder.reason, bytes=folder.size)
        return CleanupResult(
            plan=plan,
            confirmed=True,
            tables=tables,
            reclaimed_forks=forks,
            staging=staging,
            caches=caches,
            refused=tuple(refused),
            seconds=time.monotonic() - started_s,
        )

    def _require_announced(self) -> None:
        """Nothing is removed after others may have withdrawn the announcement."""
        if time.clock_gettime(time.CLOCK_BOOTTIME) - self.begun_s > REMOVING_MAX_S:
            raise StaleView(detail="this cleanup was stopped for so long that what it planned may be in use by now.")

    def _fork(self, table: TablePlan, fork: RemovableFork) -> ForkResult:
        try:
            self._require_announced()
            retained = self.fresh()
            if retained.is_read(fork.path):
                return ForkResult(replace(fork, files=()), "it is in use by now; skipped")
            ObjectStore(self._location, table.path).delete_many([f.path for f in fork.files])
            nofollow.remove_empty_folders(self._location, [fork.path])
        except OmnigraphError as error:
            return ForkResult(replace(fork, files=()), f"skipped: {error}")
        return ForkResult(fork)

    def _tables(self, plans: Sequence[TablePlan]) -> tuple[TableResult, ...]:
        self.watcher.stage("removing", tasks=len(plans))
        results: list[TableResult] = []
        for plan, result in zip(plans, map_threads(self._location, self._table, plans), strict=True):
            results.append(result)
            if result.error is not None or not plan.is_empty:
                self._log(
                    "versions removed",
                    plan.path,
                    result.error,
                    table_key=plan.table_key,
                    versions=result.old_versions_removed,
                    files=result.files_removed,
                    bytes=result.bytes_removed,
                )
            self.watcher.advance(tasks=len(results), rows=0, size_bytes=sum(t.bytes_removed for t in results))
        return tuple(results)

    def _log(self, event: str, path: str, error: str | None, **fields: object) -> None:
        """One removal; a failed one is a warning."""
        level, graph = logging.INFO if error is None else logging.WARNING, self._location.uri
        log_event(
            logger, level, event if error is None else "removal failed", graph=graph, table=path, **fields, error=error
        )

    def _table(self, plan: TablePlan) -> TableResult:
        if plan.error is not None or plan.is_empty:
            return TableResult.of(replace(plan, forks=()))
        removed = replace(plan, versions=(), files=(), forks=())
        store = ObjectStore(self._location, plan.path)
        try:
            self._require_announced()
            for line, versions in sorted(plan.by_line().items()):
                going = sorted((v for v in plan.versions if v.line == line), key=lambda v: v.version)
                assert len(going) == len(versions)
                store.delete_many([v.path for v in going])
                # The removal of versions is synced before the files that they refer to are removed.
                doing = f"removing versions of {line}"
                ObjectStore(self._location, line).sync_folder("_versions", doing=doing)
                removed = replace(removed, versions=(*removed.versions, *going))
            # A data file before the blobs beside it: while it exists, all of its blobs do.
            for part in (False, True):
                store.delete_many([f.path for f in plan.files if _is_blob(f) == part])
            removed = replace(removed, files=plan.files)
            nofollow.remove_empty_folders(self._location, self._emptied(plan))
        except OmnigraphError as error:
            return TableResult.of(replace(removed, error=str(error)))
        return TableResult.of(removed)

    @staticmethod
    def _emptied(plan: TablePlan) -> list[str]:
        """Folders that belong to removed files alone. The others are kept: a writer may be about to use them."""
        if plan.whole is not None:
            return [plan.path]
        inner = {f.path.rpartition("/")[0] for f in plan.files if f.kind in ("data", "index")}
        return [f"{plan.path}/{folder}" for folder in sorted(inner) if not folder.endswith(("data", "_indices"))]

    def _staged(self, staged: Staged) -> StagedResult:
        try:
            self._require_announced()
            ObjectStore(self._location, staged.path).delete_many([f.path for f in staged.files])
            nofollow.remove_empty_folders(self._location, [staged.path])
        except OmnigraphError as error:
            return StagedResult(staged, str(error))
        return StagedResult(staged)


def _is_blob(file: RemovableFile) -> bool:
    return file.kind == "data" and not file.path.endswith(".lance")


def tidy(location: Location, retained: RetainedVersions, announcement: str, *, now_s: float) -> None:
    """Step 5; remove leases that are over, record sightings of the others. What fails here is done by the next run."""
    with suppress(StorageError):
        leases.withdraw(location, [announcement])
        leases.drop(location, retained.over)
        began_s = sightings.boottime_s()
        others = leases.announcements(location)
        judge = sightings.Judge.reading(location, now_s=began_s, store_now_s=now_s) if others else None
        dead = {other.id for other in others if judge is not None and judge.is_dead(other)}
        leases.withdraw(location, dead)
        names = forget_probes(location, now_s=now_s)
        others = [other for other in others if other.id not in dead]
        observed = sightings.observed(retained.leases, others)
        if observed:
            sightings.record(location, observed)
        elif sightings.OBJECT in names:
            sightings.forget(location)
