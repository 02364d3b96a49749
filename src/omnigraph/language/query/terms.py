"""Typed expressions: the parts of a condition, a column or a value of a statement. `model` defines their meaning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Literal

from omnigraph.language.query.types import BOOL, Type

Value = str | bool | int | float | date | datetime | timedelta | bytes | tuple[Any, ...] | None


# ---- names, resolved -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entity:
    """A node or edge type of the schema. `id` survives renames."""

    kind: Literal["node", "edge"]
    name: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a pattern. `slot` is unique in the query, names are not: two `not` blocks may share one.

    `types` are all its possible types; a block that narrows an outer variable has fewer, under the same slot, and rows
    of the others do not match. `nullable`: bound in an optional block. Each `$_` is a variable of its own. A `row` is
    the row that a statement writes; in the values of a Merge it may be null, under the same slot.
    """

    name: str
    slot: int
    kind: Literal["node", "edge", "path", "row"]
    types: tuple[Entity, ...] = ()
    nullable: bool = False

    def __hash__(self) -> int:
        return self.slot


# ---- expressions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Constant:
    value: Value
    type: Type


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Property:
    """`$x.name`. `ids` are pairs (type id, property id), one per type of the variable.

    `name` is a column: a property, or `id`, `src`, `dst`, `@type` (the name of the entity's type).
    """

    variable: Variable
    name: str
    type: Type
    ids: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Object:
    """A whole entity. As a column: an object of `id`, `src` and `dst` of an edge, and the properties named here."""

    variable: Variable
    type: Type
    properties: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PathOf:
    variable: Variable
    type: Type


@dataclass(frozen=True, slots=True)
class Output:
    """The value of a column of the result, by its position; in `having` and `order`."""

    index: int
    type: Type


@dataclass(frozen=True, slots=True)
class ListOf:
    items: tuple[Expression, ...]
    type: Type


@dataclass(frozen=True, slots=True)
class Compare:
    """`= != < <= > >=`"""

    operator: str
    left: Expression
    right: Expression
    type: Type = BOOL


@dataclass(frozen=True, slots=True)
class Match:
    """`contains starts_with ends_with matches` of text; for a list `contains` is In."""

    operator: str
    text: Expression
    pattern: Expression
    type: Type = BOOL


@dataclass(frozen=True, slots=True)
class In:
    needle: Expression
    items: Expression
    type: Type = BOOL


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Expression
    type: Type = BOOL


@dataclass(frozen=True, slots=True)
class And:
    operands: tuple[Expression, ...]
    type: Type = BOOL


@dataclass(frozen=True, slots=True)
class Or:
    operands: tuple[Expression, ...]
    type: Type = BOOL


@dataclass(frozen=True, slots=True)
class Not:
    operand: Expression
    type: Type = BOOL


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`+ - * /` of numbers, dates and durations."""

    operator: str
    left: Expression
    right: Expression
    type: Type


@dataclass(frozen=True, slots=True)
class Function:
    """`now coalesce lower upper length concat date datetime weeks days hours minutes seconds nodes`

    `length` is of text (code points), a list, or a path (edges); `concat` is what `+` of texts becomes.
    """

    name: str
    arguments: tuple[Expression, ...]
    type: Type


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`count sum avg min max collect`; `operand` is None for `count(*)`."""

    name: str
    operand: Expression | None
    distinct: bool
    type: Type


@dataclass(frozen=True, slots=True)
class Search:
    """`search` (all words), `match_text` (a phrase), `fuzzy` (all words, each within `edits`): true or false."""

    name: str
    property: Property
    query: Expression
    edits: Expression | None
    type: Type = BOOL


@dataclass(frozen=True, slots=True)
class Nearest:
    """`query` is a vector, or text to be embedded by the provider that `@embed` records with the property."""

    property: Property
    query: Expression
    type: Type


@dataclass(frozen=True, slots=True)
class Bm25:
    property: Property
    query: Expression
    type: Type


@dataclass(frozen=True, slots=True)
class Fused:
    """`rrf`: the sum over both ranks of 1 / (k + position), counted from 1; a row that a rank lacks adds 0."""

    left: Nearest | Bm25
    right: Nearest | Bm25
    k: Expression
    type: Type


Rank = Nearest | Bm25 | Fused
Expression = (
    Constant
    | Parameter
    | Property
    | Object
    | PathOf
    | Output
    | ListOf
    | Compare
    | Match
    | In
    | IsNull
    | And
    | Or
    | Not
    | Arithmetic
    | Function
    | Aggregate
    | Search
    | Nearest
    | Bm25
    | Fused
)


_LEAVES = frozenset((Variable, Entity, Constant, Parameter))


def walk(value: object) -> Iterator[Any]:
    """A checked value and everything inside of it, depth first and from left to right; types are left out."""
    waiting: list[Any] = [value]
    while waiting:
        term = waiting.pop()
        cls = term.__class__
        if cls is tuple:
            waiting.extend(reversed(term))
            continue
        parts = getattr(cls, "__slots__", None)
        if parts is None or cls is Type:
            continue
        yield term
        if cls not in _LEAVES:
            waiting.extend([getattr(term, name) for name in reversed(parts)])


def variables_of(value: object) -> dict[Variable, None]:
    """The variables that an expression or clause uses, in order."""
    return {v: None for v in walk(value) if isinstance(v, Variable)}
