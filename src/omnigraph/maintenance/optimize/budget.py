"""Which part of a run fits into its budgets. They are strict: no more is read, index work included.

1. rewrites  those that save most fragments per byte come first, each counted with what its table's indices read of its
             rows; of one that does not fit, neighbours that do
2. tables    with these a table is planned completely. If its rewrites make its indices read more than remains, half
             of them are left for a later run, repeatedly, until it fits
3. indices   that no rewrite needs come last, the smallest first, each as a whole
4. windows   the end of a deferred remap is done completely or not at all: an index left out would lose its rows
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from omnigraph.index.segments import IndexPlan
from omnigraph.maintenance.optimize.bins import bin_of
from omnigraph.maintenance.optimize.model import Bin, OptimizeOptions, TablePlan
from omnigraph.storage.lance.fragment_stats import Fragment


@dataclass
class Budget:
    """What may still be read; None is no limit."""

    size: float | None
    rows: float | None

    @staticmethod
    def of(options: OptimizeOptions) -> Budget:
        return Budget(options.max_bytes, options.max_rows)

    def has(self, size: float, rows: float) -> bool:
        return (self.size is None or size <= self.size) and (self.rows is None or rows <= self.rows)

    def take(self, size: float, rows: float) -> bool:
        """Take this amount if it is there; whether it was."""
        if not self.has(size, rows):
            return False
        self.size = None if self.size is None else self.size - size
        self.rows = None if self.rows is None else self.rows - rows
        return True


@dataclass(frozen=True)
class Draft:
    """A plan with all rewrites that are worth doing, the fragments that it was made from, and how many indices there
    will be.
    """

    plan: TablePlan
    fragments: Sequence[Fragment] = ()
    indexes: int = 0


def remaining(limit: int | None, used: int, *, minimum: int = 0) -> int | None:
    """What is left of a limit, at least `minimum`; None is no limit. Nothing is begun with a limit of 1."""
    return None if limit is None else max(minimum, limit - used)


Finish = Callable[[Draft, Sequence[Bin]], TablePlan]


def rewrites(drafts: Sequence[Draft], options: OptimizeOptions) -> dict[str, list[Bin]]:
    """Step 1: the rewrites of each table, best first."""
    budget = Budget.of(options)
    allowed: dict[str, list[Bin]] = {draft.plan.table: [] for draft in drafts}
    candidates = [(draft, candidate) for draft in drafts for candidate in draft.plan.bins]
    candidates.sort(key=lambda item: len(item[1].fragments) / max(1, item[1].read_bytes), reverse=True)
    by_id = {draft.plan.table: {f.id: f for f in draft.fragments} for draft in drafts}
    for draft, candidate in candidates:
        fitting = (
            candidate
            if budget.take(*_cost(draft, candidate))
            else _part(draft, candidate, by_id[draft.plan.table], budget)
        )
        if fitting is not None:
            allowed[draft.plan.table].append(fitting)
    return allowed


def _cost(draft: Draft, candidate: Bin) -> tuple[float, float]:
    """Bytes and rows that a rewrite reads, and the indices of its rows."""
    return candidate.read_bytes + draft.plan.index_bytes(candidate.rows * draft.indexes), candidate.rows * (
        1 + draft.indexes
    )


def _part(draft: Draft, candidate: Bin, by_id: Mapping[int, Fragment], budget: Budget) -> Bin | None:
    """Neighbours of a rewrite that fit; None if no two of them do."""
    run: list[Fragment] = []
    for number in candidate.fragments:
        fragment = by_id[number]
        if budget.has(*_cost(draft, bin_of([*run, fragment], candidate.new_id))):
            run.append(fragment)
        elif len(run) > 1:
            break
        else:
            run = [fragment] if budget.has(*_cost(draft, bin_of([fragment], candidate.new_id))) else []
    if len(run) < 2:
        return None
    fitting = bin_of(run, candidate.new_id)
    budget.take(*_cost(draft, fitting))
    return fitting


def fitted(drafts: Sequence[Draft], options: OptimizeOptions, finish: Finish) -> list[TablePlan]:
    """Steps 1 to 4, in the order of the drafts."""
    allowed, budget = rewrites(drafts, options), Budget.of(options)
    plans = {
        draft.plan.table: _planned(draft, allowed[draft.plan.table], budget, finish)
        for draft in sorted(drafts, key=lambda d: not allowed[d.plan.table])
    }
    return [_with_indexes(*plans[draft.plan.table], budget) for draft in drafts]


def _planned(draft: Draft, bins: list[Bin], budget: Budget, finish: Finish) -> tuple[TablePlan, list[IndexPlan]]:
    """Step 2: the plan with what its rewrites need, and the indices that can wait."""
    while True:
        plan = finish(draft, sorted(bins, key=lambda b: b.new_id))
        needed, waiting = _divided(plan)
        if budget.take(needed.read_bytes, needed.read_rows):
            return needed, waiting
        if not bins:
            return replace(plan, indexes=(), drain=False, left_indexes=len(plan.indexes)), []
        bins = bins[: len(bins) // 2]


def _divided(plan: TablePlan) -> tuple[TablePlan, list[IndexPlan]]:
    """What has to be done together, and the indices that may be done on their own."""
    if plan.drain or plan.deferred:
        return plan, []
    new = {b.new_id for b in plan.bins}
    needed = [i for i in plan.indexes if new and i.known and (i.remove or new & {n for g in i.build for n in g})]
    return replace(plan, indexes=tuple(needed)), [i for i in plan.indexes if i not in needed]


def _with_indexes(plan: TablePlan, waiting: Sequence[IndexPlan], budget: Budget) -> TablePlan:
    """Step 3."""
    taken = [i for i in sorted(waiting, key=lambda i: i.rows) if budget.take(*_read(plan, i))]
    kept = {i.name for i in (*plan.indexes, *taken)}
    indexes = [i for i in (*plan.indexes, *waiting) if i.name in kept]
    return replace(plan, indexes=tuple(indexes), left_indexes=plan.left_indexes + len(waiting) - len(taken))


def _read(plan: TablePlan, index: IndexPlan) -> tuple[float, float]:
    alone = replace(plan, bins=(), indexes=(index,))
    return alone.read_bytes, alone.read_rows
