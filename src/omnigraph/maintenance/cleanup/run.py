"""The driver of cleanup: plan, announce, look again, remove. The steps are described in the package."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from omnigraph.commit.committer import Committer
from omnigraph.errors import BranchPinUnreadable, GraphMoved, OmnigraphError, StorageError
from omnigraph.legacy.migrate import require_current
from omnigraph.maintenance.cleanup import execute
from omnigraph.maintenance.cleanup.caches import cached
from omnigraph.maintenance.cleanup.document import CleanupResult, Refused, plan_from_json, preview_of
from omnigraph.maintenance.cleanup.in_flight import read_in_flight
from omnigraph.maintenance.cleanup.orphans import staged, table_folders, table_of
from omnigraph.maintenance.cleanup.plan import CleanupPlan, Facts, TablePlan, plan_folder
from omnigraph.maintenance.cleanup.policy import Policy
from omnigraph.maintenance.cleanup.retained_versions import (
    FreshRetainedVersions,
    LineVersion,
    RetainedVersions,
    read_retained_versions,
    require_no_drift,
    require_pins,
    require_recovered,
    table_keys,
)
from omnigraph.maintenance.cleanup.space import with_space, without_largest
from omnigraph.maintenance.concurrency import map_threads
from omnigraph.storage.lance import lance_api
from omnigraph.storage.layout import MANIFEST
from omnigraph.storage.manifest.records import Head
from omnigraph.storage.objects import leases
from omnigraph.storage.objects.json_objects import store_time_s
from omnigraph.storage.objects.reserve import is_full
from omnigraph.storage.objects.store import all_exist
from omnigraph.tasks.progress import SilentWatcher, Watcher

READINGS_MAX = 5
"""How often something is read that others change or remove while it is read."""
CLOCKS_APART_S = 3600.0
"""A larger difference between the clocks is a warning."""


def cleanup(
    committer: Committer,
    policy: Policy | None = None,
    *,
    confirm: bool = False,
    apply: Mapping[str, Any] | None = None,
    apply_name: str = "the plan",
    watcher: Watcher | None = None,
) -> CleanupResult:
    """Remove what the policy releases, or what of a saved plan may still be removed. A preview without `confirm`."""
    run = partial(_Run(committer, watcher or SilentWatcher()).run, policy, apply=apply, apply_name=apply_name)
    if not confirm:
        return run(confirm=False)
    return with_space(committer.manifest, lambda in_parts: run(confirm=True, in_parts=in_parts))


def plan_cleanup(committer: Committer, policy: Policy, *, watcher: Watcher | None = None) -> CleanupResult:
    """What `cleanup` would remove. Nothing is changed."""
    return cleanup(committer, policy, watcher=watcher)


@dataclass(frozen=True)
class _Run:
    committer: Committer
    watcher: Watcher

    def run(
        self,
        policy: Policy | None,
        *,
        confirm: bool,
        apply: Mapping[str, Any] | None,
        apply_name: str,
        in_parts: bool = False,
    ) -> CleanupResult:
        """`in_parts`: tables whose announcement does not fit on a full disk may be left out."""
        started = time.monotonic()
        location = self.committer.manifest.location
        if confirm:
            require_current(self.committer.manifest, observe=self.committer.observe)
        saved = None if apply is None else plan_from_json(apply, graph=location.uri, path=apply_name)
        effective_policy = saved.policy if saved is not None else policy
        assert effective_policy is not None, "a policy, or a plan that holds one"
        now_s, warnings = self._now(confirm=confirm)
        facts = self._facts(effective_policy, now_s)
        plan = self._plan(facts, only=None if saved is None else {t.path for t in saved.tables})
        refused: list[Refused] = []
        if saved is not None:
            plan, refused = self._applied(saved, plan, facts.retained)
        plan = replace(plan, warnings=(*plan.warnings, *warnings))
        if not confirm:
            return preview_of(plan, seconds=time.monotonic() - started, refused=refused)
        plan, announcement, look = self._announced(plan, facts, in_parts=in_parts)
        revised, late = self._revised(plan, replace(facts, retained=look.retained, in_flight=look.in_flight), look)
        remover = execute.Remover(self.committer, self.watcher, FreshRetainedVersions(self.committer, self._read))
        result = remover.run(revised, refused=[*refused, *(late if saved is not None else ())], started_s=started)
        execute.tidy(location, look.retained, announcement, now_s=now_s)
        return result

    def _announced(
        self, plan: CleanupPlan, facts: Facts, *, in_parts: bool
    ) -> tuple[CleanupPlan, str, execute.SecondLook]:
        """Announce and exclude. Returns the remaining plan, the announcement, and what was read after both."""
        while True:
            announcements: list[str] = []
            try:
                announcements.append(execute.announce(self.committer.manifest.location, plan))
                retained = self._look_again(execute.exclude(self.committer.manifest))
                in_flight = read_in_flight(self.committer, retained)
                return plan, announcements[0], execute.second_look(self.committer, facts.retained, retained, in_flight)
            except BaseException as error:
                leases.withdraw(self.committer.manifest.location, announcements)
                smaller = without_largest(plan) if in_parts and is_full(error) else None
                if smaller is None:
                    raise
                plan = smaller

    def _now(self, *, confirm: bool) -> tuple[float, list[str]]:
        """The earlier of the store's time and this machine's. A preview works with read access only."""
        try:
            store_s, here_s = store_time_s(self.committer.manifest.location), time.time()
        except StorageError:
            if confirm:
                raise
            return time.time(), ["the store's clock could not be read; ages are by the clock of this machine"]
        apart = f"the clocks of the store and of this machine are {abs(store_s - here_s):,.0f} s apart"
        warnings = [f"{apart}; ages are by the earlier one"] if abs(store_s - here_s) > CLOCKS_APART_S else []
        return min(store_s, here_s), warnings

    def _read(self) -> RetainedVersions:
        return read_retained_versions(self.committer, now_s=self._now(confirm=True)[0])

    def _look_again(self, heads: Mapping[str, Head]) -> RetainedVersions:
        retained = read_retained_versions(self.committer, now_s=self._now(confirm=True)[0], heads=heads)
        require_recovered(self.committer)
        require_no_drift(self.committer, retained)
        return retained

    def _facts(self, policy: Policy, now_s: float) -> Facts:
        retained, handles = self._retained(now_s)
        require_no_drift(self.committer, retained)
        announced_files: dict[str, set[str]] = {}
        for announcement in leases.announcements(self.committer.manifest.location):
            for folder, paths in announcement.files.items():
                announced_files.setdefault(folder, set()).update(paths)
        keys, in_flight = table_keys(self.committer, retained), read_in_flight(self.committer, retained)
        return Facts(self.committer, retained, policy, now_s, keys, handles, announced_files, in_flight)

    def _retained(self, now_s: float) -> tuple[RetainedVersions, Mapping[LineVersion, Any]]:
        """The retained versions, and a handle of every version that a live branch pins.

        A branch may move between the two reads, and another cleanup remove its old version: then both are read again.
        """
        for reading in range(1, READINGS_MAX + 1):
            retained = read_retained_versions(self.committer, now_s=now_s)
            require_recovered(self.committer)
            try:
                return retained, require_pins(self.committer, retained)
            except BranchPinUnreadable as error:
                branch = error.fields["branch"]
                moved = self.committer.manifest.find(branch)
                is_same = moved is not None and moved.commit == retained.heads[branch].commit
                if is_same or reading == READINGS_MAX:
                    raise
        raise AssertionError("unreachable")

    def _plan(self, facts: Facts, *, only: set[str] | None) -> CleanupPlan:
        location = self.committer.manifest.location
        paths = [*table_folders(location), MANIFEST]
        self.watcher.stage("planning", tasks=len(paths))
        tables: list[TablePlan] = []
        for table in map_threads(location, lambda path: _planned(facts, path), paths):
            tables.append(table)
            self.watcher.advance(tasks=len(tables), rows=0, size_bytes=sum(t.size for t in tables))
        tables.sort(key=lambda t: (t.table_key == MANIFEST, not t.table_key.startswith("node:"), t.table_key))
        chosen = tuple(t for t in tables if only is None or t.path in only)
        links: list[str] = []
        at_work = facts.in_flight.is_any
        staging = staged(location, facts.policy, now_s=facts.now_s, links=links, is_any_at_work=at_work)
        caches = cached(location, chosen, facts.policy, now_s=facts.now_s, links=links)
        left_alone = (f"{location.join(link)} is a symbolic link and was left alone" for link in sorted(links))
        return CleanupPlan(
            graph=location.uri,
            policy=facts.policy,
            made_at_s=facts.now_s,
            tables=chosen,
            staging=tuple(staging),
            caches=tuple(caches),
            warnings=(*facts.policy.warnings, *left_alone),
            leases=tuple(lease.id for lease in facts.retained.leases),
        )

    def _applied(
        self, saved: CleanupPlan, now: CleanupPlan, retained: RetainedVersions
    ) -> tuple[CleanupPlan, list[Refused]]:
        """What the saved plan names and may still be removed; what it names, exists, and must stay."""
        allowed = {t.path: t for t in now.tables}
        tables: list[TablePlan] = []
        refused: list[Refused] = []
        for table in saved.tables:
            present = allowed.get(table.path) or TablePlan(table.table_key, table.path)
            tables.append(execute.both(table, present))
            refused += execute.refusals(table, present, retained, self._exists)
        staging = tuple(folder for folder in now.staging if folder.path in {s.path for s in saved.staging})
        caches = tuple(folder for folder in now.caches if folder.path in {s.path for s in saved.caches})
        removable = {folder.path for folder in (*staging, *caches)}
        for folder in (*saved.staging, *saved.caches):
            if folder.path not in removable and any(self._exists(f"{folder.path}/{f.path}") for f in folder.files):
                refused.append(Refused("", folder.path, "in_use"))
        return replace(now, tables=tuple(tables), staging=staging, caches=caches, warnings=saved.warnings), refused

    def _revised(self, plan: CleanupPlan, facts: Facts, look: execute.SecondLook) -> tuple[CleanupPlan, list[Refused]]:
        tables: list[TablePlan] = []
        refused: list[Refused] = []
        for table in plan.tables:
            if look.needs_second_plan(table):
                again = _planned(facts, table.path)
                refused += execute.refusals(table, again, facts.retained, self._exists)
                tables.append(execute.both(table, again))
            else:
                tables.append(table)
        staging = tuple(s for s in plan.staging if s.reason != "abandoned" or not facts.in_flight.is_any)
        return replace(plan, tables=tuple(tables), staging=staging), refused

    def _exists(self, path: str) -> bool:
        return all_exist(self.committer.manifest.location, [path])


def _planned(facts: Facts, path: str) -> TablePlan:
    """A table that can't be planned keeps everything and has an error. If another cleanup removes one of its forks
    meanwhile, it is planned again from a new listing.
    """
    key = facts.keys.get(table_of(path), path)
    for _ in range(READINGS_MAX):
        try:
            return plan_folder(facts, path)
        except GraphMoved:
            raise
        except OmnigraphError as error:
            return TablePlan(key, path, error=str(error))
        except lance_api.TableMissing:
            continue
    return TablePlan(key, path, error="other processes remove parts of it; run cleanup again")
