"""Schema apply: the tables move with the schema, on the branch it is run on, in one commit."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import errors


def start(tmp_path: Path, text: str) -> og.Graph:
    return og.init(tmp_path / "g", text)


def rows(graph: og.Graph, name: str, branch: str = "main") -> list[dict[str, object]]:
    return sorted(graph.snapshot(branch).read(name).to_pylist(), key=lambda r: str(r["id"]))


BASE = "node A { name: String @key  n: I32? }\nedge E: A -> A { w: F64? }\n"


def test_rename_add_drop_and_backfill_in_one_commit(tmp_path: Path) -> None:
    graph = start(tmp_path, "node A { name: String @key  n: I32?  old: String? }")
    graph.insert({"A": [{"name": "x", "n": 1, "old": "gone"}, {"name": "y"}]})
    result = graph.apply_schema(
        'node A { name: String @key  m: I32? @rename_from("n")  city: String @default("Bern")  note: String? }\n'
        "node B { k: I64 @key }"
    )
    assert result.applied
    assert rows(graph, "A") == [
        {"id": "x", "name": "x", "m": 1, "city": "Bern", "note": None},
        {"id": "y", "name": "y", "m": None, "city": "Bern", "note": None},
    ]
    assert [c.kind for c in graph.commits()] == ["schema_apply", "write", "init"]
    graph.insert({"A": [{"name": "z", "note": "new"}], "B": [{"k": 5}]})
    assert rows(graph, "A")[2] == {"id": "z", "name": "z", "m": None, "city": "Bern", "note": "new"}


def test_the_past_is_read_with_the_schema_of_its_time(tmp_path: Path) -> None:
    graph = start(tmp_path, BASE)
    before = graph.insert({"A": [{"name": "x", "n": 7}]}).commit
    graph.apply_schema(
        'node Alpha @rename_from("A") { name: String @key  m: I32? @rename_from("n") }\n'
        "edge E: Alpha -> Alpha { w: F64? }"
    )
    assert graph.snapshot(commit=before.id).read("A").to_pylist() == [{"id": "x", "name": "x", "n": 7}]
    assert rows(graph, "Alpha") == [{"id": "x", "name": "x", "m": 7}]


def test_a_rename_keeps_the_table_and_its_version_path(tmp_path: Path) -> None:
    graph = start(tmp_path, BASE)
    path = graph.snapshot().tables()[0].path
    graph.apply_schema('node Z @rename_from("A") { name: String @key  n: I32? }\nedge E: Z -> Z { w: F64? }')
    assert graph.snapshot().tables()[0].path == path


def test_drop_and_add_of_one_name_starts_a_new_lifetime(tmp_path: Path) -> None:
    graph = start(tmp_path, "node A { name: String @key }\nnode B { name: String @key }")
    old = graph.insert({"B": [{"name": "ghost"}]}).commit
    path = {t.table_key: t.path for t in graph.snapshot().tables()}["node:B"]
    graph.apply_schema("node A { name: String @key }")
    with pytest.raises(errors.UnknownType):
        graph.snapshot().read("B")
    graph.apply_schema("node A { name: String @key }\nnode B { name: String @key }")
    assert rows(graph, "B") == []
    assert {t.table_key: t.path for t in graph.snapshot().tables()}["node:B"] != path
    assert graph.snapshot(commit=old.id).read("B")["name"].to_pylist() == ["ghost"]


def test_other_branches_keep_their_schema_and_rows(tmp_path: Path) -> None:
    graph = start(tmp_path, BASE)
    graph.insert({"A": [{"name": "x", "n": 1}]})
    graph.create_branch("work")
    graph.apply_schema(
        'node A { name: String @key  m: I32? @rename_from("n")  c: I32 @default(3) }\nedge E: A -> A { w: F64? }',
        branch="work",
    )
    assert rows(graph, "A") == [{"id": "x", "name": "x", "n": 1}]
    assert rows(graph, "A", "work") == [{"id": "x", "name": "x", "m": 1, "c": 3}]
    graph.upsert({"A": [{"name": "x", "n": 2}]})
    graph.upsert({"A": [{"name": "x", "m": 5, "c": 4}]}, branch="work")
    assert rows(graph, "A") == [{"id": "x", "name": "x", "n": 2}]
    assert rows(graph, "A", "work") == [{"id": "x", "name": "x", "m": 5, "c": 4}]


def test_an_unchanged_schema_makes_no_commit(tmp_path: Path) -> None:
    graph = start(tmp_path, BASE)
    assert not graph.apply_schema("// a comment\n" + BASE).applied
    assert len(graph.commits()) == 1


def test_an_unsupported_change_is_refused_with_its_reasons_and_moves_nothing(tmp_path: Path) -> None:
    graph = start(tmp_path, BASE)
    graph.insert({"A": [{"name": "x"}]})
    before = graph.snapshot().to_json()
    with pytest.raises(errors.UnsupportedSchemaChange) as refused:
        graph.apply_schema("node A { name: String @key  n: String?  must: I32 }\nedge E: A -> A { w: F64? }")
    assert "must" in refused.value.message
    assert {s.get("code") for s in refused.value.fields["plan"]["steps"]} >= {"OG-MF-103", "OG-MF-106"}
    assert graph.snapshot().to_json() == before


def test_a_hard_drop_makes_the_past_unreadable_and_a_soft_one_does_not(tmp_path: Path) -> None:
    text = "node A { name: String @key  secret: String? }\nnode B { name: String @key }"
    graph = start(tmp_path, text)
    first = graph.insert({"A": [{"name": "x", "secret": "s"}], "B": [{"name": "b"}]}).commit
    graph.apply_schema("node A { name: String @key }\nnode B { name: String @key }")
    assert graph.snapshot(commit=first.id).read("A")["secret"].to_pylist() == ["s"]
    graph.apply_schema("node A { name: String @key }", allow_data_loss=True)
    with pytest.raises(errors.VersionReclaimed):
        og.open(graph.uri).snapshot(commit=first.id).read("B")
    assert rows(graph, "A") == [{"id": "x", "name": "x"}]


def test_a_hard_drop_spares_what_another_branch_reads(tmp_path: Path) -> None:
    graph = start(tmp_path, "node A { name: String @key }\nnode B { name: String @key }")
    graph.insert({"B": [{"name": "b"}]})
    graph.create_branch("work")
    graph.apply_schema("node A { name: String @key }", allow_data_loss=True)
    assert rows(og.open(graph.uri), "B", "work") == [{"id": "b", "name": "b"}]


def test_columns_never_read_the_values_of_dropped_ones(tmp_path: Path) -> None:
    """Rounds of random adds, drops and renames against a plain model: field ids must never be confused."""
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    graph = start(tmp_path, "node L { name: String @key  n: I32? }")
    model: dict[str, dict[str, object]] = {}
    columns: dict[str, str] = {"n": "I32?"}
    for turn in range(14):
        action = rng.choice(["add", "fill", "drop", "rename"]) if turn else "fill"
        lines = {c: f"{c}: {t}" for c, t in columns.items()}
        if action == "add":
            lines[f"c{turn}"], columns[f"c{turn}"] = f"c{turn}: I32?", "I32?"
            for row in model.values():
                row[f"c{turn}"] = None
        elif action == "fill":
            lines[f"c{turn}"], columns[f"c{turn}"] = f"c{turn}: I32 @default({turn})", f"I32 @default({turn})"
            for row in model.values():
                row[f"c{turn}"] = turn
        elif action == "drop" and columns:
            gone = rng.choice(sorted(columns))
            del columns[gone], lines[gone]
            for row in model.values():
                del row[gone]
        elif action == "rename" and columns:
            old = rng.choice(sorted(columns))
            kind = columns.pop(old)
            columns[f"r{turn}"] = kind
            del lines[old]
            lines[f"r{turn}"] = f'r{turn}: {kind} @rename_from("{old}")'
            for row in model.values():
                row[f"r{turn}"] = row.pop(old)
        graph.apply_schema(f"node L {{ name: String @key  {'  '.join(lines.values())} }}")
        values = {c: rng.randrange(1000) for c in columns}
        model[f"k{turn}"] = values
        graph.insert({"L": [{"name": f"k{turn}", **values}]})
        found = {r["name"]: {c: r[c] for c in columns} for r in graph.snapshot().read("L").to_pylist()}
        assert found == model, f"seed {seed}, turn {turn}, after {action}"
