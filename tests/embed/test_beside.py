"""Embedding beside other writers, killed in the middle, on branches, on old tables and over changes of the schema."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import omnigraph as og
from omnigraph.commit.operation import View
from omnigraph.errors import EmbeddingFailed
from omnigraph.pipeline.embed import commit as publishing
from omnigraph.storage.lance.embedding_marks import mark_column, marked_properties, text_digests, to_marks
from omnigraph.storage.lance.rewrites.fold import FOLD_AT
from tests.embed.conftest import SMALL, posts, texts, vectors
from tests.embed.server import Fault, Server, vector

MODEL = "text-embedding-3-small"
REMOTE: dict[str, Any] = {"provider": "openai"}


def fits(graph: og.Graph, branch: str = "main") -> bool:
    """Every vector is that of the row's text now, and every text has one."""
    held = texts(graph, branch)
    found = vectors(graph, branch=branch)
    return all(v is not None and np.allclose(v, vector(str(held[k]), 8), atol=1e-6) for k, v in found.items())


def never_stale(graph: og.Graph) -> None:
    """No vector of an older text is recorded as the text's own; and one more run brings everything up to date."""
    t = graph.schema().node["Post"]
    hidden = mark_column(marked_properties(t)[0])
    for row in graph.snapshot().view.open(t).to_table(columns=["id", "text", "vector", hidden]).to_pylist():
        recorded = row[hidden] == to_marks(MODEL, text_digests([row["text"]]))[0].as_py()
        assert not recorded or np.allclose(row["vector"], vector(row["text"], 8), atol=1e-6), row["id"]
        assert recorded or row["vector"] is None or row[hidden] is not None, row["id"]
    graph.embed(**REMOTE)
    assert fits(graph)
    assert graph.embed(**REMOTE).commits == ()


def once(server: Server, action: Any) -> None:
    """Do something while the first request is being answered, from another handle."""
    done = threading.Event()

    def before(_: list[str]) -> None:
        if not done.is_set():
            done.set()
            action()

    server.before = before


def test_texts_that_others_change_meanwhile_get_no_old_vector(small: og.Graph, server: Server) -> None:
    small.insert({"Post": posts(40)})
    other = og.open(small.uri)

    def change() -> None:
        other.update("Post", {"text": "changed"}, ids=["p0001", "p0002"])
        other.upsert({"Post": [{"key": "p0003", "text": "replaced"}, {"key": "new", "text": "new"}]})
        other.delete({"Post": ["p0004"]})

    once(server, change)
    result = small.embed(**REMOTE)
    assert result.embedded == {"node:Post": 36}
    assert result.skipped["changed_meanwhile"] == 4
    found = vectors(small)
    assert {k for k, v in found.items() if v is None} == {"new", "p0001", "p0002", "p0003"}
    assert "p0004" not in found
    never_stale(small)


def test_a_vector_that_somebody_gives_meanwhile_is_not_overwritten(small: og.Graph, server: Server) -> None:
    small.insert({"Post": posts(3)})
    given = [1.0] + [0.0] * 7
    once(server, lambda: og.open(small.uri).update("Post", {"vector": given}, ids=["p0001"]))
    small.embed(**REMOTE)
    assert vectors(small)["p0001"].tolist() == given  # type: ignore[union-attr]
    assert small.embed(**REMOTE).commits == ()


def test_rows_that_others_fold_away_meanwhile_keep_their_vectors(small: og.Graph, server: Server) -> None:
    """Small writes merge small fragments: the rows move, and what was asked for them must not be asked for again."""
    for i in range(FOLD_AT):
        small.insert({"Post": posts(2, start=2 * i)})
    other = og.open(small.uri)

    def fold() -> None:
        other.insert({"Post": [{"key": "z", "text": "last"}]})
        other.update("Post", {"text": "changed"}, ids=["p0000"])

    before = small.snapshot().tables()[0].fragments
    once(server, fold)
    result = small.embed(**REMOTE, batch=500)
    assert small.snapshot().tables()[0].fragments < before, "nothing was folded: the test shows nothing"
    assert result.embedded == {"node:Post": 2 * FOLD_AT - 1}
    assert sorted(server.texts) == sorted(p["text"] for p in posts(2 * FOLD_AT))
    asked = len(server.texts)
    never_stale(small)
    assert sorted(server.texts[asked:]) == ["changed", "last"]


