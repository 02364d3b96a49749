"""Bytes of large blobs count like those of data files: in plans, budgets, results, the choice of engine, and stats."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.maintenance.optimize import bins as planning
from omnigraph.storage.files.blob_files import blob_bytes
from omnigraph.tasks.engine import SMALL_BYTES
from tests.maintenance.optimize.tables import opened

BLOB = 100_000
FRAGMENTS = 4


@pytest.fixture
def album(tmp_path: Path) -> og.Graph:
    """Four fragments of two large blobs each, and a table without."""
    graph = og.init(tmp_path / "album", "node Photo { key: String @key  raw: Blob? }\nnode Tag { key: String @key }")
    for k in range(FRAGMENTS):
        graph.insert({"Photo": [{"key": f"p{k}-{i}", "raw": os.urandom(BLOB)} for i in range(2)]})
    graph.insert({"Tag": [{"key": "t"}]})
    return graph


def test_a_plan_counts_the_blobs_that_are_read_and_written(album: og.Graph) -> None:
    body = album.plan_optimize().to_json()
    photo = next(t for t in body["tables"] if t["table_key"] == "node:Photo")
    assert photo["blob_bytes"] == 2 * FRAGMENTS * BLOB
    assert photo["bytes"] > photo["blob_bytes"]
    assert photo["blob_bytes"] < photo["bytes_to_write"] <= photo["bytes_to_read"] < photo["blob_bytes"] + 50_000
    tag = next(t for t in body["tables"] if t["table_key"] == "node:Tag")
    assert tag["blob_bytes"] == 0


def test_a_budget_of_bytes_holds_for_blobs(album: og.Graph) -> None:
    most = 2 * (FRAGMENTS - 1) * BLOB + 50_000
    planned = next(t for t in album.plan_optimize(max_bytes=most).to_json()["tables"] if t["table_key"] == "node:Photo")
    assert planned["bytes_to_read"] <= most
    photo = album.optimize(max_bytes=most).table("node:Photo")
    assert (photo.fragments_removed, photo.left_fragments) == (FRAGMENTS - 1, 1)
    rest = album.optimize(max_bytes=3 * FRAGMENTS * BLOB).table("node:Photo")
    assert (rest.fragments_removed, rest.left_fragments) == (2, 0)


def test_a_result_and_stats_show_the_blobs_that_are_live(album: og.Graph) -> None:
    live = album.stats().tables[0].bytes_live
    photo = album.optimize().table("node:Photo")
    assert photo.bytes_before == live > 2 * FRAGMENTS * BLOB
    assert 2 * FRAGMENTS * BLOB < photo.bytes_after <= photo.bytes_before
    stats = album.stats().tables[0]
    assert (stats.table_key, stats.bytes_live) == ("node:Photo", photo.bytes_after)
    assert stats.bytes_on_disk > 2 * stats.bytes_live


def test_fragments_that_are_full_of_blobs_are_not_merged(album: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "FULL_BYTES", 2 * BLOB)
    assert album.plan_optimize().tables[0].bins == ()
    monkeypatch.setattr(planning, "FULL_BYTES", 3 * BLOB)
    assert [len(b.fragments) for b in album.plan_optimize().tables[0].bins] == [2, 2]


def test_the_engine_is_chosen_by_what_is_read_with_blobs(album: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    from omnigraph.tasks.engine import EngineSettings

    asked: list[int] = []
    choose = EngineSettings.choose

    def noted(self: EngineSettings, **given: Any) -> tuple[str, str]:
        asked.append(given["work_bytes"])
        return choose(self, **given)

    monkeypatch.setattr(EngineSettings, "choose", noted)
    album.optimize(engine="local")
    assert 2 * FRAGMENTS * BLOB < asked[0] < SMALL_BYTES


def test_the_blobs_of_a_fork_are_found_where_its_files_lie(album: og.Graph) -> None:
    album.create_branch("review")
    album.insert({"Photo": [{"key": "more", "raw": os.urandom(BLOB)}]}, branch="review")
    view = album.snapshot("review").view
    pin = view.pins[view.type("Photo").id]
    found = blob_bytes(view.tables.location, pin, opened(album, "Photo", "review"))
    assert sum(found.values()) == (2 * FRAGMENTS + 1) * BLOB
    row = album.optimize(branch="review").table("node:Photo")
    assert row.bytes_before > (2 * FRAGMENTS + 1) * BLOB
    assert (2 * FRAGMENTS + 1) * BLOB < row.bytes_after <= row.bytes_before
