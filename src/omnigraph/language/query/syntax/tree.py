"""The syntax tree of a .gq file: frozen values, not resolved against a schema.

Places are ignored in comparisons: two texts with the same meaning are equal trees.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from omnigraph.errors import QueryCheckError, QuerySyntaxError
from omnigraph.language.schema.model import PropertyType
from omnigraph.language.schema.source import Place, Source

LiteralValue = str | int | float | bool | None
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
TEXT_OPERATORS = ("contains", "starts_with", "ends_with", "matches")
WORD_OPERATORS = (*TEXT_OPERATORS, "in")
ARITHMETIC = ("+", "-", "*", "/")
NOWHERE = Place(1, 1)


class QueryText(Source):
    """The text of a .gq file; makes errors that show the line of a place and a caret under it."""

    def refuse(self, place: Place, detail: str) -> QuerySyntaxError:
        return QuerySyntaxError(code="Q000", **self._fields(place, detail))

    def reject(self, code: str, place: Place, detail: str, query: str, suggestion: str | None) -> QueryCheckError:
        return QueryCheckError(code=code, **self._fields(place, detail), query=query, suggestion=suggestion)


# ---- expressions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Constant:
    value: LiteralValue
    place: Place = field(default=NOWHERE, compare=False, repr=False)

    def __eq__(self, other: object) -> bool:
        # 1, 1.0 and true are equal in Python and three different literals here.
        return isinstance(other, Constant) and type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True, slots=True)
class Items:
    """`[a, b, …]`"""

    items: tuple[Expression, ...]
    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Variable:
    """`$name`: a parameter, or a variable of the pattern. The name is stored without the `$`."""

    name: str
    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Access:
    """`$variable.name`; the name of a system field starts with `@`."""

    variable: Variable
    name: str
    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Name:
    """A bare word: an alias of `return`, or a property of the row that a statement writes."""

    name: str
    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Call:
    """`name(arguments)`. `count(*)` is a call without arguments and `star`."""

    name: str
    arguments: tuple[Expression, ...] = ()
    distinct: bool = False
    star: bool = False
    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Operation:
    """COMPARISONS, WORD_OPERATORS, ARITHMETIC, `not in`, `is null`, `is not null`, `and`, `or`, `not`, `negative`.

    `and` and `or` take two operands or more, the others one or two.
    """

    operator: str
    operands: tuple[Expression, ...]
    place: Place = field(default=NOWHERE, compare=False, repr=False)


Expression = Constant | Items | Variable | Access | Name | Call | Operation


# ---- patterns --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assignment:
    name: str
    value: Expression
    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Binding:
    """`$variable: Type { name: value, … }`"""

    variable: Variable
    type_name: str
    properties: tuple[Assignment, ...] = ()
    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Bounds:
    """`{minimum, maximum}`; `{2}` is exactly two, `{1,}` has no maximum."""

    minimum: int
    maximum: int | None
    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class EdgeWord:
    name: str
    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Traversal:
    """`$source edge|edge{1,3} $target`, optionally with `<…>`, an edge variable, `path $p =` and `shortest`."""

    source: Variable
    edges: tuple[EdgeWord, ...]
    target: Variable
    bounds: Bounds | None = None
    undirected: bool = False
    edge: Variable | None = None
    path: Variable | None = None
    shortest: bool = False
    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Filter:
    condition: Expression
    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Block:
    """`not { … }` or `optional { … }`"""

    kind: Literal["not", "optional"]
    clauses: tuple[Clause, ...]
    place: Place = field(default=NOWHERE, compare=False, repr=False)


Clause = Binding | Traversal | Filter | Block


def first_of(clauses: Iterable[Clause], name: str) -> Variable | None:
    """The first occurrence of a variable in a binding or traversal of these clauses, their blocks included."""
    for clause in clauses:
        if isinstance(clause, Block):
            first = first_of(clause.clauses, name)
            if first is not None:
                return first
        elif not isinstance(clause, Filter):
            for variable in named(clause):
                if variable is not None and variable.name == name:
                    return variable
    return None


def named(clause: Binding | Traversal) -> tuple[Variable | None, ...]:
    """The variables of a clause in the order of the text."""
    if isinstance(clause, Binding):
        return (clause.variable,)
    return clause.source, clause.edge, clause.target, clause.path


def in_not_block(clauses: Iterable[Clause], name: str) -> bool:
    """Whether a `not` block binds or uses the variable in a binding or traversal."""
    blocks = [c for c in clauses if isinstance(c, Block)]
    return any(
        first_of(b.clauses, name) is not None if b.kind == "not" else in_not_block(b.clauses, name) for b in blocks
    )


# ---- bodies ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Projection:
    value: Expression
    alias: str | None = None
    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class OrderItem:
    """`direction` is None if it is omitted: ascending, but descending for scores of which higher is better."""

    value: Expression
    direction: Literal["asc", "desc"] | None = None
    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Read:
    match: tuple[Clause, ...]
    projections: tuple[Projection, ...]
    distinct: bool = False
    having: tuple[Expression, ...] = ()
    order: tuple[OrderItem, ...] = ()
    limit: Constant | Variable | None = None
    offset: Constant | Variable | None = None
    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Returning:
    """`projections` is empty for `returning { * }`."""

    projections: tuple[Projection, ...] = ()
    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Insert:
    type_name: str
    values: tuple[Assignment, ...]
    match: tuple[Clause, ...] | None = None
    returning: Returning | None = None
    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Update:
    type_name: str
    values: tuple[Assignment, ...]
    where: Expression
    returning: Returning | None = None
    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Delete:
    type_name: str
    where: Expression
    returning: Returning | None = None
    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Merge:
    type_name: str
    keys: tuple[Assignment, ...]
    values: tuple[Assignment, ...] = ()
    returning: Returning | None = None
    place: Place = field(default=NOWHERE, compare=False, repr=False)


Statement = Insert | Update | Delete | Merge


# ---- queries ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    type: PropertyType
    nullable: bool = False
    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class QueryAnnotation:
    name: str
    value: LiteralValue = None
    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Query:
    """One named query. `body` is a Read or a tuple of statements; `text` is its file."""

    name: str
    parameters: tuple[Parameter, ...]
    annotations: tuple[QueryAnnotation, ...]
    body: Read | tuple[Statement, ...]
    text: QueryText = field(compare=False, repr=False)
    place: Place = field(default=NOWHERE, compare=False, repr=False)

    @property
    def is_mutation(self) -> bool:
        return not isinstance(self.body, Read)

    @property
    def patterns(self) -> tuple[tuple[Clause, ...], ...]:
        """The pattern of a read, or those of its inserts."""
        if isinstance(self.body, Read):
            return (self.body.match,)
        return tuple(s.match for s in self.body if isinstance(s, Insert) and s.match is not None)

    @property
    def description(self) -> str | None:
        return self._annotation("description")

    @property
    def instruction(self) -> str | None:
        return self._annotation("instruction")

    def _annotation(self, name: str) -> str | None:
        return next((str(a.value) for a in self.annotations if a.name == name), None)


@dataclass(frozen=True, slots=True)
class QueryFile:
    queries: tuple[Query, ...]
    text: QueryText = field(compare=False, repr=False)

    def query(self, name: str) -> Query | None:
        return next((q for q in self.queries if q.name == name), None)
