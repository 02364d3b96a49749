"""What optimize promises, line by line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lance
import pytest

import omnigraph as og
from omnigraph.errors import StaleView, UnknownType, UsageError
from omnigraph.storage.lance import lance_api
from omnigraph.storage.lance.indices import built_indices
from tests.maintenance.optimize.answers import disagreements
from tests.maintenance.optimize.conftest import SCHEMA, people
from tests.maintenance.optimize.tables import coverage, keys, opened, versions

# ---- what it does ----------------------------------------------------------------------------------------------------


def test_an_empty_graph_gives_a_row_per_table_and_one_for_the_manifest_and_changes_nothing(graph: og.Graph) -> None:
    before = graph.commits()
    result = graph.optimize()
    assert [t.table_key for t in result.tables] == [
        "node:City",
        "node:Person",
        "edge:Knows",
        "edge:LivesIn",
        "__manifest",
    ]
    assert {(t.fragments_removed, t.fragments_added, t.committed) for t in result.tables} == {(0, 0, False)}
    assert result.commit is None
    assert result.engine is None
    assert graph.commits() == before


def test_a_second_run_does_nothing_and_makes_no_commit(worn: og.Graph) -> None:
    first = worn.optimize()
    assert first.commit is not None
    commits = worn.commits()
    second = worn.optimize()
    assert second.commit is None
    assert {(t.fragments_removed, t.fragments_added, t.committed) for t in second.tables} == {(0, 0, False)}
    assert worn.commits() == commits
    assert not list((Path(worn.uri) / "__recovery").rglob("*.json"))


def test_all_changed_tables_are_published_in_one_commit_by_a_system_actor(worn: og.Graph) -> None:
    before = len(worn.commits())
    result = worn.optimize()
    assert len(worn.commits()) == before + 1
    assert result.commit is not None
    assert (result.commit.actor, result.commit.kind) == ("omnigraph:optimize", "optimize")
    assert len(result.commit.tables) == 2
    person = result.table("node:Person")
    assert (person.fragments_removed, person.fragments_added, person.committed) == (4, 1, True)
    assert result.table("node:City").committed is False


def test_the_manifest_sheds_fragments_and_is_the_only_internal_table_reported(graph: og.Graph) -> None:
    for k in range(60):
        people(graph, k, k + 1)
    result = graph.optimize()
    manifest = result.table("__manifest")
    assert manifest.fragments_removed > manifest.fragments_added == 1
    assert [t.table_key for t in result.tables if t.table_key.startswith("__")] == ["__manifest"]
    assert len(graph.nodes("Person")) == 60
    people(graph, 60, 61)
    graph.update("Person", {"age": 77}, ids=["p60"])
    assert len(graph.nodes("Person", where="age = 77")) == 1


def test_settings_that_collect_versions_are_removed_from_the_manifest_and_no_version_is_lost(graph: og.Graph) -> None:
    manifest = lance.dataset(f"{graph.uri}/__manifest")
    manifest.update_config({"lance.auto_cleanup.interval": "1", "lance.auto_cleanup.older_than": "0ms"})
    before = versions(lance.dataset(f"{graph.uri}/__manifest"))
    graph.optimize()
    after = lance.dataset(f"{graph.uri}/__manifest")
    assert not [k for k in after.config() if k.startswith("lance.auto_cleanup")]
    assert set(before) <= set(versions(after))


def test_settings_that_collect_versions_are_removed_from_a_table_and_rows_and_versions_stay(worn: og.Graph) -> None:
    table = opened(worn, "Person")
    lance.dataset(table.uri).update_config({"lance.auto_cleanup.interval": "1", "lance.auto_cleanup.older_than": "0ms"})
    worn.repair(force=True, confirm=True)
    assert "lance.auto_cleanup.interval" in opened(worn, "Person").config()
    before, rows = versions(lance.dataset(table.uri)), keys(worn)
    worn.optimize()
    after = opened(worn, "Person")
    assert not [k for k in after.config() if k.startswith("lance.auto_cleanup")]
    assert set(before) <= set(versions(after))
    assert keys(worn) == rows


def test_coverage_is_full_again_after_appends_without_building_everything_anew(graph: og.Graph) -> None:
    graph.load(nodes={"Person": _people_table(150_000)}, mode="append", engine="local")
    graph.optimize()
    old = {s.uuid for i in built_indices(opened(graph, "Person")) for s in i.segments}
    people(graph, 200_000, 200_005)
    assert min(coverage(opened(graph, "Person")).values()) < 1
    result = graph.optimize()
    table = opened(graph, "Person")
    assert set(coverage(table).values()) == {1.0}
    assert old < {s.uuid for i in built_indices(table) for s in i.segments}
    person = result.table("node:Person")
    assert person.coverage_before < 1.0 == person.coverage_after
    # Nothing was merged: one fragment is large and the other has no small neighbour. It still commits.
    assert (person.fragments_removed, person.committed) == (0, True)


def _people_table(rows: int) -> Any:
    import pyarrow as pa

    return pa.table(
        {"name": [f"p{i}" for i in range(rows)], "age": pa.array([i % 10 for i in range(rows)], pa.int32())}
    )


def test_blob_tables_are_compacted_like_others_and_null_is_not_empty(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", "node Doc { name: String @key  body: Blob? }\nnode Plain { name: String @key }")
    big = bytes(range(256)) * 20_000
    bodies = [None, b"", b"small", big, b"\x00" * 70_000, None]
    for k in range(3):
        graph.insert(
            {
                "Doc": [{"name": f"d{2 * k + i}", "body": bodies[2 * k + i]} for i in range(2)],
                "Plain": [{"name": f"x{k}"}],
            }
        )
    before = len(graph.commits())
    result = graph.optimize()
    assert len(graph.commits()) == before + 1
    assert [result.table(f"node:{n}").fragments_removed for n in ("Doc", "Plain")] == [3, 3]
    found = {r["name"]: r["body"] for r in graph.nodes("Doc").to_pylist()}
    assert found == {f"d{i}": body for i, body in enumerate(bodies)}


def test_afterwards_pin_is_head_all_rows_are_visible_and_a_schema_applies(worn: og.Graph) -> None:
    worn.optimize()
    pin = next(p for p in worn.snapshot().view.pins.values() if "nodes" in p.path and p.rows == 8)
    assert lance.dataset(f"{worn.uri}/{pin.path}").version == pin.version
    assert len(keys(worn)) == 8
    worn.apply_schema(SCHEMA.replace("age: I32? @index", "age: I32? @index  nick: String?"))
    people(worn, 50, 51)
    assert len(keys(worn)) == 9


def test_a_drifted_table_is_skipped_and_reported_with_both_versions(worn: og.Graph) -> None:
    table = lance.dataset(opened(worn, "Person").uri)
    pinned = table.version
    table.delete("age = 3")
    result = worn.optimize()
    person = result.table("node:Person")
    assert person.skipped == "DriftNeedsRepair"
    assert (person.manifest_version, person.lance_head_version) == (pinned, pinned + 1)
    assert person.committed is False
    assert result.table("edge:Knows").committed is True
    assert lance.dataset(table.uri).version == pinned + 1
    assert len(keys(worn)) == 8


def test_old_versions_stay_readable(worn: og.Graph) -> None:
    before = worn.snapshot().commit
    worn.optimize()
    assert worn.snapshot(commit=before).count("Person") == 8


def test_rows_marked_deleted_are_gone_from_the_files(graph: og.Graph) -> None:
    people(graph, 0, 100)
    graph.delete({"Person": [f"p{i}" for i in range(30)]})
    result = graph.optimize()
    assert result.table("node:Person").fragments_removed == 1
    assert opened(graph, "Person").get_fragments()[0].num_deletions == 0
    assert len(keys(graph)) == 70


# ---- branches --------------------------------------------------------------------------------------------------------


def test_a_branch_is_optimized_on_its_own_and_main_is_left_alone(worn: og.Graph) -> None:
    worn.create_branch("review")
    people(worn, 100, 103, branch="review")
    main = worn.snapshot().tables()
    result = worn.optimize(branch="review")
    assert result.commit is not None
    assert result.commit.branch == "review"
    assert worn.snapshot().tables() == main
    assert len(keys(worn, "review")) == 11
    assert set(coverage(opened(worn, "Person", "review")).values()) == {1.0}
    assert disagreements(opened(worn, "Person", "review")) == []
    # Knows was never written on the branch: it is forked for what it needs.
    assert set(coverage(opened(worn, "Knows", "review")).values()) == {1.0}
    assert worn.optimize(branch="review").commit is None
    people(worn, 200, 201, branch="review")
    assert worn.optimize(branch="review").ok
    assert disagreements(opened(worn, "Person", "review")) == []
    assert worn.optimize().table("node:Person").fragments_removed == 4
    assert len(keys(worn)) == 8
    assert len(keys(worn, "review")) == 12


# ---- plans and budgets -----------------------------------------------------------------------------------------------


def test_a_plan_names_fragments_bytes_rows_and_index_work_with_reasons_and_changes_nothing(worn: og.Graph) -> None:
    worn.delete({"Person": ["p0"]})
    before = (worn.commits(), sorted(str(p) for p in Path(worn.uri).rglob("*") if p.is_file()))
    body = worn.plan_optimize().to_json()
    person = next(t for t in body["tables"] if t["table_key"] == "node:Person")
    assert (person["fragments_in"], person["fragments_out"], person["rows_deleted"]) == (4, 1, 1)
    assert person["bytes_to_read"] > 0
    assert person["bytes_to_write"] > 0
    assert all(r["reason"] for r in person["rewrites"])
    assert {(i["property"], i["kind"], i["action"]) for i in person["indexes"]} >= {
        ("id", "BTREE", "build"),
        ("name", "INVERTED", "build"),
        ("age", "BTREE", "build"),
    }
    assert all(i["reason"] for i in person["indexes"])
    after = (worn.commits(), sorted(str(p) for p in Path(worn.uri).rglob("*") if p.is_file()))
    assert after == before


def test_a_saved_plan_is_executed_exactly_also_after_others_have_written(worn: og.Graph) -> None:
    plan = json.loads(json.dumps(worn.plan_optimize(tables=["Person"]).to_json()))
    people(worn, 50, 52)
    worn.delete({"Person": ["p3"]})
    result = worn.optimize(plan=plan)
    person = result.table("node:Person")
    assert person.fragments_removed == 4
    assert person.fragments_added == 1
    assert [t.table_key for t in result.tables] == ["node:Person", "__manifest"]
    assert len(keys(worn)) == 9
    assert disagreements(opened(worn, "Person")) == []


def test_a_plan_of_another_schema_is_refused(worn: og.Graph) -> None:
    plan = worn.plan_optimize()
    worn.apply_schema(SCHEMA.replace("since: I32?", "since: I32?  note: String?"))
    with pytest.raises(StaleView, match="schema has changed"):
        worn.optimize(plan=plan)


def test_budgets_do_the_best_part_first_and_say_what_is_left(worn: og.Graph) -> None:
    one = worn.optimize(max_rows=8, tables=["Person", "Knows"])
    left = sum(t.left_fragments + t.left_indexes for t in one.tables)
    assert left > 0
    for _ in range(6):
        worn.optimize()
    assert worn.optimize().commit is None
    with pytest.raises(UsageError, match="max_bytes"):
        worn.optimize(max_bytes=0)
    with pytest.raises(UnknownType, match="'Nobody'"):
        worn.optimize(tables=["Nobody"])


def test_time_that_is_up_begins_no_new_work(worn: og.Graph) -> None:
    result = worn.optimize(max_time_s=1e-9)
    assert result.commit is None
    assert result.table("node:Person").left_fragments == 4


def test_merging_is_finished_after_one_run_whatever_the_sizes_are(tmp_path: Path) -> None:
    import random

    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    from omnigraph.maintenance.optimize.bins import plan_bins
    from omnigraph.storage.lance.fragment_stats import Fragment

    for _ in range(2000):
        target = rng.choice((10, 100, 1000))
        old = [
            Fragment(i, rng.randrange(1, 2 * target), rng.choice((0, 0, rng.randrange(target))), rng.randrange(10**6))
            for i in range(rng.randrange(12))
        ]
        bins = plan_bins(old, target, first_id=1000)
        new: list[Fragment] = []
        for fragment in old:
            bin_ = next((b for b in bins if fragment.id in b.fragments), None)
            if bin_ is None:
                new.append(fragment)
            elif bin_.fragments[0] == fragment.id:
                new.append(Fragment(bin_.new_id, bin_.rows, 0, 1))
        assert sum(f.rows for f in new) == sum(f.rows for f in old)
        assert plan_bins(new, target, first_id=2000) == ()


def test_cleanup_leaves_alone_what_a_running_optimize_reads(worn: og.Graph) -> None:
    """Others write and clean up, to one version, while fragments are being rewritten."""

    class Between:
        def engine(self, name: str, reason: str) -> None:
            return

        def stage(self, name: str, *, tasks: int) -> None:
            other = og.open(worn.uri)
            other.upsert({"Person": [{"name": "p1", "age": 5}]})
            other.cleanup(keep=1, confirm=True)

        def advance(self, *, tasks: int, rows: int, size_bytes: int) -> None:
            return

    busy = og.open(worn.uri, engine="local", watcher=Between())
    assert busy.optimize().table("node:Person").committed
    assert disagreements(opened(worn, "Person")) == []
    assert len(keys(worn)) == 8


# ---- the store -------------------------------------------------------------------------------------------------------


def test_the_private_versions_of_a_run_are_gone_afterwards(worn: og.Graph) -> None:
    worn.optimize()
    assert not list(Path(worn.uri).rglob("_versions/d*.manifest"))
    assert not (Path(worn.uri) / "__staging").exists()


def test_lance_still_wants_a_full_text_segment_merged_before_it_is_committed(worn: og.Graph) -> None:
    """The reason for a step in `index.build`: once this fails, Lance needs it no more."""
    table = lance.dataset(opened(worn, "Person").uri)
    made = table.create_index_uncommitted("name", "INVERTED", name="t", fragment_ids=[0], with_position=True)
    operation = lance_api.operations().CreateIndex([made], [])
    private = lance.LanceDataset.commit(
        table, lance_api.transaction(operation, read_version=table.version), detached=True
    )
    from lance.query import MatchQuery

    with pytest.raises((OSError, ValueError, RuntimeError)):
        private.scanner(full_text_query=MatchQuery("p1", "name")).to_table()
