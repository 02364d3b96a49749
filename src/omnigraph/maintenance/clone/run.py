"""The driver of clone: read, mark, copy, compare, publish, verify. The steps are described in the package."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from omnigraph.commit import owner
from omnigraph.commit.committer import Committer
from omnigraph.errors import GraphExists, NewerFormat, NotAvailable, StorageError, UsageError, VersionReclaimed
from omnigraph.maintenance.clone.copying import Copied, copy_all
from omnigraph.maintenance.clone.plan import (
    CopyPlan,
    copy_plan,
    highest_pins,
    manifest_plan,
    pins_of,
    state_tables,
    whole_tables,
)
from omnigraph.maintenance.clone.state import carried_checksums, publish_state
from omnigraph.maintenance.clone.transfer import Transfer
from omnigraph.maintenance.verify import VerifyOptions, VerifyResult, verify
from omnigraph.maintenance.verify.scope import FrozenManifest
from omnigraph.pipeline.snapshot_lease import TRIES_MAX, leased
from omnigraph.storage import durability
from omnigraph.storage.files.checksums import Packed, merge, pack
from omnigraph.storage.files.rebase import read_version
from omnigraph.storage.layout import CLEANUP, CLONE, MANIFEST, Location, locate
from omnigraph.storage.manifest.create import graph_exists, manifest_with_checksums
from omnigraph.storage.manifest.records import MAIN
from omnigraph.storage.manifest.table import FORMAT, FORMAT_MAX, Manifest
from omnigraph.storage.objects import clone_mark, conditional_put, leases, nofollow, reserve
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.tasks.engine import EngineSettings
from omnigraph.tasks.progress import SilentWatcher, Watcher

if TYPE_CHECKING:
    from omnigraph.graph.snapshot import AsOf, Snapshot

Depth = Literal["quick", "full", "none"]


@dataclass(frozen=True)
class CloneResult:
    """`branch` and `commit` name the cloned state; None for the whole history."""

    source: str
    target: str
    branch: str | None
    commit: str | None
    tables: int
    versions: int
    copied: Copied
    missing: tuple[str, ...]
    verified: VerifyResult | None
    seconds: float

    @property
    def ok(self) -> bool:
        return not self.missing and (self.verified is None or self.verified.ok)

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "target": self.target,
            "ok": self.ok,
            "branch": self.branch,
            "commit": self.commit,
            "tables": self.tables,
            "versions": self.versions,
            **self.copied.to_json(),
            "missing": list(self.missing),
            "verify": None if self.verified is None else self.verified.to_json(),
            "seconds": round(self.seconds, 3),
        }


def clone_graph(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    branch: str | None = None,
    commit: str | None = None,
    as_of: AsOf | None = None,
    verify: Depth = "quick",
    links: bool = True,
    actor: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    target_storage_options: Mapping[str, str] | None = None,
    watcher: Watcher | None = None,
) -> CloneResult:
    """Copy a graph to a new address: its whole history or, with `branch`, `commit` or `as_of`, one state of it.

    `verify` is how deep the clone is checked at the end. With `links` False every byte is copied, also on one
    file system. The source is not changed, and may be written meanwhile. The same call completes a stopped clone.
    """
    if verify not in ("quick", "full", "none"):
        raise UsageError(detail=f"verify is 'quick', 'full' or 'none', not {verify!r}.")
    here = locate(source, options=storage_options)
    there = locate(target, options=target_storage_options)
    _require_apart(here, there)
    run = _Run(here, there, Transfer(here, there, links), watcher or SilentWatcher(), time.monotonic())
    _require_clonable(here)
    if _is_published(here, there):
        return run.finished(verify)
    if branch is None and commit is None and as_of is None:
        return run.whole(verify)
    return run.state(verify, branch or MAIN, commit, as_of, actor)


@dataclass(frozen=True)
class _Run:
    source: Location
    target: Location
    transfer: Transfer
    watcher: Watcher
    started_s: float

    def whole(self, depth: Depth) -> CloneResult:
        with ExitStack() as stack:
            version, raw, plan, tables = self._leased_history(stack)
            with self._marked():
                # The manifest first: its own versions are under no lease.
                manifest = manifest_plan(self.source, version)
                copied = copy_all(self.transfer, manifest, plan, watcher=self.watcher)
                self._publish(version, raw, pack(copied.crcs))
        plan = CopyPlan(plan.files, plan.versions, (*manifest.missing, *plan.missing))
        return self._result(depth, plan, copied, tables=tables)

    def state(
        self, depth: Depth, branch: str, commit: str | None, as_of: AsOf | None, actor: str | None
    ) -> CloneResult:
        committer = Committer(Manifest(self.source))
        with leased(committer, branch, commit=commit, as_of=as_of) as snapshot:
            pins = snapshot.view.pins
            plan = copy_plan(self.source, state_tables(self.source, pins.values()), is_flattened=True)
            if plan.missing:
                detail = f"{plan.missing[0]} is not there: run `omnigraph verify {self.source.uri}`"
                raise StorageError(doing=f"cloning {snapshot.commit}", detail=detail)
            with self._marked():
                copied = copy_all(self.transfer, CopyPlan((), (), ()), plan, watcher=self.watcher)
                source_checksums = carried_checksums(committer.manifest, plan.files)
                publish_state(self.target, snapshot, actor=actor, checksums=merge(source_checksums, pack(copied.crcs)))
        return self._result(depth, plan, copied, tables=len(pins), snapshot=snapshot)

    def finished(self, depth: Depth) -> CloneResult:
        """An earlier call published the clone and was stopped before its end."""
        with self._marked():
            pass
        tables = len({pin.root for pin in highest_pins(FrozenManifest(self.target)).values()})
        return self._result(depth, CopyPlan((), (), ()), Copied(), tables=tables)

    def _leased_history(self, stack: ExitStack) -> tuple[int, bytes, CopyPlan, int]:
        """One version of the manifest with its bytes, and the versions it pins, leased until the stack is left."""
        for attempt in range(1, TRIES_MAX + 1):
            manifest = FrozenManifest(self.source)
            version = int(manifest.table().version)
            stored = read_version(self.source, _version_path(version))
            highest = highest_pins(manifest)
            tables = list(whole_tables(self.source, highest))
            try:
                self._lease(stack, list(pins_of(tables, highest)))
            except VersionReclaimed:
                if attempt == TRIES_MAX:
                    raise
                continue  # a cleanup removed it meanwhile
            if stored is not None:
                return version, stored.raw, copy_plan(self.source, tables, is_flattened=False), len(tables)
        raise StorageError(doing=f"cloning {self.source.uri}", detail="versions of the manifest go too fast")

    def _lease(self, stack: ExitStack, pins: list[Any]) -> None:
        lease = leases.hold(self.source, pins, owner=owner.myself(), is_gone=owner.is_gone)
        try:
            stack.enter_context(lease)
        except StorageError as error:
            if not leases.may_not_write(error):
                raise  # without write access there is no lease, and the clone may fail if cleanup runs

    @contextmanager
    def _marked(self) -> Iterator[None]:
        with clone_mark.marked(self.target, self.source.uri, owner=owner.myself(), is_gone=owner.is_gone):
            yield

    def _publish(self, version: int, raw: bytes, checksums: Packed) -> None:
        """With the checksums of rewritten files the manifest has one version more than the source's."""
        if checksums:
            version, files = manifest_with_checksums(raw, version, checksums)
            raw = files.pop(_version_path(version))
            for path, body in files.items():
                self.transfer.put(path, body)
        if self.target.is_local:
            durability.sync_tree(self.target.manifest_uri)
        if ObjectStore(self.target, f"{MANIFEST}/_versions").children().files_and_links:
            raise GraphExists(uri=self.target.uri)
        try:
            self.transfer.put(_version_path(version), raw, create=True)
        except FileExistsError as error:
            stored = read_version(self.target, _version_path(version))
            if stored is None or stored.raw != raw:
                raise GraphExists(uri=self.target.uri) from error
        if self.target.is_local:
            durability.sync_tree(self.target.manifest_uri, above=2)

    def _result(
        self, depth: Depth, plan: CopyPlan, copied: Copied, *, tables: int, snapshot: Snapshot | None = None
    ) -> CloneResult:
        reserve.keep(self.target)
        verified: VerifyResult | None = None
        if depth != "none":
            committer, options = (
                Committer(Manifest(self.target)),
                VerifyOptions(quick=depth == "quick", full=depth == "full"),
            )
            verified = verify(committer, EngineSettings(watcher=self.watcher), options)
        return CloneResult(
            source=self.source.uri,
            target=self.target.uri,
            branch=None if snapshot is None else snapshot.branch,
            commit=None if snapshot is None else snapshot.commit,
            tables=tables,
            versions=len(plan.versions),
            copied=copied,
            missing=plan.missing,
            verified=verified,
            seconds=time.monotonic() - self.started_s,
        )


