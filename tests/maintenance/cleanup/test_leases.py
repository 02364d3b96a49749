"""What a reader has leased stays; a reader that is gone, or whose lease ran out, holds nothing."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.commit import owner
from omnigraph.errors import UsageError, VersionReclaimed
from omnigraph.pipeline.snapshot_lease import under_lease
from omnigraph.storage.objects import leases
from tests.maintenance.cleanup.conftest import pin_of, root_of, rows, versions


def test_a_leased_state_stays_readable_until_the_block_ends(history: og.Graph) -> None:
    reader = og.open(history.uri)
    old = history.commits()[6].id
    with reader.lease(commit=old) as snapshot:
        expected = snapshot.read("Person").to_pylist()
        result = history.cleanup(keep=1, confirm=True)
        assert snapshot.read("Person").to_pylist() == expected
        assert og.open(history.uri).snapshot(commit=old).read("Person").to_pylist() == expected
        assert any(b.startswith("lease:") for k in result.table("node:Person").kept for b in k.because)
        assert len(versions(root_of(history))) == 2
    history.cleanup(keep=1, confirm=True)
    assert versions(root_of(history)) == [pin_of(history).version]
    assert not (Path(history.uri) / "__leases").exists()


def test_the_lease_of_a_process_that_is_gone_holds_nothing(history: og.Graph) -> None:
    pins = history.snapshot(commit=history.commits()[6].id).view.pins.values()
    leases.take(history._location, pins, seconds=3600, owner={**owner.myself(), "start": "1"})
    history.cleanup(keep=1, confirm=True)
    assert len(versions(root_of(history))) == 1
    assert leases.leases(history._location) == [], "and is removed"


def test_a_lease_is_renewed_while_its_reader_lives(history: og.Graph) -> None:
    with history.lease(commit=history.commits()[6].id, seconds=1):
        time.sleep(1.5)
        history.cleanup(keep=1, confirm=True)
        assert len(versions(root_of(history))) == 2


def test_a_reader_that_comes_after_the_announcement_is_told_at_once(history: og.Graph) -> None:
    old = history.snapshot(commit=history.commits()[6].id)
    pin = old.view.pins[old.view.type("Person").id]
    announcement = leases.announce(
        history._location, {pin.path: frozenset({pin.version})}, {}, owner=owner.myself(), now_s=time.time()
    )
    with pytest.raises(VersionReclaimed) as refusal, under_lease(old):
        pass
    assert refusal.value.fields == {"table_key": "node:Person", "version": pin.version}
    assert leases.leases(history._location) == []
    with history.lease() as snapshot:
        assert snapshot.commit == history.commits()[0].id
    leases.withdraw(history._location, [announcement])
    with under_lease(old):
        pass


def test_a_lease_taken_between_plan_and_removal_is_seen(history: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    from omnigraph.maintenance.cleanup import execute

    old = history.snapshot(commit=history.commits()[6].id)
    pin = old.view.pins[old.view.type("Person").id]
    announce = execute.announce

    def meanwhile(*args: object) -> str:
        leases.take(history._location, [pin], owner=owner.myself())
        return announce(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(execute, "announce", meanwhile)
    history.cleanup(keep=1, confirm=True)
    assert versions(root_of(history)) == [pin.version, pin_of(history).version]
    assert og.open(history.uri).snapshot(commit=old.commit).read("Person").num_rows == old.read("Person").num_rows


def test_a_collected_state_can_not_be_leased(history: og.Graph) -> None:
    old = history.commits()[6].id
    history.cleanup(keep=1, confirm=True)
    with pytest.raises(VersionReclaimed), og.open(history.uri).lease(commit=old):
        pass
    assert leases.leases(history._location) == []


def test_a_lease_that_can_not_be_read_stops_cleanup(history: og.Graph) -> None:
    from omnigraph.errors import StorageError

    folder = Path(history.uri) / "__leases"
    folder.mkdir()
    (folder / "odd.json").write_text(json.dumps({"pins": 5}))
    before = versions(root_of(history))
    with pytest.raises(StorageError, match="odd"):
        history.cleanup(keep=1, confirm=True)
    assert versions(root_of(history)) == before


@pytest.mark.parametrize("seconds", [0, -1, 8 * 86_400])
def test_a_lease_is_bounded(graph: og.Graph, seconds: float) -> None:
    with pytest.raises(UsageError), graph.lease(seconds=seconds):
        pass


def test_a_read_on_spark_leases_its_version_until_its_tasks_have_read(history: og.Graph) -> None:
    from omnigraph.pipeline.datasource.read import GraphReader, pin, spark_schema

    options = {"storage": None, "branch": "main", "as_of": None, "columns": None, "where": None, "pushdown": False}
    old = history.commits()[6].id
    pinned = pin(history.uri, "Person", commit=old, partition_rows=None, **options)  # type: ignore[arg-type]
    reader = GraphReader(pinned, spark_schema(pinned))
    partitions = reader.partitions()
    history.cleanup(keep=1, confirm=True)
    read = sum(batch.num_rows for part in partitions for batch in reader.read(part))
    assert read == len(rows(history, commit=old))
    (lease,) = leases.leases(history._location)
    assert lease.commit == old
    assert lease.pins == {pinned.pin.path: {pinned.pin.version}}


def test_a_reader_that_may_only_read_exports_without_a_lease_and_sees_previews(
    history: og.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.errors import StorageError
    from omnigraph.storage.objects.json_objects import JsonObjects

    def refused(*_: object) -> None:
        raise StorageError(doing="writing", detail="Permission denied (os error 13)")

    monkeypatch.setattr(JsonObjects, "put", refused)
    result = history.export(tmp_path / "out", file_format="parquet", engine="local")
    assert result.rows["node:Person"] == 4
    preview = history.plan_cleanup(keep=3)
    assert preview.old_versions_removed == 10
    assert "clock of this machine" in preview.plan.warnings[0]
    with pytest.raises(StorageError), history.lease():
        pass
    with pytest.raises(StorageError):
        history.cleanup(keep=3, confirm=True)


def test_an_export_into_a_folder_holds_a_lease_while_it_writes(
    history: og.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.pipeline.export import folder as export_folder

    old, expected = history.commits()[6].id, len(rows(history, commit=history.commits()[6].id))
    make = export_folder.Folder.make

    def meanwhile(self: object, *folders: str) -> None:
        og.open(history.uri).cleanup(keep=1, confirm=True)
        make(self, *folders)  # type: ignore[arg-type]

    monkeypatch.setattr(export_folder.Folder, "make", meanwhile)
    result = history.export(tmp_path / "out", commit=old, file_format="parquet", engine="local")
    assert result.rows["node:Person"] == expected
    assert leases.leases(history._location) == []


def test_a_long_preparation_keeps_what_it_reads(tmp_path: Path) -> None:
    """Others write and clean up, to one version, while a load is being prepared; it reads what it began with."""
    import pyarrow as pa

    schema = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
    og.init(tmp_path / "g", schema).insert({"Person": [{"name": f"p{i}"} for i in range(5)]})
    cleaned: list[int] = []

    class Between:
        def engine(self, name: str, reason: str) -> None:
            return

        def stage(self, name: str, *, tasks: int) -> None:
            if len(cleaned) == 3:
                return  # the load is to come through in the end
            other = og.open(tmp_path / "g")
            other.upsert({"Person": [{"name": "p1", "age": len(cleaned)}]})
            cleaned.append(other.cleanup(keep=1, confirm=True).tables[0].old_versions_removed)

        def advance(self, *, tasks: int, rows: int, size_bytes: int) -> None:
            return

    busy = og.open(tmp_path / "g", engine="local", watcher=Between())
    edges = pa.table({"src": ["p0", "p1"], "dst": ["p2", "p3"]})
    busy.load(edges={"Knows": edges}, mode="append")
    assert sum(cleaned) > 0
    assert busy.snapshot().count("Knows") == 2
    assert not list((tmp_path / "g" / "__leases").glob("*.json"))


def test_what_a_cleanup_that_died_has_announced_can_be_leased_if_it_is_there(history: og.Graph) -> None:
    old, pin = history.commits()[6].id, pin_of(history)
    dead = {**owner.myself(), "start": "1"}
    every = {pin.path: frozenset(range(1, pin.version))}
    leases.announce(history._location, every, {}, owner=dead, now_s=0.0)
    with history.lease(commit=old) as snapshot:
        assert snapshot.read("Person").num_rows > 0
    leases.announce(history._location, every, {}, owner=owner.myself(), now_s=0.0)
    with pytest.raises(VersionReclaimed), history.lease(commit=old):
        pass
