"""Patterns: from the clauses of a block to a checked Pattern.

1. declare   bindings say which types a variable has; edge and path variables must be new
2. infer     traversals narrow the types of their ends, and bind those that nothing else binds (`inference`)
3. fix       every new variable gets its place in the query; from here on its types stand
4. optional  blocks in the order of the text; what they bind is known after them, and may be null
5. rest      conditions and `not` blocks, which see all of that
6. order     clauses are put into an order in which each finds its variables bound
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from omnigraph.language.query import tree
from omnigraph.language.query.context import Context, Scope
from omnigraph.language.query.inference import Fit, Types, fit
from omnigraph.language.query.model import Absent, Clause, Expand, Maybe, Mode, Pattern, Scan, Step, Where
from omnigraph.language.query.terms import (
    And,
    Compare,
    Constant,
    Expression,
    In,
    ListOf,
    Property,
    Variable,
    variables_of,
)
from omnigraph.language.query.typer import Typer
from omnigraph.language.query.types import BOOL, STRING, Type, assignable, describe
from omnigraph.language.schema.source import Place

ANONYMOUS = "_"


@dataclass
class Block:
    """A block while it is being checked. `types` of a new variable are None until something says what it is."""

    context: Context
    outer: Scope
    nullable: bool
    types: dict[str, Types | None] = field(default_factory=dict)
    scope: Scope = field(default_factory=Scope)
    fits: dict[int, Fit] = field(default_factory=dict)
    ends: dict[int, tuple[str, str]] = field(default_factory=dict)
    bound: list[Variable] = field(default_factory=list)


def check_pattern(
    context: Context, clauses: Sequence[tree.Clause], outer: Scope, *, nullable: bool = False
) -> tuple[Pattern, Scope]:
    """The pattern, and the scope with what it binds."""
    block = Block(context, outer, nullable, scope=Scope(outer))
    _declare(block, clauses)
    _infer(block, clauses)
    _fix(block, clauses)
    tests = _binding_tests(block, clauses)
    optional: list[Clause] = []
    for clause in clauses:
        if isinstance(clause, tree.Block) and clause.kind == "optional":
            optional.append(_optional(block, clause))
    rest = [*tests, *_conditions(block, clauses)]
    ordered = _ordered(block, clauses, optional, rest)
    new = {v.slot for v in block.bound}
    used = variables_of(tuple(ordered))
    external = tuple(v for v in used if v.slot not in new and _is_outside(outer, v))
    return Pattern(tuple(block.bound), external, tuple(ordered)), block.scope


def _is_outside(outer: Scope, v: Variable) -> bool:
    return outer.find(v.name) == v


# ---- 1 declare -------------------------------------------------------------------------------------------------------


def _declare(block: Block, clauses: Sequence[tree.Clause]) -> None:
    context = block.context
    special: dict[str, str] = {}
    nodes: set[str] = set()
    for clause in clauses:
        if isinstance(clause, tree.Binding):
            nodes.add(clause.variable.name)
        elif isinstance(clause, tree.Traversal):
            nodes.update((clause.source.name, clause.target.name))
            for variable, code, what in ((clause.edge, "T23", "edge"), (clause.path, "T27", "path")):
                if variable is not None:
                    _check_fresh(block, variable, {*special, *nodes}, code, what)
                    special[variable.name] = what
    for i, clause in enumerate(clauses):
        if isinstance(clause, tree.Binding):
            _check_node_name(block, clause.variable, special)
            types = context.nodes_named(clause.type_name, clause.place)
            name = clause.variable.name
            if name == ANONYMOUS or block.outer.find(name) is not None:
                continue
            before = block.types.get(name)
            kept = types if before is None else tuple(e for e in before if e in types)
            if not kept and types:
                raise context.fail("T5", clause.place, f"${name} can't be a {clause.type_name} as well.")
            block.types[name] = kept
        elif isinstance(clause, tree.Traversal):
            _check_traversal(block, clause)
            names = []
            for j, variable in enumerate((clause.source, clause.target)):
                _check_node_name(block, variable, special)
                # Every $_ is another variable; a name that no text can hold keeps them apart.
                name = f"_ {i} {j}" if variable.name == ANONYMOUS else variable.name
                names.append(name)
                if block.outer.find(name) is None:
                    block.types.setdefault(name, None)
            block.ends[i] = (names[0], names[1])


def _check_fresh(block: Block, variable: tree.Variable, taken_here: set[str], code: str, what: str) -> None:
    name = variable.name
    taken = name in taken_here or name in block.context.parameters or block.outer.find(name) is not None
    if taken or name == ANONYMOUS:
        detail = f"The {what} variable ${name} needs a name that nothing else has."
        raise block.context.fail(code, variable.place, detail)


def _check_node_name(block: Block, variable: tree.Variable, special: dict[str, str]) -> None:
    name, context = variable.name, block.context
    if name in context.parameters:
        raise context.fail("T6", variable.place, f"${name} is a parameter; a node needs another name.")
    outer = block.outer.find(name)
    kind = special.get(name) or (outer.kind if outer is not None else "node")
    if kind != "node":
        code = "T27" if kind == "path" else "T23"
        raise context.fail(code, variable.place, f"${name} is the variable of {_an(kind)}, not of a node.")


def _check_traversal(block: Block, t: tree.Traversal) -> None:
    context, bounds = block.context, t.bounds
    if bounds is not None:
        if bounds.minimum < 1:
            raise context.fail("T15", bounds.place, "A traversal has at least one hop.")
        if bounds.maximum is not None and bounds.maximum < bounds.minimum:
            detail = f"The most hops ({bounds.maximum}) are fewer than the least ({bounds.minimum})."
            raise context.fail("T15", bounds.place, detail)
    if t.edge is not None and bounds is not None and (bounds.minimum, bounds.maximum) != (1, 1):
        raise context.fail("T23", t.edge.place, f"${t.edge.name} is one edge; a traversal of several hops has many.")
    if t.path is not None and not t.shortest and bounds is not None and bounds.maximum is None:
        detail = "Without a maximum there can be too many paths; give one, or write path $p = shortest …"
        raise context.fail("T27", bounds.place, detail)
    words = [w.name.lower() for w in t.edges]
    twice = next((w for i, w in enumerate(t.edges) if w.name.lower() in words[:i]), None)
    if twice is not None:
        raise context.fail("T4", twice.place, f"The edge {twice.name} is named twice.")


# ---- 2 infer, 3 fix --------------------------------------------------------------------------------------------------


def _infer(block: Block, clauses: Sequence[tree.Clause]) -> None:
    traversals = {i: c for i, c in enumerate(clauses) if isinstance(c, tree.Traversal)}
    while True:
        before = dict(block.types)
        waiting = []
        for i, t in traversals.items():
            if all(_types(block, name) is None for name in block.ends[i]):
                waiting.append(i)
            else:
                _narrow(block, i, t)
        if block.types == before:
            if not waiting:
                return
            _narrow(block, waiting[0], traversals[waiting[0]])


def _types(block: Block, name: str) -> Types | None:
    outer = block.outer.find(name)
    return block.types.get(name) if outer is None else outer.types


def _narrow(block: Block, i: int, t: tree.Traversal) -> None:
    source, target = block.ends[i]
    found = block.fits[i] = fit(block.context, t, _types(block, source), _types(block, target))
    for name, types in ((source, found.sources), (target, found.targets)):
        if name in block.types:
            block.types[name] = types
    if source == target and source in block.types:
        both = tuple(e for e in found.sources if e in found.targets)
        if not both:
            raise block.context.fail("T5", t.place, f"${t.source.name} can't be both ends of {t.edges[0].name}.")
        block.types[source] = both


def _fix(block: Block, clauses: Sequence[tree.Clause]) -> None:
    """Variables in the order of the text: of a traversal source, edge, target, path."""
    for i, clause in enumerate(clauses):
        if isinstance(clause, tree.Binding):
            _make(block, clause.variable.name)
            if clause.variable.name == ANONYMOUS:
                types = block.context.nodes_named(clause.type_name, clause.place)
                block.types[f"_ {i}"] = types
                _make(block, f"_ {i}")
        elif isinstance(clause, tree.Traversal):
            _make(block, block.ends[i][0])
            if clause.edge is not None:
                edges = tuple(block.context.entity(c.edge) for c in block.fits[i].crossings)
                _add(block, clause.edge.name, block.context.variable(clause.edge.name, "edge", edges, block.nullable))
            _make(block, block.ends[i][1])
            if clause.path is not None:
                path = block.context.variable(clause.path.name, "path", (), block.nullable)
                _add(block, clause.path.name, path)


def _make(block: Block, name: str) -> None:
    types = block.types.get(name)
    if name in block.scope.names or types is None:
        return
    shown = ANONYMOUS if name.startswith("_ ") else name
    _add(block, name, block.context.variable(shown, "node", types, block.nullable))


def _add(block: Block, name: str, variable: Variable) -> None:
    block.scope.names[name] = variable
    block.bound.append(variable)
    block.context.reads.update(variable.types)


# ---- 4 optional, 5 rest ----------------------------------------------------------------------------------------------


def _optional(block: Block, clause: tree.Block) -> Maybe:
    pattern, scope = check_pattern(block.context, clause.clauses, block.scope, nullable=True)
    if not pattern.outer:
        detail = "An optional block continues from a variable that is bound outside of it; this one uses none."
        raise block.context.fail("T28", clause.place, detail)
    for name, variable in scope.names.items():
        if variable.name != ANONYMOUS:
            block.scope.names[name] = variable
    block.bound.extend(pattern.binds)
    return Maybe(pattern)


def _binding_tests(block: Block, clauses: Sequence[tree.Clause]) -> list[Clause]:
    """What the braces of a binding ask for; and the type, where the variable comes from outside."""
    tests: list[Clause] = []
    for i, clause in enumerate(clauses):
        if not isinstance(clause, tree.Binding):
            continue
        name = f"_ {i}" if clause.variable.name == ANONYMOUS else clause.variable.name
        variable = block.scope.find(name)
        assert variable is not None, "a binding is declared before"
        types = block.context.nodes_named(clause.type_name, clause.place)
        if not set(variable.types) <= set(types):
            kept = [e for e in variable.types if e in types]
            if not kept:
                raise block.context.fail("T5", clause.place, f"${name} is never a {clause.type_name}.")
            names = ListOf(tuple(Constant(e.name, STRING) for e in kept), Type("List", item="String"))
            tests.append(Where(In(block.context.property(variable, "@type", clause.place), names)))
        for assignment in clause.properties:
            tests.append(Where(_equals(block, variable, assignment)))
    return tests


def _equals(block: Block, variable: Variable, assignment: tree.Assignment) -> Expression:
    context = block.context
    found = context.property(variable, assignment.name, assignment.place, "T2")
    place = assignment.value.place
    _check_pattern_property(block, found, assignment.place)
    typer = Typer(context, block.scope, "value")
    value = typer.dated(typer.read(assignment.value), found, place)
    if value.type.kind == "Null":
        detail = f"Nothing equals null; write ${variable.name}.{assignment.name} is null as a clause."
        raise context.fail("T3", place, detail)
    numbers = value.type.is_number and found.type.is_number
    if not (numbers or assignable(value.type, found.type)):
        raise context.fail("T3", place, f"{found.name} is {describe(found.type)}; this is {describe(value.type)}.")
    if isinstance(value, Constant) and found.type.kind == "Enum" and value.value not in found.type.values:
        word = str(value.value)
        raise context.fail(
            "T3",
            place,
            f"{found.name} has no value {word!r}; it is {found.type.null(False)}.",
            word=word,
            known=found.type.values,
        )
    return Compare("=", found, value, BOOL.null(found.type.nullable or value.type.nullable))


def _check_pattern_property(block: Block, found: Property, place: Place) -> None:
    if found.type.kind in ("List", "Vector", "Blob"):
        hint = (
            f"; write ${found.variable.name}.{found.name} contains … as a clause" if found.type.kind == "List" else ""
        )
        raise block.context.fail("T3", place, f"{describe(found.type)} can't be matched by equality{hint}.")


def _conditions(block: Block, clauses: Sequence[tree.Clause]) -> list[Clause]:
    found: list[Clause] = []
    for clause in clauses:
        if isinstance(clause, tree.Filter):
            condition = Typer(block.context, block.scope, "match").condition(clause.condition)
            parts = condition.operands if isinstance(condition, And) else (condition,)
            found.extend(Where(part) for part in parts)
        elif isinstance(clause, tree.Block) and clause.kind == "not":
            pattern, _ = check_pattern(block.context, clause.clauses, block.scope)
            if not pattern.outer:
                detail = "A not block speaks of a variable that is bound outside of it; this one uses none."
                raise block.context.fail("T9", clause.place, detail)
            found.append(Absent(pattern))
    return found


# ---- 6 order ---------------------------------------------------------------------------------------------------------


def _ordered(
    block: Block, clauses: Sequence[tree.Clause], optional: Sequence[Clause], rest: Sequence[Clause]
) -> list[Clause]:
    """Scans, expansions, what needs no optional variable, the optional blocks, the rest."""
    ordered: list[Clause] = []
    known: set[Variable] = set()
    for i, clause in enumerate(clauses):
        if not isinstance(clause, tree.Binding):
            continue
        name = f"_ {i}" if clause.variable.name == ANONYMOUS else clause.variable.name
        variable = block.scope.names.get(name)
        if variable is not None and variable not in known:
            ordered.append(Scan(variable))
            known.add(variable)
    waiting = [_expand(block, i, c) for i, c in enumerate(clauses) if isinstance(c, tree.Traversal)]
    new = set(block.bound)
    while waiting:
        ready = next((e for e in waiting if e.source not in new - known or e.target not in new - known), None)
        if ready is None:
            ordered.append(Scan(waiting[0].source))
            known.add(waiting[0].source)
            continue
        waiting.remove(ready)
        ordered.append(ready)
        known.update((ready.source, ready.target))
    late = {v for clause in optional if isinstance(clause, Maybe) for v in clause.pattern.binds}
    parts: tuple[list[Clause], list[Clause]] = ([], [])
    for test in rest:
        parts[not late.isdisjoint(variables_of(test))].append(test)
    return [*ordered, *parts[0], *optional, *parts[1]]


def _expand(block: Block, i: int, t: tree.Traversal) -> Expand:
    context, found = block.context, block.fits[i]
    source, target = (block.scope.find(name) for name in block.ends[i])
    assert source is not None, "the ends of a traversal are declared before"
    assert target is not None, "the ends of a traversal are declared before"
    steps = []
    for crossing in found.crossings:
        steps.append(
            Step(
                context.entity(crossing.edge),
                crossing.direction,
                context.node(crossing.starts),
                context.node(crossing.ends),
            )
        )
        context.reads.update((steps[-1].edge, steps[-1].starts, steps[-1].ends))
    low, high = (1, 1) if t.bounds is None else (t.bounds.minimum, t.bounds.maximum)
    if found.never:
        context.notes.append((t.place, f"No {t.edges[0].name} follows another, so {low} hops never match."))
    mode: Mode = (
        "edges" if t.edge is not None else "shortest" if t.shortest else "paths" if t.path is not None else "pairs"
    )
    return Expand(
        source,
        target,
        tuple(steps),
        low,
        high,
        mode,
        None if t.edge is None else block.scope.names[t.edge.name],
        None if t.path is None else block.scope.names[t.path.name],
    )


def _an(word: str) -> str:
    return f"an {word}" if word[0] in "aeio" else f"a {word}"
