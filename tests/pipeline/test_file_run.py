"""Running a pipeline file: one commit for all of it, none the second time; embed, optimize and cleanup after it."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import ConstraintViolation, FileUnreadable, StorageError
from omnigraph.pipeline.file.run import run_pipeline

SCHEMA = """
node Person { name: String @key  age: I32?  @range(age, 0..150) }
node Note { title: String @key  text: String?  v: Vector(64)? @embed("text") }
edge Follows: Person -> Person { since: Date? }
"""
FILE = """\
graph: graph
schema: people.pg
mode: merge
sources:
  people: {path: "people*.csv"}
nodes:
  Person: {source: people, map: {full_name: name}}
edges:
  Follows: {path: follows.csv, from: a, to: b}
data: ["*.jsonl"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "people.pg").write_text(SCHEMA)
    (tmp_path / "people1.csv").write_text("full_name,age\nAda,36\nBob,\n")
    (tmp_path / "people2.csv").write_text("full_name,age\nEve,40\n")
    (tmp_path / "follows.csv").write_text("id,a,b,since\n1,Ada,Bob,2020-01-31\n2,Eve,Max,\n")
    (tmp_path / "more.jsonl").write_text(
        '{"type": "Person", "data": {"name": "Max"}}\n'
        '{"type": "Note", "data": {"title": "a", "text": "graphs on disk"}}\n'
    )
    (tmp_path / "p.yaml").write_text(FILE)
    return tmp_path / "p.yaml"


def test_all_inputs_of_a_file_are_one_commit(file: Path) -> None:
    result = run_pipeline(file, actor="anna")
    assert result.created_graph
    assert result.load is not None
    assert result.load.inserted == {"node:Person": 4, "node:Note": 1, "edge:Follows": 2}
    graph = og.open(file.parent / "graph")
    assert [(c.kind, c.actor) for c in graph.commits()] == [("load", "anna"), ("init", "anna")]
    assert sorted(graph.snapshot().read("Follows")["dst"].to_pylist()) == ["Bob", "Max"]


def test_a_second_run_makes_no_commit_and_a_changed_input_makes_one(file: Path) -> None:
    run_pipeline(file)
    again = run_pipeline(file)
    assert not again.created_graph
    assert again.load is not None
    assert again.load.commit is None
    (file.parent / "people2.csv").write_text("full_name,age\nEve,41\n")
    changed = run_pipeline(file)
    assert changed.load is not None
    assert changed.load.updated == {"node:Person": 1}


def test_embed_steps_follow_in_commits_of_their_own(file: Path) -> None:
    file.write_text(FILE + "embed: [{type: Note, property: v, provider: local}]\n")
    result = run_pipeline(file)
    assert [dict(step.embedded) for step in result.embed] == [{"node:Note": 1}]
    assert result.to_json()["embed"][0]["provider"] == "local"
    graph = og.open(file.parent / "graph")
    assert graph.snapshot().read("Note")["v"].null_count == 0
    assert [c.kind for c in graph.commits()][-2:] == ["load", "init"]


def test_a_second_run_keeps_vectors_and_changes_nothing(file: Path) -> None:
    file.write_text(FILE + "embed: [{type: Note, property: v, provider: local}]\n")
    run_pipeline(file)
    graph = og.open(file.parent / "graph")
    before = graph.snapshot().commit
    again = run_pipeline(file)
    assert again.load is not None
    assert again.load.commit is None
    assert [sum(step.embedded.values()) for step in again.embed] == [0]
    assert graph.snapshot().commit == before


def test_optimize_and_cleanup_follow_and_a_second_run_makes_no_commit(file: Path) -> None:
    file.write_text(FILE + "optimize: true\ncleanup: {keep: 1}\n")
    result = run_pipeline(file)
    assert result.ok
    assert result.optimize.commit.actor == "omnigraph:optimize"
    assert result.cleanup.confirmed
    assert result.cleanup.old_versions_removed > 0
    graph = og.open(file.parent / "graph")
    assert [c.kind for c in graph.commits()] == ["optimize", "load", "init"]
    figures = graph.stats()
    assert figures.coverage == 1.0
    assert figures.versions == len(figures.tables)
    again = run_pipeline(file)
    assert again.optimize.commit is None
    assert len(graph.commits()) == 3
    assert graph.snapshot().count("Person") == 4


def test_a_branch_is_optimized_where_it_was_loaded(file: Path) -> None:
    file.write_text(FILE.replace("mode:", "branch: trial\nfrom: main\nmode:") + "optimize: true\n")
    run_pipeline(file)
    graph = og.open(file.parent / "graph")
    assert (graph.stats(branch="trial").coverage, graph.stats().rows) == (1.0, 0)
    assert [c.kind for c in graph.commits(branch="trial", limit=1)] == ["optimize"]


def test_what_was_loaded_stays_where_a_later_step_fails(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StorageError(doing="merging", detail="the disk is full")

    file.write_text(FILE + "optimize: true\n")
    with monkeypatch.context() as patch:
        patch.setattr(og.Graph, "optimize", fail)
        with pytest.raises(StorageError):
            run_pipeline(file)
    assert og.open(file.parent / "graph").snapshot().count("Person") == 4
    result = run_pipeline(file)
    assert result.load is not None
    assert result.load.commit is None
    assert result.optimize.commit is not None, "the same file goes on"


def test_a_missing_branch_is_made_and_main_stays_as_it_was(file: Path) -> None:
    file.write_text(FILE.replace("mode:", "branch: trial\nfrom: main\nmode:"))
    run_pipeline(file)
    graph = og.open(file.parent / "graph")
    assert (graph.snapshot("trial").count("Person"), graph.snapshot().count("Person")) == (4, 0)


def test_what_is_wrong_is_put_aside_where_the_file_says(file: Path) -> None:
    (file.parent / "people2.csv").write_text("full_name,age\nEve,400\n")
    with pytest.raises(ConstraintViolation):
        run_pipeline(file)
    file.write_text(FILE.replace("mode:", "on_error: quarantine\nquarantine: rejects/all.jsonl\nmode:"))
    result = run_pipeline(file)
    assert result.load is not None
    assert result.load.rejected_by_rule == {"range": 1, "endpoint": 1}
    assert "Eve" in (file.parent / "rejects" / "all.jsonl").read_text()


def test_an_input_that_is_missing_is_told_before_a_graph_is_created(file: Path) -> None:
    (file.parent / "follows.csv").unlink()
    with pytest.raises(FileUnreadable, match=r"follows\.csv"):
        run_pipeline(file)
    assert not (file.parent / "graph").exists()
