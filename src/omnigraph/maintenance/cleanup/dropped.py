"""After a hard drop (`schema apply --allow-data-loss`): remove the versions that still hold the dropped data.

A cleanup of these table folders alone, with the same floors and the same exclusion:

1. require   before the schema changes: heads, leases, listings and tags of these folders can be read, and no link lies
             in them. What fails here is raised, and nothing has changed
2. commit    the schema changes, through the door
3. plan      a dropped type: its table folder goes, if nothing holds a version of it. A dropped property, or a type
             that something else holds: of the lines of the branch that dropped it everything but the newest version
4. execute   announce, swap `refs` over one reading of all heads, read the floors, plan again what they hold by now,
             remove (`execute`)

Keeps: what a branch, the commit it was made from, a merge base, a tag or a lease holds, and the history of the
lines of other branches. Commits from before the drop can then no longer be read: VersionReclaimed.

From 2 on nothing is raised but what ends the process: the schema has changed. What could not be removed is left to
cleanup, and stands in the result with its reason. A crash in 3 or 4 leaves what a crash of a cleanup leaves.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from omnigraph.commit.committer import Committer
from omnigraph.commit.operation import View
from omnigraph.errors import OmnigraphError
from omnigraph.graph.results import LeftForCleanup, SchemaResult
from omnigraph.language.schema.plan import SchemaPlan
from omnigraph.language.schema.steps import DropProperty, DropType
from omnigraph.legacy.migrate import require_current
from omnigraph.maintenance.cleanup import execute
from omnigraph.maintenance.cleanup.document import TableResult
from omnigraph.maintenance.cleanup.in_flight import read_in_flight
from omnigraph.maintenance.cleanup.plan import CleanupPlan, Facts, TablePlan, plan_folder
from omnigraph.maintenance.cleanup.policy import Policy, Rule
from omnigraph.maintenance.cleanup.retained_versions import (
    Floors,
    FreshFloors,
    read_floors,
    require_no_drift,
    require_pins,
    require_settled,
    table_keys,
)
from omnigraph.storage.files.references import folder_of, read_tags
from omnigraph.storage.objects.json_objects import earlier_time_s
from omnigraph.storage.objects.listing import listed
from omnigraph.tasks.progress import Silent
from omnigraph.write.evolve import hard_drops

_KEEP_NEWEST = Rule(keep=1)


@dataclass(frozen=True)
class Drops:
    """What a schema change drops with its history: type ids, True if the whole table goes, on the state before it."""

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
    floors = read_floors(committer, now_s=earlier_time_s(location))
    require_pins(committer, floors, roots=set(drops.roots.values()))
    for root in drops.roots.values():
        read_tags(location, folder_of(root, ((f.path, f.size, f.modified_s) for f in listed(location, root))))


def remove_dropped(committer: Committer, drops: Drops, result: SchemaResult) -> SchemaResult:
    """Steps 3 and 4. The result, with what branches still hold and what is left to cleanup."""
    if not drops.types:
        return result
    try:
        result = replace(result, held_by=_held_by(committer, drops))
        done = _remove(committer, drops)
    except OmnigraphError as error:
        left = [LeftForCleanup(drops.key(type_id), (str(error),)) for type_id in drops.types]
        return replace(result, left_for_cleanup=tuple(left))
    return replace(result, left_for_cleanup=tuple(done))


def _remove(committer: Committer, drops: Drops) -> list[LeftForCleanup]:
    location = committer.manifest.location
    now_s = earlier_time_s(location)
    roots = set(drops.roots.values())
    floors = before = read_floors(committer, now_s=now_s)
    planned = {type_id: _plan(committer, drops, type_id, floors, now_s) for type_id in drops.types}
    plan = CleanupPlan(location.uri, Policy(_KEEP_NEWEST), now_s, tuple(planned.values()))
    announcement = execute.announce(location, plan)
    try:
        floors = read_floors(committer, now_s=earlier_time_s(location), heads=execute.exclude(committer.manifest))
        require_settled(committer)
        require_pins(committer, floors, roots=roots)
        require_no_drift(committer, floors, roots=roots)
        look = execute.second_look(committer, before, floors, read_in_flight(committer, floors))
        floors = look.floors
        revised = {
            type_id: execute.both(table, _plan(committer, drops, type_id, floors, now_s))
            if look.doubts(table)
            else table
            for type_id, table in planned.items()
        }
        fresh = FreshFloors(committer, lambda: read_floors(committer, now_s=earlier_time_s(location)))
        remover = execute.Remover(committer, Silent(), fresh)
        tables = tuple(revised.values())
        removed = remover.run(replace(plan, tables=tables), refused=(), started_s=time.monotonic())
    finally:
        execute.tidy(location, floors, announcement, now_s=now_s)
    by_path = {table.path: table for table in removed.tables}
    found = (
        _left(drops, type_id, by_path[table.path], floors, is_planned_whole=table.whole is not None)
        for type_id, table in revised.items()
    )
    return [one for one in found if one is not None]


def _plan(committer: Committer, drops: Drops, type_id: str, floors: Floors, now_s: float) -> TablePlan:
    root = drops.roots[type_id]
    if drops.types[type_id] and not floors.is_read(root):
        policy = Policy(_KEEP_NEWEST)
    else:
        policy = Policy(branches=((drops.before.head.branch, _KEEP_NEWEST),))
    keys, in_flight = table_keys(committer, floors), read_in_flight(committer, floors)
    plan = plan_folder(Facts(committer, floors, policy, now_s, keys, {}, {}, in_flight), root)
    return replace(plan, table_key=drops.key(type_id))


def _left(
    drops: Drops, type_id: str, removed: TableResult, floors: Floors, *, is_planned_whole: bool
) -> LeftForCleanup | None:
    """What is still there of a table, and why; None if nothing is."""
    because: list[str] = [] if removed.error is None else [removed.error]
    because += sorted({reason for kept in removed.kept for reason in kept.because})
    if drops.types[type_id] and not is_planned_whole:
        because += [reason for reason in floors.reasons_of(drops.roots[type_id]) if reason not in because]
    return LeftForCleanup(drops.key(type_id), tuple(because)) if because else None


def _held_by(committer: Committer, drops: Drops) -> dict[str, list[str]]:
    """The branches that still hold what was dropped, by its name: node:Person, or node:Person.age."""
    manifest, before = committer.manifest, drops.before
    heads = sorted(manifest.heads().items())
    found: dict[str, list[str]] = {}
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
                found.setdefault(name, []).append(branch)
    return found
