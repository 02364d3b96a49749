"""Indices that answer wrongly, forged as bugs have made them: old entries that claim to cover new rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.maintenance.verify import fulltext_checks, indices, vectors
from omnigraph.storage.lance.indices import built_indices
from tests.maintenance.verify import damage
from tests.support.forged_indices import CHANGES, forge


@pytest.mark.parametrize(("column", "kind"), CHANGES)
def test_an_index_that_holds_old_values_of_rows_is_found(plain: og.Graph, column: str, kind: str) -> None:
    ids = [f"p{i:03d}" for i in (1, 2, 4, 5, 7, 8)]
    forge(plain, column, kind, lambda: plain.update("Person", CHANGES[column, kind], ids=ids))
    findings = plain.verify(full=True).findings
    # Lance itself drops what a BTREE holds of rows that moved: there only the new values are missing.
    expected = {"index_wrong_answer"} if kind == "BTREE" else {"index_stale", "index_wrong_answer"}
    assert {f.code for f in findings} == expected
    for finding in findings:
        assert finding.severity == "error"
        assert f"{column}_{kind.lower()} ({kind})" in finding.message
        command = f"omnigraph optimize {plain.uri} --tables node:Person --branch main --rebuild-indexes"
        assert finding.remedy.startswith(f"Run `{command}`:")


@pytest.mark.parametrize(("column", "kind"), [k for k in CHANGES if k[1] != "IVF_FLAT"])
def test_an_index_that_lacks_rows_it_claims_is_found_wrong(plain: og.Graph, column: str, kind: str) -> None:
    new = [{**damage.person(i), "name": f"new{i}", "email": f"new{i}@x", **CHANGES[column, kind]} for i in range(5)]
    forge(plain, column, kind, lambda: plain.insert({"Person": new}))
    found = {f.code: f for f in plain.verify(full=True).findings}
    # A BITMAP answers `not true` by what it does not hold: there the new rows are found as well, wrongly.
    assert found.keys() == {"index_wrong_answer", *(["index_stale"] if column == "active" else [])}
    assert any("new" in example for example in found["index_wrong_answer"].examples)
    assert found["index_wrong_answer"].table == "node:Person"


def test_vectors_that_the_index_claims_and_lacks_do_not_find_themselves(plain: og.Graph) -> None:
    new = [{**damage.person(i), "name": f"new{i}", "email": f"new{i}@x", "v": [500.0 + i, 0, 0, 0]} for i in range(5)]
    forge(plain, "v", "IVF_FLAT", lambda: plain.insert({"Person": new}))
    finding = damage.only(plain.verify(full=True), "index_wrong_answer", severity="error")
    assert "their own vectors" in finding.message


def test_a_sample_finds_an_index_that_is_wrong_everywhere(plain: og.Graph) -> None:
    ids = [f"p{i:03d}" for i in range(60) if i not in (10, 40)]
    forge(plain, "age", "BTREE", lambda: plain.update("Person", {"age": 99}, ids=ids))
    assert {"index_stale", "index_wrong_answer"} & {f.code for f in plain.verify().findings}


@pytest.mark.usefixtures("unsummed")
def test_the_sample_of_a_large_table_is_some_of_its_fragments(plain: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of four fragments are wrong: whichever one is looked at first, one of a few runs finds it."""
    monkeypatch.setattr(indices, "SAMPLE_ROWS", 1)
    new = [[{"name": f"new{n}-{i}", "age": 99} for i in range(3)] for n in range(3)]
    forge(plain, "age", "BTREE", lambda: [plain.insert({"Person": rows}) for rows in new])
    seen = [{f.code for f in plain.verify(seed=seed).findings} for seed in range(6)]
    assert {"index_wrong_answer"} in seen
    assert set() in seen


@pytest.mark.usefixtures("unsummed")
def test_an_index_whose_files_are_garbage_is_unreadable(plain: og.Graph) -> None:
    damage.index(plain, kinds={"Person": [("age", "BTREE"), ("weight", "BTREE")]})
    table = damage.newest(plain, "Person")
    uuid = next(s.uuid for i in built_indices(table) if i.name == "age_btree" for s in i.segments)
    for file in damage.folder(plain, damage.pin_of(plain, "Person")).glob(f"_indices/{uuid}/*"):
        file.write_bytes(b"\xff" * file.stat().st_size)
    finding = damage.only(plain.verify(), "index_unreadable", severity="error", table="node:Person", branch="main")
    assert "age_btree (BTREE)" in finding.message
    assert "--rebuild-indexes" in finding.remedy


def test_rows_that_no_index_covers_yet_are_a_warning_and_no_wrong_answer(plain: og.Graph) -> None:
    plain.insert({"City": [{"name": f"c{i}"} for i in range(4)]})
    finding = damage.only(plain.verify(full=True), "index_uncovered", severity="warning", table="node:City", count=4)
    assert "id_btree (BTREE)" in finding.message
    assert plain.verify().ok
    assert finding.remedy == f"Run `omnigraph optimize {plain.uri} --tables node:City --branch main`."
    damage.index(plain, kinds={"City": damage.KINDS["City"]})
    assert plain.verify(quick=True).findings == ()


