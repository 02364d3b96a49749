"""PreparedQuery statements: checked once, run often, right on every schema that they meet."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import numpy as np
import pytest

import omnigraph as og
from omnigraph.errors import (
    BranchNotFound,
    ParameterError,
    PreconditionFailed,
    QueryCheckError,
    QueryTimeout,
    ResourceLimit,
    UsageError,
)
from omnigraph.graph.prepared_query import Param
from omnigraph.query import query_cache
from tests.query.conftest import SCHEMA

READ = """query of($slug: String, $least: I64?) {
  match { $p: Person { slug: $slug } $least is null or $p.score >= $least }
  return { $p.name, $p.score as points }
}"""
WRITE = """query rate($slug: String, $by: I64) {
  update Person set { score: score + $by } where slug = $slug returning { slug, score }
}"""
FRIENDS = """query f($since: Date, $v: Vector(3)) {
  match { $a: Person $a $k:knows $b $k.since >= $since }
  return { $b.slug, nearest($a.bio_vector, $v) as d }
  order { $b.slug }
  limit 9
}"""


def test_a_statement_tells_what_it_takes_and_what_it_gives(graph: og.Graph, tmp_path: Path) -> None:
    file = tmp_path / "two.gq"
    file.write_text(f"{READ}\n{WRITE}\n{FRIENDS}")
    read = graph.prepare(file, "of")
    assert read.params == (Param("slug", "String", False), Param("least", "I64", True))
    assert (read.columns, read.is_write, read.branch) == (("p.name", "points"), False, "main")
    assert str(read) == "of($slug: String, $least: I64?)"
    write = graph.prepare(str(file), "rate")
    assert (write.columns, write.is_write) == (("slug", "score"), True)
    assert [p.type for p in graph.prepare(file, "f").params] == ["Date", "Vector(3)"]


def test_every_run_answers_as_the_text_would(graph: og.Graph) -> None:
    statement = graph.prepare(READ)
    for slug in ("ada", "bob", "nobody"):
        assert statement.run(slug=slug).to_pylist() == graph.query(READ, slug=slug).to_pylist()
    assert statement({"slug": "bob"}, least=2).to_pylist() == []
    assert tuple(statement({"slug": "bob"}).columns) == statement.columns


def test_a_statement_that_writes_commits_every_run(graph: og.Graph) -> None:
    statement = graph.prepare(WRITE, actor="anna")
    first = statement.run(slug="ada", by=5)
    assert statement.run(slug="ada", by=1).to_pylist() == [{"slug": "ada", "score": 6}]
    newest, before = graph.commits(limit=2)
    assert (newest.actor, before.id) == ("anna", first.commit.id)
    with pytest.raises(PreconditionFailed):
        statement.run(slug="ada", by=1, if_commit=before.id)
    done = statement.run(slug="ada", by=1, operation_id="mine")
    assert not done.repeated
    assert statement.run(slug="ada", by=1, operation_id="mine").repeated
    assert graph.nodes("Person", where={"slug": "ada"})["score"].to_pylist() == [7]


def test_what_is_wrong_with_the_text_is_said_when_it_is_prepared(graph: og.Graph) -> None:
    with pytest.raises(QueryCheckError):
        graph.prepare("query q() { match { $p: Person } return { $p.nmae } }")
    with pytest.raises(UsageError, match="holds 2 queries"):
        graph.prepare(READ + WRITE)
    with pytest.raises(UsageError, match="timeout_s is a limit above 0"):
        graph.prepare(READ, timeout_s=0)


def test_it_is_checked_once_while_the_schema_stays(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = []
    check = query_cache.check_query

    def counted(*given: object) -> object:
        checks.append(given)
        return check(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(query_cache, "check_query", counted)
    read, write = graph.prepare(READ), graph.prepare(WRITE)
    for _ in range(3):
        read.run(slug="ada")
        write.run(slug="ada", by=1)
    graph.queries._checked.clear()  # many other queries came by
    read.run(slug="ada")
    assert len(checks) == 2


def test_it_outlives_changes_of_the_schema_until_it_does_not_fit(graph: og.Graph) -> None:
    read, write = graph.prepare(READ), graph.prepare(WRITE)
    assert read.run(slug="bob").to_pylist() == [{"p.name": "Bob", "points": 1}]
    other = og.open(graph.uri)
    other.apply_schema(SCHEMA.replace("score: I64?", "score: I64?  extra: String?"))
    assert write.run(slug="bob", by=1).to_pylist() == [{"slug": "bob", "score": 2}]
    assert read.run(slug="bob").to_pylist() == [{"p.name": "Bob", "points": 2}]
    other.apply_schema(SCHEMA.replace("  score: I64?\n", ""))
    for statement, given in ((read, {}), (write, {"by": 1})):
        with pytest.raises(QueryCheckError, match="score"):
            statement.run(slug="bob", **given)


def test_a_statement_is_bound_to_its_branch(graph: og.Graph) -> None:
    graph.create_branch("trial")
    write, read = graph.prepare(WRITE, branch="trial"), graph.prepare(READ, branch="trial")
    write.run(slug="bob", by=10)
    assert read.run(slug="bob").to_pylist()[0]["points"] == 11
    assert graph.query(READ, slug="bob").to_pylist()[0]["points"] == 1
    graph.delete_branch("trial")
    with pytest.raises(BranchNotFound):
        read.run(slug="bob")


def test_a_statement_on_an_older_state_stays_there_and_only_reads(graph: og.Graph) -> None:
    then = graph.commits(limit=1)[0].id
    read = graph.prepare(READ, commit=then)
    graph.mutate(WRITE, slug="bob", by=10)
    assert read.run(slug="bob").to_pylist()[0]["points"] == 1
    with pytest.raises(UsageError, match="only the newest state"):
        graph.prepare(WRITE, commit=then)
    with pytest.raises(UsageError, match="only reads"):
        read.run(slug="bob", if_commit=then)


def test_the_limits_of_a_statement_hold_for_every_run(graph: og.Graph) -> None:
    everyone = "query q() { match { $p: Person } return { $p.slug } }"
    with pytest.raises(ResourceLimit):
        graph.prepare(everyone, max_rows=1).run()
    with pytest.raises(QueryTimeout):
        graph.prepare(everyone, timeout_s=1e-9).run()


def test_parameters_are_python_values_or_json_forms(graph: og.Graph) -> None:
    statement = graph.prepare(FRIENDS)
    python = statement.run(since=date(2021, 1, 1), v=np.array([1, 0, 0], np.float32))
    json = statement.run(since="2021-01-01", v=[1, 0, 0])
    assert python.to_pylist() == json.to_pylist()
    assert [r["b.slug"] for r in json] == ["bob", "dan"]
    with pytest.raises(ParameterError) as caught:
        statement.run(since=20210101, v=np.zeros(2))
    told = [(p["parameter"], p["declared"], p["given"]) for p in caught.value.fields["problems"]]
    assert told == [("since", "Date", "int"), ("v", "Vector(3)", "numpy.ndarray")]


def test_a_parameter_may_have_the_name_of_an_option(graph: og.Graph) -> None:
    text = """query q($params: String, $if_commit: String) {
      match { $p: Person { slug: $params } $p.name = $if_commit }
      return { $p.slug }
    }"""
    assert len(graph.prepare(text).run({"if_commit": "Ada"}, params="ada")) == 1
