"""Search: rows, scores and order are the same with no index, with one that covers a part, and with one for all."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import EmbeddingMismatch, QueryCheckError
from omnigraph.query.search import texts, vectors
from tests.query.conftest import rows

SCHEMA = """
node Doc {
  slug: String @key
  body: String? @index
  rank: I64?
  vec: Vector(8)? @index
}
"""
WORDS = [
    "running",
    "runner",
    "ran",
    "foxes",
    "fox",
    "quick",
    "quickly",
    "brown",
    "cafés",
    "the",
    "state of the art",
    "state",
    "art",
]
QUERIES = {
    "search": 'match { $d: Doc search($d.body, "foxes run") } return { $d.slug }',
    "accents": 'match { $d: Doc search($d.body, "CAFE") } return { $d.slug }',
    "phrase": 'match { $d: Doc match_text($d.body, "quick brown") } return { $d.slug }',
    "gap": 'match { $d: Doc match_text($d.body, "state of the art") } return { $d.slug }',
    "fuzzy": 'match { $d: Doc fuzzy($d.body, "foxs bron") } return { $d.slug }',
    "fuzzy2": 'match { $d: Doc fuzzy($d.body, "quikcly", 2) } return { $d.slug }',
    "negated": 'match { $d: Doc not search($d.body, "fox") } return { $d.slug }',
    "bm25": 'match { $d: Doc } return { $d.slug, bm25($d.body, "fox running art") as s } '
    'order { bm25($d.body, "fox running art") } limit 20',
    "filtered": 'match { $d: Doc $d.rank < 20 } return { $d.slug, bm25($d.body, "quick") as s } '
    'order { bm25($d.body, "quick") } limit 7',
    "nearest": "match { $d: Doc } return { $d.slug, nearest($d.vec, $v) as s } order { nearest($d.vec, $v) } limit 15",
    "near5": "match { $d: Doc $d.rank < 15 } return { $d.slug } order { nearest($d.vec, $v) } limit 10",
    "rrf": 'match { $d: Doc } return { $d.slug, rrf(nearest($d.vec, $v), bm25($d.body, "fox")) as s } '
    'order { rrf(nearest($d.vec, $v), bm25($d.body, "fox")) } limit 12',
}
V = [1.0, 0.5, -0.25, 0.0, 2.0, 1.0, -1.0, 0.125]


def docs(rng: random.Random, names: list[str]) -> list[dict[str, object]]:
    return [
        {
            "slug": name,
            "body": None if rng.random() < 0.1 else " ".join(rng.choice(WORDS) for _ in range(rng.randint(0, 8))),
            "rank": rng.randint(0, 99),
            "vec": None if rng.random() < 0.1 else [rng.randint(-4, 4) / 2 for _ in range(8)],
        }
        for name in names
    ]


def answers(graph: og.Graph) -> dict[str, list[tuple[object, ...]]]:
    found = {}
    for name, body in QUERIES.items():
        given = {"v": V} if "$v" in body else {}
        result = graph.query(f"query q({'$v: Vector(8)' if given else ''}) {{ {body} }}", params=given)
        found[name] = [tuple(r.values()) for r in result.to_pylist()]
    return found


@pytest.fixture(params=["few", "many", "too many to keep"])
def looked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """many: what is done for many rows, indices first. Too many to keep: there is room for none of their vectors."""
    if request.param != "few":
        monkeypatch.setattr(texts, "FEW_ROWS", 0)
        monkeypatch.setattr(vectors, "ROUGH_ROWS", 0)
    if request.param == "too many to keep":
        monkeypatch.setenv("OMNIGRAPH_QUERY_CACHE_BYTES", "1000")


@pytest.mark.usefixtures("looked")
def test_the_state_of_the_indices_changes_neither_rows_nor_scores_nor_order(tmp_path: Path) -> None:
    first, more = [f"a{i}" for i in range(280)], [f"b{i}" for i in range(40)]
    changed = first[::9]

    def make(name: str, optimize_after: int | None) -> og.Graph:
        rng = random.Random(7)
        graph = og.init(tmp_path / name, SCHEMA)
        steps = [
            lambda: graph.insert({"Doc": docs(rng, first)}),
            lambda: graph.insert({"Doc": docs(rng, more)}),
            lambda: graph.upsert({"Doc": docs(rng, changed)}),
            lambda: graph.delete({"Doc": first[::7]}),
        ]
        for i, step in enumerate(steps):
            step()
            if i == optimize_after:
                assert graph.optimize().commit is not None
        return graph

    none, partial, full = make("none", None), make("partial", 0), make("full", 3)
    expected = answers(none)
    assert all(expected.values()), {k: len(v) for k, v in expected.items()}
    assert answers(partial) == expected
    assert answers(full) == expected


def test_vectors_that_do_not_fit_into_the_cache_are_read_past(
    tmp_path: Path, looked: None, request: pytest.FixtureRequest
) -> None:
    graph = og.init(tmp_path / "graph", SCHEMA)
    graph.insert({"Doc": docs(random.Random(1), [f"a{i}" for i in range(300)])})
    text = "query q($v: Vector(8)) { match { $d: Doc } return { $d.slug } order { nearest($d.vec, $v) } limit 3 }"
    steps = graph.query(text, v=V).explained()
    is_kept = "too many" not in request.node.callspec.id
    assert ("vectors in memory" in steps) == is_kept
    assert ("vectors read past" in steps) != is_kept


def test_search_wants_all_words_in_any_form_and_match_text_the_phrase(graph: og.Graph) -> None:
    assert rows(graph, '$p: Person search($p.bio, "foxes RUN")', "count(*) as n") == [(5,)]
    assert rows(graph, '$p: Person search($p.bio, "fox cat")', "count(*) as n") == [(0,)]
    assert rows(graph, '$p: Person match_text($p.bio, "brown fox")', "count(*) as n") == [(5,)]
    assert rows(graph, '$p: Person match_text($p.bio, "fox brown")', "count(*) as n") == [(0,)]
    assert rows(graph, '$p: Person match_text($p.bio, "quick fox")', "count(*) as n") == [(0,)]


@pytest.mark.parametrize(
    ("word", "edits", "found"), [("quack", 1, 5), ("quik", 1, 5), ("quikc", 1, 0), ("quikc", 2, 5)]
)
def test_fuzzy_really_matches_words_that_many_edits_away(graph: og.Graph, word: str, edits: int, found: int) -> None:
    assert rows(graph, f'$p: Person fuzzy($p.bio, "{word}", {edits})', "count(*) as n") == [(found,)]


def test_a_row_without_a_text_or_vector_has_no_score_and_comes_last(graph: og.Graph) -> None:
    key = "nearest($p.bio_vector, [1.0, 0.0, 0.0])"
    for direction in ("", " desc"):
        found = rows(graph, "$p: Person", f"$p.slug, {key} as d", f"order {{ {key}{direction} }} limit 10")
        assert found[-1] == ("cy", None)
    text = 'bm25($p.bio, "fox")'
    for direction in ("", " asc"):
        assert rows(graph, "$p: Person", f"$p.slug, {text} as d", f"order {{ {text}{direction} }}")[-1] == ("ada", None)


def test_conditions_apply_before_the_best_are_taken(graph: og.Graph) -> None:
    found = rows(
        graph, "$p: Person not $p.active", "$p.slug", "order { nearest($p.bio_vector, [0.0, 1.0, 0.0]) } limit 3"
    )
    assert found == [("bob",), ("dan",), ("flo",)]


def test_a_rank_survives_the_fan_out_of_edges(graph: og.Graph) -> None:
    rank = 'rrf(nearest($p.bio_vector, [1.0, 1.0, 0.0]), bm25($p.bio, "bob"))'
    found = rows(graph, "$p: Person $p $k:knows $q", f"$p.slug, $q.slug, {rank} as s", f"order {{ {rank} }} limit 9")
    assert [f[:2] for f in found] == [
        ("bob", "cy"),
        ("dan", "dan"),
        ("ada", "bob"),
        ("ada", "bob"),
        ("cy", "ada"),
        ("cy", "dan"),
    ]
    assert found[0][2] == pytest.approx(1 / 61 + 1 / 61)
    assert found[-1][2] == 0.0


def test_search_works_over_an_interface_and_in_blocks(tmp_path: Path) -> None:
    graph = og.init(
        tmp_path / "g",
        "interface Told { text: String }\nnode A implements Told { k: String @key }\n"
        "node B implements Told { k: String @key }\nedge Of: A -> B",
    )
    graph.insert(
        {
            "A": [{"k": "1", "text": "red fox"}, {"k": "2", "text": "cat"}],
            "B": [{"k": "1", "text": "foxes"}],
            "Of": [{"src": "1", "dst": "1"}, {"src": "2", "dst": "1"}],
        }
    )
    assert rows(graph, '$x: Told search($x.text, "fox")', "$x.@type, $x.id") == [("A", "1"), ("B", "1")]
    assert rows(graph, '$x: A not { $x of $y search($y.text, "dog") }', "$x.id") == [("1",), ("2",)]
    assert rows(graph, '$x: A optional { $x of $y search($x.text, "cat") }', "$x.id, $y.id") == [
        ("1", None),
        ("2", "1"),
    ]


# ---- texts beside vectors --------------------------------------------------------------------------------------------

NOTES = 'node Note { slug: String @key  text: String?  vec: Vector(64)? @embed("text") }'
NEAR = "query q($t: String) { match { $n: Note } return { $n.slug } order { nearest($n.vec, $t) } limit 1 }"


def notes(path: Path, schema: str = NOTES) -> og.Graph:
    graph = og.init(path, schema)
    texts = {"sea": "whales swim in the deep ocean", "bread": "flour, yeast and water make bread"}
    graph.insert({"Note": [{"slug": k, "text": t} for k, t in texts.items()]})
    return graph


def test_a_text_is_embedded_by_the_model_that_made_the_vectors(tmp_path: Path) -> None:
    graph = notes(tmp_path / "g")
    graph.embed()
    assert graph.query(NEAR, t="fish in water").to_pylist() == [{"n.slug": "sea"}]
    assert graph.query(NEAR, t="baking a loaf").to_pylist() == [{"n.slug": "bread"}]


def test_vectors_of_another_model_are_refused(tmp_path: Path) -> None:
    graph = notes(tmp_path / "g", NOTES.replace('"text"', '"text", model="other-model"'))
    with pytest.raises(EmbeddingMismatch):
        graph.query(NEAR, t="fish")
    other = notes(tmp_path / "h")
    other.embed()
    _forge_marks(other)
    with pytest.raises(EmbeddingMismatch, match="another model"):
        other.query(NEAR, t="fish")


def _forge_marks(graph: og.Graph) -> None:
    """Marks as another model would leave them."""
    from omnigraph.storage.lance.embedding_marks import to_marks

    view = graph.snapshot().view
    stored = view.type("Note")
    dataset = view.open(stored)
    mark = next(n for n in dataset.schema.names if n.startswith("__embedded"))
    import numpy as np

    forged = to_marks("elsewhere", np.array([1, 2], dtype="<u8"))
    pin = view.pins[stored.id]
    graph.queries.cache.put((pin.path, pin.version, "models", mark), frozenset((forged[0].as_py()[:8],)), 1)


def test_a_vector_without_a_source_takes_no_text(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", "node Note { slug: String @key  vec: Vector(64)? }")
    graph.insert({"Note": [{"slug": "a", "vec": [1.0] * 64}]})
    with pytest.raises(QueryCheckError, match=r"(?s)T15: Note.vec is not declared with @embed.*\^"):
        graph.query(NEAR, t="fish")


def test_scores_of_full_text_follow_their_formula(tmp_path: Path) -> None:
    import math

    graph = og.init(tmp_path / "g", "node D { k: String @key  t: String? }")
    graph.insert({"D": [{"k": "1", "t": "kilo kilo lima"}, {"k": "2", "t": "lima"}, {"k": "3"}]})
    found = dict(rows(graph, "$d: D", '$d.k, bm25($d.t, "kilo lima") as s'))
    rare, common = math.log(1 + 2.5 / 1.5), math.log(1 + 1.5 / 2.5)
    norm = 1.2 * (0.25 + 0.75 * 3 / 100)
    assert found["1"] == pytest.approx(rare * 2 * 2.2 / (2 + norm) + common * 2.2 / (1 + norm))
    assert found["2"] == pytest.approx(common * 2.2 / (1 + 1.2 * (0.25 + 0.75 / 100)))
    assert found["3"] is None


def test_words_of_any_script_are_found(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", "node D { k: String @key  t: String? }")
    graph.insert(
        {"D": [{"k": "1", "t": "日本語 テスト"}, {"k": "2", "t": "हिन्दी भाषा"}, {"k": "3", "t": "naïve Über-Café"}]}
    )
    for word, key in (("日本語", "1"), ("भाषा", "2"), ("uber", "3"), ("CAFÉ", "3")):
        assert rows(graph, f'$d: D search($d.t, "{word}")', "$d.k") == [(key,)]
    assert rows(graph, '$d: D fuzzy($d.t, "日本誤")', "$d.k") == [("1",)]
