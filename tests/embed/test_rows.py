"""Which rows embed fills, with the real local model: what is missing, what changed, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import EmbeddingMismatch, UnknownProperty, UnknownType, UsageError
from omnigraph.pipeline.embed.local import LocalProvider
from omnigraph.pipeline.embed.provider import Choice
from omnigraph.storage.lance.embedding_marks import mark_column
from tests.embed.conftest import SCHEMA, posts, vectors

MODEL = "wordllama-l2-supercat"
GIVEN = [1.0] + [0.0] * 255


def local(texts: list[str], dimensions: int = 256) -> np.ndarray:
    return LocalProvider(Choice("local", MODEL, dimensions, 1024)).embed(texts)


def is_of(found: np.ndarray | None, text: str) -> bool:
    return found is not None and bool(np.allclose(found, local([text])[0], atol=1e-6))


def test_every_declared_vector_is_filled_from_its_source_in_one_commit(graph: og.Graph) -> None:
    graph.insert({"Post": posts(20), "Tag": [{"name": "red"}]})
    result = graph.embed()
    assert len(result.commits) == 1
    assert result.commits[0].kind == "embed"
    assert result.embedded == {"node:Post": 20, "node:Tag": 1}
    assert result.models == {"node:Post.vector": MODEL, "node:Tag.vector": MODEL}
    found = vectors(graph)
    assert all(is_of(found[p["key"]], p["text"]) for p in posts(20))
    assert np.allclose(vectors(graph, "Tag")["red"], local(["red"], 64)[0], atol=1e-6)
    assert all(abs(np.linalg.norm(v) - 1) < 1e-5 for v in found.values() if v is not None)


def test_a_second_run_finds_nothing_and_makes_no_commit(graph: og.Graph) -> None:
    graph.insert({"Post": posts(3)})
    graph.embed()
    head = graph.snapshot().commit
    result = graph.embed()
    assert result.commits == ()
    assert result.embedded == {}
    assert graph.snapshot().commit == head


def test_rows_without_text_have_no_vector(graph: og.Graph) -> None:
    graph.insert({"Post": [{"key": "a"}, {"key": "b", "text": ""}, {"key": "c", "text": " \n\t"}]})
    result = graph.embed("Post")
    assert result.commits == ()
    assert result.skipped["without_text"] == 3
    assert set(vectors(graph).values()) == {None}


@pytest.mark.parametrize("way", ["update", "upsert without vector", "upsert with the old vector"])
def test_a_text_that_changed_is_embedded_again_and_no_other(graph: og.Graph, way: str) -> None:
    graph.insert({"Post": posts(5)})
    graph.embed()
    before = vectors(graph)
    if way == "update":
        graph.update("Post", {"text": "something else"}, ids=["p0003"])
    else:
        row: dict[str, Any] = {"key": "p0003", "text": "something else"}
        held = before["p0003"]
        assert held is not None
        graph.upsert({"Post": [row if "without" in way else {**row, "vector": held.tolist()}]})
    result = graph.embed()
    assert result.embedded == {"node:Post": 1}
    after = vectors(graph)
    assert is_of(after["p0003"], "something else")
    assert all(np.array_equal(after[k], before[k]) for k in before if k != "p0003")  # type: ignore[arg-type]


def test_other_properties_may_change_without_a_new_vector(graph: og.Graph) -> None:
    graph.insert({"Post": posts(2)})
    graph.embed()
    graph.update("Post", {"rank": 1}, ids=["p0000"])
    assert graph.embed().commits == ()


def test_a_given_vector_stays_until_its_text_changes(graph: og.Graph) -> None:
    graph.insert({"Post": [{"key": "a", "text": "one", "vector": GIVEN}]})
    result = graph.embed("Post")
    assert result.commits == ()
    assert result.skipped["given"] == 1
    graph.update("Post", {"rank": 7}, ids=["a"])
    assert graph.embed("Post").commits == ()
    graph.update("Post", {"text": "two"}, ids=["a"])
    assert graph.embed("Post").embedded == {"node:Post": 1}
    assert is_of(vectors(graph)["a"], "two")


def test_a_vector_given_after_embedding_is_the_users_and_stays(graph: og.Graph) -> None:
    graph.insert({"Post": posts(1)})
    graph.embed()
    graph.update("Post", {"vector": GIVEN}, ids=["p0000"])
    assert graph.embed().commits == ()
    assert np.array_equal(vectors(graph)["p0000"], np.array(GIVEN, np.float32))  # type: ignore[arg-type]


def test_a_vector_whose_text_went_away_is_taken_away(graph: og.Graph) -> None:
    graph.insert({"Post": [*posts(2), {"key": "given", "text": "x", "vector": GIVEN}]})
    graph.embed()
    graph.update("Post", {"text": None}, ids=["p0000", "given"])
    result = graph.embed()
    assert result.cleared == {"node:Post": 2}
    assert result.embedded == {}
    found = vectors(graph)
    assert found["p0000"] is None
    assert found["given"] is None
    assert found["p0001"] is not None
    assert graph.embed().commits == ()


def test_a_required_vector_is_renewed_and_never_taken_away(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", 'node Post { key: String @key  text: String?  vector: Vector(256) @embed("text") }')
    graph.insert({"Post": [{"key": k, "text": k, "vector": GIVEN} for k in "ab"]})
    graph.update("Post", {"text": "new"}, ids=["a"])
    graph.update("Post", {"text": None}, ids=["b"])
    assert graph.embed().embedded == {"node:Post": 1}
    assert is_of(vectors(graph)["a"], "new")
    assert vectors(graph)["b"] is not None


def test_all_embeds_every_text_anew_also_given_ones(graph: og.Graph) -> None:
    graph.insert({"Post": [*posts(2), {"key": "given", "text": "mine", "vector": GIVEN}]})
    graph.embed()
    assert graph.embed(everything=True).embedded == {"node:Post": 3}
    assert is_of(vectors(graph)["given"], "mine")


def test_only_the_type_and_property_asked_for(tmp_path: Path) -> None:
    two = 'node A { t: String  v: Vector(64)? @embed("t")  w: Vector(128)? @embed("t") }\nnode B { t: String }'
    graph = og.init(tmp_path / "g", two)
    graph.insert({"A": [{"t": "x"}, {"t": "y"}]})
    assert graph.embed("A", "w").embedded == {"node:A": 2}
    rows = graph.snapshot().read("A")
    assert rows["v"].null_count == 2
    assert rows["w"].null_count == 0
    assert graph.embed().embedded == {"node:A": 2}
    assert graph.snapshot().read("A")["v"].null_count == 0
    with pytest.raises(UnknownType):
        graph.embed("C")
    with pytest.raises(UnknownProperty):
        graph.embed("A", "nothing")
    with pytest.raises(UsageError, match="not declared with @embed"):
        graph.embed("A", "t")
    with pytest.raises(UsageError, match="no vector property"):
        graph.embed("B")


def test_two_properties_of_a_type_are_filled_in_one_commit_for_different_rows(tmp_path: Path) -> None:
    graph = og.init(
        tmp_path / "g",
        'node A { k: String @key  t: String?  u: String?  v: Vector(64)? @embed("t")  w: Vector(64)? @embed("u") }',
    )
    graph.insert({"A": [{"k": "1", "t": "x"}, {"k": "2", "u": "y"}, {"k": "3", "t": "x", "u": "y"}]})
    result = graph.embed()
    assert len(result.commits) == 1
    assert result.embedded == {"node:A": 4}
    rows = {r["k"]: r for r in graph.snapshot().read("A").to_pylist()}
    assert (rows["1"]["w"], rows["2"]["v"]) == (None, None)
    assert rows["1"]["v"] == rows["3"]["v"]
    assert rows["2"]["w"] == rows["3"]["w"]


@pytest.mark.parametrize(
    ("declared", "options", "message"),
    [
        ("Vector(100)", {}, r"Vector\(100\).*64, 128, 256"),
        ('Vector(256) model="text-embedding-3-small"', {}, "has wordllama-l2-supercat only"),
        (f'Vector(256) model="{MODEL}"', {"model": "other"}, "@embed declares"),
    ],
)
def test_a_mismatch_is_refused_before_anything_is_written(
    tmp_path: Path, declared: str, options: dict[str, Any], message: str
) -> None:
    vector, _, model = declared.partition(" ")
    graph = og.init(tmp_path / "g", f'node P {{ t: String  v: {vector}? @embed("t"{", " + model if model else ""}) }}')
    graph.insert({"P": [{"t": "x"}]})
    head = graph.snapshot().commit
    with pytest.raises(EmbeddingMismatch, match=message):
        graph.embed(**options)
    assert graph.snapshot().commit == head


def test_row_identity_and_other_columns_survive(graph: og.Graph) -> None:
    graph.insert({"Post": [{**p, "rank": i} for i, p in enumerate(posts(50))]})
    view = graph.snapshot().view
    t = view.type("Post")
    before = view.open(t).to_table(columns=["id", "text", "rank"], with_row_id=True).to_pylist()
    graph.embed()
    view = graph.snapshot().view
    assert view.open(t).to_table(columns=["id", "text", "rank"], with_row_id=True).to_pylist() == before


def test_marks_are_in_no_snapshot_export_or_answer(graph: og.Graph) -> None:
    graph.insert({"Post": posts(2)})
    graph.embed()
    hidden = mark_column(graph.schema().node["Post"].by_name["vector"])
    assert hidden in graph.snapshot().view.open(graph.schema().node["Post"]).schema.names
    lines: list[bytes] = []
    graph.export(lines.append)
    assert hidden.encode() not in b"".join(lines)
    assert b"__embedded" not in b"".join(lines)
    assert graph.snapshot().read("Post").schema.names == ["id", "key", "text", "rank", "vector"]
    with graph.transaction() as tx:
        assert set(tx.get("Post", "p0000") or {}) == {"id", "key", "text", "rank", "vector"}


def test_a_round_trip_through_export_and_load_keeps_vectors_as_given(graph: og.Graph, tmp_path: Path) -> None:
    graph.insert({"Post": posts(3)})
    graph.embed()
    lines: list[bytes] = []
    graph.export(lines.append)
    again = og.init(tmp_path / "again", SCHEMA)
    again.load([b"".join(lines)], mode="append")
    result = again.embed()
    assert result.commits == ()
    assert result.skipped["given"] == 3
    assert vectors(again)["p0001"] is not None


def test_loading_the_same_rows_again_changes_nothing(graph: og.Graph) -> None:
    graph.insert({"Post": posts(3)})
    graph.embed()
    lines: list[bytes] = []
    graph.export(lines.append)
    assert graph.load([b"".join(lines)], mode="merge").commit is None
    assert graph.embed().commits == ()


# ---- loads and upserts of texts without vectors ----------------------------------------------------------------------


@pytest.mark.parametrize("way", ["upsert", "load records", "load a table"])
def test_giving_the_same_rows_without_vectors_again_keeps_them(graph: og.Graph, way: str) -> None:
    """What is loaded every night has no vectors: the same rows change nothing, changed ones lose no other vector."""

    def give(rows: list[dict[str, Any]]) -> Any:
        if way == "upsert":
            return graph.upsert({"Post": rows})
        if way == "load records":
            lines = [json.dumps({"type": "Post", "data": row}).encode() for row in rows]
            return graph.load([b"\n".join(lines)], mode="merge")
        return graph.load(nodes={"Post": pa.Table.from_pylist(rows)}, mode="merge", engine="local")

    give(posts(6))
    graph.embed()
    before = vectors(graph)
    assert give(posts(6)).commit is None
    changed = [{**p, "rank": 1} for p in posts(3)] + [{"key": "p0003", "text": "other"}, *posts(2, start=6)]
    assert give(changed).updated == {"node:Post": 4}
    found = vectors(graph)
    assert all(np.array_equal(found[f"p000{i}"], before[f"p000{i}"]) for i in (0, 1, 2, 4, 5))  # type: ignore[arg-type]
    assert [k for k, v in sorted(found.items()) if v is None] == ["p0003", "p0006", "p0007"]
    assert graph.embed().embedded == {"node:Post": 3}
    assert is_of(vectors(graph)["p0003"], "other")
    graph.update("Post", {"text": "changed"}, ids=["p0000"])
    assert graph.embed().embedded == {"node:Post": 1}


def test_a_vector_can_still_be_taken_away_by_an_update(graph: og.Graph) -> None:
    graph.insert({"Post": posts(1)})
    graph.embed()
    graph.update("Post", {"vector": None}, ids=["p0000"])
    assert vectors(graph)["p0000"] is None
    with graph.transaction() as tx:
        tx.upsert({"Post": [{"key": "p0000", "text": "x"}]})
        tx.update("Post", {"vector": GIVEN}, ids=["p0000"])
    assert vectors(graph)["p0000"] is not None
