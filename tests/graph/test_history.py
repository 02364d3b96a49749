"""Snapshots, time travel and commits: what was published stays readable, exactly."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import errors


def names(graph: og.Graph, **at: object) -> list[str]:
    return sorted(graph.snapshot(**at).read("Person")["name"].to_pylist())  # type: ignore[arg-type]


def test_every_commit_can_be_read_again_however_deep(graph: og.Graph) -> None:
    expected = {}
    for i in range(90):
        commit = graph.insert({"Person": [{"name": f"p{i:03d}"}]}).commit
        expected[commit.id] = i + 1
    fresh = og.open(graph.uri)
    for commit_id, count in list(expected.items())[::7]:
        assert len(names(fresh, commit=commit_id)) == count


def test_commits_are_listed_newest_first_with_their_parents(graph: og.Graph) -> None:
    for i in range(70):
        graph.insert({"Person": [{"name": f"p{i}"}]}, actor=f"a{i}")
    commits = og.open(graph.uri).commits()
    assert [c.actor for c in commits] == [f"a{i}" for i in reversed(range(70))] + [None]
    assert all(c.parent == older.id for c, older in itertools.pairwise(commits))
    assert [c.id for c in graph.commits(limit=3)] == [c.id for c in commits[:3]]
    assert commits[-1].kind == "init"


def test_a_snapshot_stays_what_it_was_while_others_write(graph: og.Graph) -> None:
    graph.insert({"Person": [{"name": "a"}]})
    old = graph.snapshot()
    graph.insert({"Person": [{"name": "b"}]})
    graph.delete({"Person": ["a"]})
    assert old.read("Person")["name"].to_pylist() == ["a"]


def test_another_handle_sees_a_commit_without_being_told(graph: og.Graph) -> None:
    other = og.open(graph.uri)
    assert names(other) == []
    graph.insert({"Person": [{"name": "a"}]})
    assert names(other) == ["a"]


def test_an_unknown_commit_is_said_to_be_unknown(graph: og.Graph) -> None:
    with pytest.raises(errors.CommitNotFound):
        graph.snapshot(commit="01ARZ3NDEKTSV4RRFFQ69G5FAV")


def test_a_snapshot_lists_tables_without_opening_them(graph: og.Graph) -> None:
    graph.insert({"Person": [{"name": "a"}, {"name": "b"}]})
    listed = {t.table_key: t for t in og.open(graph.uri).snapshot().tables()}
    assert list(listed) == ["node:Doc", "node:Person", "edge:Knows", "edge:Wrote"]
    assert (listed["node:Person"].rows, listed["node:Person"].fragments) == (2, 1)
    assert Path(graph.uri, listed["node:Person"].path).is_dir()


def test_opening_and_reading_write_nothing(graph: og.Graph) -> None:
    graph.insert({"Person": [{"name": "a"}]})

    def tree() -> dict[str, float]:
        return {str(p): p.stat().st_mtime_ns for p in Path(graph.uri).rglob("*")}

    before = tree()
    reader = og.open(graph.uri)
    reader.snapshot().tables()
    reader.commits()
    reader.branches()
    assert names(reader) == ["a"]
    assert tree() == before


def test_what_is_not_a_graph_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(errors.GraphNotFound):
        og.open(tmp_path / "nothing")
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(errors.NotAGraph):
        og.open(file)
    with pytest.raises(errors.UnsupportedStore):
        og.open("http://localhost/graph")
    with pytest.raises(errors.UnsupportedStore):
        og.open("ftp://host/graph")


def test_init_refuses_an_address_that_is_taken(tmp_path: Path, graph: og.Graph) -> None:
    with pytest.raises(errors.GraphExists):
        og.init(graph.uri, "node A { x: I32 }")
    occupied = tmp_path / "occupied"
    occupied.mkdir()
    (occupied / "notes.txt").write_text("mine")
    with pytest.raises(errors.UsageError, match=r"notes\.txt"):
        og.init(occupied, "node A { x: I32 }")
    assert [p.name for p in occupied.iterdir()] == ["notes.txt"]


def test_a_file_uri_and_a_path_are_the_same_graph(graph: og.Graph) -> None:
    assert og.open(f"file://{graph.uri}").uri == graph.uri
