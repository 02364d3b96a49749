"""What dead writers left goes when it is old by the store's clock; what may be in flight never."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import lance
import pytest

import omnigraph as og
from omnigraph.commit import owner
from omnigraph.errors import UsageError
from tests.maintenance.cleanup.conftest import DAY_S, SCHEMA, files, folder_of, make_old, pin_of, root_of, rows


def put(path: Path, *, days: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * 100)
    make_old(path, days)
    return path


STRAYS = [
    "data/0123.lance",
    "data/0123.lance#1",
    "data/feed/0.blob",
    "_deletions/9-9-9.arrow",
    "_transactions/3-feed.txn",
    "_indices/0aa0/page_data.lance",
    "_versions/18446744073709551000.manifest.torn",
    "_versions/d18446744073709551000.manifest",
    "_versions/18446744073709551001.manifest#7",
]


@pytest.mark.parametrize("name", STRAYS)
def test_an_unreferenced_file_goes_after_seven_days_and_not_before(history: og.Graph, name: str) -> None:
    before, expected = files(root_of(history)), rows(history)
    stray = put(root_of(history) / name, days=6.9)
    assert history.cleanup(keep=100, confirm=True).table("node:Person").files == ()
    assert stray.exists()
    put(stray, days=7.1)
    found = history.cleanup(keep=100, confirm=True).table("node:Person").files
    assert [(f.path, f.size, f.reason) for f in found] == [(name, 100, "unreferenced")]
    assert files(root_of(history)) == before
    assert rows(history) == expected


def test_orphans_older_than_is_honoured_and_has_a_floor(history: og.Graph) -> None:
    stray = put(root_of(history) / "data" / "0123.lance", days=5)
    with pytest.raises(UsageError, match="4d"):
        history.cleanup(keep=1, orphans_older_than="3d", confirm=True)
    history.cleanup(keep=1, orphans_older_than="4d", confirm=True)
    assert not stray.exists()


def test_files_of_a_kind_that_is_not_known_are_left_alone(history: og.Graph) -> None:
    stray = put(root_of(history) / "_mem_wal" / "x", days=400)
    hint = root_of(history) / "_versions" / "latest_version_hint.json"
    make_old(hint, 400)
    history.cleanup(keep=1, confirm=True)
    assert stray.exists()
    assert hint.exists()


def test_large_blobs_beside_their_data_file_go_with_it_and_stay_with_it(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", "node Doc { name: String @key  body: Blob? }")
    bodies = {"a": os.urandom(200_000), "b": os.urandom(5_000_000), "c": b"", "d": None}
    graph.insert({"Doc": [{"name": k, "body": v} for k, v in bodies.items()]})
    graph.insert({"Doc": [{"name": "gone", "body": os.urandom(300_000)}]})
    graph.delete({"Doc": ["gone"]})
    make_old(Path(graph.uri))
    sidecars = set(root_of(graph, "Doc").glob("data/*/*.blob"))
    graph.cleanup(keep=1, confirm=True)
    left = set(root_of(graph, "Doc").glob("data/*/*.blob"))
    assert left < sidecars
    assert left
    assert not [p for p in (root_of(graph, "Doc") / "data").iterdir() if p.is_dir() and not any(p.iterdir())]
    assert {k: r["body"] for k, r in rows(graph, type_name="Doc").items()} == bodies


def test_indices_go_and_stay_as_whole_folders(history: og.Graph) -> None:
    history.optimize()
    first = set((root_of(history) / "_indices").iterdir())
    history.upsert({"Person": [{"name": f"x{i}"} for i in range(50)]})
    history.optimize()
    make_old(Path(history.uri))
    history.cleanup(keep=1, confirm=True)
    left = set((root_of(history) / "_indices").iterdir())
    assert left
    assert not first <= left, "indices that only removed versions had are gone, folder and all"
    found = og.open(history.uri).nodes("Person", where="name = 'x7'")
    assert found.num_rows == 1
    assert og.open(history.uri).verify(quick=True).ok


def test_indices_that_a_fork_has_inherited_stay(history: og.Graph) -> None:
    history.optimize()
    history.create_branch("side")
    history.upsert({"Person": [{"name": "own"}]}, branch="side")
    inherited = set((root_of(history) / "_indices").iterdir())
    for i in range(2):
        history.upsert({"Person": [{"name": f"x{i}{j}"} for j in range(50)]})
        history.optimize()
    make_old(Path(history.uri))
    result = history.cleanup(keep=1, older_than="0s", confirm=True)
    assert result.table("node:Person").old_versions_removed
    needed = {
        root_of(history) / "_indices" / segment.uuid
        for index in lance.dataset(str(folder_of(history, branch="side"))).describe_indices()
        for segment in index.segments
    }
    assert needed & inherited == needed
    assert all(any(folder.iterdir()) for folder in needed)
    assert og.open(history.uri).nodes("Person", branch="side", where="name = 'p1'").num_rows == 1


# ---- tables that nothing refers to -----------------------------------------------------------------------------------


def dropped(graph: og.Graph) -> Path:
    folder = root_of(graph, "Place")
    graph.apply_schema(SCHEMA.replace("node Place { name: String @key }", ""))
    return folder


def test_the_table_of_a_dropped_type_stays_as_long_as_the_policy_keeps_things(history: og.Graph) -> None:
    folder = dropped(history)
    make_old(folder)
    old = history.commits()[1].id
    for limit in ({"keep": 3}, {"older_than": "7d"}, {"keep": 1, "older_than": "7d"}):
        history.cleanup(**limit, confirm=True)  # type: ignore[arg-type]
        assert folder.exists()
        assert rows(history, type_name="Place", commit=old)
    for i in range(2):
        history.upsert({"Person": [{"name": f"n{i}"}]})
    row = history.cleanup(keep=3, confirm=True).table("node:Place")
    assert row.whole == "dropped_type"
    assert row.old_versions_removed == 3
    assert not folder.exists()


def test_the_table_of_a_type_that_another_branch_still_has_stays(history: og.Graph) -> None:
    history.create_branch("keeper")
    folder, expected = root_of(history, "Place"), rows(history, "keeper", "Place")
    dropped(history)
    make_old(folder)
    history.cleanup(keep=1, older_than="0s", confirm=True)
    assert rows(history, "keeper", "Place") == expected
    history.delete_branch("keeper")
    history.cleanup(keep=1, older_than="0s", confirm=True)
    assert not folder.exists()


def test_a_table_that_no_commit_ever_named_goes_when_it_is_old(history: og.Graph) -> None:
    import shutil

    pin = pin_of(history, "Place")
    stray = root_of(history, "Place").parent / f"{pin.table}-feedfeedfeed"
    other = root_of(history, "Place").parent / "n00000000000-feedfeedfeed"
    for path in (stray, other):
        shutil.copytree(root_of(history, "Place"), path)
    history.cleanup(keep=1, confirm=True)
    assert stray.exists()
    assert other.exists()
    make_old(stray)
    make_old(other)
    result = history.cleanup(keep=1, confirm=True)
    assert not stray.exists()
    assert not other.exists()
    assert [t.whole for t in result.tables if t.whole] == ["abandoned", "abandoned"]
    assert set(rows(history, type_name="Place")) == {"here", "there"}


# ---- staged files ----------------------------------------------------------------------------------------------------


def staging(graph: og.Graph, job: str, holder: object) -> Path:
    folder = Path(graph.uri) / "__staging" / job
    folder.mkdir(parents=True)
    (folder / "rows-1").write_bytes(b"x" * 50)
    if holder is not None:
        (folder / "owner.json").write_text(json.dumps(holder))
    return folder


def test_staged_files_of_a_dead_load_go_and_those_of_a_living_one_stay(history: og.Graph) -> None:
    dead = staging(history, "dead", {**owner.myself(), "start": "1"})
    alive = staging(history, "alive", owner.myself())
    make_old(alive, 400)
    result = history.cleanup(keep=1, confirm=True)
    assert [(s.staged.path, s.staged.reason) for s in result.staging] == [("__staging/dead", "owner_gone")]
    assert not dead.exists()
    assert alive.exists()


def test_staged_files_without_an_owner_go_when_they_are_old(history: og.Graph) -> None:
    spark = staging(history, "spark-7", None)
    assert history.cleanup(keep=1, confirm=True).staging == ()
    make_old(spark, 8)
    assert [s.staged.reason for s in history.cleanup(keep=1, confirm=True).staging] == ["abandoned"]
    assert not spark.exists()
    assert not [n for n in files(Path(history.uri)) if "__staging" in n]


def test_age_is_counted_by_the_stores_clock(history: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    stray = put(root_of(history) / "data" / "0123.lance", days=1)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 100 * DAY_S)
    history.cleanup(keep=100, older_than="7d", confirm=True)
    assert stray.exists(), "a machine whose clock is a hundred days ahead removes nothing that is young"
    assert len(list((root_of(history) / "_versions").glob("*.manifest"))) == 13
