"""Repair: drift without a stamp is shown, classified by its transactions, and published or discarded on demand."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lance
import pytest

import omnigraph
from omnigraph.cli.main import main
from omnigraph.errors import RecoveryPending, UncoveredDrift, UnknownType, UsageError, WriterActive
from omnigraph.maintenance.repair.run import REPAIR_ACTOR
from omnigraph.storage.durability import manifest_path
from tests.commit import plant
from tests.commit.deeds import EVOLVED
from tests.contention.audit import objects_left, wrong_epochs
from tests.contention.processes import Processes
from tests.maintenance import strangers
from tests.support.dying import die
from tests.support.repairs import ids, pinned, row


def newest(graph: Any, type_name: str = "Left", branch: str = "main") -> int:
    return int(strangers.opened(graph, type_name, branch).version)


@pytest.fixture
def compacted(graph: Any) -> Any:
    """Drift by compaction only: Left has two fragments, which a stranger merges."""
    graph.insert({"Left": [{"name": "second"}]})
    strangers.compact(graph, "Left")
    return graph


# ---- what repair does -----------------------------------------------------------------------------------------------


def test_10_drift_by_compaction_is_previewed_as_verified_maintenance_and_nothing_moves(compacted: Any) -> None:
    before = (pinned(compacted), newest(compacted), compacted.snapshot().commit)
    result = compacted.repair()
    found = row(result)
    assert (found.classification, found.action) == ("verified_maintenance", "would_publish")
    assert found.operations == ("ReserveFragments", "Rewrite")
    assert (found.manifest_version, found.lance_head_version) == before[:2]
    assert (result.commit, result.refused, found.error, found.changes) == (None, False, None, None)
    assert (pinned(compacted), newest(compacted), compacted.snapshot().commit) == before


def test_11_confirmed_it_is_healed_in_one_commit_and_a_schema_apply_works(path: Path, compacted: Any) -> None:
    head, before = newest(compacted), ids(compacted)
    commits = len(compacted.commits())
    result = compacted.repair(confirm=True)
    assert (row(result).action, result.refused) == ("published", False)
    assert pinned(compacted) == newest(compacted) == head, "the manifest moves, data does not"
    assert len(compacted.commits()) == commits + 1
    made = compacted.commits(limit=1)[0]
    assert (made.id, made.actor, made.kind) == (result.commit.id, REPAIR_ACTOR, "repair")
    assert made.summary["tables"]["node:Left"]["classification"] == "verified_maintenance"
    assert ids(compacted) == before
    assert compacted.apply_schema(EVOLVED).applied
    assert not objects_left(path)
    assert not wrong_epochs(compacted)


def test_12_drift_by_a_raw_delete_is_suspicious_and_refused_and_reads_see_the_old_rows(graph: Any) -> None:
    head = strangers.delete(graph, "Left", "old")
    before = graph.snapshot().commit
    result = graph.repair(confirm=True)
    found = row(result)
    assert (found.classification, found.action, found.operations) == ("suspicious", "refused", ("Delete",))
    assert result.refused
    assert result.commit is None
    assert graph.snapshot().commit == before
    assert ids(graph) == {"old", "older"}
    assert newest(graph) == head


def test_13_forced_it_becomes_visible(path: Path, graph: Any) -> None:
    head = strangers.delete(graph, "Left", "old")
    result = graph.repair(confirm=True, force=True)
    assert (row(result).action, result.refused) == ("forced", False)
    assert pinned(graph) == newest(graph) == head
    assert ids(graph) == {"older"}
    graph.upsert({"Left": [{"name": "new"}]})
    assert ids(omnigraph.open(path)) == {"older", "new"}


@pytest.mark.parametrize(
    "write",
    [
        lambda g, p: g.load(p / "rows.jsonl", mode="merge"),
        lambda g, p: g.delete({"Left": ["old"]}),
        lambda g, p: g.apply_schema(EVOLVED),
        lambda g, p: g.update("Left", {"n": 7}, ids=["old"]),
    ],
    ids=["14_merge_load", "15_delete", "16_schema_apply", "17_update"],
)
def test_drift_refuses_writes_pointing_at_repair_and_after_repair_they_go_through(
    tmp_path: Path, path: Path, graph: Any, write: Any
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"type": "Left", "data": {"name": "new"}}\n')
    graph.insert({"Left": [{"name": "second"}]})
    strangers.compact(graph, "Left")
    before = (pinned(graph), newest(graph), ids(graph))
    with pytest.raises(UncoveredDrift) as refusal:
        write(graph, tmp_path)
    assert "omnigraph repair" in refusal.value.remedy
    assert (pinned(graph), newest(graph), ids(graph)) == before
    assert not objects_left(path), "refused before anything is written for it"
    graph.repair(confirm=True)
    write(graph, tmp_path)


# ---- classification --------------------------------------------------------------------------------------------------


def config(graph: Any) -> None:
    strangers.opened(graph, "Left").update_config({"lance.auto_cleanup.interval": "1"})


def overwrite(graph: Any) -> None:
    table = strangers.opened(graph, "Left")
    lance.write_dataset(table.to_table(), table.uri, mode="overwrite", enable_stable_row_ids=True)


@pytest.mark.parametrize(
    ("deed", "classification", "operations"),
    [
        (lambda g: strangers.append(g, "Left", "raw"), "suspicious", ("Append",)),
        (lambda g: strangers.update(g, "Left", {"n": "9"}, "id = 'old'"), "suspicious", ("Update",)),
        (lambda g: strangers.opened(g, "Left").restore(), "suspicious", ("Restore",)),
        (overwrite, "suspicious", ("Overwrite",)),
        (lambda g: strangers.opened(g, "Left").add_columns({"z": "n + 1"}), "suspicious", ("Merge",)),
        (lambda g: strangers.opened(g, "Left").drop_columns(["n"]), "suspicious", ("Project",)),
        (config, "suspicious", ("UpdateConfig",)),
        (lambda g: strangers.index(g, "Left", "n"), "verified_maintenance", ("CreateIndex",)),
    ],
    ids=["append", "update", "restore", "overwrite", "merge", "project", "config", "index"],
)
def test_every_operation_is_classified(graph: Any, deed: Any, classification: str, operations: tuple[str, ...]) -> None:
    deed(graph)
    found = row(graph.repair())
    assert (found.classification, found.operations) == (classification, operations)
    assert found.action == ("would_publish" if classification == "verified_maintenance" else "would_refuse")


def test_index_work_and_compaction_together_are_verified_and_the_index_answers_after(graph: Any) -> None:
    graph.insert({"Left": [{"name": f"p{n}", "n": n} for n in range(50)]})
    strangers.index(graph, "Left", "n")
    strangers.compact(graph, "Left")
    strangers.opened(graph, "Left").optimize.optimize_indices()
    strangers.opened(graph, "Left").drop_index("stranger_n")
    strangers.index(graph, "Left", "n")
    found = row(graph.repair(confirm=True))
    assert (found.classification, found.action) == ("verified_maintenance", "published")
    assert set(found.operations) == {"CreateIndex", "ReserveFragments", "Rewrite"}
    assert graph.nodes("Left", where="n = 7")["id"].to_pylist() == ["p7"]


def test_one_append_among_maintenance_makes_it_suspicious(compacted: Any) -> None:
    strangers.append(compacted, "Left", "raw")
    assert row(compacted.repair()).classification == "suspicious"


def test_a_rewrite_that_loses_rows_is_not_taken_for_maintenance(graph: Any) -> None:
    """Its transaction says Rewrite, and a row is gone: what is recorded is not believed."""
    from omnigraph.storage.lance import lance_api

    graph.insert({"Left": [{"name": "second"}]})
    table = strangers.opened(graph, "Left")
    fragments = [f.metadata for f in table.get_fragments()]
    assert len(fragments) == 2
    group = lance_api.operations().RewriteGroup(fragments, fragments[:1])
    lance_api.commit(
        graph._location,
        table,
        lance_api.transaction(lance_api.operations().Rewrite([group], []), read_version=table.version),
    )
    found = row(graph.repair(confirm=True))
    assert (found.classification, found.action) == ("suspicious", "refused")
    assert "3 rows became 2" in found.error


def test_a_history_with_a_hole_is_unverifiable_and_force_publishes_it(graph: Any) -> None:
    uri, at = strangers.place(graph, "Left")
    strangers.append(graph, "Left", "raw")
    strangers.append(graph, "Left", "raw2")
    os.unlink(manifest_path(uri, at + 1))
    found = row(graph.repair(confirm=True))
    assert (found.classification, found.action) == ("unverifiable", "refused")
    assert str(at + 1) in found.error
    assert row(graph.repair(confirm=True, force=True)).action == "forced"
    assert ids(graph) == {"old", "older", "raw", "raw2"}


def test_a_pinned_version_that_a_stranger_collected_can_only_be_forced(path: Path, graph: Any) -> None:
    uri, at = strangers.place(graph, "Left")
    strangers.append(graph, "Left", "raw")
    os.unlink(manifest_path(uri, at))
    fresh = omnigraph.open(path)
    found = row(fresh.repair())
    assert (found.classification, found.action) == ("unverifiable", "would_refuse")
    assert row(omnigraph.open(path).repair(discard=True, confirm=True)).action == "refused"
    assert row(omnigraph.open(path).repair(force=True, confirm=True)).action == "forced"
    assert ids(omnigraph.open(path)) == {"old", "older", "raw"}


def test_columns_that_are_not_the_schemas_are_never_published_and_can_be_discarded(graph: Any) -> None:
    strangers.opened(graph, "Left").drop_columns(["n"])
    found = row(graph.repair(confirm=True, force=True))
    assert (found.classification, found.action) == ("suspicious", "refused")
    assert "without n" in found.error
    assert row(graph.repair(confirm=True, discard=True)).action == "discarded"
    graph.upsert({"Left": [{"name": "new", "n": 1}]})


def test_a_head_whose_files_are_missing_is_never_published(path: Path, graph: Any) -> None:
    strangers.append(graph, "Left", "raw")
    table = strangers.opened(graph, "Left")
    lost = table.get_fragments()[-1].metadata.files[0].path
    os.unlink(os.path.join(table.uri, "data", lost))
    found = row(graph.repair(confirm=True, force=True))
    assert found.action == "refused"
    assert "missing" in found.error
    assert row(graph.repair(confirm=True, discard=True)).action == "discarded"
    assert ids(graph) == {"old", "older"}


# ---- what a stamp of ours means --------------------------------------------------------------------------------------


def test_leftovers_of_a_decided_operation_are_clean_and_left_to_the_next_writer(graph: Any) -> None:
    head = strangers.stamped_append(graph, "Left", "leftover", stamp=strangers.decided_stamp(graph, "Left"))
    result = graph.repair(confirm=True, force=True)
    assert (row(result).classification, row(result).action, result.commit) == ("clean", "none", None)
    assert newest(graph) == head
    graph.upsert({"Left": [{"name": "new"}]})
    assert ids(graph) == {"old", "older", "new"}


def test_leftovers_among_drift_are_never_published_not_even_by_force_and_can_be_discarded(graph: Any) -> None:
    strangers.stamped_append(graph, "Left", "leftover", stamp=strangers.decided_stamp(graph, "Left"))
    strangers.append(graph, "Left", "raw")
    found = row(graph.repair(confirm=True, force=True))
    assert (found.action, "aborted operation" in found.error) == ("refused", True)
    assert row(graph.repair(confirm=True, discard=True)).action == "discarded"
    assert ids(graph) == {"old", "older"}
    graph.upsert({"Left": [{"name": "new"}]})


# ---- discard ---------------------------------------------------------------------------------------------------------


def test_discard_restores_the_pin_in_one_commit_and_the_table_can_be_written(path: Path, graph: Any) -> None:
    before = graph.nodes("Left").sort_by("id")
    head = strangers.append(graph, "Left", "raw")
    strangers.delete(graph, "Right", "old")
    preview = graph.repair(discard=True)
    assert [t.action for t in preview.tables if t.classification != "clean"] == ["would_discard", "would_discard"]
    result = graph.repair(discard=True, confirm=True)
    assert {t.table_key for t in result.tables if t.action == "discarded"} == {"node:Left", "node:Right"}
    assert pinned(graph) == newest(graph) == head + 1
    assert graph.commits(limit=1)[0].id == result.commit.id
    assert graph.nodes("Left").sort_by("id") == before
    assert ids(graph, "Right") == {"old", "older"}
    graph.upsert({"Left": [{"name": "new"}]})
    assert ids(graph) == {"old", "older", "new"}
    assert not objects_left(path)


def test_a_strangers_commit_in_the_moment_of_a_discard_is_not_published(path: Path, graph: Any) -> None:
    strangers.append(graph, "Left", "raw")
    came = iter([True])

    def observe(phase: str) -> None:
        if phase == "effect" and next(came, False):
            strangers.append(graph, "Left", "late")

    result = omnigraph.open(path, observer=observe).repair(discard=True, confirm=True)
    assert row(result).action == "discarded"
    assert ids(graph) == {"old", "older"}
    assert pinned(graph) == newest(graph)
    assert not wrong_epochs(graph)


def test_a_strangers_commit_in_the_moment_of_publishing_is_drift_of_the_next_run(path: Path, graph: Any) -> None:
    judged = strangers.append(graph, "Left", "raw")
    came = iter([True])

    def observe(phase: str) -> None:
        if phase == "publish" and next(came, False):
            strangers.append(graph, "Left", "late")

    result = omnigraph.open(path, observer=observe).repair(force=True, confirm=True)
    assert row(result).lance_head_version == judged == pinned(graph)
    assert ids(graph) == {"old", "older", "raw"}
    assert row(graph.repair()).operations == ("Append",)


def test_a_table_with_wrong_columns_is_not_told_to_be_published_and_nothing_is_said_of_it_once_it_is_discarded(
    graph: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    strangers.opened(graph, "Left").add_columns({"extra": "1"})
    strangers.delete(graph, "Right", "old")
    assert main(["repair", graph.uri, "--tables", "Left", "--force", "--confirm", "-q"]) == 1
    shown = capsys.readouterr().out
    assert shown.endswith("→ refused tables: take them back with --discard --confirm\n")
    assert "publish them" not in shown
    assert main(["repair", graph.uri, "-q"]) == 0
    shown = capsys.readouterr().out
    assert "→ node:Left: take them back with --discard --confirm\n" in shown
    assert "→ node:Right: publish them with --force --confirm, or take them back with --discard --confirm\n" in shown
    assert main(["repair", graph.uri, "--discard", "--confirm", "-q"]) == 0
    shown = capsys.readouterr().out
    assert "not published" not in shown
    assert "discarded on main" in shown


# ---- several tables, branches, S3 ------------------------------------------------------------------------------------


def test_all_tables_of_a_run_are_published_in_one_commit_and_refused_ones_do_not_stop_them(compacted: Any) -> None:
    strangers.delete(compacted, "Right", "old")
    commits = len(compacted.commits())
    result = compacted.repair(confirm=True)
    actions = {t.table_key: t.action for t in result.tables}
    assert actions == {"edge:Joins": "none", "node:Left": "published", "node:Right": "refused"}
    assert result.refused
    assert len(compacted.commits()) == commits + 1
    compacted.upsert({"Left": [{"name": "new"}]})
    with pytest.raises(UncoveredDrift):
        compacted.upsert({"Right": [{"name": "new"}]})


def test_tables_can_be_chosen_by_name_or_key(graph: Any) -> None:
    strangers.append(graph, "Left", "raw")
    strangers.append(graph, "Right", "raw")
    assert [t.table_key for t in graph.repair(tables=["Left"]).tables] == ["node:Left"]
    graph.repair(tables=["node:Left"], force=True, confirm=True)
    assert "raw" in ids(graph)
    assert "raw" not in ids(graph, "Right")
    with pytest.raises(UnknownType):
        graph.repair(tables=["Lef"])


def test_a_graph_without_drift_has_nothing_to_repair_and_no_commit_is_made(path: Path, graph: Any) -> None:
    before = graph.snapshot().commit
    result = graph.repair(confirm=True, force=True)
    assert {t.action for t in result.tables} == {"none"}
    assert (result.commit, graph.snapshot().commit) == (None, before)
    assert not objects_left(path)


@pytest.mark.parametrize("way", ["force", "discard"])
def test_a_forked_table_of_a_branch_is_repaired_there_and_nowhere_else(path: Path, graph: Any, way: str) -> None:
    graph.create_branch("side")
    graph.upsert({"Left": [{"name": "mine"}]}, branch="side")
    strangers.append(graph, "Left", "raw", branch="side")
    strangers.append(graph, "Right", "raw")
    before = graph.snapshot().commit
    found = row(graph.repair(branch="side"))
    assert (found.classification, found.changes.inserted.first) == ("suspicious", ("raw",))
    result = graph.repair(branch="side", confirm=True, **{way: True})
    assert {t.table_key: t.action for t in result.tables if t.action != "none"} == {
        "node:Left": f"{way}d" if way == "force" else "discarded"
    }
    expected = {"old", "older", "mine"} | ({"raw"} if way == "force" else set())
    assert ids(graph, branch="side") == expected
    assert graph.snapshot().commit == before
    graph.upsert({"Left": [{"name": "more"}]}, branch="side")
    assert ids(graph, branch="side") == expected | {"more"}
    assert not wrong_epochs(graph, "side")


def test_a_table_that_a_branch_only_reads_is_mains_to_repair(graph: Any) -> None:
    graph.create_branch("side")
    strangers.append(graph, "Left", "raw")
    found = row(graph.repair(branch="side", confirm=True, force=True))
    assert (found.classification, found.action) == ("clean", "none")
    assert found.manifest_version == found.lance_head_version
    assert ids(graph, branch="side") == {"old", "older"}


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.maintenance.repair.run.WRITER_WAIT_S", 0.2)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("confirm", [False, True])
def test_a_live_ticket_is_refused_for_and_nothing_moves(path: Path, graph: Any, confirm: bool) -> None:
    strangers.append(graph, "Left", "raw")
    plant.lock(path)
    left = objects_left(path)
    with pytest.raises(WriterActive) as refusal:
        graph.repair(confirm=confirm, force=True)
    assert refusal.value.fields["operation_id"] == "planted"
    assert objects_left(path) == left
    assert ids(graph) == {"old", "older"}


@pytest.mark.usefixtures("impatient")
def test_a_live_ticket_of_another_branch_is_of_no_concern(path: Path, graph: Any) -> None:
    graph.create_branch("side")
    strangers.append(graph, "Left", "raw")
    plant.lock(path, branch="side")
    assert row(graph.repair(confirm=True, force=True)).action == "forced"


def test_what_a_dead_writer_left_is_recoverys_a_preview_refuses_and_a_repair_settles_it_first(
    processes: Processes, path: Path, graph: Any
) -> None:
    die(processes, path, "effect", 2)
    strangers.append(graph, "Right", "raw")
    left = objects_left(path)
    with pytest.raises(RecoveryPending, match="belongs to recovery"):
        graph.repair()
    assert objects_left(path) == left
    result = graph.repair(confirm=True, force=True)
    assert {t.table_key: t.action for t in result.tables}["node:Right"] == "forced"
    assert [c.kind for c in graph.commits(limit=2)] == ["repair", "recovery"]
    assert ids(graph) == {"old", "older"}
    assert not objects_left(path)


def test_force_and_discard_exclude_each_other(graph: Any) -> None:
    with pytest.raises(UsageError):
        graph.repair(force=True, discard=True)
