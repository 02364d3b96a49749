"""The query language `.gq`: text to trees, trees to checked queries, parameters, lint, and text again.

    file = parse_queries(text, file="people.gq")
    checked = check_query(file.query("friends"), schema)
    values = bind_params(checked, {"name": "Ada"})

Pure: no files but the grammar, no Lance, no Arrow. `model` defines the meaning of a checked query. Names load their
modules when they are first used, and the parser is loaded by the first parse.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omnigraph.language.query.check.query import check_query
    from omnigraph.language.query.lint import CODES, Finding, Report, lint_queries, lint_text, operation
    from omnigraph.language.query.model import CheckedQuery
    from omnigraph.language.query.params import bind_params
    from omnigraph.language.query.syntax.parse import parse_queries
    from omnigraph.language.query.syntax.show import render, render_query
    from omnigraph.language.query.syntax.tree import Query, QueryFile
    from omnigraph.language.query.values import exact

_HOME = {
    "check.query": ("check_query",),
    "lint": ("CODES", "Finding", "Report", "lint_queries", "lint_text", "operation"),
    "model": ("CheckedQuery",),
    "params": ("bind_params",),
    "syntax.parse": ("parse_queries",),
    "syntax.show": ("render", "render_query"),
    "syntax.tree": ("Query", "QueryFile"),
    "values": ("exact",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "CODES",
    "CheckedQuery",
    "Finding",
    "Query",
    "QueryFile",
    "Report",
    "bind_params",
    "check_query",
    "exact",
    "lint_queries",
    "lint_text",
    "operation",
    "parse_queries",
    "render",
    "render_query",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
