"""Former names of methods and arguments work and are deprecated; `graph.maintenance` has the maintenance verbs."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import errors

SCHEMA = "node Person { name: String @key }"


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "graph", SCHEMA)
    graph.insert({"Person": [{"name": "Ada"}]})
    return graph


def test_former_names_of_arguments_work_and_are_deprecated(graph: og.Graph, tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match=r"create_branch\(from_=…\) is deprecated; use from_branch="):
        graph.create_branch("work", from_="main")  # type: ignore[call-arg]
    with pytest.warns(DeprecationWarning, match=r"export\(format=…\) is deprecated; use file_format="):
        graph.export(str(tmp_path / "out"), format="parquet")  # type: ignore[call-arg]
    with pytest.warns(DeprecationWarning, match=r"history\(id=…\) is deprecated; use entity_id="):
        assert len(graph.history("Person", id="Ada").versions) == 1  # type: ignore[call-arg]


def test_both_names_of_one_argument_are_refused(graph: og.Graph) -> None:
    with pytest.raises(errors.UsageError, match="from_ is the former name of from_branch"):
        graph.create_branch("work", from_="main", from_branch="main")  # type: ignore[call-arg]
    assert [branch.name for branch in graph.branches()] == ["main"]


def test_a_commit_is_got_by_its_id(graph: og.Graph) -> None:
    newest = graph.commits()[0]
    assert graph.get_commit(newest.id) == graph.get_commit("main") == newest
    with pytest.warns(DeprecationWarning, match="use get_commit"):
        assert graph.commit(newest.id) == newest


def test_a_transaction_names_the_commit_that_it_reads(graph: og.Graph) -> None:
    with graph.transaction() as transaction:
        assert transaction.base_commit == graph.commits()[0].id
        with pytest.warns(DeprecationWarning, match="use base_commit"):
            assert transaction.commit == transaction.base_commit


def test_the_namespace_runs_the_verbs_of_its_graph(graph: og.Graph) -> None:
    maintenance = graph.maintenance
    assert maintenance.stats().to_json() == graph.stats().to_json()
    assert maintenance.verify(quick=True).ok
    plan = maintenance.plan_optimize()
    assert maintenance.optimize(plan=plan).to_json()["tables"][0]["table_key"] == "node:Person"
    assert maintenance.repair().to_json()["tables"] == graph.repair().to_json()["tables"]
    assert not maintenance.cleanup(keep=1).confirmed
    assert not hasattr(maintenance, "insert")
    assert repr(maintenance) == f"<maintenance of {graph!r}>"
