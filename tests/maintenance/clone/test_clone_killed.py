"""A clone that was stopped is no graph, and the same call completes it."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.commit import owner
from omnigraph.errors import CloneUnfinished, GraphExists
from omnigraph.storage import durability
from omnigraph.storage.layout import locate
from omnigraph.storage.objects import clone_mark
from tests.cli.conftest import Cli
from tests.maintenance.relocate import graphs

KILLED_CLONE = """
import os, signal, sys
import obstore
import omnigraph as og
at = [int(sys.argv[3])]
def counted(call):
    def struck(*args, **options):
        at[0] -= 1
        if at[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **options)
    return struck
os.replace, obstore.put = counted(os.replace), counted(obstore.put)
og.clone(sys.argv[1], sys.argv[2], verify="none")
"""


class Struck(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    graph = og.init(tmp_path / "source", graphs.SCHEMA)
    graph.insert({"Person": [{"name": "p1", "age": 1}]})
    graph.create_branch("side")
    graph.upsert({"Person": [{"name": "p2", "age": 1}]}, branch="side")
    return Path(graph.uri)


def struck_at(at: int, patch: pytest.MonkeyPatch, source: Path, target: Path, **options: Any) -> bool:
    """Whether a clone came to its end before its `at`th change of the target."""
    import obstore

    left = itertools.count(at, -1)

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def struck(*args: Any, **more: Any) -> Any:
            if next(left) <= 0:  # a process that is gone changes nothing more
                raise Struck
            return call(*args, **more)

        return struck

    with patch.context() as context:
        for module, name in (
            (os, "link"),
            (os, "replace"),
            (os, "unlink"),
            (obstore, "put"),
            (durability, "sync_tree"),
        ):
            context.setattr(module, name, counted(getattr(module, name)))
        # As its process would be gone, and not as it would fail.
        context.setattr(owner, "is_gone", lambda _: True)
        try:
            og.clone(source, target, verify="none", **options)
        except Struck:
            return False
        return True


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"branch": "side"}], ids=["whole", "state"])
def test_struck_at_every_change(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(owner, "is_gone", lambda _: True)
    before = graphs.digests(small)
    target = tmp_path / "target"
    og.clone(small, target, **options)
    expected, goal = _rows(target), _tables(target)
    refused = 0
    for at in itertools.count():
        shutil.rmtree(target, ignore_errors=True)
        is_done = struck_at(at, monkeypatch, small, target, **options)
        if is_done:
            break
        assert _is_refused_or_right(target, expected)
        refused += _is_refused(target)
        if (target / "__clone").exists() or not (target / "__manifest" / "_versions").exists():
            assert og.clone(small, target, **options).ok
        assert _rows(target) == expected
        assert _tables(target) == goal
    assert refused > 10
    # What a killed process leaves of its lease runs out by itself, and cleanup takes probes.
    after = graphs.digests(small).items()
    assert {path: digest for path, digest in after if not path.startswith(("__leases/", "__cleanup/"))} == before


def _tables(root: Path) -> set[str]:
    """Without the manifest, which is made anew, and without probes of the store that nobody has removed yet."""
    return {path for path in graphs.digests(root) if not path.startswith("__")}


def _rows(root: Path) -> dict[str, Any]:
    graph = og.open(root, engine="local")
    return {b.name: graphs.comparable(graph.nodes("Person", branch=b.name).to_pylist()) for b in graph.branches()}


def _is_refused(root: Path) -> bool:
    try:
        og.open(root).branches()
    except (CloneUnfinished, og.errors.GraphNotFound):
        return True
    return False


def _is_refused_or_right(root: Path, expected: dict[str, Any]) -> bool:
    return _is_refused(root) or _rows(root) == expected


@pytest.mark.slow
def test_a_killed_process_is_followed_by_one_that_completes(original: Path, tmp_path: Path, cli: Cli) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    target = tmp_path / "target"
    command = [sys.executable, "-c", KILLED_CLONE, str(original), str(target), str(random.Random(seed).randint(8, 25))]
    assert subprocess.run(command, timeout=120, check=False).returncode == -signal.SIGKILL
    refused = cli("snapshot", target, "--json").error
    assert (refused["condition"], refused["source"]) == ("clone_unfinished", str(original))
    with pytest.raises(CloneUnfinished):
        og.init(target, graphs.SCHEMA)
    with pytest.raises(CloneUnfinished):
        og.clone(og.init(tmp_path / "another", graphs.SCHEMA).uri, target)
    done = cli("clone", original, target, "--json").json
    assert (done["ok"], done["present"] > 0) == (True, True)
    assert graphs.contents(og.open(target)) == graphs.contents(og.open(original))
    shutil.rmtree(original / "__leases", ignore_errors=True)


def test_two_clones_at_one_address_do_not_mix(original: Path, tmp_path: Path) -> None:
    target = locate(tmp_path / "target")
    with (
        clone_mark.marked(target, str(original), owner=owner.myself(), is_gone=owner.is_gone),
        pytest.raises(CloneUnfinished, match="another process is at work"),
    ):
        og.clone(original, target.uri)
    with (
        pytest.raises(RuntimeError),
        clone_mark.marked(target, str(original), owner=owner.myself(), is_gone=owner.is_gone),
    ):
        raise RuntimeError
    assert og.clone(original, target.uri).ok, "one that has failed is gone on with"
    with pytest.raises(GraphExists):
        og.clone(original, target.uri)


def test_what_an_earlier_attempt_copied_and_this_one_does_not_need_goes(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    assert not struck_at(20, monkeypatch, original, target)
    monkeypatch.setattr(owner, "is_gone", lambda _: True)
    (target / "nodes" / "n1-ab").mkdir(parents=True)
    (target / "nodes" / "n1-ab" / "left").write_bytes(b"left")
    result = og.clone(original, target, branch="main", verify="full")
    assert result.ok
    assert not (target / "nodes" / "n1-ab").exists()
    assert not list(target.glob("*/*/tree"))
    assert len(graphs.digests(target)) == result.copied.files + 6, (
        "and the five files of a new manifest, and the reserve"
    )
    shutil.rmtree(original / "__leases", ignore_errors=True)
