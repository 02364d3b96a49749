"""The table of a dropped type stays for as long as the policy keeps things of every branch that has dropped it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import VersionReclaimed
from tests.maintenance.cleanup.conftest import make_old, rows

WITHOUT_PLACE = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person
"""


def dropped_on_both(history: og.Graph, branch: str) -> str:
    """Main's commit before the drop, once main and a branch have dropped Place and the branch is gone."""
    before = history.snapshot().commit
    history.create_branch(branch)
    history.apply_schema(WITHOUT_PLACE)
    history.apply_schema(WITHOUT_PLACE, branch=branch)
    history.upsert({"Person": [{"name": "t"}]}, branch=branch)
    history.delete_branch(branch)
    history.upsert({"Person": [{"name": "m"}]})
    return before


@pytest.mark.parametrize(
    "limits",
    [
        {"keep": 100},
        {"older_than": "1d"},
        {"policy": {"keep": 100, "older_than": "90d", "branches": {"tmp/*": {"keep": 1}}}},
        {"policy": {"branches": {"tmp/*": {"keep": 1}}}},
    ],
    ids=["keep", "older_than", "a looser rule for the branch that is gone", "a rule for the branch that is gone only"],
)
def test_what_main_dropped_lately_stays_although_a_branch_that_is_gone_dropped_it_later(
    history: og.Graph, limits: dict[str, Any]
) -> None:
    before = dropped_on_both(history, "tmp/x")
    result = history.cleanup(**limits, confirm=True)
    assert [t.table_key for t in result.tables if t.whole] == []
    assert set(rows(history, type_name="Place", commit=before)) == {"here", "there"}


def test_it_goes_when_main_has_kept_it_for_long_enough(history: og.Graph) -> None:
    before = dropped_on_both(history, "tmp/x")
    result = history.cleanup(keep=2, confirm=True)
    assert [(t.table_key, t.whole) for t in result.tables if t.whole] == [("node:Place", "dropped_type")]
    with pytest.raises(VersionReclaimed):
        rows(history, type_name="Place", commit=before)


def test_the_rule_of_each_live_branch_that_dropped_it_holds_it(history: og.Graph) -> None:
    history.create_branch("slow")
    history.apply_schema(WITHOUT_PLACE)
    history.apply_schema(WITHOUT_PLACE, branch="slow")
    for i in range(3):
        history.upsert({"Person": [{"name": f"m{i}"}]})
    limits = {"policy": {"keep": 1, "branches": {"slow": {"keep": 100}}}}
    assert [t.whole for t in history.cleanup(**limits, confirm=True).tables if t.whole] == []
    history.delete_branch("slow")
    assert [t.whole for t in history.cleanup(**limits, confirm=True).tables if t.whole] == ["dropped_type"]


def test_the_fork_of_a_dropped_type_follows_the_rule_of_its_own_branch(history: og.Graph) -> None:
    history.create_branch("side")
    history.insert({"Place": [{"name": "aside"}]}, branch="side")
    before = history.snapshot("side").commit
    history.apply_schema(WITHOUT_PLACE, branch="side")
    limits: dict[str, Any] = {"policy": {"keep": 1, "branches": {"side": {"keep": 100}}}}
    assert history.cleanup(**limits, confirm=True).reclaimed_forks == ()
    assert "aside" in rows(history, "side", type_name="Place", commit=before)
    limits["policy"]["branches"]["side"]["keep"] = 1
    reclaimed = history.cleanup(**limits, confirm=True).reclaimed_forks
    assert [f.fork.reason for f in reclaimed] == ["dropped_type"]
    assert set(rows(history, type_name="Place")) == {"here", "there"}


def test_a_folder_that_is_no_tables_is_left_alone_however_old(history: og.Graph) -> None:
    strangers = [Path(history.uri) / "nodes" / name for name in ("backup", "my-notes", "n1")]
    for folder in strangers:
        folder.mkdir()
        (folder / "precious.txt").write_text("x")
        make_old(folder)
    history.cleanup(keep=1, confirm=True)
    assert all((folder / "precious.txt").exists() for folder in strangers)
