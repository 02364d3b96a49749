"""The newest published version of a table is gone: that is told of this table, and everything else goes on.

Whoever looks has opened the graph after the loss: a handle that had the version open would still read it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli.main import main
from omnigraph.storage.durability import manifest_path
from tests.maintenance.verify import damage

OTHERS = ("node:Person", "edge:Knows", "edge:LivesIn")


@pytest.fixture(params=["version", "folder"])
def lost(plain: og.Graph, request: pytest.FixtureRequest) -> og.Graph:
    """A graph without the newest version of City, opened by somebody who has never seen it."""
    pin = damage.pin_of(plain, "City")
    folder = damage.folder(plain, pin)
    if request.param == "folder":
        shutil.rmtree(folder)
    else:
        Path(manifest_path(str(folder), pin.version)).unlink()
    plain.close()
    return og.open(plain.uri, engine="local")


@pytest.mark.parametrize("options", [{}, {"quick": True}, {"full": True}], ids=["sampled", "quick", "full"])
def test_verify_tells_it_and_checks_all_the_rest(lost: og.Graph, options: dict[str, bool]) -> None:
    damage.raw_rows(lost, "Knows", [{"id": "bad", "src": "p001", "dst": "nobody"}])
    result = og.open(lost.uri, engine="local").verify(**options)
    told = {f.code: f for f in result.findings}
    assert told.keys() == {"version_missing"} | (set() if options.get("quick") else {"dangling_endpoint"})
    finding = told["version_missing"]
    assert (finding.severity, finding.table, finding.branch) == ("error", "node:City", "main")
    assert f"version {damage.pin_of(lost, 'City').version} of" in finding.message
    assert "omnigraph commit list" in finding.remedy
    assert result.checked["files"] > 0


def test_optimize_publishes_the_others_and_has_the_error_in_the_row(lost: og.Graph) -> None:
    result = lost.optimize()
    row = result.table("node:City")
    version = damage.pin_of(lost, "City").version
    assert row.error == f"node:City at version {version} is published and not there: its files were removed or lost."
    assert not row.committed
    assert not result.ok
    assert all(result.table(key).committed for key in OTHERS)
    assert result.commit is not None
    again = og.open(lost.uri, engine="local").optimize()
    assert again.commit is None
    assert again.table("node:City").error == row.error


def test_a_plan_of_optimize_says_so_and_is_executed_for_the_others(lost: og.Graph) -> None:
    plan = lost.plan_optimize()
    failed = next(t for t in plan.to_json()["tables"] if t["table_key"] == "node:City")
    assert "is published and not there" in failed["error"]
    result = og.open(lost.uri, engine="local").optimize(plan=json.loads(json.dumps(plan.to_json())))
    assert result.table("node:City").error == failed["error"]
    assert all(result.table(key).committed for key in OTHERS)


def test_stats_have_the_figures_of_the_others(lost: og.Graph) -> None:
    found = {t.table_key: t for t in lost.stats().tables}
    assert "is published and not there" in (found["node:City"].error or "")
    assert all(found[key].error is None and found[key].rows for key in OTHERS)


def test_maintain_optimizes_the_others_and_removes_nothing(lost: og.Graph) -> None:
    result = lost.maintain(keep=1, older_than="0s", confirm=True)
    assert result.step("verify").outcome == "problems"
    optimized = result.step("optimize")
    assert optimized.outcome == "problems"
    assert any("node:City" in note and "published and not there" in note for note in optimized.notes)
    assert (optimized.result or {})["commit"] is not None
    assert not result.ok


def test_the_commands_end_in_exit_code_1_and_show_the_others(
    lost: og.Graph, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", lost.uri, "--quick", "-q"]) == 1
    assert "error version_missing node:City on main" in capsys.readouterr().out
    assert main(["optimize", lost.uri, "--engine", "local", "--plan", "-q"]) == 0
    assert "node:City: failed: node:City at version" in capsys.readouterr().out
    assert main(["optimize", lost.uri, "--engine", "local", "-q"]) == 1
    shown = capsys.readouterr().out
    assert "node:City: failed: node:City at version" in shown
    assert "node:Person" in shown
    assert main(["stats", lost.uri, "-q"]) == 1
    assert "node:Person" in capsys.readouterr().out