def test_many_writers_beside_an_embedding_in_many_commits(small: og.Graph, server: Server) -> None:
    small.insert({"Post": posts(200)})
    stop = threading.Event()
    trouble: list[BaseException] = []

    def write(number: int) -> None:
        other = og.open(small.uri)
        turn = 0
        try:
            while not stop.is_set():
                turn += 1
                key = f"p{(7 * turn + number) % 200:04d}"
                other.update("Post", {"text": f"text {turn} of writer {number}"}, ids=[key])
        except BaseException as error:  # noqa: BLE001 - it is told by the test
            trouble.append(error)

    writers = [threading.Thread(target=write, args=(n,)) for n in range(2)]
    for writer in writers:
        writer.start()
    try:
        result = small.embed(**REMOTE, batch=10, commit_every=50)
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert trouble == []
    assert len(result.commits) >= 2
    assert sum(result.embedded.values()) + result.skipped["changed_meanwhile"] == 200
    never_stale(small)


def test_two_runs_at_once_do_no_harm(small: og.Graph, server: Server) -> None:
    small.insert({"Post": posts(60)})
    other = og.open(small.uri)
    once(server, lambda: other.embed(**REMOTE, batch=20, commit_every=20))
    small.embed(**REMOTE, batch=20, commit_every=20)
    assert fits(small)
    never_stale(small)


def test_a_run_that_fails_between_commits_is_taken_up_where_it_stopped(small: og.Graph, server: Server) -> None:
    small.insert({"Post": posts(40)})
    server.faults = [Fault(times=1), Fault(times=99, status=401)]
    with pytest.raises(EmbeddingFailed):
        small.embed(**REMOTE, commit_every=10, batch=10)
    done = [k for k, v in vectors(small).items() if v is not None]
    assert len(done) == 10
    asked = len(server.texts)
    server.faults = []
    assert small.embed(**REMOTE, batch=10).embedded == {"node:Post": 30}
    assert not {texts(small)[k] for k in done} & set(server.texts[asked:])
    assert fits(small)


def test_a_commit_after_every_so_many_rows(small: og.Graph, server: Server) -> None:
    small.insert({"Post": posts(25)})
    result = small.embed(**REMOTE, commit_every=10)
    assert [c.summary["embedded"] for c in result.commits] == [  # type: ignore[index]
        {"node:Post": 10},
        {"node:Post": 10},
        {"node:Post": 5},
    ]
    assert fits(small)