def _version_path(version: int) -> str:
    return durability.manifest_path(MANIFEST, version)


# ---- what is refused -------------------------------------------------------------------------------------------------


def _require_apart(source: Location, target: Location) -> None:
    for first, second in ((source, target), (target, source)):
        if f"{first.uri}/".startswith(f"{second.uri}/"):
            detail = f"{target.uri} is not apart from {source.uri}: a clone needs an address of its own."
            raise UsageError(detail=detail)


def _require_clonable(source: Location) -> None:
    stored_format = Manifest(source).format()
    if stored_format > FORMAT_MAX:
        raise NewerFormat(found=stored_format, known=FORMAT_MAX)
    if stored_format < FORMAT:
        hint = "Write to the graph once, which brings it to the newest format; or copy the folder and relocate it."
        raise NotAvailable(feature=f"a clone of a graph of format {stored_format}", hint=hint)


def _is_published(source: Location, target: Location) -> bool:
    """Whether a complete clone of this source exists that still has its mark. Refuse a target that is not free."""
    nofollow.require_layout(target)
    unfinished = clone_mark.unfinished(target)
    if unfinished is not None and unfinished.fields["source"] != source.uri:
        raise unfinished
    if graph_exists(target):
        if unfinished is None:
            raise GraphExists(uri=target.uri)
        return True
    if unfinished is None:
        _require_empty(target)
    if target.is_local:
        conditional_put.require_hard_links(target)
    conditional_put.require_conditional(target)
    return False


def _require_empty(target: Location) -> None:
    if target.is_local and os.path.lexists(target.uri) and not os.path.isdir(target.uri):
        raise UsageError(detail=f"{target.uri} is a file; a clone needs a folder of its own.")
    children = ObjectStore(target).children()
    foreign = sorted({*children.files, *children.links, *children.folders} - {CLEANUP, CLONE})
    if foreign:
        detail = f"{target.uri} is not empty (it holds {foreign[0]!r}); a clone needs an address of its own."
        raise UsageError(detail=detail)