def test_rows_that_many_indices_do_not_cover_are_one_finding_that_names_them(graph: og.Graph) -> None:
    graph.insert({"Person": [{**damage.person(i), "name": f"n{i}", "email": f"n{i}@x"} for i in range(3)]})
    finding = damage.only(graph.verify(quick=True), "index_uncovered", table="node:Person", branch="main", count=3)
    kinds = damage.KINDS["Person"]
    assert f"by {len(kinds)} indices: " in finding.message
    for column, kind in kinds:
        assert f"{column}_{kind.lower()} ({kind})" in finding.message


@pytest.mark.usefixtures("unsummed")
def test_a_text_index_of_texts_without_words_is_opened_all_the_same(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", "node N { name: String @key }")
    graph.insert({"N": [{"name": f"{i}"} for i in range(9)]})
    graph.optimize(engine="local")
    table = damage.newest(graph, "N")
    uuid = next(s.uuid for i in built_indices(table) if i.kind == "INVERTED" for s in i.segments)
    for file in damage.folder(graph, damage.pin_of(graph, "N")).glob(f"_indices/{uuid}/*.*"):
        file.write_bytes(b"\xff" * file.stat().st_size)
    finding = damage.only(og.open(graph.uri, engine="local").verify(), "index_unreadable")
    assert "(INVERTED)" in finding.message


@pytest.mark.parametrize("kind", ["IVF_PQ", "IVF_HNSW_SQ", "IVF_SQ"])
def test_approximate_kinds_of_vector_indices_are_no_finding(tmp_path: Any, kind: str) -> None:
    import numpy as np

    graph = og.init(tmp_path / "g", "node N { name: String @key  v: Vector(16)? }")
    random = np.random.default_rng(5)
    graph.insert({"N": [{"name": f"n{i}", "v": random.normal(size=16).tolist()} for i in range(600)]})
    options = {"num_sub_vectors": 8} if kind == "IVF_PQ" else {}
    for metric in ("l2", "cosine"):
        table = damage.newest(graph, "N")
        table.create_index("v", kind, name="v", replace=True, num_partitions=2, metric=metric, **options)
        damage.publish(graph, "N")
        assert graph.verify(engine="local").findings == ()


@pytest.mark.usefixtures("unsummed")
def test_a_common_word_is_left_out_and_a_rare_one_beside_it_is_not(
    plain: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fulltext_checks, "ROWS_MAX", 5)
    ids = ["p001", "p002"]
    forge(plain, "bio", "INVERTED", lambda: plain.update("Person", {"bio": "flies somewhere"}, ids=ids))
    finding = damage.only(plain.verify(full=True), "index_wrong_answer", count=4)
    assert {example.split(":")[0] for example in finding.examples} == {"flies", "somewhere"}


def test_distances_are_those_of_the_metric() -> None:
    import numpy as np

    rows, vector = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([1.0, 0.0])
    assert vectors._distances(rows, vector, "l2").tolist() == [0.0, 5.0]
    assert vectors._distances(rows, vector, "cosine").tolist() == [0.0, 1.0]
    assert vectors._distances(rows, vector, "dot").tolist() == [0.0, 1.0]


@pytest.fixture
def moved(tmp_path: Path) -> og.Graph:
    """Rows without stable ids that a compaction has moved past their indices, which follow by Lance's word of it."""
    graph = og.init(tmp_path / "g", "node N { name: String @key }", row_ids="address")
    for i in range(4):
        graph.insert({"N": [{"name": f"n{i}-{j}"} for j in range(10)]})
    damage.index(graph, kinds={"N": [("id", "BTREE"), ("name", "BTREE")]})
    graph.delete({"N": [f"n0-{j}" for j in range(10)] + ["n1-3"]})
    damage.newest(graph, "N").optimize.compact_files(defer_index_remap=True)
    damage.publish(graph, "N")
    return graph


def test_entries_that_can_be_followed_to_where_rows_went_are_no_finding(moved: og.Graph) -> None:
    assert moved.verify(engine="local", full=True).findings == ()


def test_entries_that_lead_nowhere_since_the_word_of_their_rows_is_gone(moved: og.Graph) -> None:
    damage.newest(moved, "N").drop_index("__lance_frag_reuse")
    damage.publish(moved, "N")
    result = moved.verify(engine="local", full=True)
    assert {f.code for f in result.findings} == {"dead_row_address", "index_wrong_answer"}
    finding = next(f for f in result.findings if f.code == "dead_row_address")
    assert finding.severity == "error"
    assert finding.count == 29, "the deleted ones are nobody's"
    assert finding.remedy.startswith(f"Run `omnigraph optimize {moved.uri} --tables node:N --branch main --rebuild-")
    assert moved.optimize(rebuild_indexes=True, tables=["node:N"]).ok
    assert og.open(moved.uri, engine="local").verify(full=True).findings == ()


@pytest.mark.parametrize("most", range(6, 14))
def test_a_word_of_almost_as_many_rows_as_are_looked_at_is_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    graph = og.init(tmp_path / "graph", "node Post { slug: String @key  text: String @index }")
    texts = ["know what was before", "nobody knows it", "before all of it", "quite another thing"]
    graph.insert({"Post": [{"slug": f"p{i}", "text": texts[i % 4]} for i in range(24)]})
    graph.optimize()
    monkeypatch.setattr(fulltext_checks, "ROWS_MAX", most)
    assert graph.verify(full=True).findings == ()
