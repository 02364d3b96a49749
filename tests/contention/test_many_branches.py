"""Four processes create, write and delete hundreds of branches while all of them pack: no branch and no row is lost."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.storage.manifest import packed_heads

SCHEMA = "node Person { name: String @key }"
PROCESSES, NAMES, SHARED, STEPS = 4, 75, 6, 120


def client(uri: str, number: int, seed: int) -> dict[str, list[str]]:
    """Random operations on branches of its own, and now and then on names that all fight for. Its branches' rows."""
    rng = random.Random(f"{seed}/{number}")
    packed_heads.LOOSE_MAX, packed_heads.LOOSE_KEPT = 12, 4
    graph = og.open(uri)
    mine: dict[str, list[str]] = {}
    names = [f"c{number}-{i}" for i in range(NAMES)]
    for name in names:
        graph.create_branch(name)
        mine[name] = []
    for step in range(STEPS):
        name = rng.choice(names)
        if rng.random() < 0.1:
            _fight(graph, f"shared-{rng.randrange(SHARED)}", rng)
        elif name not in mine:
            graph.create_branch(name)
            mine[name] = []
        elif rng.random() < 0.3:
            graph.delete_branch(name)
            del mine[name]
        else:
            row = f"{number}-{step}"
            graph.insert({"Person": [{"name": row}]}, branch=name)
            mine[name].append(row)
    return mine


def _fight(graph: og.Graph, name: str, rng: random.Random) -> None:
    try:
        if rng.random() < 0.5:
            graph.create_branch(name)
        else:
            graph.delete_branch(name)
    except (errors.BranchExists, errors.BranchNotFound):
        return


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_processes_that_create_write_and_delete_branches_lose_none(tmp_path: Path, seed: int) -> None:
    uri = str(tmp_path / "graph")
    og.init(uri, SCHEMA).close()
    command = [sys.executable, "-m", "tests.contention.test_many_branches", uri]
    running = [
        subprocess.Popen([*command, str(number), str(seed)], stdout=subprocess.PIPE, text=True)
        for number in range(PROCESSES)
    ]
    outputs = [process.communicate(timeout=240)[0] for process in running]
    assert [process.returncode for process in running] == [0] * PROCESSES
    expected = {name: sorted(rows) for output in outputs for name, rows in json.loads(output).items()}
    graph = og.open(uri)
    heads = graph._manifest.heads()
    own = {name for name in heads if name.startswith("c")}
    assert own == set(expected)
    for name in sorted(own):
        assert sorted(graph.snapshot(name).read("Person")["name"].to_pylist()) == expected[name], name
        assert heads[name].epoch == len(expected[name])
    assert graph._manifest.known_loose() <= 2 * 12 + PROCESSES
    assert graph.verify(quick=True).ok


if __name__ == "__main__":
    print(json.dumps(client(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
