"""What fails is told in its table's row, and the rest is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.index import build
from omnigraph.maintenance.optimize.prepare import Preparation
from omnigraph.storage.lance import lance_api
from tests.maintenance.optimize.conftest import people
from tests.maintenance.optimize.tables import coverage, opened


@pytest.mark.parametrize("struck", range(1, 5))
def test_a_disk_that_fails_for_a_moment_costs_a_branch_the_fork_that_was_begun_and_no_more(
    worn: og.Graph, monkeypatch: pytest.MonkeyPatch, struck: int
) -> None:
    """Nobody restores a line that no branch has: what was committed to it stays, and the next try takes another."""
    worn.create_branch("review")
    monkeypatch.setenv("OMNIGRAPH_WRITE_TIMEOUT", "5")
    real, calls = lance_api.commit, []

    def failing(location: Any, base: Any, *args: Any, **options: Any) -> Any:
        on_table = "__manifest" not in str(getattr(base, "uri", base))
        calls.append(on_table)
        if on_table and sum(calls) == struck:
            raise OSError("Input/output error")
        return real(location, base, *args, **options)

    monkeypatch.setattr(lance_api, "commit", failing)
    result = worn.optimize(branch="review")
    assert sum(calls) > struck
    assert result.ok
    assert result.table("node:Person").committed
    assert set(coverage(opened(worn, "Person", "review")).values()) == {1.0}
    assert worn.optimize(branch="review").commit is None
    assert worn.verify(branch="review", full=True).ok


def test_a_disk_that_goes_on_failing_is_told_and_soon(worn: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    worn.create_branch("review")
    real = lance_api.commit

    def failing(location: Any, base: Any, *args: Any, **options: Any) -> Any:
        done = real(location, base, *args, **options)
        if "__manifest" not in str(getattr(base, "uri", base)):
            raise OSError("Input/output error")
        return done

    monkeypatch.setattr(lance_api, "commit", failing)
    result = worn.optimize(branch="review")
    assert result.commit is None
    assert not result.ok
    assert "the store failed" in (result.table("node:Person").error or "")
    monkeypatch.setattr(lance_api, "commit", real)
    assert worn.optimize(branch="review").table("node:Person").committed


def test_one_failing_table_does_not_stop_the_others(worn: og.Graph) -> None:
    table = opened(worn, "Person")
    file = Path(table.uri) / "data" / table.get_fragments()[1].metadata.files[0].path
    file.write_bytes(b"")
    fresh = og.open(worn.uri)
    result = fresh.optimize()
    assert not result.ok
    assert result.table("node:Person").error
    assert result.table("node:Person").committed is False
    assert result.table("edge:Knows").committed is True
    assert result.table("edge:Knows").error is None


def test_a_table_that_can_not_be_forked_is_told_and_does_not_stop_the_others(
    worn: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.storage.lance import edits

    fork = edits.fork_table

    def full(location: Any, pin: Any, handle: Any, *, name: str) -> Any:
        if pin.path.startswith("nodes/"):
            raise OSError("LanceError(IO): no space left on device")
        return fork(location, pin, handle, name=name)

    worn.create_branch("review")
    monkeypatch.setattr(edits, "fork_table", full)
    result = worn.optimize(branch="review")
    assert "no space left" in (result.table("node:Person").error or "")
    assert result.table("edge:Knows").committed is True


def test_an_index_whose_data_is_missing_fails_its_table_and_is_not_called_pending(graph: og.Graph) -> None:
    people(graph, 0, 5)
    graph.insert({"City": [{"name": "Bern"}]})
    table = opened(graph, "Person")
    (Path(table.uri) / "data" / table.get_fragments()[0].metadata.files[0].path).unlink()
    result = og.open(graph.uri).optimize()
    person = result.table("node:Person")
    assert (person.committed, person.pending_indexes) == (False, ())
    assert person.error
    assert result.table("node:City").committed is True


@pytest.mark.parametrize("error", [KeyError("<unknown> not found in schema"), TypeError("expected a string")])
def test_an_index_that_fails_in_an_unforeseen_way_is_told_and_the_others_are_built(
    worn: og.Graph, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    real = build.build_segment

    def failing(*args: Any, **options: Any) -> Any:
        if options["name"] == "age_btree":
            raise error
        return real(*args, **options)

    monkeypatch.setattr(build, "build_segment", failing)
    result = worn.optimize()
    (pending,) = result.table("node:Person").pending_indexes
    assert (pending.property, type(error).__name__ in pending.reason) == ("age", True)
    assert coverage(opened(worn, "Person"))["id_btree"] == 1.0
    assert result.table("edge:Knows").committed


def test_what_was_made_to_work_on_is_removed_when_it_is_interrupted(
    worn: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Preparation, "_build", interrupted)
    with pytest.raises(KeyboardInterrupt):
        worn.optimize()
    assert list(Path(worn.uri).glob("nodes/*/_versions/d*.manifest")) == []
