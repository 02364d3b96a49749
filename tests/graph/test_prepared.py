"""Prepared work that waited: what it refers to must still be there when its turn comes."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.commit import operation


def test_work_whose_files_were_removed_meanwhile_is_prepared_again(graph: og.Graph) -> None:
    before = set(Path(graph.uri).rglob("*.lance"))
    removed: list[Path] = []

    def remove_once(phase: str) -> None:
        if phase == "lock" and not removed:
            removed.extend(set(Path(graph.uri).rglob("*.lance")) - before)
            for path in removed:
                path.unlink()

    og.open(graph.uri, observer=remove_once).insert({"Person": [{"name": "Ada"}]})
    assert len(removed) == 1
    assert graph.snapshot().read("Person")["name"].to_pylist() == ["Ada"]


@pytest.mark.parametrize("limit", ["PREPARED_MAX_S", "UNLEASED_MAX_S"])
def test_work_older_than_the_cleanup_age_is_prepared_again(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    prepared: list[str] = []
    most_s = getattr(operation, limit)

    def age(phase: str) -> None:
        prepared.append(phase)
        if phase in ("lock", "prepare"):
            monkeypatch.setattr(operation, limit, -1 if phase == "lock" else most_s)

    og.open(graph.uri, observer=age).insert({"Person": [{"name": "Ada"}]})
    assert prepared.count("prepare") == 2
    assert graph.snapshot().count("Person") == 1
