"""An operation is stopped past its lease, others settle it and clean up with the shortest limits, and it goes on.

The operation runs in this process and is stopped by its observer, and others act meanwhile; past its lease its
heartbeat rests, as that of a stopped process does. What is acknowledged afterwards can be read, and nothing that was
there is lost.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.maintenance.cleanup import Policy, Rule, cleanup
from omnigraph.maintenance.optimize import publish
from omnigraph.pipeline.embed import provider
from omnigraph.storage import durability
from omnigraph.storage.layout import LEASES
from omnigraph.storage.objects import leases
from tests.faults.scenes import Place
from tests.faults.worn import _Tiny, create_by_address
from tests.maintenance.cleanup.conftest import make_old
from tests.support.stops import Stop

SCHEMA = """
node P { name: String @key  v: I64? @index  bio: String?  vector: Vector(4)? @embed(bio) }
node Q { name: String @key  bio: String?  vector: Vector(4)? @embed(bio) }
node Z { name: String @key }
"""
ROWS = 6
Act = Callable[[og.Graph], Any]


@pytest.fixture(scope="module")
def _template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = og.init(tmp_path_factory.mktemp("stopped") / "graph", SCHEMA)
    for i in range(ROWS):
        graph.insert({"P": [{"name": f"p{i}", "v": i, "bio": f"text {i}"}], "Q": [{"name": f"q{i}", "bio": "same"}]})
    return Path(graph.uri)


@pytest.fixture
def path(_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMNIGRAPH_THREADS", "1")
    monkeypatch.setitem(provider.KINDS, "tiny", provider.Kind(_Tiny, "tiny", 16, 16))
    return Path(shutil.copytree(_template, tmp_path / "graph"))


def clean(path: Path, *, aged: bool, lease_lost: bool) -> None:
    """A cleanup to one version; `aged`: as if everything had been written a month ago."""
    if lease_lost:
        shutil.rmtree(path / LEASES, ignore_errors=True)
    if aged:
        for folder in ("nodes", "edges", "__staging"):
            if (path / folder).exists():
                make_old(path / folder)
    result = cleanup(og.open(path)._committer, Policy(default=Rule(keep=1)), confirm=True)
    assert not [t.error for t in result.tables if t.error]


def run(path: Path, act: Act, stop: Stop) -> Any:
    stop.graph = og.open(path, engine="local", observer=stop)
    result = act(stop.graph)
    assert stop.stopped, "the operation never came to that phase"
    return result


def judge(path: Path, *, extra: int = 0) -> None:
    graph = og.open(path)
    assert graph.nodes("P").num_rows == ROWS + extra
    assert graph.nodes("Q").num_rows == ROWS
    wrong = [f for f in graph.verify(full=True).findings if f.severity == "error"]
    assert not wrong
    graph.insert({"P": [{"name": "later"}], "Q": [{"name": "later"}]})
    graph.cleanup(keep=1, confirm=True)
    assert og.open(path).nodes("P").num_rows == ROWS + extra + 1


def optimize(graph: og.Graph) -> Any:
    result = graph.optimize()
    assert result.ok
    assert result.commits
    return result


def embed(graph: og.Graph) -> Any:
    result = graph.embed(provider="tiny")
    assert result.embedded == {"node:P": ROWS, "node:Q": ROWS}
    return result


def insert(graph: og.Graph) -> Any:
    return graph.insert({"P": [{"name": "new", "v": 7}]})


def load(graph: og.Graph) -> Any:
    return graph.load([b'{"type": "P", "data": {"name": "new"}}\n'], mode="merge")


@pytest.mark.parametrize("lease_lost", [False, True], ids=["leased", "lease_lost"])
@pytest.mark.parametrize("aged", [False, True], ids=["young", "aged"])
@pytest.mark.parametrize(("act", "nth"), [(optimize, 3), (embed, 2)], ids=["optimize", "embed"])
def test_a_long_operation_stopped_between_effects_rolled_back_and_cleaned_up_after(
    path: Path, act: Act, nth: int, aged: bool, lease_lost: bool
) -> None:
    def others() -> None:
        og.open(path).insert({"Z": [{"name": "z"}]})
        clean(path, aged=aged, lease_lost=lease_lost)

    run(path, act, Stop("effect", nth, others))
    judge(path)


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_an_optimize_that_another_one_overtook_while_it_was_stopped_plans_again(path: Path, nth: int) -> None:
    """Lance panics at a late exchange of segments, instead of saying that others were quicker."""

    def others() -> None:
        og.open(path).insert({"Z": [{"name": "z"}]})
        og.open(path, engine="local").optimize()
        clean(path, aged=False, lease_lost=False)

    graph = og.open(path, engine="local", observer=(stop := Stop("effect", nth, others)))
    stop.graph = graph
    assert graph.optimize().ok
    assert stop.stopped
    judge(path)


@pytest.mark.parametrize("act", [optimize, embed], ids=["optimize", "embed"])
def test_work_whose_lease_had_a_gap_is_prepared_again_with_new_files(
    path: Path, act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    boottime_s, files = leases._boottime_s, list[set[Path]]()

    def asleep() -> None:
        files.append(set((path / "nodes").rglob("data/*.lance")))
        monkeypatch.setattr(leases, "_boottime_s", lambda: boottime_s() + leases.LEASE_S + 1)

    before = set((path / "nodes").rglob("data/*.lance"))
    run(path, act, Stop("lock", 1, asleep))
    unused = files[0] - before
    graph = og.open(path)
    pins = graph._committer.view("main").pins.values()
    used = {f for pin in pins for f in _data_files(graph, pin)}
    assert unused
    assert not used & unused
    judge(path)


def test_a_write_that_another_process_published_is_acknowledged_though_its_version_is_gone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped before it syncs its only effect; who publishes it has synced it, and a cleanup removes it."""
    sync_files, calls = durability.sync_files, list[int]()
    graph = og.open(path, engine="local")

    def stopped(paths: Iterable[str]) -> None:
        files = list(paths)
        if not calls and "/nodes/" in files[0] and files[0].endswith(".manifest"):
            calls.append(1)
            graph._committer.locks._heartbeats._watched.clear()
            og.open(path).insert({"P": [{"name": "other"}]})
            clean(path, aged=False, lease_lost=False)
        sync_files(files)

    monkeypatch.setenv("OMNIGRAPH_FSYNC", "on")
    monkeypatch.setattr(durability, "sync_files", stopped)
    assert insert(graph).commit is not None
    assert calls
    assert {"new", "other"} <= set(og.open(path).nodes("P")["name"].to_pylist())


