"""What a read query means, in plain Python: no index, no arrays, no cleverness. Rows are dictionaries.

Written from the text of `omnigraph.language.query.model`, clause by clause. Full text is words in lower case here, so
tests use words that no analyser changes. Which block binds a variable is read from the text of the query, not from the
checked pattern: a variable that is bound by another clause than the page says shows.
"""

from __future__ import annotations

import math
import operator
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cmp_to_key
from typing import Any

import numpy as np

import omnigraph as og
from omnigraph.language.query.model import Absent, CheckedQuery, Expand, Maybe, Pattern, Read, Scan, Where
from omnigraph.language.query.syntax import tree
from omnigraph.language.query.terms import (
    Aggregate,
    And,
    Arithmetic,
    Bm25,
    Compare,
    Constant,
    Expression,
    Function,
    Fused,
    In,
    IsNull,
    ListOf,
    Match,
    Nearest,
    Not,
    Object,
    Or,
    Output,
    Parameter,
    PathOf,
    Property,
    Search,
)

MS = timedelta(milliseconds=1)
UNITS = {
    "weeks": timedelta(weeks=1),
    "days": timedelta(days=1),
    "hours": timedelta(hours=1),
    "minutes": timedelta(minutes=1),
    "seconds": timedelta(seconds=1),
}
Row = dict[int, Any]
_VARIABLE = re.compile(r"Variable\(name='(\w+)'")


class Unfit(Exception):
    """An error of the query: a value that has no place."""


class Entity(dict[str, Any]):
    """A row of a table; two are the same if their ids and types are."""

    __slots__ = ("type",)
    type: str

    def same(self, other: Entity) -> bool:
        return self["id"] == other["id"] and self.type == other.type

    @property
    def key(self) -> tuple[str, str]:
        return self["id"], self.type


