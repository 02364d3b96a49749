"""Results in every form, explanations, limits, and values that stay values."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import (
    FileUnreadable,
    NotAvailable,
    ParameterError,
    QueryTimeout,
    QueryValueError,
    ResourceLimit,
    UsageError,
)
from tests.query.conftest import rows

ALL = "query all() { match { $p: Person } return { $p.slug, $p.score as points } order { points desc } }"


def test_a_result_comes_in_every_form(graph: og.Graph) -> None:
    result = graph.query(ALL)
    assert len(result) == result.num_rows == 6
    assert result.columns == ["p.slug", "points"]
    table = result.to_arrow()
    assert table.schema == pa.schema([("p.slug", pa.string()), ("points", pa.int64())])
    assert result.to_pylist() == table.to_pylist() == list(result)
    assert pa.Table.from_batches(list(result.batches(2))) == table
    assert [b.num_rows for b in result.batches(4)] == [4, 2]
    assert result.reader().read_all() == table
    assert str(result).splitlines()[:2] == ["p.slug  points", "eve     4"]


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_form_whose_package_is_missing_says_what_to_do(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(NotAvailable, match=package) as caught:
        getattr(graph.query(ALL), f"to_{package}")()
    assert "to_arrow" in caught.value.remedy


def test_large_results_are_made_when_they_are_asked_for(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = graph.query(ALL).to_pylist()
    monkeypatch.setattr("omnigraph.query.execution.run.EAGER_ROWS", 0)
    late = graph.query(ALL)
    assert "columns" not in [s["step"] for s in late.explain()["steps"]]
    graph.delete({"Person": ["ada", "bob"]})
    assert [r for b in late.batches(4) for r in b.to_pylist()] == whole


def test_every_type_of_value_arrives_as_it_is_stored(graph: og.Graph) -> None:
    text = (
        'query q() { match { $p: Person { slug: "bob" } } return { $p.score, $p.active, $p.status, $p.tags, '
        "$p.bio_vector, $p.@type, $p.born + days(1) as d, 1 / 2 as half, now() as at, $p } }"
    )
    table = graph.query(text).to_arrow()
    assert [str(t) for t in table.schema.types[:9]] == [
        *("int64", "bool", "string", "list<item: string>", "fixed_size_list<item: float>[3]", "string", "date32[day]"),
        *("double", "timestamp[ms, tz=UTC]"),
    ]
    whole = table["p"].to_pylist()[0]
    assert list(whole) == ["id", "name", "slug", "born", "joined", "score", "active", "status", "tags", "bio"]
    assert whole["tags"] == ["all", "bob"]


def test_a_file_or_a_text_and_parameters_either_way(graph: og.Graph, tmp_path: Path) -> None:
    file = tmp_path / "people.gq"
    file.write_text(ALL + "query one($slug: String) { match { $p: Person { slug: $slug } } return { $p.name } }")
    assert graph.query(file, "one", {"slug": "ada"}).to_pylist() == [{"p.name": "Ada"}]
    assert graph.query(str(file), "one", slug="bob").to_pylist() == [{"p.name": "Bob"}]
    with pytest.raises(UsageError, match="name one of them: all, one"):
        graph.query(file)
    with pytest.raises(UsageError, match="no query two"):
        graph.query(file, "two")
    with pytest.raises(FileUnreadable):
        graph.query(tmp_path / "missing.gq")
    with pytest.raises(ParameterError):
        graph.query(file, "one")
    with pytest.raises(UsageError, match="mutate"):
        graph.query("query w() { delete Person where true }")


NASTY = ["O'Brien", 'a"b', "back\\slash", "50%_x", "'; DROP TABLE x; --", "`id`", "a\nb\tc", "naïve ☃ 日本", "", "\x7f"]


@pytest.mark.parametrize("value", NASTY)
def test_parameters_are_values_and_never_code(graph: og.Graph, value: str) -> None:
    graph.insert({"Person": [{"slug": f"k{value}", "name": value, "active": True, "tags": [value]}]})
    conditions = ["$p.name = $v", "$p.name in [$v]", "$v in $p.tags", "$p.id = $k", '$p.name + "" = $v']
    for condition in conditions:
        text = f"query q($v: String, $k: String) {{ match {{ $p: Person {condition} }} return {{ $p.name, $p.id }} }}"
        found = graph.query(text, v=value, k=f"k{value}").to_pylist()
        assert found == [{"p.name": value, "p.id": f"k{value}"}], condition
    for word in ("contains", "starts_with", "ends_with"):
        text = f"query q($v: String) {{ match {{ $p: Person $p.name {word} $v }} return {{ $p.name }} }}"
        expected = sorted(n for n in ["Ada", "Bob", "Cy", "Dan", "Eve", "Flo", value] if value in n)
        assert sorted(r["p.name"] for r in graph.query(text, v=value).to_pylist()) == expected


def test_a_value_without_a_place_is_an_error_of_the_query(graph: og.Graph) -> None:
    with pytest.raises(QueryValueError, match="64 bits"):
        rows(graph, "$p: Person", "$p.score + 9223372036854775807 as x")
    with pytest.raises(QueryValueError, match="years"):
        rows(graph, "$p: Person", 'date("9999-12-31") + days(1) as x')
    with pytest.raises(QueryValueError, match="64 bits"):
        rows(graph, "$p: Person", "sum(9223372036854775807) as x")
    with pytest.raises(QueryValueError, match="regular expression"):
        rows(graph, "$p: Person", '$p.name matches $p.slug + "(" as x')
    assert rows(graph, '$p: Person { slug: "bob" }', "1 / 0 as x, $p.score / ($p.score - 1) as y") == [(None, None)]


# ---- limits ----------------------------------------------------------------------------------------------------------

WIDE = "query q() { match { $a: Person $b: Person $c: Person $d: Person } return { $a.id, $b.id, $c.id, $d.id } }"


def test_more_rows_than_allowed_are_an_error(graph: og.Graph) -> None:
    with pytest.raises(ResourceLimit) as caught:
        graph.query(ALL, max_rows=5)
    assert caught.value.fields == {"query": "all", "resource": "rows", "limit": 5, "actual": 6}
    assert len(graph.query(ALL, max_rows=6)) == 6


def test_more_memory_than_allowed_is_an_error_before_it_is_used(graph: og.Graph) -> None:
    with pytest.raises(ResourceLimit) as caught:
        graph.query(WIDE, max_memory_bytes=10_000)
    assert caught.value.fields["resource"] == "memory_bytes"
    assert caught.value.fields["actual"] > 10_000
    assert len(graph.query(WIDE, max_memory_bytes=1_000_000)) == 6**4


def test_a_query_that_takes_too_long_is_stopped(graph: og.Graph) -> None:
    with pytest.raises(QueryTimeout) as caught:
        graph.query(WIDE, timeout_s=1e-6)
    assert caught.value.fields["timeout_s"] == 1e-6
    assert len(graph.query(WIDE, timeout_s=60)) == 6**4


@pytest.mark.parametrize("limit", ["timeout_s", "max_rows", "max_memory_bytes"])
def test_limits_are_above_zero(graph: og.Graph, limit: str) -> None:
    with pytest.raises(UsageError, match=limit):
        graph.query(ALL, **{limit: 0})  # type: ignore[arg-type]


def test_whatever_stops_a_query_leaves_nothing_behind(graph: og.Graph) -> None:
    def files() -> list[str]:
        return sorted(str(p) for p in Path(graph.uri).rglob("*"))

    before = files()
    for options in ({"max_rows": 1}, {"timeout_s": 1e-6}, {"max_memory_bytes": 10}):
        with pytest.raises((ResourceLimit, QueryTimeout)):
            graph.query(WIDE, **options)  # type: ignore[arg-type]
    assert files() == before


# ---- explain ---------------------------------------------------------------------------------------------------------


def test_explain_says_what_was_done_with_guessed_and_real_rows(graph: og.Graph, traverse: str) -> None:
    text = (
        'query q() { match { $p: Person { slug: "ada" } $p knows $f not { $f worksAt $_ } '
        "optional { $f worksWith $o } } return { $f.name, count(*) as n } order { n } }"
    )
    told = graph.query(text).explain()
    assert told["query_name"] == "q"
    assert told["graph_commit_id"] == graph.commits(limit=1)[0].id
    steps = {s["step"]: s for s in told["steps"]}
    assert [s["step"] for s in told["steps"] if s["depth"] == 0] == [
        "scan",
        "expand",
        "not",
        "aggregate",
        "order",
        "columns",
    ]
    assert steps["scan"] | {"ms": 0} == {
        "step": "scan",
        "detail": "$p: Person",
        "depth": 0,
        "estimated_rows": 1,
        "rows": 1,
        "used": ["(`slug` = 'ada')"],
        "ms": 0,
    }
    used = told["steps"][1]["used"]
    assert ("adjacency of Knows" in used) == (traverse == "csr")
    assert ("src_btree" in used) == (traverse == "index")
    assert all(s["ms"] >= 0 for s in told["steps"])


def test_explain_is_logged_on_request_and_nothing_is_printed(
    graph: og.Graph, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="omnigraph"), pytest.warns(DeprecationWarning, match=r"Result.explained\(\)"):
        graph.query(ALL, explain=True)
    (record,) = caplog.records
    shown = record.__dict__["fields"]["steps"].splitlines()
    assert shown[0].split() == ["step", "rows", "guessed", "ms", "about", "by"]
    assert shown[-1].startswith("6 rows in ")
    assert capsys.readouterr() == ("", "")


def test_a_query_is_parsed_and_checked_once_per_schema(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.query(ALL)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("parsed again")

    monkeypatch.setattr("omnigraph.query.query_cache.parse_queries", never)
    assert len(graph.query(ALL)) == 6
    with pytest.raises(AssertionError, match="parsed again"):
        graph.query(ALL + " ")


# ---- beside writers --------------------------------------------------------------------------------------------------


def test_readers_beside_writers_see_whole_commits_only(graph: og.Graph) -> None:
    """Every commit adds a person, a company and an edge between them; optimize runs in between."""
    wrong: list[object] = []
    done = threading.Event()
    text = (
        'query q() { match { $p: Person $p.slug starts_with "w" optional { $p worksAt $c } } '
        "return { count(*) as n, count($c) as with_company } }"
    )

    def read() -> None:
        reader = og.open(graph.uri)
        while not done.is_set():
            (row,) = reader.query(text).to_pylist()
            if row["n"] != row["with_company"]:
                wrong.append(row)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for t in threads:
        t.start()
    try:
        for i in range(12):
            graph.insert(
                {
                    "Person": [{"slug": f"w{i}", "name": "W", "active": True}],
                    "Company": [{"slug": f"c{i}", "name": "C"}],
                    "WorksAt": [{"src": f"w{i}", "dst": f"c{i}"}],
                }
            )
            if i == 6:
                graph.optimize()
    finally:
        done.set()
        for t in threads:
            t.join()
    assert wrong == []
    assert graph.query(text).to_pylist() == [{"n": 12, "with_company": 12}]


# ---- the checker's part ----------------------------------------------------------------------------------------------


def test_a_score_in_a_distinct_or_grouped_order_is_refused(graph: og.Graph) -> None:
    from omnigraph.errors import QueryCheckError

    for body in ("return distinct { $p.bio }", "return { $p.bio, count(*) as n }"):
        with pytest.raises(QueryCheckError) as caught:
            graph.query(f'query q() {{ match {{ $p: Person }} {body} order {{ bm25($p.bio, "fox") }} }}')
        assert caught.value.fields["code"] in ("T29", "T9")
