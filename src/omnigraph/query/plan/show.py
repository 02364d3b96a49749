"""Checked clauses and expressions as short text, for `explain`."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.language.query.model import Absent, Clause, Expand, Key, Maybe, Scan, Where
from omnigraph.language.query.syntax.literals import show_literal
from omnigraph.language.query.terms import (
    Aggregate,
    And,
    Arithmetic,
    Bm25,
    Compare,
    Constant,
    Expression,
    Function,
    Fused,
    In,
    IsNull,
    ListOf,
    Match,
    Nearest,
    Not,
    Object,
    Or,
    Output,
    Parameter,
    PathOf,
    Property,
    Search,
)


def show_clauses(clauses: Sequence[Clause]) -> str:
    return ", ".join(show_clause(c) for c in clauses)


def show_about(about: object) -> str:
    """The subject of an executed step as text."""
    if isinstance(about, str):
        return about
    if isinstance(about, tuple | list):
        return ", ".join(show_about(a) for a in about)
    if isinstance(about, Key):
        return show(about.value) + (" desc" if about.descending else "")
    if isinstance(about, Scan | Where | Absent | Maybe | Expand):
        return show_clause(about)
    return show(about)  # type: ignore[arg-type]


def show_clause(clause: Clause) -> str:
    if isinstance(clause, Scan):
        return f"${clause.variable.name}: {'|'.join(e.name for e in clause.variable.types)}"
    if isinstance(clause, Where):
        return show(clause.condition)
    if isinstance(clause, Absent | Maybe):
        word = "not" if isinstance(clause, Absent) else "optional"
        return f"{word} {{ {show_clauses(clause.pattern.clauses)} }}"
    return _expand(clause)


def _expand(e: Expand) -> str:
    edges = "|".join({s.edge.name: None for s in e.steps})
    if any(s.direction == "both" for s in e.steps):
        edges = f"<{edges}>"
    if e.edge is not None:
        edges = f"${e.edge.name}:{edges}"
    bounds = "" if e.minimum == e.maximum == 1 else f"{{{e.minimum},{'' if e.maximum is None else e.maximum}}}"
    back = " backwards" if all(s.direction == "in" for s in e.steps) else ""
    path = f"path ${e.path.name} = " if e.path is not None else ""
    word = "shortest " if e.mode == "shortest" else ""
    return f"{path}{word}${e.source.name} {edges}{bounds} ${e.target.name}{back}"


def show(e: Expression) -> str:
    if isinstance(e, Constant):
        is_plain = isinstance(e.value, str | int | float | bool | type(None))
        return show_literal(e.value) if is_plain else str(e.value)  # type: ignore[arg-type]
    if isinstance(e, Parameter):
        return f"${e.name}"
    if isinstance(e, Property):
        return f"${e.variable.name}.{e.name}"
    if isinstance(e, Object | PathOf):
        return f"${e.variable.name}"
    if isinstance(e, Output):
        return f"column {e.index + 1}"
    if isinstance(e, ListOf):
        return f"[{', '.join(map(show, e.items))}]"
    if isinstance(e, Compare | Arithmetic):
        return f"({show(e.left)} {e.operator} {show(e.right)})"
    if isinstance(e, Match):
        return f"({show(e.text)} {e.operator} {show(e.pattern)})"
    if isinstance(e, In):
        return f"({show(e.needle)} in {show(e.items)})"
    if isinstance(e, IsNull):
        return f"({show(e.operand)} is null)"
    if isinstance(e, And | Or):
        return "(" + (" and " if isinstance(e, And) else " or ").join(map(show, e.operands)) + ")"
    if isinstance(e, Not):
        return f"not {show(e.operand)}"
    return _call(e)


def _call(e: Function | Aggregate | Search | Nearest | Bm25 | Fused) -> str:
    if isinstance(e, Function):
        return f"{e.name}({', '.join(map(show, e.arguments))})"
    if isinstance(e, Aggregate):
        inner = "*" if e.operand is None else show(e.operand)
        return f"{e.name}({'distinct ' if e.distinct else ''}{inner})"
    if isinstance(e, Search):
        return f"{e.name}({show(e.property)}, {show(e.query)})"
    if isinstance(e, Fused):
        return f"rrf({show(e.left)}, {show(e.right)}, {show(e.k)})"
    name = "nearest" if isinstance(e, Nearest) else "bm25"
    query = show(e.query) if isinstance(e, Bm25) or not isinstance(e.query, Constant) else "…"
    return f"{name}({show(e.property)}, {query})"
