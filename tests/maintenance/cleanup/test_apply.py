"""A plan is a value: saved, read again, executed as it is, except for what has come into use since."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import PlanUnusable
from tests.maintenance.cleanup.conftest import files, folder_of, make_old, pin_of, root_of, rows, versions


def saved(graph: og.Graph, **policy: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(graph.plan_cleanup(**policy).to_json()))
    return found


def named(plan: dict[str, Any]) -> set[str]:
    """Every file that a plan names, relative to the graph."""
    found = {f"{t['path']}/{f['path']}" for t in plan["tables"] for f in (*t["versions"], *t["files"])}
    for fork in plan["reclaimed_forks"]:
        found |= {f"{fork['path'].rpartition('/tree/')[0]}/{f['path']}" for f in fork["files"]}
    return found | {f"{s['path']}/{f['path']}" for s in plan["staging"] for f in s["files"]}


def test_a_saved_plan_removes_exactly_what_it_names(history: og.Graph) -> None:
    history.create_branch("gone")
    history.upsert({"Person": [{"name": "own"}]}, branch="gone")
    history.delete_branch("gone")
    plan = saved(history, keep=4)
    assert plan["confirmed"] is False
    before, expected = files(Path(history.uri)), rows(history)
    result = og.open(history.uri).cleanup(plan=plan, confirm=True)
    after = files(Path(history.uri))
    assert {n for n in before - after if "__manifest" not in n} == named(plan)
    assert result.to_json()["refused"] == []
    assert result.bytes_removed == plan["bytes_removed"]
    assert rows(history) == expected


def test_a_plan_may_be_the_path_of_a_file(history: og.Graph, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(saved(history, keep=4)))
    assert history.maintenance.cleanup(plan=file).old_versions_removed > 0
    assert history.maintenance.cleanup(plan=str(file), confirm=True).confirmed
    file.write_text("[]")
    with pytest.raises(PlanUnusable, match=r"plan\.json"):
        history.maintenance.cleanup(plan=file)


def test_what_the_policy_lets_go_since_is_not_removed(history: og.Graph) -> None:
    plan = saved(history, keep=4)
    newest = pin_of(history).version
    for i in range(5):
        history.upsert({"Person": [{"name": f"later{i}"}]})
    history.cleanup(plan=plan, confirm=True)
    assert versions(root_of(history)) == list(range(newest - 3, newest + 6))


def test_a_version_that_a_reader_has_leased_since_is_refused_and_named(history: og.Graph) -> None:
    plan = saved(history, keep=1)
    old = history.commits()[8].id
    with og.open(history.uri).lease(commit=old) as snapshot:
        pin = snapshot.view.pins[snapshot.view.type("Person").id]
        expected = snapshot.read("Person").to_pylist()
        result = history.cleanup(plan=plan, confirm=True)
        assert snapshot.read("Person").to_pylist() == expected
        assert versions(root_of(history)) == [pin.version, pin_of(history).version]
    refused = result.to_json()["refused"]
    whole = [r for r in refused if r["what"] == f"{pin.path} version {pin.version}"]
    assert whole[0]["table_key"] == "node:Person"
    assert whole[0]["reason"].startswith("lease:")
    assert {r["reason"] for r in refused if "version" not in r["what"]} == {"in_use"}


def test_a_version_that_was_tagged_since_is_refused(history: og.Graph) -> None:
    import lance

    plan = saved(history, keep=1)
    lance.dataset(str(root_of(history))).tags.create("late", 2)
    result = history.cleanup(plan=plan, confirm=True)
    assert 2 in versions(root_of(history))
    assert any(r.reason == "lance_tag:late" for r in result.refused)


def test_what_somebody_else_has_removed_since_is_fine(history: og.Graph) -> None:
    plan = saved(history, keep=1)
    history.cleanup(keep=2, confirm=True)
    result = history.cleanup(plan=plan, confirm=True)
    assert result.refused == ()
    assert not result.failed
    assert len(versions(root_of(history))) == 1


def test_a_plan_made_twice_over_is_a_preview_without_confirm(history: og.Graph) -> None:
    plan = saved(history, keep=1)
    before = files(Path(history.uri))
    again = history.cleanup(plan=plan)
    assert not again.confirmed
    assert again.old_versions_removed == plan["old_versions_removed"]
    assert files(Path(history.uri)) == before


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"graph": "/elsewhere"}, "/elsewhere"),
        ({"omnigraph_cleanup": 99}, "understands"),
        ({"confirmed": True}, "report"),
        ({"tables": [{}]}, "damaged"),
        ({"policy": {"keep": "many"}}, "damaged"),
    ],
)
def test_a_plan_that_is_not_for_this_is_refused(history: og.Graph, change: dict[str, Any], told: str) -> None:
    before = files(Path(history.uri))
    with pytest.raises(PlanUnusable, match=told):
        history.cleanup(plan={**saved(history, keep=1), **change}, confirm=True)
    assert files(Path(history.uri)) == before


def test_a_fork_that_came_into_use_since_is_refused(history: og.Graph) -> None:
    """A plan from a time when the branch was gone, and a branch that is there: names never lie about forks."""
    history.create_branch("side")
    history.upsert({"Person": [{"name": "own"}]}, branch="side")
    fork, expected = folder_of(history, branch="side"), rows(history, "side")
    plan = saved(history, keep=1)
    pin = pin_of(history, branch="side")
    inside = [{"path": n, "bytes": 1, "kind": "version", "reason": "branch_gone"} for n in files(root_of(history))]
    plan["reclaimed_forks"] = [
        {"table_key": "node:Person", "fork": pin.fork, "path": pin.path, "reason": "branch_gone", "files": inside}
    ]
    result = history.cleanup(plan=plan, confirm=True)
    assert fork.exists()
    assert [r.reason for r in result.refused if r.what == pin.path] == ["in_use"]
    assert rows(history, "side") == expected


def test_a_plan_can_not_be_made_to_remove_what_is_needed(history: og.Graph) -> None:
    """Whatever stands in the file: only what may go by its own policy goes."""
    plan = saved(history, keep=1)
    table = next(t for t in plan["tables"] if t["table_key"] == "node:Person")
    head, expected = pin_of(history).version, rows(history)
    everything = [{"path": n, "bytes": 1, "kind": "data", "reason": "x"} for n in files(root_of(history))]
    table["files"] = everything
    table["versions"].append({**table["versions"][0], "version": head})
    make_old(Path(history.uri))
    result = history.cleanup(plan=plan, confirm=True)
    assert rows(history) == expected
    assert any(r.what.endswith(f"version {head}") for r in result.refused)


@pytest.mark.parametrize("limit", ["orphans_older_than", "manifest_older_than"])
def test_a_plan_with_limits_that_no_command_takes_is_refused(history: og.Graph, limit: str) -> None:
    """What is in flight looks just like what a dead writer left: no document may say otherwise."""
    stray = root_of(history) / "data" / "inflight.lance"
    stray.write_bytes(b"x")
    plan = saved(history, keep=4)
    plan["policy"][limit] = "0s"
    with pytest.raises(PlanUnusable, match="is at least"):
        history.cleanup(plan=plan, confirm=True)
    assert stray.exists()


def test_staged_files_that_a_saved_plan_names_and_that_are_in_use_by_now_are_refused_and_named(
    history: og.Graph,
) -> None:
    folder = Path(history.uri) / "__staging" / "0123456789abcdef"
    folder.mkdir(parents=True)
    (folder / "rows").write_bytes(b"x")
    make_old(folder)
    plan = saved(history, keep=100)
    assert [s["path"] for s in plan["staging"]] == ["__staging/0123456789abcdef"]
    (folder / "rows").write_bytes(b"more")
    result = history.cleanup(plan=plan, confirm=True)
    assert [(r.what, r.reason) for r in result.refused] == [("__staging/0123456789abcdef", "in_use")]
    assert (folder / "rows").exists()
