"""Tags: names for commits that cleanup keeps; their rules, and their races with cleanup."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.branch import tags as tag_verbs
from omnigraph.errors import HostileOrDamagedManifest, StorageError
from omnigraph.maintenance.cleanup import execute
from omnigraph.storage.manifest.table import Manifest
from omnigraph.storage.manifest.tags import TAG, Tag
from tests.support.graphs import Templates

SCHEMA = "node Person { name: String @key  age: I32? }\nnode City { name: String @key }"


def _build(path: Path) -> og.Graph:
    graph = og.init(path, SCHEMA)
    for age in range(4):
        graph.upsert({"Person": [{"name": "Ada", "age": age}]})
    return graph


@pytest.fixture
def graph(graph_templates: Templates, tmp_path: Path) -> og.Graph:
    return graph_templates.open(_build, tmp_path / "graph")


def ages(graph: og.Graph, commit: str) -> list[int]:
    return graph.nodes("Person", commit=commit)["age"].to_pylist()


def test_a_tag_names_a_commit_and_stays_there(graph: og.Graph) -> None:
    old = graph.commits()[2].id
    made = graph.create_tag("v1", old, message="the second", actor="anna")
    assert (made.commit, made.message, made.actor) == (old, "the second", "anna")
    newest = graph.create_tag("newest")
    graph.upsert({"Person": [{"name": "Ada", "age": 9}]})
    assert og.open(graph.uri).tags() == [newest, made]
    assert newest.commit == graph.commits()[1].id
    assert graph.delete_tag("v1") == made
    assert [tag.name for tag in graph.tags()] == ["newest"]
    with pytest.raises(errors.TagNotFound):
        graph.delete_tag("v1")


def test_tags_and_branches_never_share_a_name(graph: og.Graph) -> None:
    graph.create_tag("v1")
    graph.create_branch("work")
    with pytest.raises(errors.TagExists):
        graph.create_tag("v1")
    with pytest.raises(errors.TagExists):
        graph.create_branch("v1")
    with pytest.raises(errors.BranchExists):
        graph.create_tag("work")


@pytest.mark.parametrize("name", ["", "a//b", "__system", "a b", "..", "x" * 201])
def test_bad_names_are_refused(graph: og.Graph, name: str) -> None:
    with pytest.raises(errors.InvalidTagName):
        graph.create_tag(name)


def test_cleanup_keeps_what_a_tag_pins_and_says_why(graph: og.Graph) -> None:
    graph.create_tag("v1", graph.commits()[2].id)
    result = graph.cleanup(keep=1, confirm=True)
    assert result.table("node:Person").kept[0].because == ("tag:v1",)
    assert ages(og.open(graph.uri), "v1") == [1]
    with pytest.raises(errors.VersionReclaimed):
        ages(og.open(graph.uri), graph.commits()[1].id)
    assert graph.verify(full=True).ok
    graph.delete_tag("v1")
    graph.cleanup(keep=1, confirm=True)
    with pytest.raises(errors.VersionReclaimed):
        ages(og.open(graph.uri), graph.commits()[2].id)


def test_a_tag_keeps_the_forks_of_a_deleted_branch(graph: og.Graph) -> None:
    graph.create_branch("work")
    graph.upsert({"Person": [{"name": "Ada", "age": 77}]}, branch="work")
    graph.create_tag("work-1", branch="work")
    graph.delete_branch("work")
    graph.cleanup(keep=1, confirm=True)
    assert ages(og.open(graph.uri), "work-1") == [77]
    assert graph.verify(full=True).ok
    graph.delete_tag("work-1")
    assert [fork.fork.reason for fork in graph.cleanup(keep=1, confirm=True).reclaimed_forks] == ["branch_gone"]


def test_a_tag_keeps_a_dropped_type(graph: og.Graph) -> None:
    graph.insert({"City": [{"name": "Bern"}]})
    graph.create_tag("v1")
    result = graph.apply_schema("node Person { name: String @key  age: I32? }", allow_data_loss=True)
    assert result.left_for_cleanup[0].because == ("tag:v1",)
    graph.cleanup(keep=1, confirm=True)
    assert og.open(graph.uri).nodes("City", commit="v1")["name"].to_pylist() == ["Bern"]


def test_what_was_collected_is_not_tagged(graph: og.Graph) -> None:
    old = graph.commits()[2].id
    graph.cleanup(keep=1, confirm=True)
    with pytest.raises(errors.VersionReclaimed) as caught:
        graph.create_tag("v1", old)
    assert caught.value.fields["table_key"] == "node:Person"
    assert graph.tags() == []


@pytest.mark.parametrize("step", ["announce", "exclude", "Remover"])
def test_a_tag_beside_a_cleanup_holds_or_is_refused(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Before the announcement it holds, after it the tag is refused: never is a tag left whose versions are gone."""
    old, other = graph.commits()[2].id, og.open(graph.uri)
    original: Callable[..., object] = getattr(execute, step)
    caught: list[errors.OmnigraphError] = []

    def meanwhile(*args: object, **options: object) -> object:
        try:
            other.create_tag("v1", old)
        except errors.VersionReclaimed as error:
            caught.append(error)
        return original(*args, **options)

    monkeypatch.setattr(execute, step, meanwhile)
    graph.cleanup(keep=1, confirm=True)
    assert bool(caught) == (step != "announce")
    if not caught:
        assert ages(og.open(graph.uri), "v1") == [1]
    assert graph.verify(full=True).ok


