"""Thousands of random queries on random graphs: the same rows in the same order as the oracle gives, whatever the state
of the indices and whichever way edges are crossed.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import QueryCheckError, QueryValueError
from omnigraph.language.query import bind_params, check_query, parse_queries
from omnigraph.query import Options, run_query
from tests.query import random_reads
from tests.query.oracle import Oracle, Unfit
from tests.support.random_graphs import build

GRAPHS = int(os.environ.get("OMNIGRAPH_RANDOM_GRAPHS", "2"))
QUERIES = int(os.environ.get("OMNIGRAPH_RANDOM_QUERIES", "40"))
SEED = int(os.environ.get("OMNIGRAPH_RANDOM_SEED", "5"))


@pytest.fixture(params=["small", "large"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """large: what is done only for many rows is done for few."""
    if request.param == "large":
        act_large(monkeypatch.setattr)
    return str(request.param)


def act_large(set_: Callable[[str, object], None]) -> None:
    for name in (
        "tables.tables.TAKE_SHARE",
        "tables.tables.TAKE_MIN",
        "execution.match.TAKE_SHARE",
        "execution.match.SCAN_COLUMNS_ROWS",
    ):
        set_(f"omnigraph.query.{name}", 0)
    for name in (
        "execution.match.DEDUPE_ROWS",
        "search.texts.FEW_ROWS",
        "search.vectors.ROUGH_ROWS",
        "execution.run.EAGER_ROWS",
    ):
        set_(f"omnigraph.query.{name}", 0)
    set_("omnigraph.query.tables.tables.IDS_PER_FILTER", 2)
    set_("omnigraph.query.execution.frame.BLOCK_ROWS", 3)
    set_("omnigraph.query.execution.sorting.PART_ROWS", 2)
    set_("omnigraph.query.search.texts.TEXTS_MAX", 2)
    set_("omnigraph.query.execution.aggregate.DISTINCT_ROWS", 0)
    set_("omnigraph.query.tables.tables.RANKED_APART_MAX", 0)
    set_("omnigraph.query.tables.tables.LOOKUPS_MIN", 1)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b) and (isinstance(a, bool) == isinstance(b, bool))


@pytest.mark.parametrize("coverage", ["none", "partial", "full"])
def test_random_queries_give_the_rows_of_the_oracle(tmp_path: Path, coverage: str, sizes: str) -> None:
    ran = refused = 0
    for number in range(GRAPHS):
        done = compare(tmp_path / f"g{number}", f"{SEED}-{coverage}-{sizes}-{number}", coverage, QUERIES)
        ran, refused = ran + done[0], refused + done[1]
    assert ran > refused
    assert ran > GRAPHS * QUERIES // 2


@pytest.mark.parametrize(
    "seed",
    [
        "20261116-full-small-71",  # $_ in a block was taken for one outside of it
        "20261116-full-large-87",  # lengths of vectors of all rows for some of them
        "20261116-partial-large-53",  # the least of a constant over no rows
        "777-full-large-60",  # the first integer below those that are floats as well, beside a float
        "778-full-large-113",  # a condition that holds for what an optional block did not find
        "20261117-full-large-108",  # an end of a traversal that is declared, and used no more
    ],
)
def test_what_was_wrong_before_stays_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: str) -> None:
    _, coverage, sizes, _ = seed.split("-")
    if sizes == "large":
        act_large(monkeypatch.setattr)
    assert compare(tmp_path / "g", seed, coverage, 20, is_old=True)[0] > 5


def compare(path: Path, seed: str, coverage: str, queries: int, *, is_old: bool = False) -> tuple[int, int]:
    """How many random queries on one random graph ran, and how many were refused. Each gives what the oracle gives."""
    ran = refused = 0
    rng = random.Random(seed)
    graph = build(path, rng, coverage)
    oracle, snapshot = Oracle(graph), graph.snapshot()
    for _ in range(queries):
        text = random_reads.random_read(rng, declare=not is_old, large=not is_old)
        given = random_reads.parameters(rng)
        try:
            checked = check_query(parse_queries(text).queries[0], snapshot.schema)
        except QueryCheckError:
            refused += 1
            continue
        bound = bind_params(checked, given)
        try:
            expected: Any = oracle.rows(checked, bound)
        except Unfit:
            expected = None
        for way in ("csr", "index"):
            options = Options(traverse=way)
            try:
                result = run_query(snapshot, checked, given, options=options, cache=graph.queries.cache)
                found: Any = [tuple(r.values()) for r in result.to_pylist()]
            except QueryValueError:
                found = None
            except Exception as error:
                raise AssertionError(f"seed {seed}, {way}\n{text}\n{given}") from error
            # Whether a value that has no place is met at all hangs on which conditions come first.
            if expected is not None and found is not None:
                assert same(found, expected), f"seed {seed}, {way}\n{text}\n{given}\n{found}\n{expected}"
        ran += 1
    return ran, refused
