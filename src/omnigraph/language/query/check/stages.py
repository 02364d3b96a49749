"""Which clauses of a block come before an optional block of it, and which continue from the variables of that block.

A variable belongs to the clause that names it first, in the order of the text. If that is an optional block, the block
binds it, and traversals and bindings after the block continue from it: they have no rows where it is null. A block that
comes before every variable that it could continue from is treated as if it came after the first clause that names one
of them, so `optional { $p worksAt $c } $p: Person` has the same meaning in either order.

Conditions and `not` blocks bind nothing here: they can use all variables of the whole block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass

from omnigraph.language.query.check.context import Scope
from omnigraph.language.query.syntax import tree

ANONYMOUS = "_"


@dataclass(frozen=True)
class Stage:
    """`optional` runs first, None in the first stage; then the clauses, by their index in the block."""

    optional: tree.Block | None
    places: list[int] = field(default_factory=list)


def stages_of(clauses: Sequence[tree.Clause], outer: Scope) -> list[Stage]:
    """All bindings, traversals and optional blocks, each in one stage.

    A binding or traversal is in the stage of the last optional block that binds one of its variables.
    """
    stages = [Stage(None)]
    stage_of: dict[str, int] = {}
    """The stage that binds each variable so far."""
    waiting: list[tree.Block] = []
    for i, clause in enumerate(clauses):
        if isinstance(clause, tree.Binding | tree.Traversal):
            names = set(_bindable((clause,)))
            stage = max((stage_of.get(n, 0) for n in names), default=0)
            stages[stage].places.append(i)
            for name in names:
                stage_of.setdefault(name, stage)
        elif isinstance(clause, tree.Block) and clause.kind == "optional":
            waiting.append(clause)
        while (ready := next((b for b in waiting if _is_anchored(b, stage_of, outer)), None)) is not None:
            waiting.remove(ready)
            stages.append(Stage(ready))
            for name in _bindable(ready.clauses):
                if outer.find(name) is None:
                    stage_of.setdefault(name, len(stages) - 1)
    return [*stages, *(Stage(b) for b in waiting)]


def _is_anchored(block: tree.Block, bound: Iterable[str], outer: Scope) -> bool:
    names = set(_mentioned(block))
    return not names.isdisjoint(bound) or any(outer.find(n) is not None for n in names)


def _bindable(clauses: Iterable[tree.Clause]) -> Iterator[str]:
    """The variables that clauses bind unless something else has bound them; a `not` block binds nothing outside."""
    for clause in clauses:
        if isinstance(clause, tree.Block):
            yield from _bindable(clause.clauses) if clause.kind == "optional" else ()
        elif not isinstance(clause, tree.Filter):
            yield from (v.name for v in tree.named(clause) if v is not None and v.name != ANONYMOUS)


def _mentioned(part: object) -> Iterator[str]:
    """All variables, at any depth."""
    if isinstance(part, tree.Variable):
        if part.name != ANONYMOUS:
            yield part.name
    elif isinstance(part, tuple):
        for item in part:
            yield from _mentioned(item)
    elif is_dataclass(part):
        for f in fields(part):
            if f.name != "place":
                yield from _mentioned(getattr(part, f.name))
