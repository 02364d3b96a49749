"""Facts about a checked query that do not depend on its parameters: computed once, cached with the query.

Clauses are looked up by object identity: an analysis lives as long as its query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from omnigraph.language.query.model import Absent, Clause, Expand, Maybe, Pattern, Read, Where
from omnigraph.language.query.terms import (
    Aggregate,
    Expression,
    Object,
    Property,
    Search,
    Variable,
    variables_of,
    walk,
)


@dataclass(frozen=True)
class Needs:
    """What the caller of a pattern uses of its rows: which variables, and whether equal rows count once."""

    slots: frozenset[int]
    distinct: bool = False
    rows_max: int | None = None
    """If the pattern has more rows than this, the answer exceeds `max_rows`."""


@dataclass(frozen=True)
class Used:
    """The variables of a clause. `only` is the variable of a condition that uses exactly one."""

    slots: frozenset[int]
    only: Variable | None = None
    searches: bool = False


@dataclass(eq=False)
class Analysis:
    body: object
    _used: dict[int, Used] = field(default_factory=dict, repr=False)
    _columns: dict[int, set[str]] | None = None
    _needs: Needs | None = None
    memo: dict[str, Any] = field(default_factory=dict, repr=False)
    """Other values computed once, by name."""

    def used(self, clause: Clause) -> Used:
        used = self._used.get(id(clause))
        if used is None:
            used = self._used[id(clause)] = _used(clause)
        return used

    @property
    def columns(self) -> dict[int, set[str]]:
        """The columns that the query reads, by slot of their variable."""
        if self._columns is None:
            self._columns = _columns(self.body)
        return self._columns

    @property
    def needs(self) -> Needs:
        """What a read uses of the rows of its pattern."""
        if self._needs is None:
            assert isinstance(self.body, Read)
            self._needs = _needs(self.body)
        return self._needs


def _used(clause: Clause) -> Used:
    if isinstance(clause, Absent | Maybe):
        return Used(outer_of(clause.pattern))
    variables = list(variables_of(clause))
    slots = frozenset(v.slot for v in variables)
    if not isinstance(clause, Where):
        return Used(slots)
    searches = any(isinstance(t, Search) for t in walk(clause))
    return Used(slots, variables[0] if len(slots) == 1 else None, searches)


def ends_of(clause: Clause) -> frozenset[int]:
    """The slots of both ends of a traversal; empty for another clause."""
    return frozenset((clause.source.slot, clause.target.slot)) if isinstance(clause, Expand) else frozenset()


def unbound_optionals(waiting: Sequence[Clause]) -> frozenset[int]:
    """The slots that waiting optional blocks will bind. A traversal from one of them waits for its block."""
    return frozenset(v.slot for c in waiting if isinstance(c, Maybe) for v in c.pattern.binds)


def outer_of(pattern: Pattern) -> frozenset[int]:
    return frozenset(v.slot for v in pattern.outer)


def _columns(body: object) -> dict[int, set[str]]:
    columns: dict[int, set[str]] = {}
    for term in walk(body):
        if isinstance(term, Property) and term.type.kind not in ("Vector", "Blob"):
            columns.setdefault(term.variable.slot, set()).add(term.name)
        elif isinstance(term, Object):
            columns.setdefault(term.variable.slot, set()).update(("id", *term.properties))
    for variable in body.ties if isinstance(body, Read) else ():
        if variable.kind != "path":
            columns.setdefault(variable.slot, set()).add("id")
    return columns


def _needs(body: Read) -> Needs:
    used: tuple[object, ...] = (body.columns, body.having, body.order)
    slots = {v.slot for v in walk(used) if isinstance(v, Variable)} | {v.slot for v in body.ties}
    distinct = body.distinct and not body.aggregated
    if body.aggregated:
        aggregates = [t for t in walk(used) if isinstance(t, Aggregate)]
        distinct = all(t.distinct or t.name in ("min", "max") for t in aggregates)
        if any(t.name == "collect" and not t.distinct for t in aggregates):
            slots |= {v.slot for v in body.pattern.binds}
    return Needs(frozenset(slots), distinct)


def aggregates_of(expressions: tuple[Expression, ...]) -> list[Aggregate]:
    return list(dict.fromkeys(t for t in walk(expressions) if isinstance(t, Aggregate)))
