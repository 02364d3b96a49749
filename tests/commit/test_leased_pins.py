"""Leases of operations on versions of other states: from before they prepare until they are decided, and cheap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.commit.committer import Committer
from omnigraph.commit.operation import Prepared, View
from omnigraph.errors import VersionReclaimed
from omnigraph.storage.layout import LEASES
from omnigraph.storage.manifest.records import Pin
from omnigraph.storage.objects.leases import leases
from tests.branch.operations import run
from tests.commit import deeds
from tests.faults.s3server import S3Server, World

TYPES = 8
SCHEMA = "\n".join(f"node T{i} {{ name: String @key }}" for i in range(TYPES))


@dataclass(frozen=True)
class Compare:
    """Records a second parent under a lease, with no table moved."""

    pins: tuple[Pin, ...]
    merged_parent: str
    kind: str = "merge"
    quick: bool = True

    def scope(self, view: View) -> frozenset[str]:
        return frozenset(view.pins)

    def leased_pins(self, view: View) -> Iterable[Pin]:
        return self.pins

    def prepare(self, view: View) -> Prepared:
        return Prepared(view=view, merged_parent=self.merged_parent)


def compare(graph: og.Graph, branch: str, *more: Pin) -> Compare:
    return Compare((*graph._committer.view(branch).pins.values(), *more), graph.snapshot(branch).commit)


def test_the_lease_holds_from_before_preparing_until_after_publishing(tmp_path: Path) -> None:
    deeds.create_with_fork(str(tmp_path / "graph"))
    graph = og.open(tmp_path / "graph")
    operation = compare(graph, "side")
    pinned: dict[str, set[str]] = {}

    def observe(phase: str) -> None:
        pinned[phase] = {path for lease in leases(graph._location) for path in lease.pins}

    run(graph, operation, committer=Committer(graph._manifest, observer=observe))
    expected = {pin.path for pin in operation.pins}
    assert {phase for phase, paths in pinned.items() if paths == expected} == set(pinned) - {"prepare"}
    assert not list((tmp_path / "graph" / LEASES).glob("*"))


def test_a_version_that_is_not_there_is_refused_before_anything_is_prepared(tmp_path: Path) -> None:
    deeds.create_with_fork(str(tmp_path / "graph"))
    graph = og.open(tmp_path / "graph")
    pin = graph._committer.view("side").pins[graph.schema().node["Left"].id]
    before = graph.snapshot().commit
    with pytest.raises(VersionReclaimed):
        run(graph, compare(graph, "side", pin.at(pin.version + 7)))
    assert og.open(graph.uri).snapshot().commit == before
    assert not list((tmp_path / "graph" / LEASES).glob("*"))


# ---- requests --------------------------------------------------------------------------------------------------------


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[S3Server, World]]:
    with S3Server() as server:
        world = server.add(World("leased"))
        variables = {"AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": server.endpoint}
        for name, value in {**variables, "AWS_ACCESS_KEY_ID": f"{world.name}.me.0", "AWS_ALLOW_HTTP": "true"}.items():
            monkeypatch.setenv(name, value)
        yield server, world


def test_a_lease_on_live_branches_and_their_base_takes_five_requests(world: tuple[S3Server, World]) -> None:
    """One object, and no look at each version: heads, and what branches were made from, are never removed."""
    server, store = world
    graph = og.init("s3://graphs/g", SCHEMA)
    rows = {f"T{i}": [{"name": "old"}] for i in range(TYPES)}
    graph.insert(rows)
    graph.create_branch("side")
    base = graph._committer.view("main").pins.values()
    for branch in ("side", "main"):
        graph.upsert({name: [{"name": branch}] for name in rows}, branch=branch)
    operation = compare(graph, "side", *base)
    assert len(set(operation.pins)) == 2 * TYPES

    def requests(done: Any) -> Counter[str]:
        start = server.call(lambda: len(store.log))
        done()
        log = server.call(lambda: store.log[start:])
        return Counter(entry.operation for entry in log)

    leased = requests(lambda: run(graph, operation))
    plain = requests(lambda: run(graph, Compare((), operation.merged_parent)))
    extra = Counter({name: leased[name] - plain[name] for name in leased | plain})
    assert +extra == Counter(PUT=1, LIST=3, BULK_DELETE=1)
