"""Adjacency arrays on disk: wanted explicitly, derived, and never the cause of another answer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import omnigraph as og

SCHEMA = "node Person { slug: String @key }\nedge Knows: Person -> Person"
PAIRS = "query q() { match { $a: Person $a knows $b } return { $a.slug, $b.slug } }"


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> og.Graph:
    monkeypatch.setattr("omnigraph.query.traversal.adjacency_files.EDGES_MIN", 1)
    graph = og.init(tmp_path / "g", SCHEMA)
    graph.insert({"Person": [{"slug": "a"}, {"slug": "b"}], "Knows": [{"src": "a", "dst": "b"}]})
    return graph


def asked(graph: og.Graph) -> tuple[list[tuple[object, ...]], list[str]]:
    """The rows, and what a new handle used to find them."""
    result = og.open(graph.uri).query(PAIRS)
    used = [u for s in result.explain()["steps"] for u in s["used"]]
    return [tuple(r.values()) for r in result.to_pylist()], used


def kept(graph: og.Graph) -> list[Path]:
    return sorted(Path(graph.uri, "__cache", "adjacency").glob("*"))


def test_nothing_is_written_unless_it_is_wanted(people: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMNIGRAPH_QUERY_DISK", raising=False)
    assert asked(people)[0] == [("a", "b")]
    assert not Path(people.uri, "__cache").exists()


def test_a_new_process_finds_the_arrays_of_the_one_before(people: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_QUERY_DISK", "on")
    assert "arrays built" in asked(people)[1]
    rows, used = asked(people)
    assert rows == [("a", "b")]
    assert "arrays on disk" in used


def test_a_new_version_has_its_own_arrays_and_the_old_ones_go(
    people: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_QUERY_DISK", "on")
    asked(people)
    before = kept(people)
    people.insert({"Knows": [{"src": "b", "dst": "a"}]})
    rows, used = asked(people)
    assert rows == [("a", "b"), ("b", "a")]
    assert "arrays built" in used
    assert len(before) == len(kept(people)) == 1
    assert before != kept(people)


@pytest.mark.parametrize("damage", ["cut", "empty", "gone", "foreign"])
def test_damaged_arrays_are_built_again(people: og.Graph, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    monkeypatch.setenv("OMNIGRAPH_QUERY_DISK", "on")
    asked(people)
    (folder,) = kept(people)
    if damage == "cut":
        file = folder / "out.nodes.npy"
        file.write_bytes(file.read_bytes()[:-4])
    elif damage == "empty":
        (folder / "into.offsets.npy").write_bytes(b"")
    elif damage == "gone":
        (folder / "out.edges.npy").unlink()
    else:
        (folder / "meta.json").write_text("{}")
    rows, used = asked(people)
    assert rows == [("a", "b")]
    assert "arrays built" in used


def test_a_disk_that_may_not_be_written_is_no_error(people: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_QUERY_DISK", "on")
    Path(people.uri, "__cache").write_text("a file where the folder should be")
    assert asked(people)[0] == [("a", "b")]


def test_verify_and_cleanup_leave_it_alone(people: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_QUERY_DISK", "on")
    asked(people)
    assert people.verify(orphans_older_than_s=0).ok
    people.cleanup(keep=1, confirm=True)
    assert asked(people)[0] == [("a", "b")]
    shutil.rmtree(Path(people.uri, "__cache"))
    assert asked(people)[0] == [("a", "b")]
