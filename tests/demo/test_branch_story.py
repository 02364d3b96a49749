"""The demo's chapter about branches, on a small graph: real commands, short lines, and what the merge leaves."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.demo import branch_story
from omnigraph.demo.branch_story import BRANCH, CONFLICTS_FILE, LINE_CHARS_MAX, TAG, Merged, tell_branches
from omnigraph.demo.narrator import Narrator

SCHEMA = Path(branch_story.__file__).with_name("social.pg")


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(str(tmp_path / "graph"), SCHEMA.read_text())
    names = [f"person.with.a.long.name{i}" for i in range(5)]
    people = [
        {"handle": n, "name": n, "email": f"{n}@example.org", "city": "Ulm", "joined": "2026-01-01"} for n in names
    ]
    graph.insert({"Person": people})
    return graph


def test_an_agents_branch_is_compared_merged_and_its_conflict_resolved_by_file(graph: og.Graph, tmp_path: Path) -> None:
    said: list[str] = []
    times: dict[str, float] = {}
    narrator = Narrator(say=lambda text: said.extend(text.splitlines()), watch=nullcontext)
    merged = tell_branches(graph, str(tmp_path), narrator=narrator, times=times)
    conflicting = "node:Person person.with.a.long.name2"
    changes = {"insert": 2, "update": 3, "delete": 0}
    assert merged == Merged(BRANCH, TAG, changes, {conflicting: "divergent_update"}, inserted=2, updated=3)
    assert times["merge"] > 0
    assert max(map(len, said)) <= LINE_CHARS_MAX, max(said, key=len)
    commands = [line.strip() for line in said if line.strip().startswith("$ ")]
    assert commands == [
        f"$ omnigraph diff graph main...{BRANCH}",
        f"$ omnigraph tag create graph {TAG}",
        f"$ omnigraph branch merge graph {BRANCH} --conflicts {CONFLICTS_FILE}",
        f"$ omnigraph branch merge graph {BRANCH} --resolve {CONFLICTS_FILE} \\",
        "$ omnigraph commit list graph --graph --limit 7",
        f"$ omnigraph diff graph {TAG}..main --stat",
    ]
    assert any("1 conflict; nothing was changed" in line for line in said)
    assert any(f"deleted {BRANCH}" in line for line in said)
    assert [tag.name for tag in graph.tags()] == [TAG]
    assert graph.verify().ok


def test_a_command_that_does_not_end_as_the_demo_says_ends_the_demo(graph: og.Graph, tmp_path: Path) -> None:
    narrator = Narrator(say=lambda _: None, watch=nullcontext)
    with pytest.raises(AssertionError, match="nowhere"):
        branch_story._command(["branch", "merge", "graph", "nowhere"], str(tmp_path), narrator)
