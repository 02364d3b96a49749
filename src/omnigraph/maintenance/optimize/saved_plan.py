"""Which part of a saved plan is still valid: checked before any work, from metadata.

1. graph    the plan is of this graph, and its branch and schema are those that it was made for, or nothing is done
2. tables   of each table with work, what the plan names still exists: the same line, the fragments with their files,
            the indices with their segments. Rows that were added or deleted since do not matter: they are replayed. A
            table of which that is not so, or that has drift, is left out and reported
3. rest     if no table is left, StaleView; otherwise the rest is done as planned
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

from omnigraph.commit.committer import Committer
from omnigraph.commit.operation import View
from omnigraph.errors import LookupFailed, OmnigraphError, PlanUnusable, StaleView, VersionReclaimed
from omnigraph.index.segments import IndexPlan
from omnigraph.maintenance.drift import drift_of
from omnigraph.maintenance.optimize.model import CHANGED_SINCE_PLAN, DRIFT, OptimizePlan, TablePlan
from omnigraph.maintenance.optimize.publish import ROWS_ONLY
from omnigraph.storage.lance import fragment_stats, lance_api
from omnigraph.storage.lance.columns import physical_columns
from omnigraph.storage.lance.indices import built_indices, fragment_reuse
from omnigraph.storage.lance.rewrites.rewrite import changed_fields
from omnigraph.storage.lance.transactions import steps_above


def planned_view(committer: Committer, saved: OptimizePlan) -> View:
    """The state that a plan was made for, as long as it exists and the branch is still of its kind."""
    graph = committer.manifest.location.uri
    if saved.graph != graph:
        raise PlanUnusable(path="the plan", detail=f"it was made for {saved.graph}, not for {graph}.")
    head = committer.manifest.head(saved.branch)
    if head.incarnation != saved.incarnation:
        raise _stale(f"the branch {saved.branch} was deleted and made again since the plan was made.")
    if head.schema != saved.schema:
        raise _stale("the schema has changed since the plan was made.")
    try:
        return committer.view_at(saved.branch, saved.commit)
    except LookupFailed as error:
        raise _stale(f"the commit {saved.commit}, which the plan was made for, is not on record any more.") from error


def still_standing(then: View, now: View, saved: OptimizePlan) -> OptimizePlan:
    """The plan, with the tables that are left out marked."""
    tables = tuple(_still_valid(then, now, t) for t in saved.tables)
    planned = [t.table_key for t in saved.tables if t.has_work]
    if planned and not any(t.has_work or t.error for t in tables):
        names = ", ".join(planned)
        detail = f"nothing of the plan can be done: what it names in {names} has changed since it was made."
        raise StaleView(detail=detail, of_plan=True, tables=planned)
    return replace(saved, tables=tables)


def _stale(detail: str) -> StaleView:
    return StaleView(detail=detail, of_plan=True)


def _still_valid(then: View, now: View, plan: TablePlan) -> TablePlan:
    try:
        drift = drift_of(now, plan.table) if plan.table in now.pins else None
        if drift is not None:
            return replace(plan, skipped=DRIFT, lance_head_version=drift.head_version)
        if plan.skipped is None and not plan.has_work:
            return plan
        with lance_api.reading(f"looking at {plan.table_key}"):
            is_whole = plan.skipped is None and _is_as_planned(then, now, plan)
    except OmnigraphError as error:
        return replace(plan, error=str(error))
    return plan if is_whole else replace(plan, skipped=CHANGED_SINCE_PLAN)


def _fits(index: IndexPlan, segments: Mapping[str, Set[int]]) -> bool:
    """Whether the index is unchanged and no fragment gets two segments, on which Lance panics."""
    if tuple(sorted(segments)) != index.known or not set(index.remove) <= segments.keys():
        return False
    built = [n for group in index.build for n in group]
    kept = {n for uuid, fragments in segments.items() if uuid not in index.remove for n in fragments}
    return len(set(built)) == len(built) and not kept & set(built)


def _is_consistent(then: View, plan: TablePlan) -> bool:
    """Whether no fragment is rewritten or made twice, and every index is one of the table's columns."""
    rewritten, new_ids = [n for b in plan.bins for n in b.fragments], [b.new_id for b in plan.bins]
    if (
        len(set(rewritten)) < len(rewritten)
        or len(set(new_ids)) < len(new_ids)
        or not all(b.fragments for b in plan.bins)
    ):
        return False
    columns = {*physical_columns(then.schema.by_id[plan.table]), *then.schema.by_id[plan.table].by_name}
    built = [n for i in plan.indexes for group in i.build for n in group]
    over_rewritten = set(built) & set(rewritten) and not plan.deferred
    names = [i.name for i in plan.indexes]
    return not over_rewritten and len(set(names)) == len(names) and columns.issuperset(i.column for i in plan.indexes)


def _is_as_planned(then: View, now: View, plan: TablePlan) -> bool:
    pin = now.pins.get(plan.table)
    if pin is None or pin.path != plan.pin.path or then.pins.get(plan.table) != plan.pin:
        return False
    try:
        old = then.tables.open(plan.pin, table_key=plan.table_key)
    except VersionReclaimed:
        return False
    table = now.tables.open(pin, table_key=plan.table_key)
    live = {int(f.fragment_id) for f in table.get_fragments()}
    new = {b.new_id for b in plan.bins}
    named = {n for b in plan.bins for n in b.fragments} | {n for i in plan.indexes for group in i.build for n in group}
    if named - new - live or named & changed_fields(old, table).keys() or (new and max(live, default=0) >= min(new)):
        return False
    segments = {i.name: {s.uuid: s.fragments for s in i.segments} for i in built_indices(table)}
    if not all(_fits(i, segments.get(i.name, {})) for i in plan.indexes) or not _is_consistent(then, plan):
        return False
    if plan.deferred and any(s.operation not in ROWS_ONLY for s in steps_above(table, plan.pin.version)):
        return False  # the segments that fragments have in common may be others
    if plan.drain and fragment_reuse(table) is None:
        return False
    return set(plan.stale_config) <= set(fragment_stats.stale_settings(table))
