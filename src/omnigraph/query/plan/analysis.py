"""What is known of a checked query before it runs, whatever its parameters: found once, kept with the query.

Clauses are known by their identity: an analysis lives as long as the query that it is about.
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
class Wanted:
    """What is done with the rows of a pattern: which variables are used, and whether equal rows count as one."""

    slots: frozenset[int]
    distinct: bool = False
    rows_max: int | None = None
    """More rows than this are more rows of the answer than the query may give."""


@dataclass(frozen=True)
class Used:
    """The variables of a clause. `only` is the one that a condition is about, if it is one."""

    slots: frozenset[int]
    only: Variable | None = None
    searches: bool = False


@dataclass(eq=False)
class Analysis:
    body: object
    _used: dict[int, Used] = field(default_factory=dict, repr=False)
    _columns: dict[int, set[str]] | None = None
    _wanted: Wanted | None = None
    kept: dict[str, Any] = field(default_factory=dict, repr=False)
    """What else is made once: by name."""

    def used(self, clause: Clause) -> Used:
        found = self._used.get(id(clause))
        if found is None:
            found = self._used[id(clause)] = _used(clause)
        return found

    @property
    def columns(self) -> dict[int, set[str]]:
        """Of every variable the columns that the query looks at."""
        if self._columns is None:
            self._columns = _columns(self.body)
        return self._columns

    @property
    def wanted(self) -> Wanted:
        """What a read does with its rows."""
        if self._wanted is None:
            assert isinstance(self.body, Read)
            self._wanted = _wanted(self.body)
        return self._wanted


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
    """The two ends of a traversal; of another clause nothing."""
    return frozenset((clause.source.slot, clause.target.slot)) if isinstance(clause, Expand) else frozenset()


def unbound_optionals(waiting: Sequence[Clause]) -> frozenset[int]:
    """What optional blocks that have not run yet will bind. A traversal from there waits for its block."""
    return frozenset(v.slot for c in waiting if isinstance(c, Maybe) for v in c.pattern.binds)


def outer_of(pattern: Pattern) -> frozenset[int]:
    return frozenset(v.slot for v in pattern.outer)


def _columns(body: object) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for term in walk(body):
        if isinstance(term, Property) and term.type.kind not in ("Vector", "Blob"):
            found.setdefault(term.variable.slot, set()).add(term.name)
        elif isinstance(term, Object):
            found.setdefault(term.variable.slot, set()).update(("id", *term.properties))
    for variable in body.ties if isinstance(body, Read) else ():
        if variable.kind != "path":
            found.setdefault(variable.slot, set()).add("id")
    return found


def _wanted(body: Read) -> Wanted:
    used: tuple[object, ...] = (body.columns, body.having, body.order)
    slots = {v.slot for v in walk(used) if isinstance(v, Variable)} | {v.slot for v in body.ties}
    distinct = body.distinct and not body.aggregated
    if body.aggregated:
        aggregates = [t for t in walk(used) if isinstance(t, Aggregate)]
        distinct = all(t.distinct or t.name in ("min", "max") for t in aggregates)
        if any(t.name == "collect" and not t.distinct for t in aggregates):
            slots |= {v.slot for v in body.pattern.binds}
    return Wanted(frozenset(slots), distinct)


def aggregates_of(expressions: tuple[Expression, ...]) -> list[Aggregate]:
    return list(dict.fromkeys(t for t in walk(expressions) if isinstance(t, Aggregate)))
