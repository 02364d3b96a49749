"""Numbers of every width compare as Python compares them: integers and floats exactly, by their mathematical value.

OMNIGRAPH_FUZZ_SEED=… replays.
"""

from __future__ import annotations

import math
import operator
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import ParameterError, QueryValueError

SEED = int(os.environ.get("OMNIGRAPH_FUZZ_SEED", "9"))
KINDS = {"i": "I32", "n": "U32", "l": "I64", "u": "U64", "f": "F32", "d": "F64"}
LIMITS = {
    "i": (-(2**31), 2**31 - 1),
    "n": (0, 2**32 - 1),
    "l": (-(2**63), 2**63 - 1),
    "u": (0, 2**64 - 1),
}
SCHEMA = """node P {
  k: I64 @key
  i: I32? n: U32? l: I64? @index u: U64? f: F32? d: F64? @index
  ls: [I64]? us: [U64]? fs: [F32]? ds: [F64]?
}"""
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
POWERS = [2**24, 2**31, 2**32, 2**53, 2**63, 2**64]
INTEGERS = sorted({s * (p + off) for p in (0, 1, *POWERS) for off in (-1, 0, 1) for s in (-1, 1)})
ROWS = 120


def f32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def floats() -> list[float]:
    near = [x for p in POWERS for x in (math.nextafter(float(p), 0), float(p), math.nextafter(float(p), math.inf))]
    near += [0.0, 0.5, 1.5, 0.1, 5e-324, 1e300]
    return [s * x for x in near for s in (-1.0, 1.0)]


