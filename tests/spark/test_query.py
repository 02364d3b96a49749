"""Read queries on Spark: a DataFrame with the rows of the same query in this process, in the same order."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import NotOnSpark, QueryCheckError, QueryValueError, UsageError
from tests.query import random_reads
from tests.support.random_graphs import build

SEEDS = [int(s) for s in os.environ.get("OMNIGRAPH_SEEDS", "3").split(",")]
QUERIES = int(os.environ.get("OMNIGRAPH_SPARK_QUERIES", "3"))
SCHEMA = """
interface Named { name: String }
node Person implements Named {
  slug: String @key
  small: I32?
  whole: I64?
  big: U64?
  single: F32?
  double: F64?
  active: Bool?
  born: Date?
  joined: DateTime?
  tags: [String]?
  face: Vector(2)?
}
node Company implements Named { slug: String @key  small: String? }
edge Knows: Person -> Person { since: Date? }
edge Likes: Person -> Person
edge WorksAt: Person -> Company { role: String? }
"""
MOMENT = datetime(2024, 2, 29, 1, 2, 3, 4000, tzinfo=UTC)


@pytest.fixture(scope="module", autouse=True)
def _few_rows(spark: Any) -> Iterator[None]:
    """Compiling a plan takes longer than running it on so few rows."""
    given = {"spark.sql.shuffle.partitions": "2", "spark.sql.codegen.wholeStage": "false"}
    before = {key: spark.conf.get(key) for key in given}
    for key, value in given.items():
        spark.conf.set(key, value)
    yield
    for key, value in before.items():
        spark.conf.set(key, value)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    """ada → bob → cy → ada and dan, dan → dan, ada and bob twice; eve likes ada. Two things are called acme."""
    graph = og.init(tmp_path_factory.mktemp("query") / "graph", SCHEMA)
    graph.insert(
        {
            "Person": [
                {
                    "slug": "ada",
                    "name": "İda ß",
                    "small": 3,
                    "whole": 2**53 + 1,
                    "big": 2**64 - 1,
                    "single": 0.1,
                    "double": 0.1,
                    "active": True,
                    "born": date(1, 1, 1),
                    "joined": MOMENT,
                    "tags": ["x", "y"],
                    "face": [0.5, -0.0],
                },
                {"slug": "bob", "name": "O'Brien\\n", "whole": 2**62, "double": 0.2, "single": -0.0, "tags": []},
                {"slug": "cy", "name": "cy", "whole": 2**62, "double": 0.3, "single": 0.0, "active": False},
                {"slug": "dan", "name": "dan", "small": -1, "double": 1e16, "born": date(2024, 2, 29)},
                {"slug": "eve", "name": "50%_", "small": 0, "whole": -1, "big": 7, "double": -1e16},
                {"slug": "acme", "name": "acme", "small": 0},
            ],
            "Company": [{"slug": "acme", "name": "Acme", "small": "text"}, {"slug": "bee", "name": "Bee"}],
            "Knows": [
                {"src": "ada", "dst": "bob", "since": date(2020, 1, 1)},
                {"src": "ada", "dst": "bob"},
                {"src": "bob", "dst": "cy"},
                {"src": "cy", "dst": "ada"},
                {"src": "cy", "dst": "dan", "since": date(2022, 2, 2)},
                {"src": "dan", "dst": "dan"},
            ],
            "Likes": [{"src": "eve", "dst": "ada"}, {"src": "ada", "dst": "dan"}, {"src": "bob", "dst": "dan"}],
            "WorksAt": [{"src": "ada", "dst": "acme", "role": "boss"}, {"src": "acme", "dst": "bee"}],
        }
    )
    return graph


def both(graph: og.Graph, spark: Any, match: str, columns: str, rest: str = "") -> list[tuple[Any, ...]]:
    """The rows on Spark, which are those of this process."""
    distinct = "distinct" if columns.startswith("distinct") else ""
    text = f"query q() {{ match {{ {match} }} return {distinct} {{ {columns.removeprefix('distinct')} }} {rest} }}"
    expected = graph.query(text).to_arrow()
    frame = graph.query(text, engine="spark")
    assert frame.columns == expected.column_names
    found = frame.toArrow().to_pylist()
    assert found == expected.to_pylist()
    return [tuple(r.values()) for r in found]


def test_columns_have_the_names_and_types_that_the_source_gives_them(graph: og.Graph, spark: Any) -> None:
    columns = "$p.small, $p.whole as W, $p.whole as w, $p.big, $p.single, $p.joined, $p.face, $p.whole + 1 as more, $p"
    frame = graph.query(f"query q() {{ match {{ $p: Person }} return {{ {columns} }} }}", engine="spark")
    assert [(f.name, f.dataType.simpleString()) for f in frame.schema][:-1] == [
        ("p.small", "int"),
        ("W", "bigint"),
        ("w", "bigint"),
        ("p.big", "decimal(20,0)"),
        ("p.single", "float"),
        ("p.joined", "timestamp"),
        ("p.face", "array<float>"),
        ("more", "bigint"),
    ]
    assert frame.schema[-1].dataType.names[:4] == ["id", "name", "slug", "small"]


def test_bounds_are_distances_and_loops_count_one_hop_more_from_both_ends(graph: og.Graph, spark: Any) -> None:
    pairs = both(graph, spark, "$a: Person $a knows{2,2} $b", "$a.slug, $b.slug")
    assert pairs == [("ada", "cy"), ("bob", "ada"), ("bob", "dan"), ("cy", "bob"), ("cy", "dan")]
    assert both(graph, spark, '$b: Person { slug: "dan" } $a knows{2,2} $b', "$a.slug") == [("bob",), ("cy",)]
    reached = both(graph, spark, '$a: Person { slug: "ada" } $a knows{1,} $b', "$b.slug")
    assert reached == [("bob",), ("cy",), ("dan",)]


@pytest.mark.long
def test_an_undirected_loop_is_one_edge_and_edge_variables_keep_parallel_ones(graph: og.Graph, spark: Any) -> None:
    assert both(graph, spark, '$d: Person { slug: "dan" } $d $k:<knows> $x', "$x.slug") == [("cy",), ("dan",)]
    since = both(graph, spark, "$a: Person $a $k:(knows|likes) $b $a.slug != $b.slug", "$b.slug, $k.@type, $k.from")
    assert len(since) == 8
    assert both(graph, spark, '$a: Person $a $k:knows $b $k.since > date("2021-01-01")', "$b.slug") == [("dan",)]


@pytest.mark.long
def test_paths_visit_no_node_twice_and_the_first_of_the_shortest_is_taken(graph: og.Graph, spark: Any) -> None:
    ways = both(graph, spark, '$b: Person { slug: "dan" } path $p = $a knows|likes{1,3} $b', "nodes($p) as ids")
    assert (["ada", "bob", "cy", "dan"],) in ways
    assert (["dan", "dan"],) in ways
    match = '$b: Person { slug: "dan" } path $p = shortest $a knows|likes{2,3} $b'
    short = both(graph, spark, match, "$a.slug, nodes($p) as ids, length($p) as hops")
    assert short[0] == ("ada", ["ada", "dan", "dan"], 2)  # one hop is too near: over the loop
    assert both(graph, spark, "$a: Person path $p = $a knows{2,3} $a", "nodes($p) as ids")[0] == (
        ["ada", "bob", "cy", "ada"],
    )


def test_blocks_match_for_null_outside_as_for_others(graph: og.Graph, spark: Any) -> None:
    match = """$p: Person
      optional { $p knows $q $q.small is not null }
      optional { $q likes $r }
      not { $q worksAt $_ }"""
    rows = both(graph, spark, match, "$p.slug, $q.slug, $r.slug as liked")
    assert ("acme", None, None) in rows
    assert ("cy", "ada", "dan") not in rows  # ada works
    assert ("cy", "dan", None) in rows
    assert both(graph, spark, "$a: Person not { $a <knows|likes> $_ }", "$a.slug") == [("acme",)]
    late = both(graph, spark, "$p: Person optional { $p knows $q } $q worksAt $c", "$p.slug, $q.slug, $c.slug")
    assert late == [("cy", "ada", "acme")]


def test_one_id_of_two_types_is_two_entities(graph: og.Graph, spark: Any) -> None:
    rows = both(graph, spark, '$x: Named $x.id = "acme"', "$x.@type as type, $x as whole, $x.name")
    assert [r[0] for r in rows] == ["Company", "Person"]
    assert [r[1]["small"] for r in rows] == ["text", "0"]  # of two types: as text
    assert both(graph, spark, '$x: Named $y: Person $x = $y $x.id = "acme"', "count(*) as n") == [(1,)]
    assert both(graph, spark, "$x: Named", "count(distinct $x) as things, count(distinct $x.id) as ids") == [(8, 7)]


def test_aggregates_are_exact(graph: og.Graph, spark: Any) -> None:
    columns = """$p.active as active, count(*) as n, sum($p.whole) as whole, avg($p.whole) as mean, avg($p.big) as big,
      sum($p.double) as double, sum(distinct $p.double) as once, collect($p.slug) as who,
      collect(distinct $p.small) as small, count(distinct $p.single) as zeros, max($p.name) as last"""
    rows = both(graph, spark, "$p: Person", columns)
    assert [r[:3] for r in rows] == [(None, 4, 2**62 - 1), (False, 1, 2**62), (True, 1, 2**53 + 1)]
    assert both(
        graph, spark, '$p: Person $p.slug = "nobody"', "count(*) as n, sum($p.whole) as s, collect($p.id) as l"
    ) == [(0, None, [])]
    grouped = both(
        graph,
        spark,
        "$p: Person $p knows $f",
        "$p, count($f) as n, n * 2 as twice",
        "having { n > 0 } order { n desc }",
    )
    assert [(r[0]["slug"], r[1], r[2]) for r in grouped] == [("cy", 2, 4), ("ada", 1, 2), ("bob", 1, 2), ("dan", 1, 2)]


def test_the_order_is_total_and_cut_exactly(graph: og.Graph, spark: Any) -> None:
    rows = both(graph, spark, "$p: Person", "$p.slug", "order { $p.single desc, $p.small }")
    assert [r[0] for r in rows] == ["ada", "bob", "cy", "dan", "acme", "eve"]  # minus zero is zero, null is last
    assert both(graph, spark, "$p: Person", "$p.slug", "order { $p.small desc } offset 2") == [
        ("eve",),
        ("dan",),
        ("bob",),
        ("cy",),
    ]
    assert both(graph, spark, "$p: Person", "$p.slug", "order { $p.small } offset 1 limit 2") == [("cy",), ("dan",)]
    assert both(graph, spark, "$p: Person", "distinct $p.single, $p.active", "offset 1 limit 3")


def test_values_mean_what_they_mean_in_this_process(graph: og.Graph, spark: Any) -> None:
    columns = """lower($p.name) as low, upper($p.name) as up, length($p.name) as n, $p.name matches "^.{2}$" as two,
      $p.name contains "%" as percent, $p.single = 0.1 as tenth, $p.whole > 9007199254740992.0 as more,
      $p.double < 9007199254740993 as near, $p.whole in [0.5, 9007199254740993] as beyond, $p.whole > $p.double as most,
      $p.big - 1 > 5 as big, 1 / $p.small as part, $p.small in [0, 3, $p.whole] as among, "x" in $p.tags as tagged,
      $p.born + days(1) as next, $p.joined - hours(1) as before, ($p.joined - $p.born) / days(1) as age,
      coalesce($p.small, $p.double) as some, $p.name + $p.slug as text, $p.small != 3 as other,
      $p.big as b, $p.face as face, $p.joined as j, $p.active = true as yes"""
    match = "$p: Person $p.big is null or $p.big < 10 or $p.active"
    rows = both(graph, spark, match, columns.replace("$p.big - 1 > 5 as big,", ""), "order { $p.slug desc }")
    assert len(rows) == 6


def test_a_value_that_does_not_exist_is_the_error_of_the_query(graph: og.Graph, spark: Any) -> None:
    frame = graph.query("query q() { match { $p: Person } return { $p.whole * 4 as much } }", engine="spark")
    with pytest.raises(Exception, match="does not fit into 64 bits") as caught:
        frame.collect()
    assert "query_value" in str(caught.value)
    assert "QueryValueError" in str(caught.value)


def test_what_spark_does_not_answer_is_refused(graph: og.Graph, spark: Any) -> None:
    for condition, word in (('search($p.name, "x")', "search"), ('not (fuzzy($p.name, "x"))', "fuzzy")):
        with pytest.raises(NotOnSpark, match=word) as caught:
            graph.query(f"query q() {{ match {{ $p: Person {condition} }} return {{ $p.slug }} }}", engine="spark")
        assert caught.value.condition == "not_on_spark"
        assert "engine" in caught.value.remedy
    ranked = "query q() { match { $p: Person } return { $p.slug } order { nearest($p.face, [1.0, 0.0]) } limit 2 }"
    with pytest.raises(NotOnSpark, match="nearest"):
        graph.query(ranked, engine="spark")
    with pytest.raises(UsageError, match="mutate"):
        graph.query('query q() { delete Person where slug = "ada" }', engine="spark")
    text = "query q() { match { $p: Person } return { $p.slug } }"
    with pytest.raises(UsageError, match="timeout_s"):
        graph.query(text, engine="spark", timeout_s=3.0)  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="engine"):
        graph.query(text, engine="local")  # type: ignore[call-overload]
    with pytest.raises(NotOnSpark, match="limit"):
        graph.query(text.replace("} }", "} limit 3000000000 }"), engine="spark")


def test_a_frame_is_one_state_by_branch_commit_or_time(tmp_path: Path, spark: Any) -> None:
    graph = og.init(tmp_path / "graph", "node Person { slug: String @key }")
    first = graph.insert({"Person": [{"slug": "a"}]}).commit
    assert first is not None
    between = datetime.now(UTC)
    graph.create_branch("side")
    text = "query q($least: String) { match { $p: Person $p.slug >= $least } return { $p.slug } }"
    frame = graph.query(text, least="", engine="spark")
    graph.insert({"Person": [{"slug": "b"}]})
    graph.insert({"Person": [{"slug": "c"}]}, branch="side")

    def slugs(found: Any) -> list[str]:
        return [r["p.slug"] for r in found.collect()]

    assert slugs(frame) == ["a"]
    assert slugs(graph.query(text, least="", engine="spark")) == ["a", "b"]
    assert slugs(graph.query(text, params={"least": "b"}, branch="side", engine="spark")) == ["c"]
    assert slugs(graph.query(text, least="", commit=first.id, engine="spark")) == ["a"]
    assert slugs(graph.query(text, least="", as_of=between, engine="spark")) == ["a"]


def test_queries_in_this_process_do_not_load_spark() -> None:
    code = "import sys, omnigraph.query, omnigraph.graph.queries; print('pyspark' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert shown.strip() == "False"


@pytest.mark.parametrize("seed", SEEDS)
def test_random_queries_give_the_rows_of_this_process(tmp_path: Path, spark: Any, seed: int) -> None:
    print(f"replay with OMNIGRAPH_SEEDS={seed} OMNIGRAPH_SPARK_QUERIES={QUERIES}")
    rng = random.Random(seed)
    graph = build(tmp_path / "graph", rng, "partial")
    ran = 0
    while ran < QUERIES:
        text, given = random_reads.random_read(rng), random_reads.parameters(rng)
        try:
            expected = graph.query(text, params=given).to_arrow()
            # An empty answer is easily right.
            frame = graph.query(text, params=given, engine="spark") if len(expected) else None
        except (QueryCheckError, QueryValueError, NotOnSpark):
            continue
        if frame is None:
            continue
        found = frame.toArrow()
        assert found.column_names == expected.column_names, text
        assert found.to_pylist() == expected.to_pylist(), f"seed {seed}\n{text}\n{given}"
        ran += 1
