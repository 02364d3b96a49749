"""After a hard drop (`schema apply --allow-data-loss`): remove the versions that still hold the dropped data.

A cleanup of these table folders alone, with the same retained versions and the same exclusion:

1. require   before the schema changes: heads, leases, listings and tags of these folders can be read, and they hold no
             symbolic link. A failure here is raised, and nothing has changed
2. commit    the schema changes, through the committer
3. plan      a dropped type: its table folder is removed if no version of it is retained. A dropped property, or a
             type with retained versions: all but the newest version of the lines of the branch that dropped it
4. execute   announce, swap `refs` over one reading of all heads, read the retained versions, plan again what they
             include by now, remove (`execute`)

Keeps: what a branch, the commit it was made from, a merge base, a tag or a lease needs, and the history of the
lines of other branches. Commits from before the drop can then no longer be read: VersionReclaimed.

From 2 on no error is raised, because the schema has changed. What could not be removed is left to cleanup and is in
the result with its reason. A crash in 3 or 4 leaves what a crash of a cleanup leaves.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from omnigraph.commit.committer import Committer
from omnigraph.commit.operation import View
from omnigraph.errors import OmnigraphError
from omnigraph.graph.results import LeftForCleanup, SchemaResult
from omnigraph.language.schema.plan.planner import SchemaPlan
from omnigraph.language.schema.plan.steps import DropProperty, DropType
from omnigraph.legacy.migrate import require_current
from omnigraph.maintenance.cleanup import execute
from omnigraph.maintenance.cleanup.document import TableResult
from omnigraph.maintenance.cleanup.in_flight import read_in_flight
from omnigraph.maintenance.cleanup.plan import CleanupPlan, Facts, TablePlan, plan_folder
from omnigraph.maintenance.cleanup.policy import Policy, Rule
from omnigraph.maintenance.cleanup.retained_versions import (
    FreshRetainedVersions,
    RetainedVersions,
    read_retained_versions,
    require_no_drift,
    require_pins,
    require_recovered,
    table_keys,
)
from omnigraph.storage.files.references import folder_of, read_tags
from omnigraph.storage.objects.json_objects import earlier_time_s
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.tasks.progress import SilentWatcher
from omnigraph.write.evolve import hard_drops

_KEEP_NEWEST = Rule(keep=1)


@dataclass(frozen=True)
class Drops:
    """What a schema change drops with its history: type ids, True if the whole table goes, in the state before it."""

    before: View
    plan: SchemaPlan
    types: Mapping[str, bool]

    @staticmethod
    def of(before: View, plan: SchemaPlan) -> Drops:
        return Drops(before, plan, hard_drops(plan) if plan.supported else {})

    @property
    def roots(self) -> dict[str, str]:
        """The table folders, by type id."""
        return {type_id: self.before.pins[type_id].root for type_id in self.types}

    def key(self, type_id: str) -> str:
        return self.before.schema.by_id[type_id].key


def require_removable(committer: Committer, drops: Drops) -> None:
    """Step 1: everything that the removal has to read can be read."""
    if not drops.types:
        return
    location = committer.manifest.location
    require_current(committer.manifest, observe=committer.observe)
    retained = read_retained_versions(committer, now_s=earlier_time_s(location))
    require_pins(committer, retained, roots=set(drops.roots.values()))
    for root in drops.roots.values():
        read_tags(location, folder_of(root, ObjectStore(location, root).iter_files()))


def remove_dropped(committer: Committer, drops: Drops, result: SchemaResult) -> SchemaResult:
    """Steps 3 and 4. The result, with what other branches still use and what is left to cleanup."""
    if not drops.types:
        return result
    try:
        result = replace(result, held_by=_branches_with(committer, drops))
        unremoved = _remove(committer, drops)
    except OmnigraphError as error:
        all_types = [LeftForCleanup(drops.key(type_id), (str(error),)) for type_id in drops.types]
        return replace(result, left_for_cleanup=tuple(all_types))
    return replace(result, left_for_cleanup=tuple(unremoved))


def _remove(committer: Committer, drops: Drops) -> list[LeftForCleanup]:
    location = committer.manifest.location
    now_s = earlier_time_s(location)
    roots = set(drops.roots.values())
    retained = before = read_retained_versions(committer, now_s=now_s)
    planned = {type_id: _plan(committer, drops, type_id, retained, now_s) for type_id in drops.types}
    plan = CleanupPlan(location.uri, Policy(_KEEP_NEWEST), now_s, tuple(planned.values()))
    announcement = execute.announce(location, plan)
    try:
        retained = read_retained_versions(
            committer, now_s=earlier_time_s(location), heads=execute.exclude(committer.manifest)
        )
        require_recovered(committer)
        require_pins(committer, retained, roots=roots)
        require_no_drift(committer, retained, roots=roots)
        look = execute.second_look(committer, before, retained, read_in_flight(committer, retained))
        retained = look.retained
        revised = {
            type_id: execute.both(table, _plan(committer, drops, type_id, retained, now_s))
            if look.needs_second_plan(table)
            else table
            for type_id, table in planned.items()
        }
        fresh = FreshRetainedVersions(
            committer, lambda: read_retained_versions(committer, now_s=earlier_time_s(location))
        )
        remover = execute.Remover(committer, SilentWatcher(), fresh)
        tables = tuple(revised.values())
        removed = remover.run(replace(plan, tables=tables), refused=(), started_s=time.monotonic())
    finally:
        execute.tidy(location, retained, announcement, now_s=now_s)
    by_path = {table.path: table for table in removed.tables}
    results = (
        _left_for_cleanup(drops, type_id, by_path[table.path], retained, is_planned_whole=table.whole is not None)
        for type_id, table in revised.items()
    )
    return [result for result in results if result is not None]


def _plan(committer: Committer, drops: Drops, type_id: str, retained: RetainedVersions, now_s: float) -> TablePlan:
    root = drops.roots[type_id]
    if drops.types[type_id] and not retained.is_read(root):
        policy = Policy(_KEEP_NEWEST)
    else:
        policy = Policy(branches=((drops.before.head.branch, _KEEP_NEWEST),))
    keys, in_flight = table_keys(committer, retained), read_in_flight(committer, retained)
    plan = plan_folder(Facts(committer, retained, policy, now_s, keys, {}, {}, in_flight), root)
    return replace(plan, table_key=drops.key(type_id))


def _left_for_cleanup(
    drops: Drops, type_id: str, removed: TableResult, retained: RetainedVersions, *, is_planned_whole: bool
) -> LeftForCleanup | None:
    """What is still there of a table, and why; None if nothing is."""
    because: list[str] = [] if removed.error is None else [removed.error]
    because += sorted({reason for kept in removed.kept for reason in kept.because})
    if drops.types[type_id] and not is_planned_whole:
        because += [reason for reason in retained.reasons_of(drops.roots[type_id]) if reason not in because]
    return LeftForCleanup(drops.key(type_id), tuple(because)) if because else None


def _branches_with(committer: Committer, drops: Drops) -> dict[str, list[str]]:
    """The branches that still have what was dropped, by its name: node:Person, or node:Person.age."""
    manifest, before = committer.manifest, drops.before
    heads = sorted(manifest.heads().items())
    branches: dict[str, list[str]] = {}
    for step in drops.plan.steps:
        if not isinstance(step, DropType | DropProperty) or step.mode != "hard" or not step.type_id:
            continue
        old = before.schema.by_id[step.type_id]
        name = old.key if isinstance(step, DropType) else f"{old.key}.{step.property_name}"
        for branch, head in heads:
            pin, t = manifest.pins(head).get(old.id), manifest.schema(head.schema).by_id.get(old.id)
            if pin is None or t is None or pin.root != before.pins[old.id].root:
                continue
            if isinstance(step, DropType) or any(p.id == step.property_id for p in t.properties):
                branches.setdefault(name, []).append(branch)
    return branches
