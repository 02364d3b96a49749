"""Whatever a query asks: an answer or a typed error. Reads and writes of every shape run with values at the edges of
their types; an exception that is no OmnigraphError is a failure.

OMNIGRAPH_FUZZ_SEED=… replays, OMNIGRAPH_FUZZ_QUERIES=… runs longer.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import OmnigraphError, QueryCheckError
from omnigraph.language.query import check_query, parse_queries
from tests.language.query.random_queries import PARAMETERS, Maker, random_query
from tests.language.query.texts import SCHEMA, SCHEMA_TEXT

QUERIES = int(os.environ.get("OMNIGRAPH_FUZZ_QUERIES", "60"))
SEED = int(os.environ.get("OMNIGRAPH_FUZZ_SEED") or random.SystemRandom().randrange(2**32))
INTEGERS = [0, 1, -1, 2**31 - 1, -(2**31), 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 0.1, 1.5, 2.0**53, 2.0**63, -(2.0**63), 2.0**64, 3.4e38, 1e300, -1e308, 5e-324]
TEXTS = ["", "a", "O'Brien", "50%_", "\\", "\0", "é", "\U0001f600", "a" * 5000, "p1", "(", "^(a+)+$", "c1"]
DATES = [date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31)]
TIMES = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(2024, 2, 29, 12, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
]
LARGE = ["9007199254740993", "(-9223372036854775808)", "18446744073709551615", "1e300", "9223372036854775807", "5e-324"]


class WideMaker(Maker):
    """Numbers at the edges, and statements whose values are any expressions."""

    def number(self, depth: int = 0) -> str:
        return self.pick(*LARGE) if self.rng.random() < 0.15 else super().number(depth)

    def clause(self, depth: int = 0) -> str:
        if self.rng.random() < 0.1:
            number = self.number(2)
            return self.pick(
                f"{self.known()}.age in [{number}, {self.number(2)}, 2.5]",
                f"{number} in {self.known()}.scores",
                f"{self.known()}.scores contains {number}",
                f"{self.known()}.name matches $s",
                f"{self.known()}.joined + days({number}) > $t",
                f"date({self.known()}.joined - weeks({number})) = $d",
            )
        return super().clause(depth)

    def row(self) -> str:
        """A condition on the row that a statement writes: its properties have no variable."""
        self.variables = ["$row"]
        return self.condition(1).replace("$row.", "")

    def statement(self) -> str:
        if self.rng.random() < 0.3:
            return super().statement()
        where = self.row()
        number, text = self.number(1).replace("$row.", ""), self.text(1).replace("$row.", "")
        values = self.pick(
            f"age: {number}",
            f"weight: {number}, height: {number}",
            f"visits: {number}",
            f"name: {text}",
            f"scores: [{number}, 0.5]",
            f"tags: [{text}]",
            f"born: $d + days({number})",
            f"status: {text}",
            "photo: $s",
        )
        returning = self.pick("", " returning { * }", f" returning {{ {number} as n, {text} as t }}")
        return self.pick(
            f"update Person set {{ {values} }} where {where}{returning}",
            f"delete {self.pick('Person', 'Knows')} where {where}{returning}",
            f"merge Person {{ slug: {self.pick('$s', text)} }} set {{ {values} }}{returning}",
            f"insert Person {{ slug: $s, name: $s, {values} }}{returning}",
            f"insert Knows {{ from: $x0, to: $x1, weight: {number} }} from match {{ {self.pattern()} }}",
        )

    def pattern(self) -> str:
        self.variables = ["$x0", "$x1"]
        clauses = " ".join(self.clause(1) for _ in range(self.rng.randint(0, 2)))
        return f"$x0: Person $x1: Person {clauses}"


def wide_query(rng: random.Random) -> str:
    maker = WideMaker(rng)
    body = maker.read() if rng.random() < 0.5 else " ".join(maker.statement() for _ in range(rng.randint(1, 3)))
    return f"query q({PARAMETERS}) {{ {body} }}"


def parameters(rng: random.Random) -> dict[str, Any]:
    return {
        "s": rng.choice(TEXTS),
        "i": rng.choice(INTEGERS),
        "f": rng.choice([None, *FLOATS]),
        "l": [rng.choice(TEXTS) for _ in range(rng.randint(0, 3))],
        "v": [rng.choice([0.0, 1.0, -2.5, 3e38]) for _ in range(3)],
        "d": rng.choice(DATES),
        "t": rng.choice(TIMES),
        "b": rng.choice([None, True, False]),
    }


def person(rng: random.Random, slug: str) -> dict[str, Any]:
    def some(value: Any) -> Any:
        return None if rng.random() < 0.2 else value

    return {
        "slug": slug,
        "name": rng.choice(TEXTS),
        "age": some(rng.choice([0, 1, 2**31 - 1, -(2**31)])),
        "visits": some(rng.choice([0, 2**53 + 1, 2**63, 2**64 - 1])),
        "height": some(rng.choice([0.0, -0.0, 0.1, 3.4e38])),
        "weight": some(rng.choice(FLOATS)),
        "bio": some(rng.choice(TEXTS)),
        "born": some(rng.choice(DATES)),
        "joined": some(rng.choice(TIMES)),
        "active": some(rng.random() < 0.5),
        "tags": some([rng.choice(TEXTS[:4])]),
        "scores": some([rng.choice(FLOATS)]),
        "vec": some([1.0, 0.0, rng.choice([0.0, 3e38])]),
    }


def build(path: Path, rng: random.Random) -> og.Graph:
    graph = og.init(path, SCHEMA_TEXT)
    people = [f"p{i}" for i in range(6)]
    knows = [{"src": rng.choice(people), "dst": rng.choice(people), "weight": rng.choice(FLOATS)} for _ in range(9)]
    graph.insert(
        {
            "Person": [person(rng, slug) for slug in people],
            "Company": [{"slug": "c1", "name": "c1"}],
            "Knows": knows,
            "WorksAt": [{"src": "p1", "dst": "c1", "role": "x"}],
        }
    )
    return graph


@pytest.mark.parametrize("make", [wide_query, random_query])
def test_only_typed_errors_leave_a_query(tmp_path: Path, make: Callable[[random.Random], str]) -> None:
    outcomes: Counter[str] = Counter()
    graph = build(tmp_path / "graph", random.Random(SEED))
    for seed in range(SEED, SEED + QUERIES):
        rng = random.Random(seed)
        text, given = passing(make, rng), parameters(rng)
        try:
            outcomes[outcome(graph, text, given)] += 1
        except Exception as error:
            raise AssertionError(f"OMNIGRAPH_FUZZ_SEED={seed} replays\n{text}\n{given}") from error
    print(f"OMNIGRAPH_FUZZ_SEED={SEED}", outcomes.most_common())
    assert outcomes["done"] > 0


def passing(make: Callable[[random.Random], str], rng: random.Random) -> str:
    """A query that the checker takes, of some tries; what it refuses never runs."""
    text = make(rng)
    for _ in range(20):
        try:
            check_query(parse_queries(text).queries[0], SCHEMA)
            break
        except QueryCheckError:
            text = make(rng)
    return text


def outcome(graph: og.Graph, text: str, given: dict[str, Any]) -> str:
    try:
        statement = graph.prepare(text, "q", timeout_s=20.0, max_rows=100_000)
        statement.run(**given).to_pylist()
    except OmnigraphError as error:
        return error.condition
    return "done"