def test_a_commit_of_lance_that_lands_after_its_fence_was_collected_leaves_no_drift(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "graph"
    create_by_address(Place(str(path)))
    graph = og.open(path, engine="local")
    commit, calls = publish.commit_deferred, list[int]()

    def stopped(*args: Any) -> Any:
        if not calls:
            calls.append(1)
            graph._committer.locks._heartbeats._watched.clear()
            og.open(path).insert({name: [{"name": "between"}] for name in ("Person", "Company")})
            clean(path, aged=False, lease_lost=True)
        return commit(*args)

    monkeypatch.setattr(publish, "commit_deferred", stopped)
    graph.optimize(defer_index_remap=True)
    assert calls
    again = og.open(path)
    assert not [f for f in again.verify(full=True).findings if f.severity == "error"]
    again.insert({"Person": [{"name": "later"}], "Company": [{"name": "later"}]})


def _data_files(graph: og.Graph, pin: Any) -> set[Path]:
    table = graph._committer.tables.open(pin)
    folder = Path(graph._location.join(pin.root)) / "data"
    return {folder / file.path for fragment in table.get_fragments() for file in fragment.metadata.files}


@pytest.mark.parametrize("phase", ["lock", "check", "plan", "effect", "publish"])
@pytest.mark.parametrize("act", [insert, load], ids=["insert", "load"])
def test_a_write_that_stands_in_the_door_while_cleanup_believes_it_to_be_old(
    path: Path, act: Act, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_LEASE_S", "60")
    run(path, act, Stop(phase, 1, lambda: clean(path, aged=True, lease_lost=True), past_lease=False))
    judge(path, extra=1)
