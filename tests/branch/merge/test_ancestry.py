"""Merge bases against a plain walk over all commits, and how many questions to the manifest's rows they take."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.branch import ancestry
from omnigraph.storage.manifest import commit_links
from omnigraph.storage.manifest.table import Manifest

SCHEMA = "node Person { name: String @key }"
STEPS, BRANCHES_MAX = 30, 6
QUESTIONS_MAX = 4
"""Records of main, then of what was merged, of its epochs, and of what it was created from."""


def insert(graph: og.Graph, name: str, branch: str = "main") -> None:
    graph.insert({"Person": [{"name": name}]}, branch=branch)


# ---- the bases -------------------------------------------------------------------------------------------------------


def random_history(graph: og.Graph, rng: random.Random) -> None:
    branches = ["main"]
    for step in range(STEPS):
        branch = rng.choice(branches)
        choice = rng.random()
        if choice < 0.2 and len(branches) < BRANCHES_MAX:
            branches.append(f"b{step}")
            graph.create_branch(branches[-1], from_branch=branch)
        elif choice < 0.55 and len(branches) > 1:
            graph.merge(rng.choice([b for b in branches if b != branch]), into=branch)
        elif choice < 0.6:
            graph.reset_branch(branch, to=rng.choice(graph.commits(branch)).id)
        else:
            insert(graph, f"p{step}", branch)


def plain_bases(parents: dict[str, tuple[str, ...]], left: str, right: str) -> list[str]:
    def history(commit: str) -> set[str]:
        reached, todo = set(), [commit]
        while todo:
            at = todo.pop()
            if at not in reached:
                reached.add(at)
                todo += parents[at]
        return reached

    shared = history(left) & history(right)
    return sorted(c for c in shared if not any(c in history(d) for d in shared - {c}))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("span_epochs_min", [1, 32])
def test_merge_bases_are_those_of_a_plain_walk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, span_epochs_min: int
) -> None:
    """`span_epochs_min=1` follows one short span after the other, as in a history that is much longer."""
    monkeypatch.setattr(ancestry, "SPAN_EPOCHS_MIN", span_epochs_min)
    monkeypatch.setattr(commit_links, "LINKS_MAX", 25)
    graph = og.init(tmp_path / "graph", SCHEMA)
    random_history(graph, random.Random(seed))
    parents = {commit.id: tuple(commit.parents) for commit in graph.commit_graph()}
    manifest = og.open(graph.uri)._manifest
    for left, right in combinations(sorted(parents), 2):
        expected = plain_bases(parents, left, right)
        assert ancestry.merge_bases(manifest, left, right) == expected, (seed, left, right)


# ---- what they take --------------------------------------------------------------------------------------------------


def questions_after_merging(uri: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Of the bases of main and a branch from before `count` branches were merged: by a new handle, and asked again."""
    graph = og.init(uri, SCHEMA)
    insert(graph, "first")
    graph.create_branch("old")
    insert(graph, "on old", "old")
    for i in range(count):
        graph.create_branch(f"b{i}")
        insert(graph, f"on b{i}", f"b{i}")
        graph.merge(f"b{i}")
        graph.delete_branch(f"b{i}")
    manifest = og.open(graph.uri)._manifest
    asked: list[str] = []
    read = Manifest._rows

    def counted(self: Manifest, where: str) -> list[dict[str, Any]]:
        asked.append(where)
        return read(self, where)

    with monkeypatch.context() as patched:
        patched.setattr(Manifest, "_rows", counted)
        heads = manifest.head("main").commit, manifest.head("old").commit
        base = ancestry.merge_bases(manifest, *heads)
        first = len(asked)
        assert ancestry.merge_bases(manifest, *heads) == base
    assert base == [graph.commits("old")[1].id]
    return first, len(asked) - first


def test_the_number_of_questions_does_not_follow_the_merges_since_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, again = questions_after_merging(tmp_path / "graph", 40, monkeypatch)
    assert first <= QUESTIONS_MAX
    assert again == 0, "what a handle has read of the commit graph it does not read again"
