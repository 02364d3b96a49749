"""Reset: a branch stands at another commit; its history, its tables, what is refused, who is at work meanwhile."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.branch import reset
from omnigraph.storage.manifest.incarnations import start_of
from omnigraph.storage.manifest.table import FULL_EVERY, RECENT_MAX, Manifest
from tests.support.graphs import Templates

SCHEMA = "node Person { name: String @key  age: I32? }\nnode City { name: String @key }\nedge In: Person -> City"
PHASES = ("prepare", "lock", "check", "plan", "effect", "publish", "acknowledge", "release")


@pytest.fixture(autouse=True)
def _short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_LEASE_S", "0.2")


def _build(path: Path) -> og.Graph:
    graph = og.init(path, SCHEMA)
    for age in range(4):
        graph.upsert({"Person": [{"name": "Ada", "age": age}]})
    graph.insert({"City": [{"name": "Bern"}], "In": [{"src": "Ada", "dst": "Bern"}]})
    return graph


@pytest.fixture
def graph(graph_templates: Templates, tmp_path: Path) -> og.Graph:
    return graph_templates.open(_build, tmp_path / "graph")


def people(graph: og.Graph, **state: str) -> dict[str, int | None]:
    rows = og.open(graph.uri).nodes("Person", **state)
    return dict(zip(rows["name"].to_pylist(), rows["age"].to_pylist(), strict=True))


def ids(graph: og.Graph, branch: str = "main") -> list[str]:
    return [commit.id for commit in graph.commits(branch)]


def test_main_stands_at_an_older_commit_and_goes_on_from_there(graph: og.Graph) -> None:
    before = ids(graph)
    result = graph.reset_branch("main", to=before[3], actor="anna")
    assert (result.previous, result.target) == (before[0], before[3])
    commit = result.commit
    assert commit is not None
    assert (commit.kind, commit.actor, commit.parent) == ("reset", "anna", before[3])
    assert ids(og.open(graph.uri)) == [commit.id, *before[3:]]
    assert people(graph) == {"Ada": 1}
    assert og.open(graph.uri).edges("In").num_rows == 0
    graph.upsert({"Person": [{"name": "Bob", "age": 5}]})
    assert people(graph) == {"Ada": 1, "Bob": 5}
    assert people(graph, commit=before[0]) == {"Ada": 3}
    assert graph.verify(full=True).ok


def test_a_branch_stands_at_an_older_commit_of_its_own_or_of_another(graph: og.Graph) -> None:
    graph.create_branch("work")
    for age in (10, 11):
        graph.upsert({"Person": [{"name": "Ada", "age": age}]}, branch="work")
    left = graph.snapshot("work").commit
    graph.reset_branch("work", to=ids(graph, "work")[1])
    assert people(graph, branch="work") == {"Ada": 10}
    graph.upsert({"Person": [{"name": "Bob"}]}, branch="work")
    assert people(graph, branch="work") == {"Ada": 10, "Bob": None}
    graph.reset_branch("work", to="main")
    assert people(graph, branch="work") == {"Ada": 3}
    assert ids(graph, "work")[1:] == ids(graph)
    graph.reset_branch("work", to=left)
    assert people(graph, branch="work") == {"Ada": 11}
    assert [(b.name, b.parent_branch) for b in graph.branches()] == [("main", None), ("work", None)]
    assert graph.verify(full=True).ok
    graph.delete_branch("work")


def test_a_reset_to_where_the_branch_stands_is_none(graph: og.Graph) -> None:
    before = ids(graph)
    assert graph.reset_branch("main", to="main").commit is None
    assert ids(graph) == before


def test_what_is_refused(graph: og.Graph) -> None:
    old = ids(graph)[2]
    with pytest.raises(errors.PreconditionFailed):
        graph.reset_branch("main", to=old, if_commit=old)
    with pytest.raises(errors.RevisionNotFound):
        graph.reset_branch("main", to="nowhere")
    with pytest.raises(errors.BranchNotFound):
        graph.reset_branch("nowhere", to=old)
    graph.create_branch("work")
    with pytest.raises(errors.BranchInUse) as caught:
        graph.reset_branch("main", to=old)
    assert "can't be reset: the branch 'work' was made from it" in str(caught.value)
    assert "main branch" not in caught.value.remedy
    graph.upsert({"Person": [{"name": "Ada", "age": 50}]}, branch="work")
    commit = graph.snapshot("work").commit
    graph.delete_branch("work")
    with pytest.raises(errors.CommitNotOnMain):
        graph.reset_branch("main", to=commit)
    assert people(graph) == {"Ada": 3}


def test_main_goes_to_a_tag_above_which_versions_were_removed(graph: og.Graph) -> None:
    """Whoever looks for the newest version of a table counts upwards from its pin: a gap would hide it."""
    graph.create_tag("v1", ids(graph)[3])
    graph.cleanup(keep=1, confirm=True)
    graph.reset_branch("main", to="v1")
    assert people(graph) == {"Ada": 1}
    graph.upsert({"Person": [{"name": "Bob", "age": 5}]})
    graph.cleanup(keep=1, confirm=True)
    assert people(graph) == {"Ada": 1, "Bob": 5}
    assert people(graph, commit="v1") == {"Ada": 1}
    assert graph.verify(full=True).ok


def test_what_was_collected_is_not_gone_to(graph: og.Graph) -> None:
    old = ids(graph)[3]
    graph.cleanup(keep=1, confirm=True)
    with pytest.raises(errors.VersionReclaimed):
        graph.reset_branch("main", to=old)
    assert people(graph) == {"Ada": 3}


def test_types_and_properties_come_and_go(graph: og.Graph) -> None:
    narrow = graph.snapshot().commit
    graph.apply_schema(
        SCHEMA.replace("age: I32?", "age: I32?  size: I32 @default(7)") + "\nnode Pet { name: String @key }"
    )
    graph.insert({"Pet": [{"name": "Rex"}]})
    wide = graph.snapshot().commit
    graph.apply_schema("node Person { name: String @key  age: I32?  size: I32 @default(7) }")
    graph.upsert({"Person": [{"name": "Bob"}]})
    graph.reset_branch("main", to=narrow)
    graph.upsert({"Person": [{"name": "Cyd"}], "City": [{"name": "Genf"}]})
    assert og.open(graph.uri).nodes("Person").column_names == ["id", "name", "age"]
    assert "Pet" not in graph.schema().node
    graph.reset_branch("main", to=wide)
    graph.upsert({"Pet": [{"name": "Tom"}], "Person": [{"name": "Dan", "size": 1}]})
    assert sorted(og.open(graph.uri).nodes("Pet")["name"].to_pylist()) == ["Rex", "Tom"]
    assert og.open(graph.uri).nodes("Person")["size"].to_pylist() == [7, 1]
    assert graph.verify(full=True).ok
    graph.cleanup(keep=1, confirm=True)
    assert graph.verify(full=True).ok


def test_indices_answer_as_a_scan_does(graph: og.Graph) -> None:
    graph.insert({"Person": [{"name": f"p{i}", "age": i} for i in range(40)]})
    graph.optimize()
    indexed = graph.snapshot().commit
    graph.delete({"Person": [f"p{i}" for i in range(20)]})
    graph.optimize()
    graph.reset_branch("main", to=indexed)
    graph.upsert({"Person": [{"name": "p3", "age": 99}]})
    for where in ({"name": "p3"}, "name = 'p3'"):
        assert og.open(graph.uri).nodes("Person", where=where)["age"].to_pylist() == [99]
    graph.optimize()
    assert og.open(graph.uri).nodes("Person").num_rows == 41
    assert graph.verify(full=True).ok


def test_the_old_head_stays_for_as_long_as_the_policy_says(graph: og.Graph) -> None:
    graph.create_branch("work")
    graph.upsert({"Person": [{"name": "Ada", "age": 10}]}, branch="work")
    left = graph.reset_branch("work", to="main").previous
    for _ in range(2):
        assert not graph.cleanup(older_than="1d", confirm=True).reclaimed_forks
        assert people(graph, commit=left) == {"Ada": 10}
        graph.upsert({"Person": [{"name": "Bob"}]}, branch="work")
    assert not graph.cleanup(keep=4, confirm=True).reclaimed_forks
    assert [f.fork.reason for f in graph.cleanup(keep=1, confirm=True).reclaimed_forks] == ["branch_gone"]
    assert people(graph, branch="work") == {"Ada": 3, "Bob": None}
    assert graph.verify(full=True).ok


def test_a_tag_keeps_the_old_head(graph: og.Graph) -> None:
    left = graph.reset_branch("main", to=ids(graph)[3]).previous
    graph.create_tag("left", left)
    graph.upsert({"Person": [{"name": "Bob"}]})
    graph.cleanup(keep=1, confirm=True)
    assert people(graph, commit="left") == {"Ada": 3}
    graph.reset_branch("main", to="left")
    assert people(graph) == {"Ada": 3}
    assert graph.verify(full=True).ok


def test_histories_longer_than_a_head_holds(graph: og.Graph) -> None:
    for age in range(RECENT_MAX + FULL_EVERY):
        graph.upsert({"Person": [{"name": "Eve", "age": age}]})
    before = ids(graph)
    graph.reset_branch("main", to=before[FULL_EVERY + 3])
    for age in range(RECENT_MAX + 3):
        graph.upsert({"Person": [{"name": "Fay", "age": age}]})
    found = ids(og.open(graph.uri))
    assert found[RECENT_MAX + 4 :] == before[FULL_EVERY + 3 :]
    manifest = Manifest(graph._location)
    head = manifest.head("main")
    assert all(record.kind != "reset" for record in head.recent)
    start = start_of(manifest, head.incarnation)
    assert start is not None
    assert start.commit == before[FULL_EVERY + 3] == head.reset_to
    assert graph.get_commit(before[0]).id == before[0], "its record has become a row"
    assert graph.verify(full=True).ok


def test_merge_bases_know_what_a_reset_has_left(graph: og.Graph) -> None:
    """What the branches share ends at the commit that main was reset to, not at a later one with a lower epoch."""
    from omnigraph.maintenance.cleanup.merge_bases import merge_bases

    before = ids(graph)
    graph.create_branch("work", from_branch=before[4])
    graph.delete_branch("work")
    graph.reset_branch("main", to=before[3])
    graph.upsert({"Person": [{"name": "Bob"}]})
    graph.create_branch("old", from_branch=before[1])
    graph.create_branch("new")
    manifest = Manifest(graph._location)
    shared = merge_bases(manifest, manifest.heads())
    assert set(shared) == {before[3], graph.snapshot().commit}


def test_an_operation_id_is_answered_once_across_a_reset(graph: og.Graph) -> None:
    first = graph.insert({"Person": [{"name": "Bob"}]}, operation_id="load-1")
    late = graph.insert({"Person": [{"name": "Cyd"}]}, operation_id="load-2")
    assert first.commit is not None
    for _ in range(2):
        graph.reset_branch("main", to=first.commit.id)
        again = og.open(graph.uri).insert({"Person": [{"name": "Bob"}]}, operation_id="load-1")
        assert (again.repeated, again.commit) == (True, first.commit)
        graph.upsert({"City": [{"name": "Genf"}]})
    done = graph.insert({"Person": [{"name": "Cyd"}]}, operation_id="load-2")
    assert (done.repeated, done.commit == late.commit) == (False, False), "it was not part of the branch any more"
    assert people(graph) == {"Ada": 3, "Bob": None, "Cyd": None}


def test_a_cleanup_between_look_and_swap_makes_the_reset_lose(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    old, other, original = ids(graph)[3], og.open(graph.uri), reset.require_available
    runs: list[int] = []

    def then_cleanup(*args: object) -> None:
        original(*args)  # type: ignore[arg-type]
        if not runs:
            runs.append(1)
            other.cleanup(keep=1, confirm=True)

    monkeypatch.setattr(reset, "require_available", then_cleanup)
    with pytest.raises(errors.VersionReclaimed):
        graph.reset_branch("main", to=old)
    assert people(graph) == {"Ada": 3}
    assert graph.verify(full=True).ok


def test_a_branch_that_is_made_meanwhile_is_seen(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    old, other, original = ids(graph)[3], og.open(graph.uri), reset.require_available

    def then_branch(*args: object) -> None:
        original(*args)  # type: ignore[arg-type]
        if len(other.branches()) == 1:
            other.create_branch("work")

    monkeypatch.setattr(reset, "require_available", then_branch)
    with pytest.raises(errors.BranchInUse):
        graph.reset_branch("main", to=old)
    assert people(graph) == people(graph, branch="work") == {"Ada": 3}


def _during(graph: og.Graph, phase: str, act: Any) -> og.Graph:
    """A handle that is stopped, without a heartbeat, when it first comes to this phase, while `act` is done."""
    done: list[str] = []

    def observe(seen: str) -> None:
        if seen == phase and not done:
            done.append(seen)
            slow._committer.locks._heartbeats._watched.clear()
            act()

    slow = og.open(graph.uri, observer=observe)
    return slow


@pytest.mark.parametrize("branch", ["main", "work"])
@pytest.mark.parametrize("phase", PHASES)
def test_a_writer_that_is_overtaken_by_a_reset_is_done_before_or_after_it(
    graph: og.Graph, phase: str, branch: str
) -> None:
    if branch == "work":
        graph.create_branch("work")
        graph.upsert({"Person": [{"name": "Ada", "age": 3}]}, branch="work")
    old = graph.commits(branch)[3].id
    slow = _during(graph, phase, lambda: og.open(graph.uri).reset_branch(branch, to=old))
    both = {"Person": [{"name": "Bob", "age": 9}], "City": [{"name": "Genf"}]}
    written = slow.upsert(both, branch=branch).commit
    assert written is not None
    age = people(graph, commit=old)["Ada"]
    is_before = phase in ("publish", "acknowledge", "release")
    assert people(graph, branch=branch) == ({"Ada": age} if is_before else {"Ada": age, "Bob": 9})
    assert (written.id in ids(graph, branch)) == (not is_before)
    assert people(graph, commit=written.id)["Bob"] == 9, "what is acknowledged is on record"
    graph.upsert({"Person": [{"name": "Cyd"}]}, branch=branch)
    graph.cleanup(keep=1, confirm=True)
    assert graph.verify(full=True).ok


@pytest.mark.parametrize(
    ("phase", "branch"), [*product(PHASES, ["main"]), *product((p for p in PHASES if p != "effect"), ["work"])]
)
def test_a_reset_that_is_overtaken_by_a_writer_or_by_another_reset(graph: og.Graph, phase: str, branch: str) -> None:
    if branch == "work":
        graph.create_branch("work")
        graph.upsert({"Person": [{"name": "Ada", "age": 3}]}, branch="work")
    first, second = graph.commits(branch)[2].id, graph.commits(branch)[3].id

    def meanwhile() -> None:
        other = og.open(graph.uri)
        other.upsert({"Person": [{"name": "Bob", "age": 9}]}, branch=branch)
        other.reset_branch(branch, to=second)

    result = _during(graph, phase, meanwhile).reset_branch(branch, to=first)
    assert result.commit is not None
    is_before = phase in ("acknowledge", "release")
    assert people(graph, branch=branch) == people(graph, commit=second if is_before else first)
    assert (result.commit.id in ids(graph, branch)) == (not is_before)
    graph.upsert({"Person": [{"name": "Cyd"}]}, branch=branch)
    graph.cleanup(keep=1, confirm=True)
    assert graph.verify(full=True).ok


def test_a_late_effect_of_the_old_incarnation_is_restored_over(graph: og.Graph) -> None:
    """The writer is stopped right before its first effect; a reset settles it and goes; then its effect comes."""
    from omnigraph.commit import effects

    old, calls, original = ids(graph)[3], list[int](), effects._commit

    def late(tables: Any, target: Any, tx: Any) -> Any:
        if not calls:
            calls.append(1)
            slow._committer.locks._heartbeats._watched.clear()
            og.open(graph.uri).reset_branch("main", to=old)
        return original(tables, target, tx)

    slow = og.open(graph.uri)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(effects, "_commit", late)
        slow.upsert({"Person": [{"name": "Bob", "age": 9}]})
    assert people(graph) == {"Ada": 1, "Bob": 9}
    assert len(ids(graph)) == 5
    assert graph.verify(full=True).ok


def test_the_command_line(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    from omnigraph.cli.main import main

    before = ids(graph)
    assert main(["branch", "reset", graph.uri, "main", "--to", before[2], "--if-commit", before[1]]) == 4
    capsys.readouterr()
    assert main(["branch", "reset", graph.uri, "main", "--to", before[2], "--as", "anna", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["previous"], document["target"]) == (before[0], before[2])
    assert (document["commit"]["kind"], document["commit"]["actor"]) == ("reset", "anna")
    assert main(["branch", "reset", graph.uri, "main", "--to", before[0]]) == 0
    shown = capsys.readouterr().out
    assert f"omnigraph tag create {graph.uri} NAME {document['commit']['id']}" in shown.replace("\n", " ")
