"""Queries, in this process: patterns, traversals, search, aggregates, on one pinned state; and statements that write.

    result = run_query(snapshot, checked, {"slug": "ada"})

The language is `omnigraph.language.query`; its `model` defines what a query means. Here it is made fast: predicates
and look-ups by Lance, traversals on adjacency arrays, the rest on Arrow and numpy. Caches are derived and may be
dropped at any time; they change how long an answer takes, never the answer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omnigraph.query.execution.run import bound_rows, run_query
    from omnigraph.query.limits import Options
    from omnigraph.query.mutation.result import MutationResult
    from omnigraph.query.mutation.run import run_mutation
    from omnigraph.query.query_cache import QueryCache
    from omnigraph.query.result import Result

_HOME = {
    "QueryCache": "query_cache",
    "MutationResult": "mutation.result",
    "Options": "limits",
    "Result": "result",
    "bound_rows": "execution.run",
    "run_mutation": "mutation.run",
    "run_query": "execution.run",
}
__all__ = ["MutationResult", "Options", "QueryCache", "Result", "bound_rows", "run_mutation", "run_query"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