def test_a_killed_commit_loses_no_vector_that_was_paid_for(
    small: og.Graph, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The preparation is repeated on a newer state again and again; the provider hears nothing of it."""
    small.insert({"Post": posts(10)})
    other = og.open(small.uri)
    prepare = publishing.PublishVectors.prepare
    turns: list[int] = []

    def slow(self: publishing.PublishVectors, view: View) -> Any:
        made = prepare(self, view)
        turns.append(1)
        if len(turns) <= 2:
            other.insert({"Post": [{"key": f"q{len(turns)}", "text": "beside"}]})
        return made

    monkeypatch.setattr(publishing.PublishVectors, "prepare", slow)
    assert small.embed(**REMOTE).embedded == {"node:Post": 10}
    assert len(turns) >= 3
    assert sorted(server.texts) == sorted(p["text"] for p in posts(10))


# ---- branches, tables, schemas ---------------------------------------------------------------------------------------


def test_a_branch_is_embedded_alone_and_its_files_lie_with_the_root_table(small: og.Graph, server: Server) -> None:
    small.insert({"Post": posts(6)})
    small.embed(**REMOTE)
    small.create_branch("trial")
    small.update("Post", {"text": "on the branch"}, ids=["p0002"], branch="trial")
    small.insert({"Post": posts(2, start=6)}, branch="trial")
    result = small.embed(**REMOTE, branch="trial")
    assert result.embedded == {"node:Post": 3}
    assert fits(small, "trial")
    assert fits(small)
    assert len(vectors(small)) == 6
    pin = small.snapshot("trial").view.pins[small.schema().node["Post"].id]
    assert pin.fork is not None
    assert not list(Path(small.uri, pin.path).glob("data/*.lance"))
    small.insert({"Post": posts(1, start=9)}, branch="trial")
    assert small.embed(**REMOTE, branch="trial").embedded == {"node:Post": 1}
    assert fits(small, "trial")


def test_the_first_write_of_a_branch_may_be_an_embedding(small: og.Graph, server: Server) -> None:
    small.insert({"Post": posts(4)})
    small.create_branch("trial")
    assert small.embed(**REMOTE, branch="trial").embedded == {"node:Post": 4}
    assert fits(small, "trial")
    assert set(vectors(small).values()) == {None}


def test_marks_survive_folding_and_branching(small: og.Graph, server: Server) -> None:
    small.insert({"Post": posts(3)})
    small.embed(**REMOTE)
    small.create_branch("trial")
    for i in range(FOLD_AT + 2):
        small.insert({"Post": [{"key": f"x{i}", "text": "x", "vector": [1.0] + [0.0] * 7}]}, branch="trial")
    assert small.embed(**REMOTE, branch="trial").commits == ()
    small.update("Post", {"text": "new"}, ids=["p0001"], branch="trial")
    assert small.embed(**REMOTE, branch="trial").embedded == {"node:Post": 1}


def test_a_table_from_before_gets_its_marks_when_it_is_embedded(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr("omnigraph.storage.lance.tables.mark_fields", lambda t: [])
        old = og.init(tmp_path / "old", SMALL)
    old = og.open(tmp_path / "old")
    old.insert({"Post": [*posts(4), {"key": "given", "text": "x", "vector": [1.0] + [0.0] * 7}]})
    t = old.schema().node["Post"]
    hidden = mark_column(marked_properties(t)[0])
    assert hidden not in old.snapshot().view.open(t).schema.names
    old.update("Post", {"text": "updated"}, ids=["p0000"])
    result = old.embed(**REMOTE)
    assert result.embedded == {"node:Post": 4}
    assert len(result.commits) == 2
    assert hidden in old.snapshot().view.open(t).schema.names
    old.update("Post", {"text": "updated again"}, ids=["p0000"])
    assert old.embed(**REMOTE).embedded == {"node:Post": 1}


def test_renames_keep_the_marks_and_a_dropped_vector_takes_them_along(small: og.Graph, server: Server) -> None:
    small.insert({"Post": posts(3)})
    small.embed(**REMOTE)
    renamed = SMALL.replace("text: String?", 'body: String? @rename_from("text")').replace(
        'vector: Vector(8)? @embed("text")', 'v: Vector(8)? @embed("body") @rename_from("vector")'
    )
    small.apply_schema(renamed)
    assert small.embed(**REMOTE).commits == ()
    small.update("Post", {"body": "new"}, ids=["p0001"])
    assert small.embed(**REMOTE).embedded == {"node:Post": 1}
    small.apply_schema("node Post { key: String @key  body: String? }")
    t = small.schema().node["Post"]
    assert small.snapshot().view.open(t).schema.names == ["id", "key", "body"]
    small.apply_schema('node Post { key: String @key  body: String?  w: Vector(8)? @embed("body") }')
    small.update("Post", {"w": [1.0] * 8}, ids=["p0000"])
    assert small.embed(**REMOTE).embedded == {"node:Post": 2}
    small.update("Post", {"body": "newer"}, ids=["p0000"])
    assert small.embed(**REMOTE).embedded == {"node:Post": 1}


def test_indices_answer_with_the_new_vectors(small: og.Graph, server: Server) -> None:
    """An index on the vector must not go on answering with old values, and the others keep their coverage."""
    small.insert({"Post": posts(300)})
    small.embed(**REMOTE)
    t = small.schema().node["Post"]
    table = small.snapshot().view.open(t)
    table.create_index("vector", "IVF_FLAT", num_partitions=2)
    table.create_scalar_index("id", "BTREE")
    small.close()
    # Indices are built by nobody yet: what was built above the pin is published as repair would.
    from omnigraph.storage.lance import lance_api
    from omnigraph.storage.lance.rewrites.column_files import base_of, exchange, write_columns
    from omnigraph.storage.layout import locate

    location = locate(small.uri)
    pin = small.snapshot().view.pins[t.id]
    newest = lance_api.open_table(location, location.join(pin.path))
    import pyarrow as pa

    rows = newest.to_table(columns=["id"], with_row_address=True).slice(5, 1)
    new = pa.table({"_rowaddr": rows["_rowaddr"], "vector": pa.array([[9.0] * 8], pa.list_(pa.float32(), 8))})
    file = write_columns(location, pin, newest, 0, new, base=base_of(newest, 0, ["vector"]) or ())
    done = lance_api.commit(location, newest, exchange(pin, newest, [file]))
    near = done.to_table(nearest={"column": "vector", "q": np.full(8, 9, np.float32), "k": 1}, columns=["id"])
    assert near["id"].to_pylist() == rows["id"].to_pylist()
    covered = {i.name: i.num_rows_indexed for i in done.describe_indices()}
    assert covered == {"vector_idx": 0, "id_idx": 300}


def test_staged_files_are_gone_afterwards(small: og.Graph, server: Server) -> None:
    small.insert({"Post": posts(4)})
    small.embed(**REMOTE)
    server.faults = [Fault(times=99, status=401)]
    small.update("Post", {"text": "x"}, ids=["p0000"])
    with pytest.raises(EmbeddingFailed):
        small.embed(**REMOTE)
    assert not list(Path(small.uri, "__staging").glob("*"))


def test_graphs_with_row_addresses_are_embedded_as_well(tmp_path: Path, server: Server) -> None:
    graph = og.init(tmp_path / "g", SMALL, row_ids="address")
    graph.insert({"Post": posts(5)})
    graph.embed(**REMOTE)
    graph.update("Post", {"text": "new"}, ids=["p0001"])
    assert graph.embed(**REMOTE).embedded == {"node:Post": 1}
    assert fits(graph)
