"""A checked query: every name is resolved, every expression is typed. An executor needs nothing else.

## Values
Python values stand for constants and bound parameters: str, bool, int, float, date, datetime (UTC, whole milliseconds),
timedelta, bytes, tuples of these for lists and vectors, None for null.

## Rows
A pattern gives a bag of rows, one value per variable that it binds. It is the join of its clauses; their order here is
one in which each clause finds its variables bound (`Expand` needs one end; `Where`, `Absent` and `Maybe` all variables
that they use from outside), and any other such order gives the same bag, except that what uses a variable bound by a
`Maybe` comes after it: no `Scan` and no `Expand` binds a variable that a `Maybe` of the same pattern binds.

- `Scan`: one row per entity of any of the variable's types.
- `Expand`, by `mode`:
  - `pairs`: one row per (source, target), however many edges or walks lead there. Breadth first from each source: at
    hop h every edge from the nodes first seen at hop h - 1; a node not seen before (the source is seen at hop 0) is
    seen now, and is a target if minimum <= h <= maximum; a stored self-loop makes its node a target of the hop at which
    it is crossed, once, without searching it again. So cycles end, and so does a search without maximum.
  - `edges`: one row per edge, parallel edges apart; always one hop. An undirected self-loop is one edge.
  - `paths`: one row per path whose number of edges is within the bounds and that visits no node twice, but may end
    where it starts. Paths over the same nodes by parallel edges or by other edge types are one path.
  - `shortest`: one row per pair of `pairs`, with a path of the fewest edges within the bounds; of several, the one
    whose node ids come first in lexicographic order.
  With several `steps` each hop crosses any of them. `direction` `in` follows the stored edge backwards, `both` either
  way.
- `Where`: rows for which the condition is true; false and null (unknown) both drop the row.
- `Absent`: rows for which the inner pattern, with the outer variables fixed, has no row.
- `Maybe`: each row with every row of the inner pattern; if there is none, one row with its new variables null. A
  property of a null variable is null; an `Expand` or `Scan` of a null variable has no rows.

## Null
Comparisons, text operators, arithmetic and functions give null if an operand is null, except `coalesce` and `IsNull`.
`And`, `Or`, `Not` are three-valued: false and null is false, true or null is true. `In` is true if an item is equal;
otherwise null if the needle is null or the list is, else false (lists hold no nulls). Two entities are equal if their
ids and types are.

## Numbers, text, time
Numbers of different widths compare by their mathematical value, exactly: an integer column is never equal to 1.5, and a
float never to 2**53 + 1. A float constant or parameter beside an F32 column is rounded to 32 bits first, an integer is
not. `values.exact` turns a comparison with a number into one of
the column's own type. Integer arithmetic is exact and
in I64, outside of which it is an error of the query; `/` always gives F64, by zero null; a float result that is not
finite is null. Text compares by code points, enums as text; `contains`, `starts_with`, `ends_with` are exact and
case-sensitive, `%` and `_` mean themselves; `matches` finds a regular expression anywhere, as RE2 and Python both
read it. Date ± Duration counts from midnight and keeps the day; DateTime ± Duration is exact. `now()` is one moment for
the whole query.

## Aggregation
A read is aggregated if it holds an Aggregate. Rows are grouped by the columns that hold none (`Read.group`); null is a
group of its own; a source without a match has no row and so no group. Without group columns there is always one row:
count 0, collect empty, the others null. All aggregates skip nulls; `count` without an operand counts rows. `collect`
keeps the order of the rows before grouping, which is that of the tie break; distinct ones are sorted ascending.

## Order
`Read.order`, then `Read.ties`: entity ids ascending (a null entity first; by type name where ids are equal; a path by
the list of its node ids); for aggregated and distinct results the columns from left to right ascending. Null is smaller
than any value: first ascending, last descending. So the order is total. `having` drops rows before, `offset` and
`limit` cut after it. An `Object` column sorts by id.

## Scores
`Nearest` is the cosine distance, lower is better; of `Bm25` and `Fused` higher is better. Filters apply before the best
are taken. A row without a vector or a text has no score: null, and last in both directions of a rank's own order.

## Statements
They run in order, each seeing what those before it wrote, and become one commit; a failure anywhere undoes all. In
`Update`, `Delete`, `Merge` and `returning` the row's properties are `Property` of the variable `row`. An `Insert` with
a pattern writes one row per row of the pattern. `upsert` inserts replace the whole row of the same key: a property that
is left out takes its default or null. `Merge` changes only what it sets if the row exists, else it inserts one, which
needs all that is required; `row` is null there. A delete of a node deletes its edges (`cascades`). `returning` gives
each affected row once, as it is after the statement (for deletes as it was before), ordered by id. A value that does
not fit its property is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from omnigraph.language.query.syntax.tree import Query
from omnigraph.language.query.terms import Constant, Entity, Expression, Fused, Match, Parameter, Search, Variable
from omnigraph.language.query.types import Type
from omnigraph.language.schema.model import PropertyType

Mode = Literal["pairs", "edges", "paths", "shortest"]


# ---- patterns --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scan:
    variable: Variable


@dataclass(frozen=True, slots=True)
class Step:
    """An edge type and the direction of crossing it. `starts` and `ends` are the node types in that direction."""

    edge: Entity
    direction: Literal["out", "in", "both"]
    starts: Entity
    ends: Entity


@dataclass(frozen=True, slots=True)
class Expand:
    source: Variable
    target: Variable
    steps: tuple[Step, ...]
    minimum: int = 1
    maximum: int | None = 1
    mode: Mode = "pairs"
    edge: Variable | None = None
    path: Variable | None = None


@dataclass(frozen=True, slots=True)
class Where:
    condition: Expression


@dataclass(frozen=True, slots=True)
class Absent:
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class Maybe:
    pattern: Pattern


Clause = Scan | Expand | Where | Absent | Maybe


@dataclass(frozen=True, slots=True)
class Pattern:
    """`binds`: the new variables, in the order of the text. `outer`: the variables used from enclosing patterns."""

    binds: tuple[Variable, ...]
    outer: tuple[Variable, ...]
    clauses: tuple[Clause, ...]


# ---- bodies ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    value: Expression

    @property
    def type(self) -> Type:
        return self.value.type


@dataclass(frozen=True, slots=True)
class Key:
    value: Expression
    descending: bool


@dataclass(frozen=True, slots=True)
class Read:
    pattern: Pattern
    columns: tuple[Column, ...]
    distinct: bool
    aggregated: bool
    group: tuple[int, ...]
    having: Expression | None
    order: tuple[Key, ...]
    ties: tuple[Variable, ...]
    limit: Constant | Parameter | None
    offset: Constant | Parameter | None


@dataclass(frozen=True, slots=True)
class Setting:
    """One property and its new value. `name` is a column: a property, or `id`, `src`, `dst`."""

    name: str
    property_id: str
    target: PropertyType
    value: Expression


@dataclass(frozen=True, slots=True)
class Insert:
    target: Entity
    row: Variable
    values: tuple[Setting, ...]
    upsert: bool
    pattern: Pattern | None
    returning: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Update:
    target: Entity
    row: Variable
    values: tuple[Setting, ...]
    where: Expression
    returning: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    target: Entity
    row: Variable
    where: Expression
    cascades: tuple[Entity, ...]
    returning: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Merge:
    """`keys` select the row: the key of a node type, `src` and `dst` of an edge type."""

    target: Entity
    row: Variable
    keys: tuple[Setting, ...]
    values: tuple[Setting, ...]
    returning: tuple[Column, ...]


Statement = Insert | Update | Delete | Merge


@dataclass(frozen=True, slots=True)
class CheckedQuery:
    """`reads` and `writes` are all types that the query may read or change, sorted."""

    name: str
    parameters: tuple[Parameter, ...]
    body: Read | tuple[Statement, ...]
    reads: tuple[Entity, ...]
    writes: tuple[Entity, ...]
    query: Query = field(compare=False, repr=False)
    bounded: tuple[Fused | Search | Match, ...] = field(default=(), compare=False, repr=False)
    """Terms with restricted values that may contain parameters."""

    @property
    def is_mutation(self) -> bool:
        return not isinstance(self.body, Read)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The result columns: those of a read, or of the last statement with `returning`."""
        if isinstance(self.body, Read):
            return self.body.columns
        return next((s.returning for s in reversed(self.body) if s.returning), ())
