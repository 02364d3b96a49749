"""Mutations: the statements of a query that writes, in order, as one commit or none.

1. check     the query against the schema of the view, bind its parameters
2. run       each statement on the state after the previous ones, as pending rows (`statements`)
3. validate  the final rows of all changes, by the rules of all writes
4. apply     one piece of prepared work per table; the committer publishes it

All steps are a function of one view. If another writer commits first, the statements run again on the newer state, so
`set { n: n + 1 }` never loses an update, and conditions hold on the state that is changed. The time `now()` and the ids
of new rows stay the same. A query without a net change makes no commit. A failure in any statement leaves nothing but
unreferenced files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from omnigraph.commit.committer import Committer
from omnigraph.commit.operation import Prepared, View
from omnigraph.commit.request import Request
from omnigraph.errors import UsageError
from omnigraph.language.query.model import CheckedQuery, Delete, Insert, Merge, Read, Statement, Update
from omnigraph.language.query.params import bind_params
from omnigraph.language.query.terms import And, Compare, Expression, Property
from omnigraph.language.schema.model import EntityType
from omnigraph.query.limits import Options, Watch, enough_memory
from omnigraph.query.mutation.result import MutationResult
from omnigraph.query.mutation.state import State
from omnigraph.query.mutation.statements import run_statement
from omnigraph.query.tables.cache import Cache
from omnigraph.storage.ulids import Ulids
from omnigraph.write import changes
from omnigraph.write.apply import apply_deltas
from omnigraph.write.mutate import KEPT_IDS_MAX, consulted
from omnigraph.write.validate import validate
from omnigraph.write.violations import refuse_if_any

Check = Callable[[View], CheckedQuery]
"""The query, checked against the schema of a view."""


def run_mutation(
    committer: Committer,
    check: Check,
    params: Mapping[str, Any],
    request: Request,
    *,
    cache: Cache | None = None,
    options: Options | None = None,
) -> MutationResult:
    """Run a query that writes. It commits exactly once, or raises a typed error and has no effect."""
    view = committer.view(request.branch)
    checked = check(view)
    statements_of(checked)
    bind_params(checked, params)
    operation = Mutation(
        check=check,
        params=params,
        quick=is_quick(checked, view),
        cache=cache if cache is not None else Cache(),
        options=(options or Options()).checked(),
    )
    outcome = committer.run(operation, request)
    return MutationResult.of(outcome, name=checked.name, branch=request.branch)


def statements_of(checked: CheckedQuery) -> tuple[Statement, ...]:
    if isinstance(checked.body, Read):
        raise UsageError(detail=f"{checked.name} only reads; `query` runs it, `mutate` runs what writes.")
    return checked.body


@dataclass(frozen=True, eq=False)
class Mutation:
    """The operation behind `mutate`."""

    check: Check
    params: Mapping[str, Any]
    quick: bool
    cache: Cache
    options: Options = field(default_factory=Options)
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    kind: str = "mutate"
    _ulids: dict[int, Ulids] = field(default_factory=lambda: defaultdict(Ulids.fresh), repr=False)
    """By statement: a row that is prepared again on a newer state keeps its id."""

    def scope(self, view: View) -> frozenset[str]:
        return frozenset(e.id for e in self.check(view).writes)

    def prepare(self, view: View) -> Prepared:
        checked = self.check(view)
        statements = statements_of(checked)
        watch = Watch(checked.name, self.options)
        state = State(view, checked, bind_params(checked, self.params), now=self.now, cache=self.cache, watch=watch)
        last = max((i for i, s in enumerate(statements) if s.returning), default=None)
        inserted_ids: dict[str, list[str]] = {}
        returned: pa.Table | None = None
        for i, s in enumerate(statements):
            with enough_memory(checked.name):
                result = run_statement(state, s, ulids=self._ulids[i], returning=i == last)
            if len(result.inserted_ids):
                inserted_ids.setdefault(s.target.name, []).extend(result.inserted_ids.to_pylist())
            if result.returned is not None:
                returned = result.returned
        return self._prepared(view, checked, state, inserted_ids, returned)

    def _prepared(
        self,
        view: View,
        checked: CheckedQuery,
        state: State,
        inserted_ids: dict[str, list[str]],
        returned: pa.Table | None,
    ) -> Prepared:
        deltas = state.deltas
        if len(statements_of(checked)) > 1:
            # A later statement may have reverted a change of an earlier one.
            deltas = {name: changes.without_unchanged(d, view) for name, d in deltas.items()}
        deltas = {name: d for name, d in deltas.items() if not d.is_empty}
        refuse_if_any(validate(view.schema, deltas, view))
        applied = apply_deltas(view, deltas)
        counts = applied.counts.to_json()
        return Prepared(
            view=view,
            tables=applied.tables,
            reads=consulted(view, deltas) | {e.id for e in (*checked.reads, *checked.writes)},
            summary={**counts, "query": checked.name, **_generated(view, inserted_ids)},
            result={"ids": inserted_ids, "returned": returned, "base": view.head.commit},
        )


def _generated(view: View, inserted_ids: Mapping[str, list[str]]) -> dict[str, Any]:
    """Generated ids, if they are few: recorded so that a repeated operation can return them."""
    ids = {name: type_ids for name, type_ids in inserted_ids.items() if not view.type(name).key_properties}
    return {"ids": ids} if 0 < sum(map(len, ids.values())) <= KEPT_IDS_MAX else {}


# ---- duration --------------------------------------------------------------------------------------------------------


def is_quick(checked: CheckedQuery, view: View) -> bool:
    """Whether the statements select rows by id or key, so that running them takes milliseconds."""
    return all(_is_quick(s, view.type(s.target.name)) for s in statements_of(checked))


def _is_quick(s: Statement, t: EntityType) -> bool:
    if isinstance(s, Insert):
        return s.pattern is None
    if isinstance(s, Merge):
        return True
    assert isinstance(s, Update | Delete)
    return _selects_few(s.where, {"id", "src", "dst", *(t.key_properties if len(t.key_properties) == 1 else ())})


def _selects_few(e: Expression, names: set[str]) -> bool:
    if isinstance(e, And):
        return any(_selects_few(o, names) for o in e.operands)
    sides = (e.left, e.right) if isinstance(e, Compare) and e.operator == "=" else ()
    return any(isinstance(side, Property) and side.name in names for side in sides)
