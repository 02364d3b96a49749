"""Patterns: from the clauses of a block to a checked Pattern.

1. stage     optional blocks divide the clauses: those that use a variable of a block come after it (`stages`). The
             variables of previous stages are outer variables of a stage. Of each stage
2. optional  the block that it begins with; its variables are bound from here on, and may be null
3. declare   bindings give the types of a variable; edge and path variables must be new
4. infer     traversals narrow the types of their ends, and bind those that nothing else binds (`inference`)
5. fix       every new variable gets its slot; from here on its types are final. An outer variable that the stage
             narrows has the fewer types from here on, under the same slot
6. rest      conditions and `not` blocks, which can use all of these variables
7. order     clauses are put into an order in which the variables of each are bound
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace

from omnigraph.language.query.check.braces import equals
from omnigraph.language.query.check.context import Context, Scope
from omnigraph.language.query.check.inference import Fit, Types, check_traversal, fit
from omnigraph.language.query.check.stages import ANONYMOUS, stages_of
from omnigraph.language.query.check.typer import Typer
from omnigraph.language.query.model import Absent, Clause, Expand, Maybe, Mode, Pattern, Scan, Step, Where
from omnigraph.language.query.syntax import tree
from omnigraph.language.query.terms import And, Constant, In, ListOf, Variable, variables_of
from omnigraph.language.query.types import STRING, Type


@dataclass
class Block:
    """A stage of a block while it is checked. `types` of a new variable are None until a clause determines them.

    `outer`: the variables bound outside and by previous stages. `clauses`: bindings and traversals by their index.
    `narrowed`: the remaining types of outer variables.
    """

    context: Context
    outer: Scope
    nullable: bool
    clauses: dict[int, tree.Clause]
    types: dict[str, Types | None] = field(default_factory=dict)
    narrowed: dict[str, Types] = field(default_factory=dict)
    scope: Scope = field(default_factory=Scope)
    fits: dict[int, Fit] = field(default_factory=dict)
    ends: dict[int, tuple[str, str]] = field(default_factory=dict)
    bound: list[Variable] = field(default_factory=list)


def check_pattern(
    context: Context, clauses: Sequence[tree.Clause], outer: Scope, *, nullable: bool = False
) -> tuple[Pattern, Scope]:
    """The pattern, and the scope with its variables."""
    scope = Scope(outer)
    blocks: list[Block] = []
    tests: list[Clause] = []
    ordered: list[list[Clause]] = []
    bound: list[Variable] = []
    for stage in stages_of(clauses, outer):
        steps: list[Clause] = []
        if stage.optional is not None:
            maybe, names = _optional(context, stage.optional, scope)
            steps.append(maybe)
            bound.extend(maybe.pattern.binds)
            scope.names.update(names)
        if blocks and not stage.places:
            ordered.append(steps)
            continue
        block = Block(context, scope, nullable, {i: clauses[i] for i in stage.places}, scope=Scope(scope))
        _declare(block)
        _infer(block)
        _fix(block)
        tests += _type_tests(block, clauses)
        ordered.append([*steps, *_joins(block)])
        bound.extend(block.bound)
        blocks.append(block)
        scope = block.scope
    scope = Scope(outer, scope.until(outer))
    tests += [*_binding_tests(context, scope, clauses), *_conditions(context, scope, clauses)]
    flat = _merged(ordered, tests, {v.slot for v in bound} - {v.slot for v in blocks[0].bound})
    narrowed = [name for b in blocks for name in b.narrowed]
    return Pattern(tuple(bound), _external(outer, narrowed, flat), tuple(flat)), scope


def _external(outer: Scope, narrowed: Sequence[str], clauses: Sequence[Clause]) -> tuple[Variable, ...]:
    """The outer variables that the block uses, with the types that they have outside."""
    external: dict[int, Variable] = {}
    for v in variables_of(tuple(clauses)):
        outside = outer.find(v.name)
        if outside is not None and outside.slot == v.slot:
            external[v.slot] = outside
    for name in narrowed:
        outside = outer.find(name)
        if outside is not None:
            external[outside.slot] = outside
    return tuple(external.values())


# ---- 3 declare -------------------------------------------------------------------------------------------------------


def _declare(block: Block) -> None:
    context = block.context
    special: dict[str, str] = {}
    nodes: set[str] = set()
    for clause in block.clauses.values():
        if isinstance(clause, tree.Binding):
            nodes.add(clause.variable.name)
        elif isinstance(clause, tree.Traversal):
            nodes.update((clause.source.name, clause.target.name))
            for variable, code, what in ((clause.edge, "T23", "edge"), (clause.path, "T27", "path")):
                if variable is not None:
                    _check_fresh(block, variable, {*special, *nodes}, code, what)
                    special[variable.name] = what
    for i, clause in block.clauses.items():
        if isinstance(clause, tree.Binding):
            _check_node_name(block, clause.variable, special)
            types = context.nodes_named(clause.type_name, clause.place)
            name = clause.variable.name
            if name == ANONYMOUS:
                continue
            before = _types(block, name)
            remaining = types if before is None else tuple(e for e in before if e in types)
            is_new = block.outer.find(name) is None
            if not remaining and (types if is_new else before):
                word = _an(clause.type_name)
                detail = f"${name} can't be {word} as well." if is_new else f"${name} is never {word}."
                raise context.fail("T5", clause.place, detail)
            _set_types(block, name, remaining)
        elif isinstance(clause, tree.Traversal):
            check_traversal(context, clause)
            names = []
            for variable in (clause.source, clause.target):
                _check_node_name(block, variable, special)
                name = _name(variable)
                names.append(name)
                if block.outer.find(name) is None:
                    block.types.setdefault(name, None)
            block.ends[i] = (names[0], names[1])


def _name(variable: tree.Variable) -> str:
    """A unique name for every `$_`, which is a variable of its own: no text can contain such a name."""
    place = variable.place
    return f"_ {place.line} {place.column}" if variable.name == ANONYMOUS else variable.name


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


# ---- 4 infer, 5 fix --------------------------------------------------------------------------------------------------


def _infer(block: Block) -> None:
    traversals = {i: c for i, c in block.clauses.items() if isinstance(c, tree.Traversal)}
    while True:
        before = {**block.types, **block.narrowed}
        waiting = []
        for i, t in traversals.items():
            if all(_types(block, name) is None for name in block.ends[i]):
                waiting.append(i)
            else:
                _narrow(block, i, t)
        if {**block.types, **block.narrowed} == before:
            if not waiting:
                return
            _narrow(block, waiting[0], traversals[waiting[0]])


def _types(block: Block, name: str) -> Types | None:
    outer = block.outer.find(name)
    return block.types.get(name) if outer is None else block.narrowed.get(name, outer.types)


def _set_types(block: Block, name: str, types: Types) -> None:
    if block.outer.find(name) is None:
        block.types[name] = types
    else:
        block.narrowed[name] = types


def _narrow(block: Block, i: int, t: tree.Traversal) -> None:
    source, target = block.ends[i]
    fitted = block.fits[i] = fit(block.context, t, _types(block, source), _types(block, target))
    if source != target:
        _set_types(block, source, fitted.sources)
        _set_types(block, target, fitted.targets)
        return
    both = tuple(e for e in fitted.sources if e in fitted.targets)
    if not both:
        raise block.context.fail("T5", t.place, f"${t.source.name} can't be both ends of {t.edges[0].name}.")
    _set_types(block, source, both)


def _fix(block: Block) -> None:
    """Create the variables in the order of the text: of a traversal source, edge, target, path."""
    for i, clause in block.clauses.items():
        if isinstance(clause, tree.Binding):
            _make(block, clause.variable.name)
            if clause.variable.name == ANONYMOUS:
                types = block.context.nodes_named(clause.type_name, clause.place)
                block.types[_name(clause.variable)] = types
                _make(block, _name(clause.variable))
        elif isinstance(clause, tree.Traversal):
            _make(block, block.ends[i][0])
            if clause.edge is not None:
                edges = tuple(block.context.entity(c.edge) for c in block.fits[i].crossings)
                _add(block, clause.edge.name, block.context.variable(clause.edge.name, "edge", edges, block.nullable))
            _make(block, block.ends[i][1])
            if clause.path is not None:
                path = block.context.variable(clause.path.name, "path", (), block.nullable)
                _add(block, clause.path.name, path)
    for name, types in block.narrowed.items():
        outer = block.outer.find(name)
        if outer is not None and len(types) < len(outer.types):
            block.scope.names[name] = replace(outer, types=types)


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


# ---- 2 optional, 6 rest ----------------------------------------------------------------------------------------------


def _optional(context: Context, clause: tree.Block, outer: Scope) -> tuple[Maybe, dict[str, Variable]]:
    """The checked block, and the variables that it binds."""
    pattern, inner = check_pattern(context, clause.clauses, outer, nullable=True)
    if not pattern.outer:
        detail = "An optional block continues from a variable that is bound outside of it; this one uses none."
        raise context.fail("T28", clause.place, detail)
    # Types that the block narrows for an outer variable are valid in the block only.
    return Maybe(pattern), {n: v for n, v in inner.names.items() if v.name != ANONYMOUS and outer.find(n) is None}


def _type_tests(block: Block, clauses: Sequence[tree.Clause]) -> list[Clause]:
    """Conditions that outer variables have the types that they are narrowed to, before other clauses read them.

    Traversals ensure it themselves; a condition on a property of the narrowed types must not read rows of the others.
    """
    bound = {c.variable.name for c in block.clauses.values() if isinstance(c, tree.Binding)}
    has_conditions = not all(isinstance(c, tree.Traversal) for c in clauses)
    tests: list[Clause] = []
    for name, types in block.narrowed.items():
        outer = block.outer.find(name)
        assert outer is not None, "only outer variables are narrowed"
        is_narrowed = len(types) < len(outer.types)
        if types and ((is_narrowed and has_conditions) or (outer.nullable and name in bound)):
            names = ListOf(tuple(Constant(e.name, STRING) for e in types), Type("List", item="String"))
            tests.append(Where(In(block.context.property(outer, "@type", clauses[0].place), names)))
    return tests


def _binding_tests(context: Context, scope: Scope, clauses: Sequence[tree.Clause]) -> list[Clause]:
    """The conditions in the braces of bindings."""
    tests: list[Clause] = []
    for clause in clauses:
        if not isinstance(clause, tree.Binding):
            continue
        variable = scope.find(_name(clause.variable))
        assert variable is not None, "a binding is declared before"
        for assignment in clause.properties:
            tests.append(Where(equals(context, scope, variable, assignment)))
    return tests


def _conditions(context: Context, scope: Scope, clauses: Sequence[tree.Clause]) -> list[Clause]:
    checked: list[Clause] = []
    for clause in clauses:
        if isinstance(clause, tree.Filter):
            condition = Typer(context, scope, "match").condition(clause.condition)
            parts = condition.operands if isinstance(condition, And) else (condition,)
            checked.extend(Where(part) for part in parts)
        elif isinstance(clause, tree.Block) and clause.kind == "not":
            pattern, _ = check_pattern(context, clause.clauses, scope)
            if not pattern.outer:
                detail = "A not block uses a variable that is bound outside of it; this one uses none."
                raise context.fail("T9", clause.place, detail)
            checked.append(Absent(pattern))
    return checked


# ---- 7 order ---------------------------------------------------------------------------------------------------------


def _joins(block: Block) -> list[Clause]:
    """Scans, then expansions, each from an end that is bound."""
    ordered: list[Clause] = []
    bound: set[Variable] = set()
    new = set(block.bound)
    for clause in block.clauses.values():
        if not isinstance(clause, tree.Binding):
            continue
        variable = block.scope.names.get(_name(clause.variable))
        if variable in new and variable not in bound:
            ordered.append(Scan(variable))
            bound.add(variable)
    waiting = [_expand(block, i, c) for i, c in block.clauses.items() if isinstance(c, tree.Traversal)]
    while waiting:
        ready = next((e for e in waiting if e.source not in new - bound or e.target not in new - bound), None)
        if ready is None:
            ordered.append(Scan(waiting[0].source))
            bound.add(waiting[0].source)
            continue
        waiting.remove(ready)
        ordered.append(ready)
        bound.update((ready.source, ready.target))
    return ordered


def _merged(stages: Sequence[Sequence[Clause]], tests: Sequence[Clause], late: Set[int]) -> list[Clause]:
    """The first stage, the tests without a variable of a later stage, the later stages, the other tests."""
    parts: tuple[list[Clause], list[Clause]] = ([], [])
    for test in tests:
        parts[not late.isdisjoint(v.slot for v in variables_of(test))].append(test)
    return [*stages[0], *parts[0], *(c for stage in stages[1:] for c in stage), *parts[1]]


def _expand(block: Block, i: int, t: tree.Traversal) -> Expand:
    context, fitted = block.context, block.fits[i]
    source, target = (block.scope.find(name) for name in block.ends[i])
    assert source is not None, "the ends of a traversal are declared before"
    assert target is not None, "the ends of a traversal are declared before"
    steps = []
    for crossing in fitted.crossings:
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
    if fitted.never:
        context.note(t.place, f"No {t.edges[0].name} follows another, so {low} hops never match.")
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
    return f"an {word}" if word[0].lower() in "aeio" else f"a {word}"
