"""Carry a plan out: announce it, look again, remove.

1. announce  an object under `__cleanup` names every version and file that is about to go, also those that no version
             refers to
2. exclude   read the heads again; swap the manifest's `refs` over exactly that reading. A branch that is being created
             or deleted meanwhile loses this swap, or this cleanup does and looks again. From here on a new branch can
             only stand on heads that this reading has seen, or on newer versions. Then refuse what has to be refused,
             as at the beginning, and see what is in flight (`inflight`)
3. revise    a folder is planned again, and only what both plans name goes, if the first plan names something that a
             floor holds by now or that no published version ever needed, or if an operation on the table is in flight,
             or anything stands elsewhere in it than at the first plan: a new version may have adopted files that only
             versions which go referred to. Heads are read once more for that, after leases and tickets: an operation
             that has adopted files was seen by its lease or its ticket, or is in these heads. A writer that took its
             ticket, or its lease, since 2 sees the announcement
4. remove    forks first; then versions, oldest first, each line's before the files that only they referred to; then
             staged files and arrays of queries
5. withdraw  the announcement

A reader's lease is written before it looks for announcements, and leases are read in 2, after 1: one sees the other.
Others take an announcement for that of a dead cleanup after a day: who was stopped for half of that stops removing.

A crash in 1 to 3 leaves an announcement. In 4 it leaves versions for the next run to remove, and files that no version
refers to any more: the next run knows them by the announcement and need not wait until they are old. Every removal may
be repeated. A fork's mention goes first, then its versions: half of a fork is a fork that nobody can open, and is
reclaimed by the next run.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from omnigraph.commit import owner
from omnigraph.commit.committer import Committer
from omnigraph.errors import OmnigraphError, StaleView, StorageError, WriterBusy
from omnigraph.maintenance.cleanup import sightings
from omnigraph.maintenance.cleanup.document import CleanupResult, ForkResult, Refused, StagedResult, TableResult
from omnigraph.maintenance.cleanup.in_flight import InFlight
from omnigraph.maintenance.cleanup.orphans import Staged, table_of
from omnigraph.maintenance.cleanup.plan import CleanupPlan, GoingFile, GoingFork, TablePlan
from omnigraph.maintenance.cleanup.retained_versions import Floors, table_folder_of
from omnigraph.maintenance.concurrency import map_threads
from omnigraph.storage.files.references import version_number
from omnigraph.storage.layout import MANIFEST, Location
from omnigraph.storage.manifest.config import SUSPICIOUS_S
from omnigraph.storage.manifest.records import Head
from omnigraph.storage.manifest.table import REFS, Manifest, SwapLost
from omnigraph.storage.objects import leases
from omnigraph.storage.objects.json_objects import forget_probes
from omnigraph.storage.objects.removal import remove, remove_folders, secure_removal
from omnigraph.tasks.progress import Watcher

EXCLUDE_MOST_S = 60.0
REMOVING_MAX_S = sightings.ANNOUNCED_MAX_S / 2
"""For how long a cleanup removes things on the strength of its announcement."""


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
    """Step 2: heads that no branch creation or deletion can slip past. Nothing else is done between look and swap."""
    deadline = time.monotonic() + EXCLUDE_MOST_S
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
    raise WriterBusy(branch="the list of branches", waited_s=EXCLUDE_MOST_S)


# ---- revise ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SecondLook:
    """What is seen after the announcement. `moved` are table folders in which something stands elsewhere than when they
    were planned.
    """

    floors: Floors
    in_flight: InFlight
    moved: frozenset[str]

    def doubts(self, table: TablePlan) -> bool:
        """Whether this plan may name something that is needed by now."""
        is_written = table.path != MANIFEST and self.in_flight.writes(table_of(table.path))
        return table.may_be_in_flight or is_written or table.path in self.moved or _is_held(table, self.floors)


def second_look(committer: Committer, planned: Floors, floors: Floors, in_flight: InFlight) -> SecondLook:
    """`planned` are the floors of the first plan; `floors`, and then `in_flight`, were read after the announcement."""
    # An operation that was stopped for longer than its lease lasts may still publish: its ticket counts, and so does
    # the lease on what it has adopted files from. Of a process that is gone only finished effects can be published.
    stopped = [
        lease
        for lease in floors.over
        if not owner.is_gone(lease.owner)
        and any(in_flight.writes(table_of(table_folder_of(line))) for line in lease.pins)
    ]
    floors = floors.holding(stopped)
    moved = {table_folder_of(line) for line, _ in floors.reasons.keys() ^ planned.reasons.keys()}
    heads = committer.manifest.heads()
    for branch in heads.keys() | planned.heads.keys():
        before, now = (of[branch].pins.items() if branch in of else () for of in (planned.heads, heads))
        moved |= {pin.root for _, pin in set(before) ^ set(now) if pin is not None}
    return SecondLook(floors, in_flight, frozenset(moved))


def _is_held(table: TablePlan, floors: Floors) -> bool:
    if table.whole is not None and floors.is_read(table.path):
        return True
    if any(floors.why(v.line, v.version) for v in table.versions if v.line != MANIFEST):
        return True
    return any(floors.is_read(f.path) or f.fork.partition("-")[0] in floors.incarnations for f in table.forks)


def both(one: TablePlan, other: TablePlan) -> TablePlan:
    """What both plans name. A version, file or fork that only one of them names stays."""
    if one.whole != other.whole:
        return TablePlan(other.table_key, other.path, kept=other.kept, error=other.error)
    versions = {(v.line, v.version) for v in one.versions}
    files = {f.path for f in one.files}
    forks = {f.path for f in one.forks}
    named = {f.path: {file.path for file in f.files} for f in one.forks}
    return replace(
        other,
        versions=tuple(v for v in other.versions if (v.line, v.version) in versions),
        files=tuple(f for f in other.files if f.path in files),
        forks=tuple(
            replace(f, files=tuple(file for file in f.files if file.path in named[f.path]))
            for f in other.forks
            if f.path in forks
        ),
    )


def refusals(wanted: TablePlan, allowed: TablePlan, floors: Floors, exists: Callable[[str], bool]) -> list[Refused]:
    """What a saved plan names, is still there, and stays."""
    key = wanted.table_key
    found: list[Refused] = []
    versions = {(v.line, v.version) for v in allowed.versions}
    for v in wanted.versions:
        if (v.line, v.version) not in versions and exists(f"{wanted.path}/{v.path}"):
            because = floors.why(v.line, v.version) or _kept_because(allowed, v.line, v.version)
            found.append(Refused(key, f"{v.line} version {v.version}", ", ".join(because)))
    files = {f.path for f in allowed.files}
    for f in wanted.files:
        if f.path not in files and exists(f"{wanted.path}/{f.path}"):
            found.append(Refused(key, f"{wanted.path}/{f.path}", "in_use"))
    forks = {f.path for f in allowed.forks}
    for fork in wanted.forks:
        if fork.path not in forks and any(exists(f"{wanted.path}/{f.path}") for f in fork.files):
            found.append(Refused(key, fork.path, "in_use"))
    return found


def _kept_because(allowed: TablePlan, line: str, version: int) -> tuple[str, ...]:
    for kept in allowed.kept:
        if (kept.line, kept.version) == (line, version):
            return kept.because
    return ("policy",)


# ---- remove ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Remover:
    """Step 4. `fresh` reads the floors anew: a fork goes only if that works, and nobody stands on it."""

    committer: Committer
    watcher: Watcher
    fresh: Callable[[], Floors]
    begun_s: float = field(default_factory=lambda: time.clock_gettime(time.CLOCK_BOOTTIME))

    @property
    def _location(self) -> Location:
        return self.committer.manifest.location

    def run(self, plan: CleanupPlan, *, refused: Sequence[Refused], started_s: float) -> CleanupResult:
        forks = tuple(self._fork(table, fork) for table in plan.tables for fork in table.forks)
        tables = self._tables(plan.tables)
        staging = tuple(self._staged(one) for one in plan.staging)
        return CleanupResult(
            plan=plan,
            confirmed=True,
            tables=tables,
            reclaimed_forks=forks,
            staging=staging,
            caches=tuple(self._staged(one) for one in plan.caches),
            refused=tuple(refused),
            seconds=time.monotonic() - started_s,
        )

    def _require_announced(self) -> None:
        """Nothing is removed on the strength of an announcement that others may have withdrawn."""
        if time.clock_gettime(time.CLOCK_BOOTTIME) - self.begun_s > REMOVING_MAX_S:
            raise StaleView(detail="this cleanup was stopped for so long that what it planned may be in use by now.")

    def _fork(self, table: TablePlan, fork: GoingFork) -> ForkResult:
        try:
            self._require_announced()
            floors = self.fresh()
            if floors.is_read(fork.path):
                return ForkResult(replace(fork, files=()), "it is in use by now; skipped")
            remove(self._location, table.path, [f.path for f in fork.files])
            remove_folders(self._location, [fork.path])
        except OmnigraphError as error:
            return ForkResult(replace(fork, files=()), f"skipped: {error}")
        return ForkResult(fork)

    def _tables(self, plans: Sequence[TablePlan]) -> tuple[TableResult, ...]:
        self.watcher.stage("removing", tasks=len(plans))
        done: list[TableResult] = []
        for result in map_threads(self._location, self._table, plans):
            done.append(result)
            self.watcher.advance(tasks=len(done), rows=0, size_bytes=sum(t.bytes_removed for t in done))
        return tuple(done)

    def _table(self, plan: TablePlan) -> TableResult:
        if plan.error is not None or plan.is_empty:
            return TableResult.of(replace(plan, forks=()))
        gone = replace(plan, versions=(), files=(), forks=())
        try:
            self._require_announced()
            for line, versions in sorted(plan.by_line().items()):
                going = sorted((v for v in plan.versions if v.line == line), key=lambda v: v.version)
                assert len(going) == len(versions)
                remove(self._location, plan.path, [v.path for v in going])
                secure_removal(self._location, line)
                gone = replace(gone, versions=(*gone.versions, *going))
            # A data file before the blobs beside it: who finds it there finds all of it.
            for part in (False, True):
                remove(self._location, plan.path, [f.path for f in plan.files if _is_blob(f) == part])
            gone = replace(gone, files=plan.files)
            remove_folders(self._location, self._emptied(plan))
        except OmnigraphError as error:
            return TableResult.of(replace(gone, error=str(error)))
        return TableResult.of(gone)

    @staticmethod
    def _emptied(plan: TablePlan) -> list[str]:
        """Folders that belong to removed files alone. The others stay: a writer may be about to use them."""
        if plan.whole is not None:
            return [plan.path]
        inner = {f.path.rpartition("/")[0] for f in plan.files if f.kind in ("data", "index")}
        return [f"{plan.path}/{folder}" for folder in sorted(inner) if not folder.endswith(("data", "_indices"))]

    def _staged(self, one: Staged) -> StagedResult:
        try:
            self._require_announced()
            remove(self._location, one.path, [f.path for f in one.files])
            remove_folders(self._location, [one.path])
        except OmnigraphError as error:
            return StagedResult(one, str(error))
        return StagedResult(one)


def _is_blob(file: GoingFile) -> bool:
    return file.kind == "data" and not file.path.endswith(".lance")


def tidy(location: Location, floors: Floors, announcement: str, *, now_s: float) -> None:
    """Step 5; leases that are over, and what of others this run has seen. What fails here is done by the next run."""
    with suppress(StorageError):
        leases.withdraw(location, [announcement])
        leases.drop(location, floors.over)
        began_s = sightings.boottime_s()
        others = leases.announcements(location)
        judge = sightings.Judge.reading(location, now_s=began_s, store_now_s=now_s) if others else None
        dead = {one.id for one in others if judge is not None and judge.is_dead(one)}
        leases.withdraw(location, dead)
        names = forget_probes(location, now_s=now_s)
        others = [one for one in others if one.id not in dead]
        observed = sightings.observed(floors.leases, others)
        if observed:
            sightings.record(location, observed)
        elif sightings.OBJECT in names:
            sightings.forget(location)