def test_a_cleanup_between_look_and_swap_makes_the_tag_lose(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    old, other = graph.commits()[2].id, og.open(graph.uri)
    original = tag_verbs.require_available
    runs: list[int] = []

    def then_cleanup(*args: object) -> None:
        original(*args)  # type: ignore[arg-type]
        if not runs:
            runs.append(1)
            other.cleanup(keep=1, confirm=True)

    monkeypatch.setattr(tag_verbs, "require_available", then_cleanup)
    with pytest.raises(errors.VersionReclaimed):
        graph.create_tag("v1", old)
    assert graph.tags() == []


def fail_updates(patch: pytest.MonkeyPatch, *, landing: bool) -> None:
    """The store applies an update of the manifest's config, or not, and its answer is lost."""
    original = Manifest.update

    def failing(self: Manifest, updates: dict[str, str | None], *, read_version: int) -> int:
        if landing:
            original(self, updates, read_version=read_version)
        raise StorageError(doing="publishing", detail="the answer was lost")

    patch.setattr(Manifest, "update", failing)


def test_a_lost_answer_is_asked_for(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_updates(monkeypatch, landing=True)
    made = graph.create_tag("v1")
    assert graph.tags() == [made]
    assert graph.delete_tag("v1") == made
    assert graph.tags() == []


def test_what_did_not_happen_is_an_error(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.create_tag("v1")
    fail_updates(monkeypatch, landing=False)
    with pytest.raises(StorageError):
        graph.create_tag("v2")
    with pytest.raises(StorageError):
        graph.delete_tag("v1")
    assert [tag.name for tag in graph.tags()] == ["v1"]


@pytest.mark.parametrize(
    "value",
    [
        "{}",
        "no json",
        '{"commit":"../../x y","at":1,"nonce":"a"}',
        '{"commit":"A","at":-1,"nonce":"a"}',
        '{"commit":"A","at":1,"nonce":"a","crc":1}',
    ],
)
def test_a_damaged_tag_is_refused_when_read(graph: og.Graph, value: str) -> None:
    manifest = Manifest(graph._location)
    manifest.update({TAG + "v1": value}, read_version=manifest.settings()[0])
    with pytest.raises(HostileOrDamagedManifest):
        og.open(graph.uri).tags()


def test_a_hostile_name_is_refused_when_read(graph: og.Graph) -> None:
    manifest = Manifest(graph._location)
    value = Tag("x", "A", 1, "n").dumps()
    manifest.update({TAG + "../../etc": value}, read_version=manifest.settings()[0])
    with pytest.raises(HostileOrDamagedManifest):
        og.open(graph.uri).tags()


def test_verify_tells_of_a_tag_without_a_commit(graph: og.Graph) -> None:
    manifest = Manifest(graph._location)
    manifest.update({TAG + "v1": Tag("v1", "01NOTHING", 1, "n").dumps()}, read_version=manifest.settings()[0])
    assert [finding.code for finding in graph.verify().findings] == ["tag_broken"]


def test_verify_looks_at_what_tags_name(graph: og.Graph) -> None:
    graph.create_tag("v1", graph.commits()[2].id)
    pin = next(p for p in graph.snapshot(commit="v1").view.pins.values() if p.rows)
    versions = Path(graph.uri) / pin.path / "_versions"
    (versions / f"{2**64 - 1 - pin.version:020d}.manifest").unlink()
    assert "version_missing" in [finding.code for finding in graph.verify(quick=True).findings]
    with pytest.raises(errors.VersionMissing):
        ages(og.open(graph.uri), "v1")


def test_a_clone_of_the_history_has_the_tags(graph: og.Graph, tmp_path: Path) -> None:
    tag = graph.create_tag("v1", graph.commits()[2].id)
    graph.cleanup(keep=1, confirm=True)
    assert og.clone(graph.uri, tmp_path / "copy").ok
    assert og.open(tmp_path / "copy").tags() == [tag]
    assert ages(og.open(tmp_path / "copy"), "v1") == [1]
    og.clone(graph.uri, tmp_path / "state", commit="v1")
    assert og.open(tmp_path / "state").tags() == []


def test_a_relocated_graph_has_the_tags(graph: og.Graph, tmp_path: Path) -> None:
    graph.create_branch("work")
    graph.upsert({"Person": [{"name": "Ada", "age": 77}]}, branch="work")
    tag = graph.create_tag("v1", branch="work")
    graph.delete_branch("work")
    moved = Path(graph.uri).rename(tmp_path / "moved")
    assert og.open(moved).relocate(confirm=True).ok
    assert og.open(moved).tags() == [tag]
    assert ages(og.open(moved), "v1") == [77]


def test_stats_count_them(graph: og.Graph) -> None:
    graph.create_tag("v1")
    assert graph.stats().tags == 1


def test_the_command_line(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    from omnigraph.cli.main import main

    commit = graph.commits()[1].id
    assert main(["tag", "create", graph.uri, "v1", commit, "--message", "good", "--as", "anna", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["tag"]["commit"], made["tag"]["actor"], made["commit"]) == (commit, "anna", None)
    assert main(["tag", "create", "newest", "--store", graph.uri]) == 0
    capsys.readouterr()
    assert main(["tag", "list", graph.uri, "--json"]) == 0
    assert [tag["name"] for tag in json.loads(capsys.readouterr().out)["tags"]] == ["newest", "v1"]
    assert main(["tag", "delete", graph.uri, "v1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["deleted"] is True
    assert main(["tag", "delete", graph.uri, "v1"]) == 1
    assert "there is no tag" in capsys.readouterr().err
