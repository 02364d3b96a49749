"""A prepared statement: a query that is parsed and checked once, and run as often as wanted with other parameters.

1. prepare   the text is checked against the schema of the state that it will meet; what is wrong is said here
2. run       as `Graph.query` or `Graph.mutate`: a read on one pinned state, a write in one commit or none

Keeps: the answer is that of the same text given anew. A run on a state with another schema checks the text against that
schema (once per schema, cached by the query cache), so a statement lives as long as its graph handle; if it does not
fit any more, the run is refused as the text would be. The parameters are those of the text and never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from omnigraph.arguments import checked
from omnigraph.commit.actor import checked_actor
from omnigraph.commit.operation import View
from omnigraph.commit.request import Request
from omnigraph.errors import UsageError
from omnigraph.language.query.model import CheckedQuery
from omnigraph.query.execution.run import run_query
from omnigraph.query.limits import Options
from omnigraph.query.mutation.result import MutationResult
from omnigraph.query.mutation.run import run_mutation
from omnigraph.query.result import Result

if TYPE_CHECKING:
    from omnigraph.graph.queries import QueryMethods
    from omnigraph.graph.snapshot import AsOf


@dataclass(frozen=True)
class Param:
    """`type` as it is written in the query, without the question mark that `nullable` stands for."""

    name: str
    type: str
    nullable: bool

    def __str__(self) -> str:
        return f"${self.name}: {self.type}{'?' if self.nullable else ''}"


@dataclass(frozen=True)
class State:
    """Which state a statement runs on: the branch's newest unless a commit or a time is named."""

    branch: str
    commit: str | None = None
    as_of: AsOf | None = None


@dataclass(frozen=True, eq=False)
class PreparedQuery:
    """Threads may share it. `columns` are those of the rows that a run gives, none if it gives no rows."""

    name: str
    params: tuple[Param, ...]
    columns: tuple[str, ...]
    is_write: bool
    branch: str
    _graph: QueryMethods = field(repr=False)
    _text: str = field(repr=False)
    _chosen: str | None = field(repr=False)
    _file: str = field(repr=False)
    _state: State = field(repr=False)
    _options: Options = field(repr=False)
    _actor: str | None = field(repr=False)
    _checked: CheckedQuery = field(repr=False)
    _schema_id: str = field(repr=False)

    @checked
    def run(
        self,
        params: Mapping[str, Any] | None = None,
        /,
        *,
        if_commit: str | None = None,
        operation_id: str | None = None,
        **values: Any,
    ) -> Result | MutationResult:
        """Parameters as one mapping, by their names, or both. `if_commit` and `operation_id` are those of `mutate`."""
        given = {**(params or {}), **values}
        if self.is_write:
            actor = checked_actor(self._actor)
            request = Request(branch=self.branch, actor=actor, if_commit=if_commit, operation_id=operation_id)
            return run_mutation(self._graph._committer, self._for, given, request, cache=self._graph.queries.cache)
        if if_commit is not None or operation_id is not None:
            raise UsageError(detail=f"{self.name} only reads; if_commit and operation_id are for what writes.")
        snapshot = self._graph.snapshot(self.branch, commit=self._state.commit, as_of=self._state.as_of)
        checked = self._for(snapshot.view)
        query_cache = self._graph.queries
        analysis = query_cache.analysis((self._text, self._chosen, snapshot.view.head.schema), checked)
        return run_query(snapshot, checked, given, options=self._options, cache=query_cache.cache, analysis=analysis)

    __call__ = run

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.params))})"

    def _for(self, view: View) -> CheckedQuery:
        """The query as checked against the schema of this state."""
        if view.head.schema == self._schema_id:
            return self._checked
        return self._graph.queries.checked(self._text, self._chosen, view.schema, view.head.schema, file=self._file)


def prepare(
    graph: QueryMethods, text: str, name: str | None, state: State, *, file: str, options: Options, actor: str | None
) -> PreparedQuery:
    view = graph.snapshot(state.branch, commit=state.commit, as_of=state.as_of).view
    checked = graph.queries.checked(text, name, view.schema, view.head.schema, file=file)
    if checked.is_mutation and (state.commit is not None or state.as_of is not None):
        raise UsageError(
            detail=f"{checked.name} writes, and only the newest state of a branch can be written, not an older state."
        )
    return PreparedQuery(
        name=checked.name,
        params=tuple(Param(p.name, str(p.type.null(False)), p.type.nullable) for p in checked.parameters),
        columns=tuple(c.name for c in checked.columns),
        is_write=checked.is_mutation,
        branch=state.branch,
        _graph=graph,
        _text=text,
        _chosen=name,
        _file=file,
        _state=state,
        _options=options.checked(),
        _actor=actor,
        _checked=checked,
        _schema_id=view.head.schema,
    )
