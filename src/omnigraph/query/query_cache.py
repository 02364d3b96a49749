"""The query cache of a graph handle: checked queries by text and schema, and derived data of tables."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from omnigraph.errors import UsageError
from omnigraph.graph.snapshot import Snapshot
from omnigraph.language.query.check.query import check_query
from omnigraph.language.query.model import CheckedQuery
from omnigraph.language.query.syntax.parse import parse_queries
from omnigraph.language.query.syntax.tree import QueryFile
from omnigraph.language.schema.model import Schema
from omnigraph.language.schema.source import did_you_mean
from omnigraph.query.execution.run import run_query
from omnigraph.query.limits import Options
from omnigraph.query.plan.analysis import Analysis
from omnigraph.query.result import Result
from omnigraph.query.tables.cache import Cache

PLANS_MAX = 512
Named = tuple[str, str | None, str]


class QueryCache:
    """Threads may share an instance."""

    def __init__(self) -> None:
        self.cache = Cache()
        self._lock = threading.Lock()
        self._checked: OrderedDict[Named, CheckedQuery] = OrderedDict()
        self._analysed: OrderedDict[Named, Analysis] = OrderedDict()

    def checked(self, text: str, name: str | None, schema: Schema, schema_id: str, *, file: str) -> CheckedQuery:
        """The named query of the text, or its only one, checked against the schema."""
        key = (text, name, schema_id)
        with self._lock:
            checked = self._checked.get(key)
            if checked is not None:
                self._checked.move_to_end(key)
                return checked
        checked_query = check_query(chosen(parse_queries(text, file=file), name), schema)
        with self._lock:
            self._checked[key] = checked_query
            while len(self._checked) > PLANS_MAX:
                self._checked.popitem(last=False)
        return checked_query

    def query(
        self,
        snapshot: Snapshot,
        text: str,
        name: str | None,
        params: Mapping[str, Any],
        *,
        options: Options,
        file: str = "<query>",
    ) -> Result:
        schema_id = snapshot.view.head.schema
        checked = self.checked(text, name, snapshot.schema, schema_id, file=file)
        return run_query(
            snapshot,
            checked,
            params,
            options=options,
            cache=self.cache,
            analysis=self.analysis((text, name, schema_id), checked),
        )

    def analysis(self, key: Named, checked: CheckedQuery) -> Analysis:
        """The analysis of a checked query, from the cache or new."""
        with self._lock:
            analysis = self._analysed.get(key)
            if analysis is None or analysis.body is not checked.body:
                analysis = self._analysed[key] = Analysis(checked.body)
                while len(self._analysed) > PLANS_MAX:
                    self._analysed.popitem(last=False)
            return analysis


def chosen(file: QueryFile, name: str | None) -> Any:
    """The query of that name; without a name the only one."""
    names = [q.name for q in file.queries]
    if not names:
        raise UsageError(detail=f"{file.text.file} holds no query.")
    if name is None:
        if len(names) > 1:
            detail = f"{file.text.file} holds {len(names)} queries; name one of them: {', '.join(names)}."
            raise UsageError(detail=detail)
        return file.queries[0]
    if name not in names:
        hint = did_you_mean(name, names)
        raise UsageError(detail=f"{file.text.file} has no query {name}; it has {', '.join(names)}.{hint}")
    return next(q for q in file.queries if q.name == name)
