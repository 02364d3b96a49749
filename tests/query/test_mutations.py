"""Mutations: every rule of the language, statement by statement, on real tables."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import errors

RULES = """
node Item {
  code: String @key
  n: I64
  label: String?
  kind: enum(a, b)?
  day: Date?
  at: DateTime?
  size: F32?
  tags: [String]?
  days: [Date]?
  moments: [DateTime]?
  vector: Vector(2)?
  photo: Blob?
  @unique(label)
  @range(n, 0..100)
  @check(label, "^[a-z ]*$")
}
node Note { text: String? }
edge Holds: Item -> Note @card(0..2) { weight: F64? }
edge Next: Item -> Item { weight: F64? @index  @unique(src, dst) }
"""


@pytest.fixture
def rules(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "rules", RULES)
    graph.insert({"Item": [{"code": c, "n": i, "label": f"label {c}"} for i, c in enumerate("abc")]})
    return graph


def run(graph: og.Graph, statements: str, declared: str = "", **options: Any) -> Any:
    return graph.mutate(f"query q({declared}) {{ {statements} }}", **options)


def people(graph: og.Graph, *columns: str, **where: Any) -> list[tuple[Any, ...]]:
    found = graph.nodes("Person", columns=["id", *columns], where=where or None).to_pylist()
    return [tuple(r[c] for c in columns) for r in sorted(found, key=lambda r: r["id"])]


def head(graph: og.Graph, branch: str = "main") -> str:
    return graph.commits(branch, limit=1)[0].id


def items(graph: og.Graph, column: str) -> dict[str, Any]:
    return {r["id"]: r[column] for r in graph.nodes("Item").to_pylist()}


# ---- one query, one commit -------------------------------------------------------------------------------------------


def test_one_query_is_one_commit_at_the_end(graph: og.Graph) -> None:
    before = graph.commits()
    done = run(
        graph,
        """insert Person { slug: "gus", name: "Gus" }
        insert Knows { from: "gus", to: "ada" }
        update Person set { score: 9 } where slug = "bob"
        delete Company where slug = "bee" """,
    )
    after = graph.commits()
    assert len(after) == len(before) + 1
    assert done.commit == after[0]
    assert done.commit.kind == "mutate"
    assert done.commit.summary["query"] == "q"
    assert (done.inserted, done.updated) == ({"node:Person": 1, "edge:Knows": 1}, {"node:Person": 1})
    assert done.deleted == {"node:Company": 1, "edge:WorksAt": 1}
    assert done.affected == 5


def test_a_later_statement_reads_what_an_earlier_one_wrote(graph: og.Graph) -> None:
    done = run(
        graph,
        """insert Person { slug: "gus", name: "Gus", score: 1 }
        update Person set { score: score * 10 } where slug = "gus" or slug = "bob"
        update Person set { score: score + 1 } where score >= 10
        insert Knows { from: "gus", to: "ada" }
        update Knows set { weight: 3.0 } where from = "gus"
        returning { from, to, weight }""",
    )
    assert done.to_pylist() == [{"from": "gus", "to": "ada", "weight": 3.0}]
    assert people(graph, "score", slug="gus") == [(11,)]
    assert people(graph, "score", slug="bob") == [(11,)]


def test_statements_run_in_their_order(graph: og.Graph) -> None:
    run(
        graph,
        'update Person set { score: 5 } where slug = "bob" update Person set { score: score * 2 } where score = 5',
    )
    assert people(graph, "score", slug="bob") == [(10,)]
    run(
        graph,
        'update Person set { score: score * 2 } where score = 5 update Person set { score: 5 } where slug = "bob"',
    )
    assert people(graph, "score", slug="bob") == [(5,)]


def test_inserts_updates_and_deletes_mix_in_one_query(graph: og.Graph) -> None:
    done = run(
        graph,
        """delete Person where slug = "bob"
        insert Person { slug: "bob", name: "Another Bob" }
        insert Knows { from: "bob", to: "ada" }""",
    )
    assert people(graph, "name", "score", slug="bob") == [("Another Bob", None)]
    assert [e["dst"] for e in graph.edges("Knows", where={"src": "bob"}).to_pylist()] == ["ada"]
    assert done.updated == {"node:Person": 1}


@pytest.mark.parametrize(
    "late", ['insert Knows { from: "bob", to: "nobody" }', 'insert Person { slug: "x", name: $n }']
)
def test_a_failure_anywhere_has_no_effect_and_the_next_write_is_not_blocked(graph: og.Graph, late: str) -> None:
    before, rows = head(graph), people(graph, "name", "score")
    with pytest.raises(errors.ConstraintViolation):
        run(
            graph, f'delete Person where slug = "ada" update Person set {{ score: 1 }} where true {late}', "$n: String?"
        )
    assert head(graph) == before
    assert people(graph, "name", "score") == rows
    assert run(graph, 'update Person set { score: 77 } where slug = "ada"').affected == 1


def test_several_statements_on_one_type_are_one_write_of_its_table(graph: og.Graph) -> None:
    def versions() -> dict[str, int]:
        return {t.table_key: t.version for t in graph.snapshot().tables()}

    before = versions()
    run(
        graph,
        "".join(f'update Person set {{ score: {10 + i} }} where slug = "{s}" ' for i, s in enumerate(("ada", "bob"))),
    )
    one = versions()["node:Person"] - before["node:Person"]
    run(graph, "update Person set { score: 500 } where true")
    assert versions()["node:Person"] - before["node:Person"] == 2 * one


def test_deleting_a_node_deletes_its_edges(graph: og.Graph) -> None:
    done = run(graph, 'delete Person where slug = "ada"')
    assert done.deleted == {"node:Person": 1, "edge:Knows": 3, "edge:WorksAt": 1}
    assert graph.edges("Knows", where={"src": "ada"}).num_rows == 0
    assert graph.edges("Knows", where={"dst": "ada"}).num_rows == 0


def test_edges_that_the_query_itself_inserted_go_with_their_node(graph: og.Graph) -> None:
    done = run(graph, 'insert Knows { from: "eve", to: "flo" } delete Person where slug = "flo"')
    assert done.inserted == {}
    assert graph.edges("Knows", where={"src": "eve"}).num_rows == 0


@pytest.mark.parametrize(
    "statement",
    [
        'update Person set { score: 1 } where slug = "nobody"',
        'delete Person where slug = "nobody"',
        "delete Knows where weight > 100",
        'update Person set { name: name } where slug = "ada"',
        'merge Person { slug: "ada" } set { name: name }',
        'insert Knows { from: "ada", to: $b } from match { $b: Person { slug: "nobody" } }',
        'insert Company { slug: "x", name: "X" } delete Company where slug = "x"',
        'update Person set { score: 9 } where slug = "bob" update Person set { score: 1 } where slug = "bob"',
    ],
)
def test_what_changes_nothing_succeeds_with_none_affected_and_no_commit(graph: og.Graph, statement: str) -> None:
    before = head(graph)
    done = run(graph, statement)
    assert (done.commit, done.affected, head(graph)) == (None, 0, before)
    assert done.to_json()["commit"] is None
    assert done.graph_commit_id == before


def test_overlapping_deletes_count_each_row_once_and_lose_no_row_with_null_columns(graph: og.Graph) -> None:
    done = run(graph, 'delete Person where score >= 3 delete Person where slug in ["dan", "eve", "bob"]')
    assert done.deleted["node:Person"] == 3
    assert people(graph, "score") == [(0,), (2,), (None,)]


@pytest.mark.parametrize(
    "statement", ['update Person set { slug: "x" } where true', 'merge Person { slug: "ada" } set { slug: "x" }']
)
def test_a_key_property_is_never_updated(graph: og.Graph, statement: str) -> None:
    with pytest.raises(errors.QueryError) as refused:
        run(graph, statement)
    assert refused.value.to_json()["code"] == "T30"


def test_a_call_that_is_stopped_leaves_no_state(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    before = head(graph)

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("omnigraph.query.mutation.run.apply_deltas", stopped)
        with pytest.raises(KeyboardInterrupt):
            run(graph, "update Person set { score: 0 } where true")
    assert head(graph) == before
    assert run(graph, 'update Person set { score: 42 } where slug = "ada"').affected == 1


def test_the_actor_lands_on_the_commit(graph: og.Graph) -> None:
    assert run(graph, 'update Person set { score: 3 } where slug = "ada"', actor="anna").commit.actor == "anna"


# ---- conditions and values -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("true", ["ada", "bob", "cy", "dan", "eve", "flo"]),
        ("false", []),
        ('slug = "ada" or (score > 2 and not (slug = "eve"))', ["ada", "dan"]),
        ('(slug = "ada") or ((score) > 3)', ["ada", "eve"]),
        ("score is null", ["flo"]),
        ('slug in ["bob", "none"]', ["bob"]),
        ('name starts_with "A" or name ends_with "y"', ["ada", "cy"]),
        ('tags contains "dan"', ["dan"]),
        ('slug matches "^[a-c]"', ["ada", "bob", "cy"]),
        ("length(slug) = 2 and active", ["cy"]),
        ("score + 1 = 3", ["cy"]),
        ('status = "busy"', ["bob", "eve"]),
        ("coalesce(score, 100) > 3", ["eve", "flo"]),
        ("id = $s", ["eve"]),
    ],
)
def test_update_and_delete_take_every_condition(graph: og.Graph, where: str, found: list[str]) -> None:
    declared, params = ("$s: String", {"s": "eve"}) if "$s" in where else ("", {})
    changed = run(
        graph, f'update Person set {{ bio: "new" }} where {where} returning {{ slug }}', declared, params=params
    )
    assert [r["slug"] for r in changed] == found
    assert people(graph, "slug", bio="new") == [(s,) for s in found]
    # The same on rows that only this query has: all of them are touched before.
    pending = run(
        graph,
        f'update Person set {{ bio: "other" }} where true delete Person where {where} returning {{ slug }}',
        declared,
        params=params,
    )
    assert [r["slug"] for r in pending] == found


def test_values_of_an_update_come_from_the_row_before_it(graph: og.Graph) -> None:
    run(
        graph,
        'update Person set { name: slug + "!", bio: name, score: coalesce(score, 0) - 1 } where slug in ["bob", "flo"]',
    )
    assert people(graph, "name", "bio", "score", slug="bob") == [("bob!", "Bob", 0)]
    assert people(graph, "name", "bio", "score", slug="flo") == [("flo!", "Flo", -1)]


def test_every_type_of_property_can_be_set(rules: og.Graph) -> None:
    values = {
        "kind": "b",
        "day": "2024-02-29",
        "at": "2024-02-29T12:30:00Z",
        "size": 1.5,
        "tags": ["x", "y"],
        "vector": [1.0, 2.0],
        "photo": b"\x00\xff",
    }
    declared = "$kind: String, $day: Date, $at: DateTime, $size: F64, $tags: [String], $vector: Vector(2), $photo: Blob"
    set_all = ", ".join(f"{name}: ${name}" for name in values)
    run(rules, f'update Item set {{ {set_all} }} where code = "a"', declared, params=values)
    run(rules, f'insert Item {{ code: "d", n: 1, {set_all} }}', declared, params=values)
    run(rules, 'update Item set { tags: ["p"], vector: [0.5, 1], at: now(), day: null } where code = "b"')
    run(rules, 'update Item set { n: n + 1 } where code = "a"')
    found = {r["id"]: r for r in rules.nodes("Item").to_pylist()}
    for code in "ad":
        row = found[code]
        assert {k: row[k] for k in ("kind", "tags", "vector", "photo")} == {
            k: values[k] for k in ("kind", "tags", "vector", "photo")
        }
        assert (str(row["day"]), row["size"]) == ("2024-02-29", 1.5)
        assert row["at"] == datetime(2024, 2, 29, 12, 30, tzinfo=UTC)
    assert (found["b"]["tags"], found["b"]["vector"]) == (["p"], [0.5, 1.0])
    assert abs((found["b"]["at"] - datetime.now(UTC)).total_seconds()) < 60


def test_values_of_parameters_are_never_read_as_query_text(graph: og.Graph) -> None:
    nasty = "x'\" OR true } delete Person where true // \\ \u2028 \x07 %_`"
    run(graph, "insert Person { slug: $s, name: $s } ", "$s: String", s=nasty)
    assert run(graph, "update Person set { bio: $s } where slug = $s", "$s: String", s=nasty).affected == 1
    assert len(people(graph)) == 7
    assert run(graph, "delete Person where bio = $s and name = $s", "$s: String", s=nasty).deleted == {"node:Person": 1}
    assert len(people(graph)) == 6


def test_texts_of_a_list_of_dates_are_dates(rules: og.Graph) -> None:
    run(rules, 'insert Item { code: "x", n: 1, days: ["2020-12-01"], moments: ["2020-12-01T10:00:00Z"] }')
    run(rules, 'update Item set { days: coalesce(days, ["2021-01-02", "2021-01-03"]) } where code = "a"')
    for condition, found in (
        ('$i.days contains "2020-12-01"', "x"),
        ('"2021-01-03" in $i.days', "a"),
        ('$i.moments contains "2020-12-01 10:00"', "x"),
    ):
        text = f"query q() {{ match {{ $i: Item {condition} }} return {{ $i.code }} }}"
        assert [r["i.code"] for r in rules.query(text)] == [found]
    done = run(rules, 'delete Item where days contains "2020-12-01" returning { code }')
    assert done.to_pylist() == [{"code": "x"}]


# ---- insert, merge, edges --------------------------------------------------------------------------------------------


def test_a_keyed_insert_replaces_the_whole_row_of_that_key(graph: og.Graph) -> None:
    done = run(graph, 'insert Person { slug: "bob", name: "New" }')
    assert (done.updated, done.inserted) == ({"node:Person": 1}, {})
    assert people(graph, "name", "score", "active", "tags", slug="bob") == [("New", None, True, None)]
    assert graph.edges("Knows", where={"dst": "bob"}).num_rows == 2


def test_an_unkeyed_insert_is_strict(rules: og.Graph) -> None:
    first = run(rules, 'insert Note { text: "one" } insert Note { id: "n1", text: "two" }')
    assert first.ids["Note"][1] == "n1"
    assert len(first.ids["Note"][0]) == 26
    before = head(rules)
    with pytest.raises(errors.KeyConflict):
        run(rules, 'insert Note { id: "n1", text: "three" }')
    with pytest.raises(errors.KeyConflict):
        run(rules, 'insert Note { id: "n2" } insert Note { id: "n2" }')
    assert head(rules) == before
    assert run(rules, 'delete Note where id = "n1" insert Note { id: "n1", text: "four" }').affected == 1


def test_merge_changes_what_it_sets_or_inserts(graph: og.Graph) -> None:
    text = """query m($s: String) {
        merge Person { slug: $s } set { name: coalesce(name, upper($s)), score: coalesce(score, 10) + 1 }
        returning { slug, name, score, status }
    }"""
    assert graph.mutate(text, s="bob").to_pylist() == [{"slug": "bob", "name": "Bob", "score": 2, "status": "busy"}]
    made = graph.mutate(text, s="gus")
    assert made.to_pylist() == [{"slug": "gus", "name": "GUS", "score": 11, "status": None}]
    assert (made.inserted, made.ids) == ({"node:Person": 1}, {"Person": ["gus"]})
    assert graph.mutate(text, s="gus").to_pylist()[0]["score"] == 12


def test_merge_needs_what_is_required_only_where_it_inserts(graph: og.Graph) -> None:
    text = "merge Person { slug: $s } set { score: 42 } returning { slug, name, score }"
    before = head(graph)
    done = run(graph, text, "$s: String", s="ada")
    assert (done.updated, done.inserted) == ({"node:Person": 1}, {})
    assert done.to_pylist() == [{"slug": "ada", "name": "Ada", "score": 42}]
    with pytest.raises(errors.ConstraintViolation, match="node:Person 'zoe': name: is required, because no Person"):
        run(graph, text, "$s: String", s="zoe")
    assert graph.commits(limit=2)[1].id == before
    # What an earlier statement wrote is there to change, what one deleted is not.
    text = f'insert Person {{ slug: "zoe", name: "Zoe" }} {text} delete Person where slug = "ada"'
    done = run(graph, text, "$s: String", s="zoe")
    assert done.to_pylist() == [{"slug": "zoe", "name": "Zoe", "score": 42}]
    with pytest.raises(errors.ConstraintViolation) as caught:
        run(graph, 'delete Person where slug = "bob" merge Person { slug: "bob" } set { score: 1 }')
    (violation,) = caught.value.fields["violations"]
    assert {k: violation[k] for k in ("rule", "table_key", "entity_id", "property")} == {
        "rule": "null",
        "table_key": "node:Person",
        "entity_id": "bob",
        "property": "name",
    }
    assert people(graph, "slug")[:1] == [("bob",)]


def test_a_new_edge_of_merge_needs_what_is_required(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", "node P { slug: String @key } edge To: P -> P { role: String  n: I64? }")
    graph.insert({"P": [{"slug": s} for s in "ab"], "To": [{"src": "a", "dst": "b", "role": "x"}]})
    run(graph, 'merge To { from: "a", to: "b" } set { n: 7 }')
    assert [(r["role"], r["n"]) for r in graph.edges("To").to_pylist()] == [("x", 7)]
    with pytest.raises(errors.ConstraintViolation, match="role: is required, because no To leads from 'b' to 'a'"):
        run(graph, 'merge To { from: "b", to: "a" } set { n: 7 }')


def test_merge_finds_edges_by_their_ends(graph: og.Graph) -> None:
    text = 'merge Knows { from: "eve", to: "flo" } set { weight: coalesce(weight, 0.0) + 1.0 }'
    assert run(graph, text).inserted == {"edge:Knows": 1}
    assert run(graph, text + text).updated == {"edge:Knows": 1}
    assert graph.edges("Knows", where={"src": "eve"})["weight"].to_pylist() == [3.0]
    # There are two from ada to bob, and nothing tells them apart: both are merged.
    assert run(graph, 'merge Knows { from: "ada", to: "bob" } set { weight: 9.0 }').updated == {"edge:Knows": 2}


def test_merge_sees_what_the_query_wrote_and_deleted(graph: og.Graph) -> None:
    done = run(
        graph,
        """insert Person { slug: "gus", name: "Gus", score: 1 }
        merge Person { slug: "gus" } set { name: name + "!", score: score + 1 }
        delete Person where slug = "ada"
        merge Person { slug: "ada" } set { name: coalesce(name, "again") }""",
    )
    assert people(graph, "name", "score", slug="gus") == [("Gus!", 2)]
    assert people(graph, "name", "score", slug="ada") == [("again", None)]
    assert done.inserted == {"node:Person": 1}


def test_edges_are_updated_and_moved(graph: og.Graph) -> None:
    run(graph, "update Knows set { weight: weight * 2 } where weight is not null")
    assert sorted(w for w in graph.edges("Knows")["weight"].to_pylist() if w is not None) == [1.0, 3.0]
    run(graph, 'update Knows set { to: "eve", since: date("2024-01-01") } where from = "bob" and to = "cy"')
    assert [e["dst"] for e in graph.edges("Knows", where={"src": "bob"}).to_pylist()] == ["eve"]
    with pytest.raises(errors.ConstraintViolation) as refused:
        run(graph, 'update Knows set { to: "nobody" } where true')
    assert set(refused.value.to_json()["by_rule"]) == {"endpoint"}


def test_insert_from_match_writes_a_row_per_row_of_the_pattern(graph: og.Graph) -> None:
    done = run(
        graph,
        """insert WorksWith { from: $a, to: $b } from match {
            $a worksAt $c
            $b worksAt $c
            $a.slug < $b.slug
        } returning { from, to }""",
    )
    assert done.to_pylist() == [{"from": "ada", "to": "bob"}]
    nodes = run(
        graph,
        """insert Company { slug: lower($p.name) + "-ltd", name: $p.name + " Ltd" } from match {
            $p: Person
            not { $p worksAt $_ }
        }""",
    )
    assert sorted(nodes.ids["Company"]) == ["cy-ltd", "dan-ltd", "flo-ltd"]


@pytest.mark.parametrize("traverse", ["csr", "index"])
def test_insert_from_match_sees_pending_rows_of_nodes_and_edges(
    graph: og.Graph, traverse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSE", traverse)
    done = run(
        graph,
        """insert Person { slug: "gus", name: "Gus" }
        insert WorksAt { from: "gus", to: "bee", role: "new" }
        delete Person where slug = "bob"
        update WorksAt set { role: "old" } where role is null
        insert WorksWith { from: $a, to: $b } from match {
            $a $w:worksAt $c
            $w.role = "new"
            $b $v:worksAt $c
            $v.role = "old"
            $a != $b
        } returning { from, to }""",
    )
    assert done.to_pylist() == [{"from": "gus", "to": "eve"}]
    again = run(
        graph,
        """insert WorksWith { from: "dan", to: "gus" }
        insert Knows { from: $a, to: $b } from match { $a worksWith{1,3} $b  $a.slug = "dan" } returning { to }""",
    )
    assert sorted(r["to"] for r in again) == ["eve", "flo", "gus"]


def test_a_pattern_does_not_follow_a_pending_edge_to_a_node_that_is_not_there_yet(graph: og.Graph) -> None:
    done = run(
        graph,
        """insert Knows { from: "eve", to: "late" }
        insert WorksWith { from: $a, to: $b } from match { $a knows $b  $a.slug = "eve" }
        insert Person { slug: "late", name: "Late" }
        insert WorksWith { from: $b, to: $a } from match { $a knows $b  $a.slug = "eve" } returning { from, to }""",
    )
    assert done.to_pylist() == [{"from": "late", "to": "eve"}]
    assert done.inserted["edge:WorksWith"] == 1


def test_a_pattern_searches_pending_texts(graph: og.Graph) -> None:
    done = run(
        graph,
        """insert Person { slug: "zoe", name: "Zoe", bio: "a zebra runs" }
        update Person set { bio: "a zebra sleeps" } where slug = "bob"
        delete Person where slug = "dan"
        insert WorksWith { from: "ada", to: $p } from match {
            $p: Person
            search($p.bio, "zebra") or search($p.bio, "3")
        } returning { to }""",
    )
    assert sorted(r["to"] for r in done) == ["bob", "zoe"]


def test_equal_rows_of_one_key_are_written_once_and_different_ones_refused(graph: og.Graph) -> None:
    text = "insert Company { slug: $p.status, name: %s } from match { $p: Person  $p.status is not null }"
    done = run(graph, text % '"Moods"')
    assert sorted(done.ids["Company"]) == ["busy", "open"]
    with pytest.raises(errors.ConstraintViolation) as refused:
        run(graph, text % "$p.name")
    assert set(refused.value.to_json()["by_rule"]) == {"key"}


# ---- rules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "rule"),
    [
        ("update Item set { n: n + 100 } where n > 0", "range"),
        ('update Item set { label: "NO" } where code = "a"', "check"),
        ('update Item set { label: "same" } where true', "unique"),
        ('insert Item { code: "d", n: 1, label: "label a" }', "unique"),
        ('insert Item { code: "d", n: 1, kind: $k }', "enum"),
        ('update Item set { n: $i } where code = "a"', "null"),
        ('insert Next { from: "a", to: "zz" }', "endpoint"),
        ('insert Next { from: "a", to: "b" } insert Next { from: "a", to: "b" }', "unique"),
        (
            'insert Note { id: "x" } insert Holds { from: "a", to: "x" } insert Holds { from: "a", to: "x" } '
            'insert Holds { from: "a", to: "x" }',
            "cardinality",
        ),
        ("update Item set { vector: $v } where true", "vector"),
    ],
)
def test_the_rules_of_all_writes_hold_for_mutations(rules: og.Graph, statement: str, rule: str) -> None:
    if rule == "vector":
        with pytest.raises(errors.OmnigraphError):
            run(rules, statement, "$v: [F64]", v=[1.0])
        return
    declared = ", ".join(d for d in ("$k: String", "$i: I64?") if d[:2] in statement)
    params = {"k": "zzz"} if "$k" in statement else {}
    before = head(rules)
    with pytest.raises(errors.ConstraintViolation) as refused:
        run(rules, statement, declared, params=params)
    assert set(refused.value.to_json()["by_rule"]) == {rule}
    assert head(rules) == before


def test_a_value_that_one_statement_frees_another_may_take(rules: og.Graph) -> None:
    run(
        rules,
        """update Item set { label: "free" } where code = "a"
        update Item set { label: "label a" } where code = "b"
        insert Item { code: "d", n: 1, label: "label b" }""",
    )
    assert items(rules, "label") == {"a": "free", "b": "label a", "c": "label c", "d": "label b"}


def test_upserting_an_existing_key_breaks_no_unique(rules: og.Graph) -> None:
    assert run(rules, 'insert Item { code: "a", n: 50, label: "label a" }').updated == {"node:Item": 1}


def test_arithmetic_beyond_its_range_is_refused_and_has_no_effect(rules: og.Graph) -> None:
    before = head(rules)
    with pytest.raises(errors.QueryValueError):
        run(rules, "update Item set { n: 9223372036854775807 + n } where n = 1")
    assert head(rules) == before


# ---- returning -------------------------------------------------------------------------------------------------------


def test_returning_gives_each_row_once_ordered_by_id_as_it_is_after_the_statement(graph: og.Graph) -> None:
    done = run(
        graph,
        """update Person set { score: score + 1 } where score >= 3
        update Person set { score: 100 } where slug in ["eve", "dan", "cy"]
            returning { slug, score, coalesce(score, 0) + 1 as more, name as called }
        delete Knows where weight > 1""",
    )
    assert done.to_pylist() == [
        {"slug": s, "score": 100, "more": 101, "called": s.title()} for s in ("cy", "dan", "eve")
    ]
    assert done.columns == ["slug", "score", "more", "called"]


def test_returning_of_a_delete_gives_the_rows_as_they_were(graph: og.Graph) -> None:
    done = run(
        graph,
        'update Knows set { weight: 7.0 } where from = "bob" delete Knows where from in ["bob", "dan"] returning { * }',
    )
    assert sorted((r["from"], r["weight"]) for r in done) == [("bob", 7.0), ("dan", None)]
    assert done.columns == ["id", "from", "to", "since", "weight"]


def test_the_last_returning_statement_answers_and_without_one_there_are_no_rows(graph: og.Graph) -> None:
    done = run(
        graph,
        """insert Person { slug: "gus", name: "Gus" } returning { slug as made }
        update Person set { score: 1 } where slug = "nobody" returning { slug as changed }""",
    )
    assert (done.columns, done.to_pylist()) == (["changed"], [])
    assert run(graph, 'insert Person { slug: "hal", name: "Hal" }').returned is None


def test_a_row_that_was_found_is_returned_though_it_stayed_as_it_was(graph: og.Graph) -> None:
    done = run(graph, 'update Person set { score: 1 } where slug = "bob" returning { slug, score }')
    assert (done.commit, done.to_pylist()) == (None, [{"slug": "bob", "score": 1}])


# ---- conditions of the write -----------------------------------------------------------------------------------------


def test_if_commit_refuses_a_state_that_moved_and_has_no_effect(graph: og.Graph) -> None:
    known = head(graph)
    first = run(graph, 'update Person set { score: 50 } where slug = "ada"', if_commit=known)
    with pytest.raises(errors.PreconditionFailed) as lost:
        run(graph, 'update Person set { score: 51 } where slug = "ada"', if_commit=known)
    assert lost.value.exit_code == 4
    assert people(graph, "score", slug="ada") == [(50,)]
    assert run(graph, 'update Person set { score: 52 } where slug = "ada"', if_commit=first.graph_commit_id).commit


def test_an_operation_id_is_done_once(graph: og.Graph) -> None:
    text = 'update Person set { score: score + 1 } where slug = "bob" insert Knows { from: "bob", to: "bob" }'
    first = run(graph, text, operation_id="op-1")
    again = run(graph, text, operation_id="op-1")
    assert (again.repeated, again.commit) == (True, first.commit)
    assert (again.updated, again.ids) == (first.updated, {"Knows": first.ids["Knows"]})
    assert people(graph, "score", slug="bob") == [(2,)]


def test_a_branch_is_written_and_main_is_not(graph: og.Graph) -> None:
    graph.create_branch("trial")
    run(graph, "delete Person where true", branch="trial")
    assert graph.nodes("Person", branch="trial").num_rows == 0
    assert graph.edges("Knows", branch="trial").num_rows == 0
    assert len(people(graph)) == 6


def test_a_query_that_reads_is_not_run_by_mutate_nor_one_that_writes_by_query(graph: og.Graph) -> None:
    with pytest.raises(errors.UsageError, match="only reads"):
        graph.mutate("query q() { match { $p: Person } return { $p.name } }")
    with pytest.raises(errors.UsageError, match="writes"):
        graph.query("query q() { delete Person where true }")


def test_a_query_is_checked_again_when_the_schema_has_changed(graph: og.Graph) -> None:
    text = "query q() { update Person set { score: 1 } where true }"
    assert graph.mutate(text).affected == 5
    schema = graph.schema().source
    other = og.open(graph.uri)
    other.apply_schema(schema.replace("score: I64?\n", ""))
    with pytest.raises(errors.QueryError):
        graph.mutate(text)
    other.apply_schema(schema.replace("score: I64?", "score: I64?\n  extra: I64?"))
    assert graph.mutate("query q() { update Person set { extra: 1 } where true }").affected == 6


# ---- many writers ----------------------------------------------------------------------------------------------------

COUNTER = "query count($s: String) { update Person set { score: score + 1 } where slug = $s and active = true }"
_WORKER = """
import sys, omnigraph
graph = omnigraph.open(sys.argv[1])
for _ in range(int(sys.argv[2])):
    assert graph.mutate(sys.argv[3], s="cy").affected == 1
