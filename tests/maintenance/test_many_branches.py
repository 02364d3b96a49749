"""What cleanup and verify cost grows with the number of branches, and not with that of their pairs.

Counted in calls, and in questions to the store, not in time: a loop over pairs makes the second step four times as
expensive as the first, one over branches twice as expensive.
"""

from __future__ import annotations

import cProfile
from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.storage.lance import lance_api
from omnigraph.storage.manifest.table import Manifest

COUNTS = (12, 24, 48)
RATIO_MAX = 2.7
VERBS: dict[str, Callable[[og.Graph], object]] = {
    "preview": lambda graph: graph.plan_cleanup(keep=1),
    "verify": lambda graph: graph.verify(quick=True),
}


def grow(graph: og.Graph, start: int, stop: int) -> None:
    """Branches from different commits of main; some have written and so have forks, some are gone and left theirs."""
    for i in range(start, stop):
        graph.create_branch(f"b{i}")
        if i % 2 == 0:
            graph.upsert({"P": [{"name": f"on-b{i}"}]}, branch=f"b{i}")
        if i % 4 == 1:
            graph.upsert({"P": [{"name": f"on-main{i}"}]})
        if i % 6 == 0:
            graph.delete_branch(f"b{i}")


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, int]]]:
    graph = og.init(tmp_path_factory.mktemp("branches") / "graph", "node P { name: String @key }")
    found: dict[str, list[dict[str, int]]] = {verb: [] for verb in VERBS}
    before = 0
    for count in COUNTS:
        grow(graph, before, count)
        before = count
        for verb, call in VERBS.items():
            call(og.open(graph.uri, engine="local"))  # what is imported and compiled once is not counted
            found[verb].append(cost(Path(graph.uri), call))
    return found


def cost(path: Path, call: Callable[[og.Graph], object]) -> dict[str, int]:
    graph = og.open(path, engine="local")
    asked = {"rows": 0, "opened": 0}
    rows, opened = Manifest._rows, lance_api.open_table

    def count_rows(self: Manifest, where: str) -> list[dict[str, object]]:
        asked["rows"] += 1
        return rows(self, where)

    def count_opened(*args: object, **options: object) -> object:
        asked["opened"] += 1
        return opened(*args, **options)  # type: ignore[arg-type]

    profile = cProfile.Profile()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Manifest, "_rows", count_rows)
        patched.setattr(lance_api, "open_table", count_opened)
        profile.enable()
        call(graph)
        profile.disable()
    return {**asked, "calls": sum(entry.callcount for entry in profile.getstats())}


@pytest.mark.parametrize("verb", VERBS)
def test_the_work_grows_with_the_branches(costs: dict[str, list[dict[str, int]]], verb: str) -> None:
    small, middle, large = (found["calls"] for found in costs[verb])
    assert large - middle <= RATIO_MAX * (middle - small), costs[verb]


def test_a_preview_asks_the_manifest_a_few_questions_whatever_the_branches(
    costs: dict[str, list[dict[str, int]]],
) -> None:
    small, _, large = (found["rows"] for found in costs["preview"])
    assert large <= small + 4, costs["preview"]


def test_every_merge_base_is_found_as_by_comparing_all_pairs(tmp_path: Path) -> None:
    """Against the plain rule: of every two branches and every incarnation that both know, the lower end."""
    from itertools import combinations

    from omnigraph.maintenance.cleanup.merge_bases import _Histories, merge_bases

    graph = og.init(tmp_path / "graph", "node P { name: String @key }")
    grow(graph, 0, 8)
    for name, source in (("c1", "b1"), ("c2", "b1"), ("d", "c1")):
        graph.create_branch(name, from_branch=source)
        graph.upsert({"P": [{"name": name}]}, branch=name)
        graph.upsert({"P": [{"name": f"{name}-source"}]}, branch=source)
    heads = graph._manifest.heads()
    histories = _Histories(graph._manifest, heads)
    known = {branch: histories.of(head) for branch, head in heads.items()}
    expected: dict[str, set[tuple[str, str]]] = {}
    for one, other in combinations(sorted(known), 2):
        for incarnation in known[one].keys() & known[other].keys():
            _, commit = min(known[one][incarnation], known[other][incarnation])
            expected.setdefault(commit, set()).add((one, other))
    found = merge_bases(graph._manifest, heads)
    assert found.keys() == expected.keys()
    assert all(pair in expected[commit] for commit, pair in found.items())
