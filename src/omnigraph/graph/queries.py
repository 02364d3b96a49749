"""Asking a graph handle: queries that read, on one pinned state, queries that write, and both prepared. See
`omnigraph.query`.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from omnigraph.arguments import checked
from omnigraph.commit.actor import checked_actor
from omnigraph.config.logs import log_event
from omnigraph.errors import FileUnreadable, UsageError
from omnigraph.storage.manifest.records import MAIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from omnigraph.commit.committer import Committer
    from omnigraph.commit.operation import View
    from omnigraph.graph.prepared_query import PreparedQuery
    from omnigraph.graph.snapshot import AsOf, Snapshot
    from omnigraph.language.query.model import CheckedQuery
    from omnigraph.query.mutation.result import MutationResult
    from omnigraph.query.query_cache import QueryCache
    from omnigraph.query.result import Result
    from omnigraph.tasks.engine import EngineSettings

logger = logging.getLogger(__name__)

_SPARK_ONLY = (
    "the engine of a query is None (this process) or 'spark', which takes none of timeout_s, max_rows and "
    "max_memory_bytes."
)


class QueryMethods:
    """What `Graph` inherits: reading and writing by queries."""

    _committer: Committer
    _actor: str | None
    _query_cache: QueryCache | None = None

    def _by(self, actor: str | None) -> str | None:
        """Who a write is by: the one that the call names, or else the one of this handle."""
        return checked_actor(self._actor if actor is None else actor)

    def snapshot(self, branch: str = MAIN, *, commit: str | None = None, as_of: AsOf | None = None) -> Snapshot:
        raise NotImplementedError

    @property
    def engines(self) -> EngineSettings:
        raise NotImplementedError

    @overload
    def query(
        self,
        source: str | os.PathLike[str],
        name: str | None = ...,
        params: Mapping[str, Any] | None = ...,
        *,
        branch: str = ...,
        commit: str | None = ...,
        as_of: AsOf | None = ...,
        timeout_s: float | None = ...,
        max_rows: int | None = ...,
        max_memory_bytes: int | None = ...,
        explain: bool = ...,
        engine: None = None,
        **values: Any,
    ) -> Result: ...

    @overload
    def query(
        self,
        source: str | os.PathLike[str],
        name: str | None = ...,
        params: Mapping[str, Any] | None = ...,
        *,
        branch: str = ...,
        commit: str | None = ...,
        as_of: AsOf | None = ...,
        explain: bool = ...,
        engine: Literal["spark"],
        **values: Any,
    ) -> DataFrame: ...

    @checked
    def query(
        self,
        source: str | os.PathLike[str],
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str = MAIN,
        commit: str | None = None,
        as_of: AsOf | None = None,
        timeout_s: float | None = None,
        max_rows: int | None = None,
        max_memory_bytes: int | None = None,
        explain: bool = False,
        engine: Literal["spark"] | None = None,
        **values: Any,
    ) -> Result | DataFrame:
        """Run a read query: the text of one, or the path of a .gq file (a `Path`, or a text that ends in .gq).

        `name` chooses one query of several. Parameters are given as `params` or by their names. The answer comes from
        one state: the branch's newest, that of a commit, or that of a time. `explained()` of the result has the steps
        with their rows and times. With `engine="spark"` the answer is a Spark DataFrame of the same rows, and searches
        are refused.
        """
        from omnigraph.query.limits import Options

        text, file = query_text(source)
        options = Options(timeout_s=timeout_s, max_rows=max_rows, max_memory_bytes=max_memory_bytes)
        given = {**(params or {}), **values}
        snapshot = self.snapshot(branch, commit=commit, as_of=as_of)
        if engine is not None:
            if engine != "spark" or options != Options():
                raise UsageError(detail=_SPARK_ONLY)
            return self._on_spark(snapshot, text, name, given, file=file)
        result = self.queries.query(snapshot, text, name, given, options=options, file=file)
        if explain:
            warnings.warn("query(explain=True) is deprecated; use Result.explained()", DeprecationWarning, stacklevel=3)
            fields = {"branch": result.branch, "commit": result.commit, "query": result.name}
            log_event(logger, logging.INFO, "query explained", **fields, steps=result.explained())
        return result

    @checked
    def mutate(
        self,
        source: str | os.PathLike[str],
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str = MAIN,
        actor: str | None = None,
        if_commit: str | None = None,
        operation_id: str | None = None,
        **values: Any,
    ) -> MutationResult:
        """Run a query that writes: its statements in order, in one commit or none. Source and parameters as of `query`.

        With `if_commit` it is refused unless that commit is the branch's newest. An `operation_id` that was done before
        is not done again.
        """
        from omnigraph.commit.request import Request
        from omnigraph.query.mutation.run import run_mutation

        text, file = query_text(source)
        query_cache = self.queries

        def check(view: View) -> CheckedQuery:
            return query_cache.checked(text, name, view.schema, view.head.schema, file=file)

        request = Request(branch=branch, actor=self._by(actor), if_commit=if_commit, operation_id=operation_id)
        return run_mutation(self._committer, check, {**(params or {}), **values}, request, cache=query_cache.cache)

    @checked
    def prepare(
        self,
        source: str | os.PathLike[str],
        name: str | None = None,
        *,
        branch: str = MAIN,
        commit: str | None = None,
        as_of: AsOf | None = None,
        timeout_s: float | None = None,
        max_rows: int | None = None,
        max_memory_bytes: int | None = None,
        actor: str | None = None,
        query_file: str | None = None,
    ) -> PreparedQuery:
        """A query that reads or writes, checked now and run later, any number of times: `statement.run(slug="ada")`.

        Source, state and limits as of `query`, the actor as of `mutate`. With `query_file` the source is a text, and
        errors name it so.
        """
        from omnigraph.graph.prepared_query import State, prepare
        from omnigraph.query.limits import Options

        text, file = query_text(source) if query_file is None else (str(source), query_file)
        options = Options(timeout_s=timeout_s, max_rows=max_rows, max_memory_bytes=max_memory_bytes)
        state = State(branch, commit, as_of)
        return prepare(self, text, name, state, file=file, options=options, actor=checked_actor(actor) or self._actor)

    def _on_spark(
        self, snapshot: Snapshot, text: str, name: str | None, given: Mapping[str, Any], *, file: str
    ) -> DataFrame:
        from omnigraph.query.spark.run import spark_query
        from omnigraph.tasks.session import spark_session

        checked = self.queries.checked(text, name, snapshot.schema, snapshot.view.head.schema, file=file)
        session = self.engines.session or spark_session(self.engines.settings)
        return spark_query(session, snapshot, checked, given)

    @property
    def queries(self) -> QueryCache:
        """Checked queries and what was derived for them: shared by all queries of this handle."""
        if self._query_cache is None:
            from omnigraph.query.query_cache import QueryCache

            self._query_cache = QueryCache()
        return self._query_cache


def query_text(source: str | os.PathLike[str]) -> tuple[str, str]:
    """(the text, what errors call it)."""
    is_path = not isinstance(source, str) or (source.endswith(".gq") and "\n" not in source and "{" not in source)
    if not is_path:
        text = str(source)
        if not text.strip():
            raise UsageError(detail="the query is empty.")
        return text, "<query>"
    path = os.fspath(source)
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8-sig"), path
    except OSError as error:
        raise FileUnreadable(path=path, detail=f"{(error.strerror or str(error)).lower()}.") from error
    except UnicodeDecodeError as error:
        raise FileUnreadable(path=path, detail=f"it is not UTF-8 text (byte {error.start}).") from error