"""


def test_no_count_is_lost_between_processes(graph: og.Graph) -> None:
    command = [sys.executable, "-c", _WORKER, graph.uri, "6", COUNTER]
    workers = [subprocess.Popen(command) for _ in range(2)]
    for _ in range(6):
        graph.mutate(COUNTER, s="cy")
    assert [w.wait(timeout=120) for w in workers] == [0, 0]
    assert people(graph, "score", slug="cy") == [(2 + 12 + 6,)]


def test_no_count_is_lost_between_handles_in_threads(graph: og.Graph) -> None:
    def work(_: int) -> None:
        own = og.open(graph.uri)
        for _ in range(8):
            own.mutate("query c() { update Person set { score: score + 1 } where active }")

    with ThreadPoolExecutor(max_workers=3) as pool:
        list(pool.map(work, range(3)))
    assert people(graph, "score", slug="ada") == [(24,)]


def test_a_condition_holds_on_the_state_that_is_changed(graph: og.Graph) -> None:
    """Another writer is quicker between preparing and the ticket: the statements are run again on what it left."""
    other = og.open(graph.uri)
    turns: list[str] = []

    def interfere(point: str) -> None:
        turns.append(point)
        if turns.count("lock") == 1 and point == "lock":
            other.mutate('query q() { update Person set { score: 40 } where slug = "ada" }')

    watched = og.open(graph.uri, observer=interfere)
    done = watched.mutate(
        "query q() { update Person set { score: score + 1 } where score >= 3 returning { slug, score } }"
    )
    assert done.to_pylist() == [{"slug": s, "score": n} for s, n in (("ada", 41), ("dan", 4), ("eve", 5))]
    assert turns.count("prepare") >= 2


def test_what_a_pattern_does_not_find_is_still_not_there_when_it_is_written(graph: og.Graph) -> None:
    """Two writers insert an edge unless there is one: the slower one finds that of the quicker one and does nothing."""
    text = """query q() { insert WorksWith { from: $a, to: $b } from match {
        $a: Person { slug: "ada" }
        $b: Person { slug: "flo" }
        not { $a worksWith $b }
    } }"""
    other = og.open(graph.uri)
    met: list[str] = []

    def interfere(point: str) -> None:
        if point == "lock" and not met:
            met.append(other.mutate(text).graph_commit_id)

    late = og.open(graph.uri, observer=interfere).mutate(text)
    assert (late.commit, late.graph_commit_id) == (None, met[0])
    assert graph.edges("WorksWith", where={"src": "ada"}).num_rows == 1