class Oracle:
    def __init__(self, graph: og.Graph, *, branch: str = "main") -> None:
        self.tables: dict[str, list[Entity]] = {}
        self.schema = graph.schema(branch)
        for t in self.schema.types():
            names = [p.name for p in t.properties if p.type.kind != "Blob"]
            physical = ["id"] if t.kind == "node" else ["id", "src", "dst"]
            rows = graph.scan(t.name, columns=[*physical, *names], branch=branch).read_all().to_pylist()
            self.tables[t.name] = [_entity(t.name, r) for r in sorted(rows, key=lambda r: r["id"])]
        self.by_id = {(t, e["id"]): e for t, rows in self.tables.items() for e in rows}

    def rows(self, checked: CheckedQuery, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        assert isinstance(checked.body, Read)
        assert isinstance(checked.query.body, tree.Read)
        check_owners(checked.query.body.match, checked.body.pattern, set())
        return _Run(self, checked.body, params).rows()


def check_owners(clauses: Sequence[tree.Clause], pattern: Pattern, outside: set[str]) -> None:
    """That every optional block binds what it names first in the text, and nothing else does."""
    blocks = [c for c in clauses if isinstance(c, tree.Block) and c.kind == "optional"]
    owned: list[tuple[tree.Block, set[str], set[str]]] = []
    known = set(outside)
    for i, clause in enumerate(clauses):
        if isinstance(clause, tree.Binding | tree.Traversal):
            known |= _binds([clause])
        while True:
            done = [id(b) for b, _, _ in owned]
            reached = [c for c in clauses[: i + 1] if c in blocks and id(c) not in done]
            block = next((b for b in reached if set(_VARIABLE.findall(repr(b))) & known), None)
            if block is None or not isinstance(block, tree.Block):
                break
            owned.append((block, _binds(block.clauses) - known, set(known)))
            known |= _binds(block.clauses)
    late = {name for _, names, _ in owned for name in names}
    joins = [_binds([c]) for c in clauses if isinstance(c, tree.Binding | tree.Traversal)]
    early = {name for names in joins if not names & late for name in names}
    maybes = [c for c in pattern.clauses if isinstance(c, Maybe)]
    bound = [{v.name for v in c.pattern.binds} - {"_"} for c in maybes]
    assert bound == [names for _, names, _ in owned], f"optional blocks bind {bound}, the text says {owned}"
    for (block, _, before), maybe in zip(owned, maybes, strict=True):
        check_owners(block.clauses, maybe.pattern, before | early)


def _binds(clauses: Sequence[tree.Clause]) -> set[str]:
    names: set[str] = set()
    for c in clauses:
        if isinstance(c, tree.Block) and c.kind == "optional":
            names |= _binds(c.clauses)
        elif isinstance(c, tree.Binding):
            names.add(c.variable.name)
        elif isinstance(c, tree.Traversal):
            names |= {v.name for v in (c.source, c.target, c.edge, c.path) if v is not None}
    return names - {"_"}


def _entity(name: str, row: dict[str, Any]) -> Entity:
    found = Entity(row)
    found.type = name
    return found


class _Run:
    def __init__(self, oracle: Oracle, body: Read, params: Mapping[str, Any]) -> None:
        self.oracle = oracle
        self.body = body
        self.params = params
        self.now = datetime.now(UTC)
        self.matched: list[Row] = []

    # ---- patterns

    def match(self, pattern: Pattern, row: Row) -> list[Row]:
        rows = [row]
        for clause in pattern.clauses:
            rows = [new for old in rows for new in self.clause(clause, old)]
        return rows

    def clause(self, clause: Any, row: Row) -> Iterator[Row]:
        if isinstance(clause, Scan):
            if clause.variable.slot in row:
                yield row
                return
            for entity in clause.variable.types:
                for e in self.oracle.tables[entity.name]:
                    yield {**row, clause.variable.slot: e}
        elif isinstance(clause, Where):
            if self.value(clause.condition, row) is True:
                yield row
        elif isinstance(clause, Absent):
            if not self.match(clause.pattern, row):
                yield row
        elif isinstance(clause, Maybe):
            assert not any(v.slot in row for v in clause.pattern.binds), "another clause has bound it"
            found = self.match(clause.pattern, row)
            yield from found or [{**row, **{v.slot: None for v in clause.pattern.binds}}]
        else:
            yield from self.expand(clause, row)

    def expand(self, clause: Expand, row: Row) -> Iterator[Row]:
        s, t = clause.source, clause.target
        starts = [row[s.slot]] if s.slot in row else [e for n in s.types for e in self.oracle.tables[n.name]]
        allowed = {e.name for e in t.types}
        for start in starts:
            if start is None:
                continue
            for target, extra in self.walk(clause, start):
                if target.type not in allowed:
                    continue
                if t.slot == s.slot:
                    if target.same(start):
                        yield {**row, s.slot: start, **extra}
                elif t.slot in row:
                    if row[t.slot] is not None and row[t.slot].same(target):
                        yield {**row, s.slot: start, **extra}
                else:
                    yield {**row, s.slot: start, t.slot: target, **extra}

    def across(self, clause: Expand, node: Entity) -> Iterator[tuple[Entity, Entity]]:
        """(edge, node at the other end), one per edge."""
        for step in clause.steps:
            if step.starts.name != node.type:
                continue
            for edge in self.oracle.tables[step.edge.name]:
                if step.direction in ("out", "both") and edge["src"] == node["id"]:
                    yield edge, self.oracle.by_id[(step.ends.name, edge["dst"])]
                elif step.direction in ("in", "both") and edge["dst"] == node["id"]:
                    yield edge, self.oracle.by_id[(step.ends.name, edge["src"])]

    def walk(self, clause: Expand, start: Entity) -> Iterator[tuple[Entity, Row]]:
        if clause.mode == "edges":
            assert clause.edge is not None
            for edge, end in self.across(clause, start):
                yield end, {clause.edge.slot: edge}
        elif clause.mode == "pairs":
            for end in self.reached(clause, start):
                yield end, {}
        elif clause.mode == "paths":
            assert clause.path is not None
            for path in self.paths(clause, start):
                yield path[-1], {clause.path.slot: path}
        else:
            for end, path in self.shortest(clause, start):
                yield end, {} if clause.path is None else {clause.path.slot: path}

    def reached(self, clause: Expand, start: Entity) -> list[Entity]:
        low, high = clause.minimum, clause.maximum
        seen = {start.key}
        front, found, hop = [start], {}, 0
        while front and (high is None or hop < high):
            hop += 1
            new = []
            for node in front:
                for _, end in self.across(clause, node):
                    if end.same(node) and hop >= low:
                        found[end.key] = end
                    if end.key not in seen:
                        seen.add(end.key)
                        new.append(end)
                        if hop >= low:
                            found[end.key] = end
            front = new
        return list(found.values())

    def paths(self, clause: Expand, start: Entity) -> list[tuple[Entity, ...]]:
        assert clause.maximum is not None
        found: list[tuple[Entity, ...]] = []

        def longer(path: tuple[Entity, ...]) -> None:
            if len(path) > clause.maximum:  # type: ignore[operator]
                return
            ends = {end.key: end for _, end in self.across(clause, path[-1])}
            for end in ends.values():
                if any(end.same(n) for n in path[1:]):
                    continue
                if len(path) >= clause.minimum:
                    found.append((*path, end))
                if not end.same(path[0]):
                    longer((*path, end))

        longer((start,))
        return found

    def shortest(self, clause: Expand, start: Entity) -> list[tuple[Entity, tuple[Entity, ...]]]:
        """All walks of the fewest edges, level by level, and the first of them by ids."""
        best: dict[tuple[str, str], tuple[Entity, ...]] = {start.key: (start,)}
        found: dict[tuple[str, str], tuple[Entity, ...]] = {}
        front, hop = [(start,)], 0
        while front and (clause.maximum is None or hop < clause.maximum):
            hop += 1
            level: dict[tuple[str, str], tuple[Entity, ...]] = {}
            for path in front:
                for _, end in self.across(clause, path[-1]):
                    if end.same(path[-1]) and hop >= clause.minimum and end.key not in found:
                        found[end.key] = (*path, end)
                    if end.key in best:
                        continue
                    made = (*path, end)
                    if end.key not in level or _keys(made) < _keys(level[end.key]):
                        level[end.key] = made
            best.update(level)
            if hop >= clause.minimum:
                found.update({k: p for k, p in level.items() if k not in found})
            front = list(level.values())
        return [(p[-1], p) for p in found.values()]

    # ---- expressions

    def value(self, e: Expression, row: Row) -> Any:
        return _EVALUATE[type(e)](self, e, row)

    def _property(self, e: Property, row: Row) -> Any:
        entity = row[e.variable.slot]
        if entity is None:
            return None
        return entity.type if e.name == "@type" else entity.get(e.name)

    def _compare(self, e: Compare, row: Row) -> Any:
        a, b = self.value(e.left, row), self.value(e.right, row)
        if a is None or b is None:
            return None
        a, b = _rounded(a, e.left, e.right), _rounded(b, e.right, e.left)
        return _compared(e.operator, a, b)

    def _match(self, e: Match, row: Row) -> Any:
        text, pattern = self.value(e.text, row), self.value(e.pattern, row)
        if text is None or pattern is None:
            return None
        if e.operator == "contains":
            return pattern in text
        if e.operator == "starts_with":
            return text.startswith(pattern)
        return text.endswith(pattern) if e.operator == "ends_with" else re.search(pattern, text) is not None

    def _in(self, e: In, row: Row) -> Any:
        needle = self.value(e.needle, row)
        if isinstance(e.items, ListOf):
            items: Any = [(self.value(i, row), i) for i in e.items.items]
        else:
            held = self.value(e.items, row)
            items = None if held is None else [(i, _Item(e.items)) for i in held]
        if needle is None or items is None:
            return None
        unknown = False
        for item, term in items:
            if item is None:
                unknown = True
            elif _compared("=", _rounded(needle, e.needle, term), _rounded(item, term, e.needle)):
                return True
        return None if unknown else False

    def _and(self, e: And, row: Row) -> Any:
        found = [self.value(o, row) for o in e.operands]
        return False if False in found else None if None in found else True

    def _or(self, e: Or, row: Row) -> Any:
        found = [self.value(o, row) for o in e.operands]
        return True if True in found else None if None in found else False

    def _not(self, e: Not, row: Row) -> Any:
        found = self.value(e.operand, row)
        return None if found is None else not found

    def _arithmetic(self, e: Arithmetic, row: Row) -> Any:
        a, b = self.value(e.left, row), self.value(e.right, row)
        if a is None or b is None:
            return None
        kinds = (e.left.type.kind, e.right.type.kind)
        if kinds[0] in ("Date", "DateTime"):
            return _moment(a) - _moment(b) if e.type.kind == "Duration" else _later(a, b, e.operator)
        if e.type.kind == "Duration" or kinds == ("Duration", "Duration"):
            return _spans(e.operator, a, b)
        if e.operator == "/":
            return None if b == 0 else _finite(float(a) / float(b))
        made = {"+": a + b, "-": a - b, "*": a * b}[e.operator] if e.type.kind == "I64" else None
        if made is not None:
            if not -(2**63) <= made < 2**63:
                raise Unfit
            return made
        x, y = float(a), float(b)
        return _finite({"+": x + y, "-": x - y, "*": x * y}[e.operator])

    def _function(self, e: Function, row: Row) -> Any:
        if e.name == "now":
            return self.now
        if isinstance(e.arguments[0], PathOf):
            path = row[e.arguments[0].variable.slot]
            if path is None:
                return None
            return len(path) - 1 if e.name == "length" else [n["id"] for n in path]
        values = [self.value(a, row) for a in e.arguments]
        if e.name == "coalesce":
            found = next((v for v in values if v is not None), None)
            if e.type.kind == "I64" and any(v is not None and v >= 2**63 for v in values):
                raise Unfit
            return float(found) if found is not None and e.type.kind == "F64" else found
        if None in values:
            return None
        (value, *rest) = values
        if e.name in UNITS:
            return _whole(UNITS[e.name], value)
        plain: dict[str, Callable[[], Any]] = {
            "lower": lambda: value.lower(),
            "upper": lambda: value.upper(),
            "length": lambda: len(value),
            "concat": lambda: value + rest[0],
            "date": lambda: value.date(),
            "datetime": lambda: datetime(value.year, value.month, value.day, tzinfo=UTC),
        }
        return plain[e.name]()

    # ---- search

    def _search(self, e: Search, row: Row) -> Any:
        text, query = self.value(e.property, row), self.value(e.query, row)
        if text is None or query is None:
            return None
        words, wanted = _words(text), _words(query)
        if not wanted:
            return False
        if e.name == "search":
            return set(wanted) <= set(words)
        if e.name == "match_text":
            return any(words[i : i + len(wanted)] == wanted for i in range(len(words)))
        edits = self.value(e.edits, row) if e.edits is not None else 0
        return all(any(_distance(w, x) <= edits for x in words) for w in wanted)

    def _bm25(self, e: Bm25, row: Row) -> Any:
        entity, query = row[e.property.variable.slot], self.value(e.query, row)
        text = None if entity is None else entity.get(e.property.name)
        if text is None or query is None:
            return None
        rows = self.oracle.tables[entity.type]
        words, total = _words(text), 0.0
        for word in dict.fromkeys(_words(query)):
            count = words.count(word)
            if count:
                df = sum(word in _words(r[e.property.name] or "") for r in rows)
                rarity = math.log(1 + (len(rows) - df + 0.5) / (df + 0.5))
                total += rarity * count * 2.2 / (count + 1.2 * (1 - 0.75 + 0.75 * len(words) / 100.0))
        return total

    def _nearest(self, e: Nearest, row: Row) -> Any:
        vector, query = self.value(e.property, row), self.value(e.query, row)
        if vector is None or query is None:
            return None
        a, b = [float(x) for x in vector], [_f32(x) for x in query]
        sizes = math.sqrt(sum(x * x for x in a)), math.sqrt(sum(x * x for x in b))
        if 0.0 in sizes:
            return None
        return 1.0 - sum(x * y for x, y in zip(a, b, strict=True)) / (sizes[0] * sizes[1])

    def _fused(self, e: Fused, row: Row) -> Any:
        total = 0.0
        for part in (e.left, e.right):
            slot = part.property.variable.slot
            own = row[slot]
            scored: dict[tuple[str, str], float] = {}
            for other in self.matched:
                if other[slot] is not None:
                    score = self.value(part, other)
                    if score is not None and (isinstance(part, Nearest) or score > 0):
                        scored[other[slot].key] = score if isinstance(part, Nearest) else -score
            order = sorted(scored, key=lambda k: (scored[k], k))
            if own is not None and own.key in scored:
                total += 1.0 / (self.value(e.k, row) + 1 + order.index(own.key))
        return total

    # ---- rows

    def rows(self) -> list[tuple[Any, ...]]:
        body = self.body
        self.matched = self.match(body.pattern, {})
        if body.aggregated:
            made = self.groups()
        else:
            made = [([self.value(c.value, r) for c in body.columns], r) for r in self.matched]
        if body.distinct:
            made = list({tuple(_key(v) for v in values): (values, r) for values, r in reversed(made)}.values())
        if body.having is not None:
            made = [(v, r) for v, r in made if self.value(body.having, {**r, -1: v}) is True]
        made.sort(key=cmp_to_key(self.order))
        start = 0 if body.offset is None else self.value(body.offset, {})
        stop = None if body.limit is None else start + self.value(body.limit, {})
        return [tuple(_shown(c.value, x) for c, x in zip(body.columns, v, strict=True)) for v, _ in made[start:stop]]

    def groups(self) -> list[tuple[list[Any], Row]]:
        body = self.body
        rows = sorted(self.matched, key=lambda r: [_order_key(r[v.slot]) for v in body.pattern.binds])
        found: dict[tuple[Any, ...], list[Row]] = {} if body.group else {(): []}
        for row in rows:
            key = tuple(_key(self.value(body.columns[i].value, row)) for i in body.group)
            found.setdefault(key, []).append(row)
        made = []
        for members in found.values():
            row = {**(members[0] if members else {}), -2: members}
            made.append(([self.value(c.value, row) for c in body.columns], row))
        return made

    def _aggregate(self, e: Aggregate, row: Row) -> Any:
        members: list[Row] = row[-2]
        if e.operand is None:
            return len(members)
        values = [v for v in (self.value(e.operand, m) for m in members) if v is not None]
        if e.distinct:
            values = list({_key(v): v for v in values}.values())
        if e.name == "count":
            return len(values)
        if e.name == "collect":
            return sorted(values, key=_order_key) if e.distinct else values
        if not values:
            return None
        if e.name in ("min", "max"):
            return (min if e.name == "min" else max)(values, key=_order_key)
        if e.operand.type.is_integer:
            total = sum(values)
            if e.name == "sum" and not -(2**63) <= total < 2**63:
                raise Unfit
            return total if e.name == "sum" else total / len(values)
        # Rounded as the engine rounds: an order may hang on the last bit.
        total_ = float(np.add.reduceat(np.sort(np.array(values, dtype=np.float64)), [0])[0])
        return total_ if e.name == "sum" else total_ / len(values)

    def order(self, a: tuple[list[Any], Row], b: tuple[list[Any], Row]) -> int:
        body = self.body
        for k in body.order:
            x, y = (self.value(k.value, {**r, -1: v}) for v, r in (a, b))
            own = body.columns[k.value.index].value if isinstance(k.value, Output) else k.value
            if isinstance(own, Nearest | Bm25 | Fused) and (x is None) != (y is None):
                return 1 if x is None else -1
            found = _ordered(x, y)
            if found:
                return -found if k.descending else found
        if body.aggregated or body.distinct:
            pairs = zip(a[0], b[0], strict=True)
        else:
            pairs = ((a[1][v.slot], b[1][v.slot]) for v in body.ties)  # type: ignore[assignment]
        return next((f for f in (_ordered(x, y) for x, y in pairs) if f), 0)


class _Item:
    """Stands for the items of a list that is a value: what its kind is, and that it is no column itself."""

    def __init__(self, items: Expression) -> None:
        self.is_given = isinstance(items, Constant | Parameter)
        self.kind = items.type.item


def _rounded(value: Any, term: Any, other: Any) -> Any:
    """A float constant beside an F32 column is rounded to 32 bits."""
    given = term.is_given if isinstance(term, _Item) else isinstance(term, Constant | Parameter)
    kind = other.kind if isinstance(other, _Item) else other.type.kind
    if given and kind == "F32" and isinstance(value, float) and abs(value) < 3.4e38:
        return _f32(value)
    return value


def _f32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _compared(op: str, a: Any, b: Any) -> bool:
    if isinstance(a, Entity):
        return a.same(b) == (op == "=")
    return bool(getattr(operator, {"=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}[op])(a, b))


def _moment(value: Any) -> datetime:
    return value if isinstance(value, datetime) else datetime(value.year, value.month, value.day, tzinfo=UTC)


def _later(value: Any, span: timedelta, op: str) -> Any:
    try:
        moved = _moment(value) + span if op == "+" else _moment(value) - span
    except OverflowError:
        raise Unfit from None
    return moved if isinstance(value, datetime) else moved.date()


def _spans(op: str, a: Any, b: Any) -> Any:
    if isinstance(a, timedelta) and isinstance(b, timedelta):
        return (
            {"+": a + b, "-": a - b}[op] if op in "+-" else None if not b else _finite(float(a // MS) / float(b // MS))
        )
    if isinstance(b, timedelta):
        a, b = b, a
    if op == "*":
        return _whole(a, b)
    return None if b == 0 else _round_ms(float(a // MS) / float(b))


def _whole(span: timedelta, times: float) -> timedelta:
    if isinstance(times, int):
        return _round_ms((span // MS) * times)
    return _round_ms(float(span // MS) * times)


def _round_ms(ms: float) -> timedelta:
    try:
        return round(ms) * MS
    except OverflowError:
        raise Unfit from None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def _distance(a: str, b: str) -> int:
    before = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        row = [i]
        for j, y in enumerate(b, start=1):
            row.append(min(before[j - 1] + (x != y), before[j] + 1, row[-1] + 1))
        before = row
    return before[-1]


def _keys(path: tuple[Entity, ...]) -> list[tuple[str, str]]:
    return [n.key for n in path]


def _key(value: Any) -> Any:
    """Equal for equal values. True is not 1 here, because a column has one type."""
    if isinstance(value, Entity):
        return value.key
    return tuple(value) if isinstance(value, list) else value


def _order_key(value: Any) -> Any:
    """Null first; entities by id and type, paths by their ids."""
    if value is None:
        return (0,)
    if isinstance(value, Entity):
        return (1, value.key)
    if isinstance(value, tuple):
        return (1, [n["id"] for n in value])
    return (1, value)


def _ordered(a: Any, b: Any) -> int:
    x, y = _order_key(a), _order_key(b)
    return -1 if x < y else 1 if x > y else 0


def _shown(e: Expression, value: Any) -> Any:
    if not isinstance(value, Entity):
        return value
    assert isinstance(e, Object)
    return {n: value.get(n) for n in ("id", *e.properties)}


_EVALUATE: dict[type, Callable[[Any, Any, Row], Any]] = {
    Constant: lambda run, e, row: e.value,
    Parameter: lambda run, e, row: run.params[e.name],
    Property: _Run._property,
    Object: lambda run, e, row: row[e.variable.slot],
    Output: lambda run, e, row: row[-1][e.index],
    ListOf: lambda run, e, row: [run.value(i, row) for i in e.items],
    Compare: _Run._compare,
    Match: _Run._match,
    In: _Run._in,
    IsNull: lambda run, e, row: run.value(e.operand, row) is None,
    And: _Run._and,
    Or: _Run._or,
    Not: _Run._not,
    Arithmetic: _Run._arithmetic,
    Function: _Run._function,
    Aggregate: _Run._aggregate,
    Search: _Run._search,
    Nearest: _Run._nearest,
    Bm25: _Run._bm25,
    Fused: _Run._fused,
}
