"""Canonical text of queries: `render` writes text that parses to an equal tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from omnigraph.language.query.syntax.literals import show_literal
from omnigraph.language.query.syntax.tree import (
    COMPARISONS,
    WORD_OPERATORS,
    Access,
    Assignment,
    Binding,
    Block,
    Call,
    Clause,
    Constant,
    Delete,
    Expression,
    Filter,
    Insert,
    Items,
    Merge,
    Name,
    Operation,
    Parameter,
    Projection,
    Query,
    QueryFile,
    Read,
    Returning,
    Statement,
    Traversal,
    Update,
    Variable,
)

LINE_CHARS_MAX = 100
# Operator precedence; an operand of lower precedence is put in parentheses.
_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _ATOM = range(7)


def render(file: QueryFile) -> str:
    return "\n\n".join(render_query(q) for q in file.queries) + ("\n" if file.queries else "")


def render_query(q: Query) -> str:
    parameters = ", ".join(_parameter(p) for p in q.parameters)
    lines = [f"query {q.name}({parameters})"]
    for a in q.annotations:
        lines.append(f"  @{a.name}" + ("" if a.value is None else f"({show_literal(a.value)})"))
    lines[-1] += " {"
    if isinstance(q.body, Read):
        lines += _indent(_read(q.body))
    else:
        for s in q.body:
            lines += _indent(_statement(s))
    return "\n".join([*lines, "}"])


def _parameter(p: Parameter) -> str:
    return f"${p.name}: {p.type}{'?' if p.nullable else ''}"


def _read(body: Read) -> list[str]:
    lines = _block("match", body.match)
    lines += _braces("return distinct" if body.distinct else "return", [_projection(p) for p in body.projections])
    if body.having:
        lines += _braces("having", [show_expression(e) for e in body.having])
    if body.order:
        order = [show_expression(o.value) + (f" {o.direction}" if o.direction else "") for o in body.order]
        lines += _braces("order", order)
    for word, value in (("limit", body.limit), ("offset", body.offset)):
        if value is not None:
            lines.append(f"{word} {show_expression(value)}")
    return lines


def _projection(p: Projection) -> str:
    return show_expression(p.value) + (f" as {p.alias}" if p.alias is not None else "")


def _braces(head: str, items: Sequence[str]) -> list[str]:
    line = f"{head} {{ {', '.join(items)} }}"
    if len(line) <= LINE_CHARS_MAX:
        return [line]
    return [f"{head} {{", *_indent(f"{item}," for item in items[:-1]), f"  {items[-1]}", "}"]


def _indent(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


# ---- patterns --------------------------------------------------------------------------------------------------------


def _block(head: str, clauses: Sequence[Clause]) -> list[str]:
    lines = [f"{head} {{"]
    for clause in clauses:
        lines += _indent(_clause(clause))
    return [*lines, "}"]


def _clause(clause: Clause) -> list[str]:
    if isinstance(clause, Block):
        return _block(clause.kind, clause.clauses)
    if isinstance(clause, Binding):
        inner = f" {_assignments(clause.properties)}" if clause.properties else ""
        return [f"${clause.variable.name}: {clause.type_name}{inner}"]
    if isinstance(clause, Traversal):
        return [_traversal(clause)]
    assert isinstance(clause, Filter)
    text = show_expression(clause.condition)
    return [f"({text})" if text.startswith("-") or _joins(clause.condition) else text]


def _joins(e: Expression) -> bool:
    """Whether the condition, without parentheses, would join with the clause before or after it. Bare words do.

    So does a single variable before a clause that starts with one: two in a row are an edge binding.
    """
    first = last = e
    while isinstance(first, Operation) and first.operator not in ("not", "negative"):
        first = first.operands[0]
    while isinstance(last, Operation) and last.operator not in ("is null", "is not null"):
        last = last.operands[-1]
    return isinstance(e, Variable) or isinstance(first, Name) or isinstance(last, Name)


def _traversal(t: Traversal) -> str:
    words = "|".join(w.name for w in t.edges)
    if t.undirected:
        words = f"<{words}>"
    elif t.edge is not None and len(t.edges) > 1:
        words = f"({words})"
    bounds = ""
    if t.bounds is not None:
        bounds = f"{{{t.bounds.minimum},{'' if t.bounds.maximum is None else t.bounds.maximum}}}"
    path = "" if t.path is None else f"path ${t.path.name} = "
    shortest = "shortest " if t.shortest else ""
    edge = "" if t.edge is None else f"${t.edge.name}:"
    return f"{path}{shortest}${t.source.name} {edge}{words}{bounds} ${t.target.name}"


def _assignments(assignments: Sequence[Assignment]) -> str:
    inner = ", ".join(f"{a.name}: {show_expression(a.value)}" for a in assignments)
    return f"{{ {inner} }}" if inner else "{}"


# ---- statements ------------------------------------------------------------------------------------------------------


def _statement(s: Statement) -> list[str]:
    if isinstance(s, Delete):
        lines = [f"delete {s.type_name} where {show_expression(s.where)}"]
    elif isinstance(s, Update):
        lines = _set(f"update {s.type_name} set", s.values)
        lines[-1] += f" where {show_expression(s.where)}"
    elif isinstance(s, Merge):
        lines = [f"merge {s.type_name} {_assignments(s.keys)}"]
        if s.values:
            head, *rest = _set(" set", s.values)
            lines = [lines[0] + head, *rest]
    else:
        assert isinstance(s, Insert)
        lines = _set(f"insert {s.type_name}", s.values)
        if s.match is not None:
            head, *rest = _block(" from match", s.match)
            lines = [*lines[:-1], lines[-1] + head, *rest]
    return lines + _returning(s.returning)


def _set(head: str, assignments: Sequence[Assignment]) -> list[str]:
    line = f"{head} {_assignments(assignments)}"
    if len(line) <= LINE_CHARS_MAX:
        return [line]
    inner = [f"{a.name}: {show_expression(a.value)}" for a in assignments]
    return [f"{head} {{", *_indent(f"{item}," for item in inner[:-1]), f"  {inner[-1]}", "}"]


def _returning(r: Returning | None) -> list[str]:
    if r is None:
        return []
    return _indent(_braces("returning", [_projection(p) for p in r.projections] or ["*"]))


# ---- expressions -----------------------------------------------------------------------------------------------------


def show_expression(e: Expression) -> str:
    return _shown(e)[0]


def _shown(e: Expression) -> tuple[str, int]:
    """The text, and the precedence of its outermost operator."""
    if isinstance(e, Constant):
        return show_literal(e.value), _ATOM
    if isinstance(e, Variable):
        return f"${e.name}", _ATOM
    if isinstance(e, Access):
        return f"${e.variable.name}.{e.name}", _ATOM
    if isinstance(e, Name):
        return e.name, _ATOM
    if isinstance(e, Items):
        return f"[{', '.join(show_expression(i) for i in e.items)}]", _ATOM
    if isinstance(e, Call):
        inner = "*" if e.star else ", ".join(show_expression(a) for a in e.arguments)
        return f"{e.name}({'distinct ' if e.distinct else ''}{inner})", _ATOM
    return _operation(e)


def _operation(e: Operation) -> tuple[str, int]:
    op = e.operator
    if op in ("and", "or"):
        level = _AND if op == "and" else _OR
        return f" {op} ".join(_within(o, level + 1) for o in e.operands), level
    if op == "not":
        return f"not {_within(e.operands[0], _NOT)}", _NOT
    if op in ("is null", "is not null"):
        return f"{_within(e.operands[0], _SUM)} {op}", _COMPARE
    if op == "negative":
        return f"-{_within(e.operands[0], _ATOM)}", _ATOM
    left, right = e.operands
    if op in (*COMPARISONS, *WORD_OPERATORS, "not in"):
        return f"{_within(left, _SUM)} {op} {_within(right, _SUM)}", _COMPARE
    level = _SUM if op in "+-" else _PRODUCT
    return f"{_within(left, level)} {op} {_within(right, level + 1)}", level


def _within(e: Expression, level: int) -> str:
    text, binds = _shown(e)
    return text if binds >= level else f"({text})"
