"""Optimize of a branch writes to lines of that branch only, also where it has little to do."""

from __future__ import annotations

from typing import Any

import lance
import pytest

import omnigraph as og
from omnigraph.storage.lance import fragment_stats
from tests.maintenance.optimize.conftest import people
from tests.maintenance.optimize.tables import keys, opened, versions

SETTING = "lance.auto_cleanup.interval"


def pin_of(graph: og.Graph, branch: str) -> Any:
    view = graph.snapshot(branch).view
    return view.pins[view.type("Person").id]


@pytest.fixture
def inherited(worn: og.Graph) -> og.Graph:
    """A branch that inherits a table with a setting that collects versions, and needs nothing else."""
    worn.optimize()
    lance.dataset(opened(worn, "Person").uri).update_config({SETTING: "1000"})
    worn.repair(force=True, confirm=True)
    worn.create_branch("side")
    return worn


@pytest.mark.parametrize("moved", [False, True], ids=["main stands", "main has moved on"])
def test_a_branch_leaves_the_settings_of_a_line_that_it_inherits_to_its_owner(inherited: og.Graph, moved: bool) -> None:
    if moved:
        people(inherited, 100, 102)
    before = versions(lance.dataset(opened(inherited, "Person").uri))
    result = inherited.optimize(branch="side")
    assert result.ok
    assert result.commit is None
    assert versions(lance.dataset(opened(inherited, "Person").uri)) == before
    people(inherited, 200, 202)
    assert inherited.optimize().table("node:Person").committed
    assert fragment_stats.stale_settings(opened(inherited, "Person")) == ()
    assert len(keys(inherited, "side")) == 8


def test_a_branch_removes_the_settings_of_a_line_of_its_own(inherited: og.Graph) -> None:
    people(inherited, 100, 102, branch="side")
    main = pin_of(inherited, "main")
    assert inherited.optimize(branch="side").table("node:Person").committed
    assert fragment_stats.stale_settings(opened(inherited, "Person", "side")) == ()
    assert pin_of(inherited, "main") == main
    assert fragment_stats.stale_settings(opened(inherited, "Person")) == (SETTING,)


def test_a_branch_that_forks_a_table_to_optimize_it_leaves_its_settings_behind(inherited: og.Graph) -> None:
    inherited.optimize(branch="side", rebuild_indexes=True, tables=["Person"])
    assert pin_of(inherited, "side").fork is not None
    assert fragment_stats.stale_settings(opened(inherited, "Person", "side")) == ()
    assert fragment_stats.stale_settings(opened(inherited, "Person")) == (SETTING,)
