"""Merge bases of histories with merges are kept, against all ancestors of all commits."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

import omnigraph as og
from omnigraph.maintenance.cleanup.merge_bases import merge_bases
from tests.branch.operations import record_merge
from tests.maintenance.cleanup.conftest import rows

STEPS = 22


class Ancestors:
    """All ancestors of all commits, from the parents that the records name."""

    def __init__(self, graph: og.Graph) -> None:
        self._manifest = og.open(graph.uri)._manifest
        self._known: dict[str, frozenset[str]] = {}

    def of(self, commit: str) -> frozenset[str]:
        if commit not in self._known:
            record = self._manifest.record(commit)
            parents = [p for p in (record.parent, record.merged_parent) if p is not None]
            self._known[commit] = frozenset({commit}).union(*map(self.of, parents))
        return self._known[commit]

    def bases(self, one: str, other: str) -> set[str]:
        shared = self.of(one) & self.of(other)
        return {c for c in shared if not any(c != d and c in self.of(d) for d in shared)}

    def needed(self, heads: list[str]) -> set[str]:
        """The bases of every two heads, and of several bases their own."""
        found: set[str] = set()
        for one, other in combinations(heads, 2):
            found |= self._closure(self.bases(one, other))
        return found

    def _closure(self, commits: set[str]) -> set[str]:
        known: set[str] = set()
        while known != commits:
            known = set(commits)
            commits = known.union(*(self.bases(one, other) for one, other in combinations(known, 2)))
        return known


def grow(graph: og.Graph, seed: int) -> None:
    """Branches that write, merge each other's newest state or an older one, are made from each other and deleted."""
    chance = random.Random(seed)
    commits: list[str] = []
    for step in range(STEPS):
        branches = [b.name for b in graph.branches()]
        branch = chance.choice(branches)
        commits.append(graph.snapshot(branch).commit)
        act = chance.random()
        if act < 0.2 and len(branches) < 5:
            graph.create_branch(f"b{step}", from_branch=branch)
        elif act < 0.25 and branch != "main":
            try:
                graph.delete_branch(branch)
            except og.errors.BranchInUse:
                continue
        elif act < 0.65 and len(branches) > 1:
            source = chance.choice([b for b in branches if b != branch])
            record_merge(graph, source if chance.random() < 0.4 else chance.choice(commits), into=branch)
        else:
            graph.upsert({"Person": [{"name": f"{step}", "age": step}]}, branch=branch)


@pytest.mark.parametrize("seed", [1, 13, 21, 24, 36, 47, 50, 55])
def test_the_bases_of_random_histories_are_kept(graph: og.Graph, seed: int) -> None:
    grow(graph, seed)
    heads = graph._manifest.heads()
    needed = Ancestors(graph).needed([head.commit for head in heads.values()])
    fresh = og.open(graph.uri)._manifest
    kept = set(merge_bases(fresh, heads)) | {head.commit for head in heads.values()}
    assert needed <= kept


def test_the_bases_of_several_bases_are_kept(graph: og.Graph) -> None:
    """Merges in both directions at the same time, twice: the second pair has two bases, and these two of their own."""
    graph.insert({"Person": [{"name": "start"}]})
    graph.create_branch("side")
    oldest: list[str] = []
    for turn in range(3):
        heads = {}
        for branch in ("main", "side"):
            graph.upsert({"Person": [{"name": branch, "age": turn}]}, branch=branch)
            heads[branch] = graph.snapshot(branch).commit
        oldest = oldest or list(heads.values())
        for source, into in (("main", "side"), ("side", "main")):
            record_merge(graph, heads[source], into=into)
    result = graph.cleanup(keep=1, confirm=True)
    assert any("merge_base:main,side" in kept.because for table in result.tables for kept in table.kept)
    for commit in oldest:
        assert rows(graph, commit=commit)


def test_without_criss_cross_older_bases_are_let_go(graph: og.Graph) -> None:
    """A branch that is merged again and again: only what it shares last with main stays."""
    graph.insert({"Person": [{"name": "start"}]})
    graph.create_branch("side")
    merged = []
    for turn in range(4):
        graph.upsert({"Person": [{"name": "theirs", "age": turn}]}, branch="side")
        merged.append(graph.snapshot("side").commit)
        record_merge(graph, "side")
        graph.upsert({"Person": [{"name": "ours", "age": turn}]})
    graph.upsert({"Person": [{"name": "theirs", "age": 9}]}, branch="side")
    kept = set(merge_bases(graph._manifest, graph._manifest.heads()))
    assert kept & set(merged) == {merged[-1]}
