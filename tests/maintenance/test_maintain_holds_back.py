"""Older versions stay where they may be all that is left: of what verify and optimize could not read, or nobody saw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import StorageError
from omnigraph.maintenance.maintain import run as module
from omnigraph.maintenance.maintain.run import NOT_LOST, MaintainResult, indicates_loss
from omnigraph.maintenance.verify import CODES
from omnigraph.maintenance.verify.findings import INDEX, Finding, make_finding
from tests.maintenance.verify import damage
from tests.support.graphs import Templates

SCHEMA = """
node Person { name: String @key  age: I32? @index }
node City { name: String @key }
edge Knows: Person -> Person
"""


def _build(path: Path) -> og.Graph:
    graph = og.init(path, SCHEMA)
    for i in range(4):
        people = [{"name": f"p{i}-{j}", "age": j} for j in range(3)]
        graph.insert({"Person": people, "City": [{"name": f"c{i}"}], "Knows": [{"src": f"p{i}-0", "dst": f"p{i}-1"}]})
    return graph


@pytest.fixture
def graph(graph_templates: Templates, tmp_path: Path) -> og.Graph:
    return graph_templates.open(_build, tmp_path / "g")


def versions(graph: og.Graph) -> set[Path]:
    return set(Path(graph.uri).glob("*/*/_versions/*.manifest"))


def run(graph: og.Graph, policy: Any = None, **options: Any) -> MaintainResult:
    """A run that may remove; somebody who has never seen the graph makes it."""
    chosen = {"cleanup": {"keep": 1}} if policy is None else policy
    return og.open(graph.uri, engine="local").maintain(chosen, confirm=True, **options)


def require_held_back(graph: og.Graph, result: MaintainResult, before: set[Path], *told: str) -> None:
    cleaned = result.step("cleanup")
    assert cleaned.outcome == "previewed", cleaned
    assert cleaned.result is not None
    assert cleaned.result["old_versions_removed"] > 0, "it would, and holds back"
    assert before <= versions(graph)
    assert cleaned.notes[0].startswith("nothing was removed: ")
    assert all(words in cleaned.notes[0] for words in (*told, "or run omnigraph cleanup yourself")), cleaned.notes
    assert not result.ok


def failing(*_: Any, **__: Any) -> None:
    raise StorageError(doing="looking", detail="the disk is on fire")


def test_nothing_is_removed_if_verify_failed(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    before = versions(graph)
    monkeypatch.setattr(module, "verify", failing)
    result = run(graph)
    require_held_back(graph, result, before, "verify failed", "run omnigraph verify")
    assert result.step("optimize").outcome == "done", "the other steps run"


def test_nothing_is_removed_if_a_table_failed_in_optimize(graph: og.Graph) -> None:
    """Data with a good end that can't be read: nothing that only looks at sizes and footers sees it."""
    for file in damage.folder(graph, damage.pin_of(graph, "Person")).glob("data/*.lance"):
        content = file.read_bytes()
        file.write_bytes(b"\xff" * (len(content) // 2) + content[len(content) // 2 :])
    before = versions(graph)
    result = run(graph)
    assert result.step("verify").outcome == "done", "quick, and it sees nothing"
    assert result.step("optimize").outcome == "problems"
    require_held_back(graph, result, before, "node:Person on main failed in optimize", "run omnigraph verify --full")
    after = {t.table_key: t.fragments for t in result.figures[0].after.tables}  # type: ignore[union-attr]
    assert after == {"node:Person": 4, "node:City": 1, "edge:Knows": 1}, "the other tables were merged"


def test_nothing_is_removed_if_optimize_failed_as_a_whole(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    before = versions(graph)
    monkeypatch.setattr(module.Optimize, "run", failing)
    require_held_back(graph, run(graph), before, "optimize of main failed")


@pytest.mark.parametrize(
    "optimize", [{"branches": ["main", "gone"]}, {"tables": ["Nobody"]}], ids=["a branch", "a table"]
)
def test_what_the_policy_names_and_is_not_there_says_nothing_about_the_data(
    graph: og.Graph, optimize: dict[str, list[str]]
) -> None:
    result = run(graph, {"optimize": optimize, "cleanup": {"keep": 1}})
    assert not result.ok
    assert [s.outcome for s in result.steps if s.name == "optimize"][-1] == "failed"
    assert result.step("cleanup").outcome == "done"


@pytest.mark.parametrize("code", ["index_unreadable", "unreadable_data", "commit_lost"])
def test_nothing_is_removed_if_something_may_be_lost(
    graph: og.Graph, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, real = versions(graph), module.verify
    lost = Finding(code, "error", "it can't be read", "look", table="node:Person", branch="main")

    def finds(*args: Any, **options: Any) -> Any:
        result = real(*args, **options)
        return replace(result, findings=(*result.findings, lost))

    monkeypatch.setattr(module, "verify", finds)
    require_held_back(graph, run(graph), before, f"verify found {code}", "see to that first")


def test_every_error_that_is_not_known_to_be_harmless_holds_back() -> None:
    harmless = {code for code, known in CODES.items() if known.severity == "error"} & NOT_LOST
    assert harmless == NOT_LOST, "names of codes that there are"
    for code, known in CODES.items():
        assert indicates_loss(make_finding(code, "x")) == (known.severity == "error" and code not in NOT_LOST), code
    for code in ("missing_file", "wrong_size"):
        assert not indicates_loss(make_finding(code, "x", cause=INDEX)), "an index is made again from its rows"


def dangling(graph: og.Graph) -> None:
    damage.raw_rows(graph, "Knows", [{"id": "bad", "src": "p0-0", "dst": "nobody"}])


def without_an_index_file(graph: og.Graph) -> None:
    graph.optimize()
    folder = damage.folder(graph, damage.pin_of(graph, "City"))
    next(folder.glob("_indices/*/*.lance")).unlink()


@pytest.mark.parametrize(
    ("harm", "depth", "code"),
    [(dangling, "sample", "dangling_endpoint"), (without_an_index_file, "quick", "wrong_size")],
    ids=["a dangling edge", "a file of an index"],
)
def test_rows_that_break_rules_and_lost_files_of_indices_do_not_let_the_graph_grow_for_ever(
    graph: og.Graph, harm: Callable[[og.Graph], None], depth: str, code: str
) -> None:
    harm(graph)
    result = run(graph, {"verify": {"depth": depth}, "cleanup": {"keep": 1}})
    findings = (result.step("verify").result or {})["findings"]
    assert {f["code"] for f in findings if f["severity"] == "error"} == {code}
    assert result.step("cleanup").outcome == "done"


def test_a_preview_does_not_ask_for_confirmation_where_it_would_not_help(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "verify", failing)
    notes = graph.maintain(keep=1).step("cleanup").notes
    assert "verify failed" in notes[0]
    assert not any("--confirm" in note for note in notes)
