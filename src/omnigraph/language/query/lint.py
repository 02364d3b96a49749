"""Findings about a file of queries: every code with its meaning, and what `omnigraph lint` reports.

Errors are what parsing (Q000) or checking (T1 …) refuses; one per query. Warnings never stop a query from running.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from omnigraph.errors import QueryCheckError, QueryError, QuerySyntaxError
from omnigraph.language.query.check.context import Context
from omnigraph.language.query.check.query import checked_in
from omnigraph.language.query.model import CheckedQuery, Column, Insert, Merge, Pattern, Read, Update
from omnigraph.language.query.syntax import tree
from omnigraph.language.query.syntax.parse import parse_queries
from omnigraph.language.query.terms import walk
from omnigraph.language.query.types import KINDS, Type
from omnigraph.language.schema.model import Schema
from omnigraph.language.schema.source import Place, excerpt

CODES = {
    "Q000": "the text does not parse",
    "T1": "a type that the schema does not have",
    "T2": "a property that the type of a binding does not have",
    "T3": "a value that does not fit its property: type, enum, null, list, length of a vector, Blob, date",
    "T4": "an edge that the schema does not have",
    "T5": "an edge between types that it does not connect",
    "T6": "a variable that nothing binds, or a property or column that it does not have",
    "T7": "a comparison of what can't be compared: lists, vectors, Blobs, null, text with numbers",
    "T8": "an aggregate of values that it does not take",
    "T9": "an aggregate outside of return, having and order, or beside what is not grouped; a not block without a "
    "variable from outside",
    "T10": "a statement on a type that does not exist, or one that sets nothing",
    "T11": "a property that the row of a statement does not have, or a Blob in a condition",
    "T12": "an insert lacks a required property or an endpoint",
    "T13": "a property is set twice",
    "T14": "a variable that is no parameter",
    "T15": "bounds of a traversal; types of nearest",
    "T16": "no longer used: edges can be updated",
    "T17": "nearest without a limit",
    "T18": "nearest mixed with an order by alias",
    "T19": "types of search and fuzzy",
    "T20": "types of bm25 and match_text",
    "T21": "types of rrf, its k, or rrf without a limit",
    "T22": "an edge between two types, crossed without a direction",
    "T23": "an edge variable: several hops, a name that is taken, used without a property, searched",
    "T24": "a Blob as a value to read",
    "T25": "a condition that is neither true nor false",
    "T26": "an operator or a function on values that it does not take, or one that does not exist",
    "T27": "a path: a name that is taken, no maximum, used other than by length and nodes",
    "T28": "an optional block without a variable from outside",
    "T29": "columns of the same name; what having, order, limit and offset can't use",
    "T30": "a key that a statement would change, or that merge can't find its row by",
    "T31": "what a statement can't return",
    "L201": "a nullable property of a type that the file writes, which no update sets",
    "L202": "a parameter that nothing uses",
    "L203": "parts of a pattern that nothing connects: every row of one with every row of the other",
    "L204": "a condition or a traversal that never holds",
}


@dataclass(frozen=True)
class Finding:
    """`code` is None for one warning that has none. `type_name` and `property` are set where one is meant."""

    severity: Literal["error", "warning"]
    code: str | None
    message: str
    query: str | None = None
    type_name: str | None = None
    property: str | None = None
    line: int | None = None
    column: int | None = None
    excerpt: str | None = None
    suggestion: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Report:
    """The result of lint for one file. `checked` holds the queries without an error."""

    file: str
    queries: tuple[tree.Query, ...]
    checked: dict[str, CheckedQuery]
    findings: tuple[Finding, ...]

    @property
    def status(self) -> Literal["ok", "warning", "error"]:
        severities = {f.severity for f in self.findings}
        return "error" if "error" in severities else "warning" if severities else "ok"

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "status": self.status,
            "queries": [self._query(q) for q in self.queries],
            "findings": [f.to_json() for f in self.findings],
        }

    def _query(self, q: tree.Query) -> dict[str, Any]:
        own = [f for f in self.findings if f.query == q.name]
        error = next((f.message for f in own if f.severity == "error"), None)
        warnings = [f.message for f in own if f.severity == "warning"]
        body: dict[str, Any] = {
            "name": q.name,
            "kind": "mutation" if q.is_mutation else "read",
            "status": "error" if error else "warning" if warnings else "ok",
            "error": error,
            "warnings": warnings,
        }
        if q.name in self.checked:
            body["operation"] = operation(self.checked[q.name])
        return body


def lint_text(text: str, schema: Schema, *, file: str = "<query>") -> Report:
    """As lint_queries, and a text that does not parse is a finding as well."""
    try:
        parsed = parse_queries(text, file=file)
    except QuerySyntaxError as error:
        return Report(file, (), {}, (_error(error, None),))
    checked, findings = _lint(parsed, schema)
    return Report(file, parsed.queries, checked, tuple(findings))


def lint_queries(file: tree.QueryFile, schema: Schema) -> list[Finding]:
    return _lint(file, schema)[1]


def _lint(file: tree.QueryFile, schema: Schema) -> tuple[dict[str, CheckedQuery], list[Finding]]:
    checked: dict[str, CheckedQuery] = {}
    findings: list[Finding] = []
    for query in file.queries:
        context = Context(query, schema)
        try:
            checked_query = checked[query.name] = checked_in(context)
        except QueryCheckError as error:
            findings.append(_error(error, query.name))
            continue
        findings += _parameters(context)
        findings += [_warning(query, "L204", n.message, n.place, n.suggestion) for n in context.notes]
        findings += _unconnected_patterns(checked_query)
    findings += _never_updated(checked.values(), schema)
    return checked, findings


def _error(error: QueryError, query: str | None) -> Finding:
    f = error.fields
    return Finding(
        "error",
        f["code"],
        f["detail"],
        query,
        line=f["line"],
        column=f["column"],
        excerpt=f["excerpt"],
        suggestion=f.get("suggestion"),
    )


def _warning(query: tree.Query, code: str | None, message: str, place: Place, suggestion: str | None = None) -> Finding:
    line = query.text.text.split("\n")[place.line - 1]
    return Finding(
        "warning",
        code,
        message,
        query.name,
        line=place.line,
        column=place.column,
        excerpt=excerpt(line, place.column),
        suggestion=suggestion,
    )


# ---- warnings --------------------------------------------------------------------------------------------------------


def _parameters(context: Context) -> Iterator[Finding]:
    query = context.query
    if query.is_mutation and not query.parameters:
        message = f"The mutation {query.name} has no parameters: it always writes the same."
        yield _warning(query, None, message, query.place)
    for p in query.parameters:
        if p.name not in context.used_parameters:
            yield _warning(query, "L202", f"Nothing uses the parameter ${p.name}.", p.place)


def _unconnected_patterns(checked: CheckedQuery) -> Iterator[Finding]:
    query, body = checked.query, checked.body
    patterns = (body.pattern,) if isinstance(body, Read) else [s.pattern for s in body if isinstance(s, Insert)]
    for pattern, clauses in zip((p for p in patterns if p is not None), query.patterns, strict=True):
        unconnected = _unconnected(pattern)
        if unconnected is not None:
            message = f"Nothing connects ${unconnected} with the rest of the pattern: every row meets every other."
            first = tree.first_of(clauses, unconnected)
            yield _warning(query, "L203", message, query.place if first is None else first.place)


def _unconnected(pattern: Pattern) -> str | None:
    """A variable that no traversal and no condition connects with the first one."""
    groups: list[set[int]] = [{v.slot} for v in pattern.binds]
    names = {v.slot: v.name for v in pattern.binds}
    for clause in pattern.clauses:
        used = {v.slot for v in walk(clause) if hasattr(v, "slot")} & names.keys()
        touched = [g for g in groups if g & used]
        if len(touched) > 1:
            groups = [g for g in groups if not g & used] + [set().union(*touched)]
    if len(groups) < 2 or not pattern.binds:
        return None
    first = next(g for g in groups if pattern.binds[0].slot in g)
    return next(v.name for v in pattern.binds if v.slot not in first)


def _never_updated(checked: Iterable[CheckedQuery], schema: Schema) -> Iterator[Finding]:
    """Warnings of the file, not of a query; the place is the first statement that writes the type."""
    written: dict[str, set[str]] = {}
    first: dict[str, tuple[tree.Query, Place]] = {}
    for c in checked:
        statements = () if isinstance(c.body, Read) else c.body
        for s, parsed in zip(statements, () if isinstance(c.query.body, tree.Read) else c.query.body, strict=True):
            if isinstance(s, Insert | Update | Merge):
                names = written.setdefault(s.target.name, set())
                names.update(v.name for v in s.values if not isinstance(s, Insert))
                first.setdefault(s.target.name, (c.query, parsed.place))
    for t in schema.types():
        for p in t.properties if t.name in written else ():
            if p.nullable and p.name not in written[t.name]:
                message = f"{t.name}.{p.name} exists in the schema, but no update query sets it."
                warning = _warning(first[t.name][0], "L201", message, first[t.name][1])
                yield replace(warning, query=None, type_name=t.name, property=p.name)


# ---- what a query does -----------------------------------------------------------------------------------------------


def operation(checked: CheckedQuery) -> dict[str, Any]:
    """The columns that a query returns and the types that it reads and writes, as JSON."""
    return {
        "result": [_column(c) for c in checked.columns],
        "reads": [{"kind": e.kind, "type_name": e.name} for e in checked.reads],
        "writes": [{"kind": e.kind, "type_name": e.name} for e in checked.writes],
    }


def _column(c: Column) -> dict[str, Any]:
    t: Type = c.type
    body: dict[str, Any] = {"name": c.name, "kind": KINDS[t.kind], "nullable": t.nullable}
    if t.kind == "List":
        body["item_kind"] = KINDS[t.item or "String"]
    if t.kind == "Vector":
        body["vector_dim"] = t.dimension
    return body
