"""What optimize would do: a plan from metadata alone, except that a missing vector index reads its vectors.

1. skip     a table with drift is reported and not changed
2. rewrite  runs of neighbouring small fragments are merged up to half the target and beyond; a fragment of which more
            than a tenth is deleted is rewritten (`bins.py`)
3. budget   what does not fit is left for a later run (`budget.py`)
4. indices  on the new fragments: declared ones that are missing are built, others extended, merged or
            built again (`omnigraph.index.segments`)

With a deferred remap indices are not rewritten. So they come first: uncovered rows are indexed on the old fragments,
and fragments are merged that will have all their segments in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from omnigraph.commit.operation import View
from omnigraph.errors import GraphMoved, OmnigraphError, UsageError
from omnigraph.index.declared import declared
from omnigraph.index.segments import (
    IndexPlan,
    Layout,
    broken_by,
    merge_barriers,
    not_worth_keeping,
    segments_by_fragment,
    with_planned,
)
from omnigraph.language.schema.model import EntityType
from omnigraph.maintenance.concurrency import map_threads
from omnigraph.maintenance.drift import drift_of, published
from omnigraph.maintenance.optimize.bins import plan_bins
from omnigraph.maintenance.optimize.budget import Draft, fitted
from omnigraph.maintenance.optimize.indices import built_anew, coverage_of, index_work, sound
from omnigraph.maintenance.optimize.model import (
    DRIFT,
    Bin,
    OptimizeOptions,
    OptimizePlan,
    PendingIndex,
    TablePlan,
)
from omnigraph.maintenance.selection import choose_tables
from omnigraph.storage.files.blob_files import blob_bytes
from omnigraph.storage.lance import fragment_stats, lance_api
from omnigraph.storage.lance.fragment_stats import Fragment
from omnigraph.storage.lance.indices import built_indices, fragment_reuse
from omnigraph.storage.lance.rewrites.rewrite import first_new_id

if TYPE_CHECKING:
    from lance import LanceDataset


def plan(view: View, options: OptimizeOptions) -> OptimizePlan:
    """Nothing is changed. The plan belongs to exactly this state."""
    if options.defer_index_remap and view.manifest.stable_row_ids():
        detail = "defer_index_remap is for graphs that were made with row ids by address (--row-ids address)."
        raise UsageError(detail=detail)
    type_ids = choose_tables(view.table_keys, options.tables)
    types = sorted((view.schema.by_id[t] for t in type_ids), key=lambda t: (t.kind != "node", t.name))
    each = partial(map_threads, view.tables.location, at_once=options.concurrency)
    drafts = list(each(lambda t: _draft(view, t, options), types))
    if options.max_bytes is None and options.max_rows is None:
        tables = list(each(lambda draft: _finished(view, draft, draft.plan.bins, options), drafts))
    else:
        tables = fitted(drafts, options, partial(_finished_within, view, options))
    return OptimizePlan(
        graph=view.tables.location.uri,
        branch=view.head.branch,
        incarnation=view.head.incarnation,
        commit=view.head.commit,
        schema=view.head.schema,
        options=options,
        tables=tuple(tables),
        manifest_fragments=_manifest_fragments(view),
    )


def _manifest_fragments(view: View) -> int:
    fragments = len(view.manifest.table().get_fragments())
    return fragments if fragments > 1 else 0


def _failed(view: View, t: EntityType, error: OmnigraphError) -> TablePlan:
    """A failure in one table is recorded in its plan, and the others are planned."""
    pin = view.pins[t.id]
    return TablePlan(
        table=t.id,
        table_key=t.key,
        pin=pin,
        lance_head_version=pin.version,
        fragments=pin.fragments or 0,
        rows=pin.rows or 0,
        bytes=0,
        error=error.message,
    )


def _draft(view: View, t: EntityType, options: OptimizeOptions) -> Draft:
    try:
        return _rewrites(view, t, options)
    except GraphMoved:
        raise
    except OmnigraphError as error:
        return Draft(_failed(view, t, error))


def _rewrites(view: View, t: EntityType, options: OptimizeOptions) -> Draft:
    """Steps 1 and 2."""
    pin = view.pins[t.id]
    table = published(view, t.id)
    drift = drift_of(view, t.id)
    with lance_api.reading(f"planning {t.key}"):
        beside = blob_bytes(view.tables.location, pin, table) if _has_blobs(t) else {}
        fragments = fragment_stats.fragments_of(table, beside)
        stale = fragment_stats.stale_settings(table)
        in_window = not table.has_stable_row_ids and fragment_reuse(table) is not None
        indexes: tuple[IndexPlan, ...] = ()
        pending: tuple[PendingIndex, ...] = ()
        bins: tuple[Bin, ...] = ()
        if drift is None and options.defer_index_remap:
            indexes, pending, bins = _deferred(view, table, t, fragments, options)
        elif drift is None:
            bins = _bins(table, fragments, options)
    table_plan = TablePlan(
        table=t.id,
        table_key=t.key,
        pin=pin,
        lance_head_version=pin.version if drift is None else drift.head_version,
        fragments=len(fragments),
        rows=sum(f.rows for f in fragments),
        bytes=sum(f.size_bytes for f in fragments),
        blob_bytes=fragment_stats.blobs_of(table, beside),
        bins=bins,
        indexes=indexes,
        pending_indexes=pending,
        stale_config=stale,
        skipped=None if drift is None else DRIFT,
        deferred=options.defer_index_remap,
        drain=in_window and not options.defer_index_remap,
    )
    return Draft(table_plan, fragments, 0 if table_plan.deferred else len(declared(t)))


def _has_blobs(t: EntityType) -> bool:
    return any(p.type.kind == "Blob" for p in t.properties)


def _bins(table: LanceDataset, fragments: Sequence[Fragment], options: OptimizeOptions) -> tuple[Bin, ...]:
    """Merge within index segments that are worth keeping, across those that have to be built again."""
    first, target = first_new_id(table), options.target_rows_per_fragment
    bins = plan_bins(fragments, target, first_id=first)
    built = built_indices(table) if bins else []
    if not built:
        return bins
    plain = layout_of(table, fragments, ())
    rebuild_anyway = not_worth_keeping(built, plain)
    while True:
        bins = plan_bins(fragments, target, first_id=first, common=merge_barriers(built, plain, rebuild_anyway))
        more = broken_by(built, layout_of(table, fragments, bins)) - rebuild_anyway
        if not more:
            return bins
        rebuild_anyway |= more


def _deferred(
    view: View, table: LanceDataset, t: EntityType, fragments: Sequence[Fragment], options: OptimizeOptions
) -> tuple[tuple[IndexPlan, ...], tuple[PendingIndex, ...], tuple[Bin, ...]]:
    """Steps 4 and 2, in this order. The graph of an HNSW index can't follow a rewrite that drops rows: such an index
    is rebuilt first.
    """
    built, layout, first = built_indices(table), layout_of(table, fragments, ()), first_new_id(table)
    anew = built_anew(view.tables.location, view.pins[t.id], table, built, every=options.rebuild_indexes)
    rebuilt: dict[str, str] = {}
    while True:
        indexes, pending = index_work(table, t, layout, built, whole=rebuilt, anew=anew, absorb=False)
        after = segments_by_fragment(with_planned(built, indexes))
        bins = plan_bins(fragments, options.target_rows_per_fragment, first_id=first, common=after)
        losing = {number for merged in bins if merged.deleted for number in merged.fragments}
        more = {b.name for b in built if "HNSW" in b.kind and b.covered & losing} - rebuilt.keys()
        if not more:
            return indexes, pending, bins
        rebuilt |= dict.fromkeys(more, "its graph can't follow a rewrite that leaves rows out")


def _finished(view: View, draft: Draft, bins: Sequence[Bin], options: OptimizeOptions) -> TablePlan:
    if draft.plan.skipped is not None or draft.plan.error is not None:
        return draft.plan
    t = view.schema.by_id[draft.plan.table]
    try:
        return _with_indexes(view, t, draft, bins, options)
    except OmnigraphError as error:
        return _failed(view, t, error)


def _finished_within(view: View, options: OptimizeOptions, draft: Draft, bins: Sequence[Bin]) -> TablePlan:
    return _finished(view, draft, bins, options)


def _with_indexes(view: View, t: EntityType, draft: Draft, bins: Sequence[Bin], options: OptimizeOptions) -> TablePlan:
    """Step 4."""
    table, begun, fragments = view.open(t), draft.plan, draft.fragments
    indexes, pending = begun.indexes, begun.pending_indexes
    with lance_api.reading(f"planning {t.key}"):
        built = built_indices(table)
        anew = built_anew(view.tables.location, begun.pin, table, built, every=options.rebuild_indexes)
        if not begun.deferred:
            whole = {b.name: "it ends the deferred remap" for b in built} if begun.drain else {}
            layout = layout_of(table, fragments, bins)
            indexes, pending = index_work(table, t, layout, built, whole=whole, anew=anew)
    return replace(
        begun,
        bins=tuple(bins),
        indexes=indexes,
        pending_indexes=pending,
        # Settings of a line that the branch only inherits are those of the branch that owns it.
        stale_config=begun.stale_config if bins or indexes or view.owns(begun.pin) else (),
        coverage=coverage_of(t, sound(built, anew), {f.id: f.rows for f in fragments}, pending),
        left_fragments=sum(len(b.fragments) for b in begun.bins) - sum(len(b.fragments) for b in bins),
    )


def layout_of(table: LanceDataset, fragments: Sequence[Fragment], bins: Sequence[Bin]) -> Layout:
    ids = fragment_stats.RowIds(table)
    replaced = {number for merged in bins for number in merged.fragments}
    rows = {f.id: f.rows for f in fragments if f.id not in replaced}
    return Layout(
        rows=rows | {b.new_id: b.rows for b in bins if b.rows},
        members={b.new_id: b.fragments for b in bins},
        worn=frozenset(b.new_id for b in bins if b.deleted),
        live=frozenset(f.id for f in fragments),
        stable=bool(table.has_stable_row_ids),
        row_ids=ids.row_ids,
        span=ids.span,
        created=lambda number: fragment_stats.lowest_created(table, number),
    )
