"""Actors: no caller is taken for the program itself, whichever way the name is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import UsageError
from omnigraph.pipeline.file.run import run_pipeline

WRITES: dict[str, Callable[[og.Graph, str], object]] = {
    "insert": lambda g, actor: g.insert({"Note": [{"text": "x"}]}, actor=actor),
    "upsert": lambda g, actor: g.upsert({"Note": [{"text": "x"}]}, actor=actor),
    "update": lambda g, actor: g.update("Person", {"age": 3}, ids=["Ada"], actor=actor),
    "delete": lambda g, actor: g.delete({"Person": ["Ada"]}, actor=actor),
    "load": lambda g, actor: g.load([b'{"type": "Note", "data": {"text": "x"}}'], mode="append", actor=actor),
    "mutate": lambda g, actor: g.mutate('query q() { insert Note { text: "x" } }', actor=actor),
    "prepare": lambda g, actor: g.prepare('query q() { insert Note { text: "x" } }', actor=actor),
    "embed": lambda g, actor: g.embed(actor=actor),
    "schema": lambda g, actor: g.apply_schema("node Person { name: String @key }", actor=actor),
    "open": lambda g, actor: og.open(g.uri, actor=actor),
    "init": lambda g, actor: og.init(f"{g.uri}-2", "node A { a: String }", actor=actor),
}


def in_transaction(graph: og.Graph, actor: str) -> None:
    with graph.transaction(actor=actor) as transaction:
        transaction.insert({"Note": [{"text": "x"}]})


WRITES["transaction"] = in_transaction


@pytest.mark.parametrize("actor", ["omnigraph:me", "omnigraph:optimize", " "])
@pytest.mark.parametrize("way", WRITES)
def test_a_name_that_is_the_programs_own_is_refused(graph: og.Graph, way: str, actor: str) -> None:
    graph.insert({"Person": [{"name": "Ada"}]})
    before = [c.id for c in graph.commits()]
    with pytest.raises(UsageError, match=r"not free|empty"):
        WRITES[way](graph, actor)
    assert [c.id for c in graph.commits()] == before
    assert not Path(f"{graph.uri}-2").exists()


def test_a_name_from_the_environment_is_judged_when_it_is_used(
    graph: og.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_ACTOR", "omnigraph:me")
    other = og.open(graph.uri)
    assert other.snapshot().count("Person") == 0
    with pytest.raises(UsageError, match="not free"):
        other.insert({"Note": [{"text": "x"}]})
    with pytest.raises(UsageError, match="not free"):
        og.init(tmp_path / "new", "node A { a: String }")
    assert other.insert({"Note": [{"text": "x"}]}, actor="anna").commit is not None


def test_a_pipeline_is_not_run_by_the_program(graph: og.Graph, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"type": "Note", "data": {"text": "x"}}\n')
    (tmp_path / "p.yaml").write_text("graph: ./graph\nmode: append\ndata: [in.jsonl]\n")
    with pytest.raises(UsageError, match="not free"):
        run_pipeline(tmp_path / "p.yaml", actor="omnigraph:me")
    assert len(graph.commits()) == 1
