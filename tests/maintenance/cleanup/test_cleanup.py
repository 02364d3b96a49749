"""What cleanup removes and what it never touches."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

import omnigraph as og
from omnigraph.errors import BranchPinUnreadable, RecoveryPending, UncoveredDrift, UsageError, VersionReclaimed
from tests.commit import plant
from tests.maintenance.cleanup.conftest import files, folder_of, make_old, pin_of, raw_append, root_of, rows, versions


def test_without_a_policy_it_is_refused_and_both_options_are_named(graph: og.Graph) -> None:
    with pytest.raises(UsageError) as refusal:
        graph.cleanup(confirm=True)
    assert "--keep" in str(refusal.value)
    assert "--older-than" in str(refusal.value)


def test_keep_1_leaves_exactly_one_version_and_the_same_rows(history: og.Graph) -> None:
    before = rows(history)
    result = history.cleanup(keep=1, confirm=True)
    assert versions(root_of(history)) == [pin_of(history).version]
    assert result.table("node:Person").old_versions_removed == 12
    assert result.table("node:Person").bytes_removed > 0
    assert rows(history) == before


def test_keep_of_more_than_there_is_keeps_every_version(history: og.Graph) -> None:
    before = files(root_of(history))
    result = history.cleanup(keep=100, confirm=True)
    assert files(root_of(history)) == before
    assert result.old_versions_removed == 0


def test_older_than_nothing_keeps_the_newest_and_the_graph_stays_readable_and_writable(history: og.Graph) -> None:
    before = rows(history)
    history.cleanup(older_than="0s", confirm=True)
    assert versions(root_of(history)) == [pin_of(history).version]
    assert rows(history) == before
    again = og.open(history.uri)
    again.upsert({"Person": [{"name": "new"}]})
    assert set(rows(history)) == {*before, "new"}


def test_with_both_limits_a_version_must_be_beyond_both(history: og.Graph) -> None:
    folder = root_of(history)
    newest = pin_of(history).version
    for version in versions(folder)[:-5]:
        make_old(folder / "_versions" / f"{2**64 - 1 - version:020}.manifest")
    history.cleanup(keep=2, older_than="7d", confirm=True)
    # The newest old one was replaced only just now: until then it was the state of the graph.
    assert versions(folder) == list(range(newest - 5, newest + 1))
    history.cleanup(keep=2, confirm=True)
    assert versions(folder) == [newest - 1, newest]


def test_every_state_of_the_kept_time_stays_readable(history: og.Graph) -> None:
    commits = [c.id for c in history.commits()]
    make_old(root_of(history) / "_versions")
    history.upsert({"Person": [{"name": "now"}]})
    history.cleanup(older_than="7d", confirm=True)
    assert rows(history, commit=commits[0])
    with pytest.raises(VersionReclaimed):
        rows(history, commit=commits[5])


@pytest.mark.parametrize("limit", [{"keep": 1}, {"older_than": "0s"}], ids=["by count", "by time"])
def test_a_version_that_a_lazy_branch_inherits_is_kept(history: og.Graph, limit: dict[str, object]) -> None:
    history.create_branch("lazy")
    inherited, before = pin_of(history).version, rows(history, "lazy")
    for i in range(3):
        history.upsert({"Person": [{"name": f"later{i}"}]})
    result = history.cleanup(**limit, confirm=True)  # type: ignore[arg-type]
    assert versions(root_of(history)) == [inherited, pin_of(history).version]
    assert rows(history, "lazy") == before
    kept = [k for k in result.table("node:Person").kept if k.version == inherited]
    assert "branch:lazy" in kept[0].because


def test_of_several_lazy_branches_every_pin_is_kept(history: og.Graph) -> None:
    before = {}
    for name in ("one", "two", "three"):
        history.create_branch(name)
        before[name] = rows(history, name)
        history.upsert({"Person": [{"name": name}]})
    history.cleanup(keep=1, confirm=True)
    assert {name: rows(history, name) for name in before} == before
    assert len(versions(root_of(history))) == 4


def test_a_live_pin_that_is_gone_makes_it_refuse_and_other_tables_are_untouched(history: og.Graph) -> None:
    history.create_branch("lazy")
    pinned = pin_of(history, branch="lazy").version
    history.upsert({"Person": [{"name": "later"}]})
    (root_of(history) / "_versions" / f"{2**64 - 1 - pinned:020}.manifest").unlink()
    before = files(Path(history.uri))
    with pytest.raises(BranchPinUnreadable) as refusal:
        og.open(history.uri).cleanup(keep=1, confirm=True)
    assert refusal.value.fields["branch"] == "lazy"
    assert refusal.value.fields["version"] == pinned
    assert refusal.value.fields["table_key"] == "node:Person"
    assert files(Path(history.uri)) == before


@pytest.mark.parametrize("branch", ["main", "side"])
def test_drift_of_any_branch_makes_it_refuse_before_anything_is_removed(history: og.Graph, branch: str) -> None:
    history.create_branch("side")
    history.upsert({"Person": [{"name": "own"}]}, branch="side")
    raw_append(history, branch=branch)
    before = files(Path(history.uri))
    with pytest.raises(UncoveredDrift) as refusal:
        history.cleanup(keep=1, confirm=True)
    assert f"omnigraph repair --branch {branch}" in refusal.value.remedy
    assert refusal.value.fields["branch"] == branch
    assert files(Path(history.uri)) == before


def test_a_pending_recovery_makes_it_refuse_before_anything_is_removed(history: og.Graph) -> None:
    from omnigraph.commit import owner

    gone = {**owner.myself(), "start": "1"}
    plant.lock(Path(history.uri), {"nonce": "dead", "owner": gone, "tables": [], "kind": "write"})
    before = files(Path(history.uri))
    with pytest.raises(RecoveryPending) as refusal:
        history.cleanup(keep=1, confirm=True)
    assert refusal.value.fields["operation_id"] == "dead"
    assert "Any write to main recovers it, and so does `omnigraph maintain`." in refusal.value.remedy
    assert (Path(history.uri) / refusal.value.fields["path"]).exists()
    assert files(Path(history.uri)) == before
    history.upsert({"Person": [{"name": "settles"}]})
    history.cleanup(keep=1, confirm=True)
    assert len(versions(root_of(history))) == 1


def test_a_recovery_that_appears_after_the_first_look_makes_it_refuse(
    history: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.commit import owner
    from omnigraph.maintenance.cleanup import execute

    announce = execute.announce

    def later(*args: object) -> str:
        gone = {**owner.myself(), "start": "1"}
        plant.lock(Path(history.uri), {"nonce": "late", "owner": gone, "tables": [], "kind": "write"})
        return announce(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(execute, "announce", later)
    before = versions(root_of(history))
    with pytest.raises(RecoveryPending):
        history.cleanup(keep=1, confirm=True)
    assert versions(root_of(history)) == before
    assert not (Path(history.uri) / "__cleanup").exists(), "nothing is announced that does not happen"


def test_a_live_writers_ticket_does_not_stop_it(history: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_LEASE_S", "60")
    lock = plant.lock(Path(history.uri))
    history.cleanup(keep=1, confirm=True)
    assert len(versions(root_of(history))) == 1
    assert lock.exists()


def test_after_cleanup_optimize_keeps_the_rows_and_the_graph_is_writable(history: og.Graph) -> None:
    history.cleanup(keep=1, confirm=True)
    before = rows(history)
    history.optimize()
    assert rows(history) == before
    history.upsert({"Person": [{"name": "new"}]})
    assert set(rows(history)) == {*before, "new"}


def test_a_version_with_a_tag_of_lance_is_kept_with_its_files(history: og.Graph) -> None:
    uri = str(root_of(history))
    expected = lance.dataset(uri, version=3).to_table().to_pylist()
    lance.dataset(uri).tags.create("audit", 3)
    result = history.cleanup(keep=1, confirm=True)
    assert versions(root_of(history)) == [3, pin_of(history).version]
    assert lance.dataset(uri, version="audit").to_table().to_pylist() == expected
    assert result.table("node:Person").kept[0].because == ("lance_tag:audit",)


def test_without_confirm_nothing_changes_and_everything_is_named_with_its_size_and_reason(history: og.Graph) -> None:
    before = files(Path(history.uri))
    plan = history.plan_cleanup(keep=3)
    assert files(Path(history.uri)) == before
    table = plan.table("node:Person")
    root = root_of(history)
    assert {v.version for v in table.versions} == set(versions(root)[:-3])
    assert {v.reason for v in table.versions} == {"policy"}
    assert {f.reason for f in table.files} == {"only_in_removed_versions"}
    for named in (*table.versions, *table.files):
        assert (root / named.path).stat().st_size == named.size
    assert table.bytes_removed == sum(n.size for n in (*table.versions, *table.files))
    result = history.cleanup(keep=3, confirm=True)
    gone = before - files(Path(history.uri))
    assert {str((root / n.path).relative_to(history.uri)) for n in (*table.versions, *table.files)} <= gone
    assert (result.bytes_removed, result.old_versions_removed) == (plan.bytes_removed, plan.old_versions_removed)


def test_fewer_than_three_versions_are_warned_about(history: og.Graph) -> None:
    assert history.plan_cleanup(keep=3).plan.warnings == ()
    assert "less than 3" in history.plan_cleanup(keep=2).plan.warnings[0]


def test_the_manifests_versions_go_as_a_prefix_and_days_of_them_stay(history: og.Graph) -> None:
    manifest = Path(history.uri) / "__manifest"
    assert history.cleanup(keep=1, older_than="0s", confirm=True).table("__manifest").old_versions_removed == 0
    old = versions(manifest)[:-4]
    for version in old:
        make_old(manifest / "_versions" / f"{2**64 - 1 - version:020}.manifest")
    row = history.cleanup(keep=1, confirm=True).table("__manifest")
    assert row.old_versions_removed == len(old) - 1, "the last old one was replaced just now"
    left = versions(manifest)
    assert left == list(range(left[0], left[-1] + 1))
    assert left[0] == old[-1]
    again = og.open(history.uri)
    assert len(again.commits()) == 15
    again.upsert({"Person": [{"name": "new"}]})


def test_a_failing_table_has_its_error_in_its_row_and_the_others_are_done(
    history: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.errors import StorageError
    from omnigraph.storage.objects.store import ObjectStore

    history.create_branch("gone")
    history.upsert({"Place": [{"name": "own"}]}, branch="gone")
    fork = folder_of(history, "Place", "gone")
    history.delete_branch("gone")
    delete_many, failing = ObjectStore.delete_many, pin_of(history).root

    def sometimes(store: ObjectStore, paths: list[str]) -> None:
        if store.prefix == failing:
            raise StorageError(doing="removing", detail="no such luck")
        delete_many(store, paths)

    monkeypatch.setattr(ObjectStore, "delete_many", sometimes)
    result = history.cleanup(keep=1, confirm=True)
    assert result.failed
    assert "no such luck" in str(result.table("node:Person").error)
    assert result.table("node:Person").old_versions_removed == 0
    assert result.table("node:Place").error is None
    assert len(versions(root_of(history, "Place"))) == 1
    assert not fork.exists(), "the orphans went all the same"
    monkeypatch.undo()
    assert not history.cleanup(keep=1, confirm=True).failed
    assert len(versions(root_of(history))) == 1


def test_a_second_run_finds_nothing(history: og.Graph) -> None:
    history.cleanup(keep=1, confirm=True)
    again = history.cleanup(keep=1, confirm=True)
    assert again.bytes_removed == again.old_versions_removed == 0
    assert again.to_json()["reclaimed_forks"] == []


@pytest.mark.parametrize("way", ["snapshot", "nodes", "export", "folder", "mid scan", "count"])
def test_reading_a_collected_state_says_so(history: og.Graph, way: str, tmp_path: Path) -> None:
    old = history.commits()[8].id
    held = og.open(history.uri)
    snapshot = held.snapshot(commit=old)
    reader = snapshot.view.scan(snapshot.view.type("Person"), ["id"])
    history.cleanup(keep=1, confirm=True)
    graph = og.open(history.uri)
    with pytest.raises(VersionReclaimed) as refusal:
        if way == "snapshot":
            graph.snapshot(commit=old).read("Person")
        elif way == "nodes":
            graph.nodes("Person", commit=old)
        elif way == "export":
            graph.export(lambda _: None, commit=old)
        elif way == "folder":
            graph.export(tmp_path / "out", commit=old, file_format="parquet", engine="local")
        elif way == "count":
            graph.snapshot(commit=old).count("Person")
        else:
            reader.read_all()
    assert refusal.value.condition == "version_reclaimed"
    assert refusal.value.fields["table_key"] == "node:Person"
    assert "--older-than" in refusal.value.remedy