def value(rng: random.Random, name: str) -> int | float:
    if name in LIMITS:
        low, high = LIMITS[name]
        return rng.choice([x for x in INTEGERS if low <= x <= high])
    return rng.choice(floats()) if name == "d" else f32(rng.choice([x for x in floats() if abs(x) < 1e38]))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[og.Graph, list[dict[str, Any]]]:
    """Half of the rows are in the indices."""
    print(f"OMNIGRAPH_FUZZ_SEED={SEED}")
    rng = random.Random(SEED)
    rows = []
    for k in range(ROWS):
        row: dict[str, Any] = {n: None if rng.random() < 0.1 else value(rng, n) for n in KINDS}
        for n in ("l", "u", "f", "d"):
            row[f"{n}s"] = [value(rng, n) for _ in range(rng.randint(0, 3))]
        rows.append({"k": k, **row})
    graph = og.init(tmp_path_factory.mktemp("numbers") / "graph", SCHEMA)
    graph.insert({"P": rows[: ROWS // 2]})
    graph.optimize()
    graph.insert({"P": rows[ROWS // 2 :]})
    return graph, rows


def literals(rng: random.Random, count: int) -> list[int | float]:
    usable = [x for x in INTEGERS if -(2**63) <= x < 2**64]
    return [rng.choice(usable) if rng.random() < 0.7 else rng.choice(floats()) for _ in range(count)]


def shown(number: int | float) -> str:
    return f"({number!r})" if number < 0 or str(number).startswith("-") else repr(number)


def compared(op: str, column: str, stored_value: Any, number: int | float) -> bool | None:
    """A float beside an F32 column is rounded to 32 bits; nothing else ever is."""
    if stored_value is None:
        return None
    if column[0] == "f" and isinstance(number, float) and abs(number) < 3.4e38:
        number = f32(number)
    return OPERATORS[op](stored_value, number)


def test_properties_of_one_row_compare_exactly(stored: tuple[og.Graph, list[dict[str, Any]]]) -> None:
    graph, rows = stored
    pairs = [(a, op, b) for a in KINDS for b in KINDS if a != b for op in OPERATORS]
    columns = ", ".join(f"$p.{a} {op} $p.{b} as c{i}" for i, (a, op, b) in enumerate(pairs))
    answer = graph.query(f"query q() {{ match {{ $p: P }} return {{ {columns} }} order {{ $p.k }} }}").to_pylist()
    for row, got in zip(rows, answer, strict=True):
        for i, (a, op, b) in enumerate(pairs):
            known = row[a] is not None and row[b] is not None
            expected = OPERATORS[op](row[a], row[b]) if known else None
            assert got[f"c{i}"] == expected, (row[a], op, row[b], a, b)


@pytest.mark.parametrize("form", ["literal", "flipped", "parameter", "negated"])
def test_conditions_with_a_number_hold_exactly(stored: tuple[og.Graph, list[dict[str, Any]]], form: str) -> None:
    """As a column, where they are evaluated, and as a condition, where Lance and its indices may answer."""
    graph, rows = stored
    rng = random.Random(f"{SEED}-{form}")
    for number in literals(rng, 14):
        column, op = rng.choice(list(KINDS)), rng.choice(list(OPERATORS))
        kind = "F64" if isinstance(number, float) else "U64" if number >= 2**63 else "I64"
        right = "$x" if form == "parameter" else shown(number)
        condition = f"{right} {op} $p.{column}" if form == "flipped" else f"$p.{column} {op} {right}"
        mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(op, op) if form == "flipped" else op
        expected = [compared(mirrored, column, r[column], number) for r in rows]
        if form == "negated":
            condition, expected = f"not ({condition})", [None if e is None else not e for e in expected]
        declared = f"$x: {kind}" if form == "parameter" else ""
        given = {"x": number} if form == "parameter" else {}
        text = f"query q({declared}) {{ match {{ $p: P }} return {{ {condition} as c }} order {{ $p.k }} }}"
        assert [r["c"] for r in graph.query(text, params=given).to_pylist()] == expected, (condition, number)
        text = f"query q({declared}) {{ match {{ $p: P {condition} }} return {{ $p.k as k }} order {{ $p.k }} }}"
        hits = [r["k"] for r in graph.query(text, params=given).to_pylist()]
        assert hits == [r["k"] for r, e in zip(rows, expected, strict=True) if e], (condition, number)


def test_in_finds_what_is_exactly_equal(stored: tuple[og.Graph, list[dict[str, Any]]]) -> None:
    graph, rows = stored
    rng = random.Random(f"{SEED}-in")
    for _ in range(12):
        column = rng.choice(list(KINDS))
        items = [*literals(rng, 3), value(rng, column)]
        expected = [r["k"] for r in rows if any(compared("=", column, r[column], i) for i in items)]
        for list_ in (f"[{', '.join(map(shown, items))}]", f"[{', '.join(map(shown, items))}, $p.k]"):
            text = f"query q() {{ match {{ $p: P $p.{column} in {list_} }} return {{ $p.k as k }} order {{ $p.k }} }}"
            also = {r["k"] for r in rows if "$p.k" in list_ and r[column] is not None and r[column] == r["k"]}
            assert [r["k"] for r in graph.query(text).to_pylist()] == sorted({*expected, *also}), (column, list_)
        lists, (number,) = rng.choice(["ls", "us", "fs", "ds"]), literals(rng, 1)
        columns = f"{shown(number)} in $p.{lists} as a, $p.{column} in $p.{lists} as b"
        text = f"query q() {{ match {{ $p: P }} return {{ {columns} }} order {{ $p.k }} }}"
        answer = graph.query(text).to_pylist()
        for row, got in zip(rows, answer, strict=True):
            assert got["a"] == any(compared("=", lists, x, number) for x in row[lists]), (number, row[lists])
            expected_b = None if row[column] is None else row[column] in row[lists]
            assert got["b"] == expected_b, (column, row[column], lists, row[lists])


def test_writes_find_the_same_rows(stored: tuple[og.Graph, list[dict[str, Any]]], tmp_path: Path) -> None:
    _, rows = stored
    graph = og.init(tmp_path / "graph", SCHEMA)
    graph.insert({"P": rows[:30]})
    beyond = 2**53 + 1
    for condition, holds in (
        (f"d < {beyond}", lambda r: r["d"] is not None and r["d"] < beyond),
        (f"d in [{beyond}, {2**53}, 0.5]", lambda r: r["d"] in (2**53, 0.5)),
        (f"l >= {float(2**63)!r} or u > {2**63}", lambda r: r["u"] is not None and r["u"] > 2**63),
    ):
        changed = graph.mutate(f"query q() {{ update P set {{ i: 7 }} where {condition} returning {{ k }} }}")
        assert sorted(r["k"] for r in changed.to_pylist()) == [r["k"] for r in rows[:30] if holds(r)], condition
    done = graph.mutate(
        f"query q() {{ update P set {{ ds: [{beyond}, 0.5], d: {beyond} }} where k = 1 returning {{ d, ds }} }}"
    )
    assert done.to_pylist() == [{"d": 2.0**53, "ds": [2.0**53, 0.5]}]
    assert graph.mutate(f"query q() {{ delete P where d = {beyond} }}").deleted == {}


def test_what_no_type_holds_is_an_error_of_the_query(stored: tuple[og.Graph, list[dict[str, Any]]]) -> None:
    graph, _ = stored
    text = "query q() { match { $p: P } return { [18446744073709551615, 1] as x } limit 1 }"
    with pytest.raises(QueryValueError, match="does not fit into 64 bits"):
        graph.query(text)
    for bad in (math.nan, math.inf, 10**400):
        with pytest.raises(ParameterError, match="finite"):
            graph.query("query q($x: F64) { match { $p: P $p.d < $x } return { $p.k } }", x=bad)


def test_order_and_extremes_of_large_numbers_are_exact(stored: tuple[og.Graph, list[dict[str, Any]]]) -> None:
    graph, rows = stored
    for name in KINDS:
        values = [r[name] for r in rows if r[name] is not None]
        columns = f"min($p.{name}) as a, max($p.{name}) as b"
        text = f"query q() {{ match {{ $p: P $p.{name} is not null }} return {{ {columns} }} }}"
        assert graph.query(text).to_pylist() == [{"a": min(values), "b": max(values)}]
        text = f"query q() {{ match {{ $p: P $p.{name} is not null }} return {{ $p.{name} as x }} order {{ x }} }}"
        assert [r["x"] for r in graph.query(text).to_pylist()] == sorted(values)
