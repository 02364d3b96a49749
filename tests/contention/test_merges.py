"""Merges beside other merges, writers, optimize and cleanup: every merge lands or says why, and nothing that was
acknowledged is lost.

Clients are processes: this module with the name of a job, the graph and numbers. What a client did is on its stdout.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import errors

SCHEMA = "node Person { name: String @key  age: I64? }\nedge Knows: Person -> Person"
KEYS = 8


def merger(uri: str, number: int, branches: int) -> dict[str, Any]:
    """Create all branches, then write and merge each: rows of its own, and one key that all processes change."""
    graph = og.open(uri)
    names = [f"m{number}-{i}" for i in range(branches)]
    for name in names:
        graph.create_branch(name)
    merged: list[str] = []
    refused: list[str] = []
    for i, name in enumerate(names):
        rows = [{"name": f"{name}/{j}", "age": j} for j in range(3)]
        graph.insert({"Person": rows, "Knows": [{"from": f"{name}/0", "to": f"{name}/1"}]}, branch=name)
        graph.update("Person", {"age": number * 1_000 + i}, ids=[f"key{i % KEYS}"], branch=name)
        try:
            graph.merge(name)
        except errors.MergeConflicts as error:
            refused += [c.kind for c in error.plan.conflicts]
            graph.merge(name, strategy="theirs")
        merged.append(name)
        if i % 2:
            graph.delete_branch(name)
    return {"merged": merged, "refused": refused}


def writer(uri: str, count: int) -> dict[str, Any]:
    graph = og.open(uri)
    for i in range(count):
        graph.upsert({"Person": [{"name": f"w{i}", "age": i}]})
    return {"written": [f"w{i}" for i in range(count)]}


def upkeep(uri: str) -> dict[str, Any]:
    """Optimize and remove all old versions, again and again until the file is there that says that it is over."""
    graph = og.open(uri)
    optimized = removed = rounds = 0
    while not Path(f"{uri}.over").exists():
        optimized += graph.optimize().commit is not None
        removed += graph.cleanup(keep=1, older_than="0s", confirm=True).old_versions_removed
        rounds += 1
    return {"rounds": rounds, "optimized": optimized, "removed": removed}


JOBS = {"merger": merger, "writer": writer, "upkeep": upkeep}


def _run(jobs: list[list[str]], *, beside: list[list[str]] | None = None, timeout_s: float) -> list[dict[str, Any]]:
    """What `jobs` and then `beside` did; the latter go on until the former have ended."""
    command = [sys.executable, "-m", "tests.contention.test_merges"]
    every = [*jobs, *(beside or [])]
    running = [subprocess.Popen([*command, *job], stdout=subprocess.PIPE, text=True) for job in every]
    outputs = [process.communicate(timeout=timeout_s)[0] for process in running[: len(jobs)]]
    for _, uri, *_ in beside or []:
        Path(f"{uri}.over").touch()
    outputs += [process.communicate(timeout=timeout_s)[0] for process in running[len(jobs) :]]
    assert [process.returncode for process in running] == [0] * len(every)
    return [json.loads(output) for output in outputs]


@pytest.mark.parametrize(
    ("processes", "branches", "writes"),
    [
        pytest.param(2, 8, 20, marks=[pytest.mark.slow, pytest.mark.timeout(300)]),
        pytest.param(4, 50, 60, marks=[pytest.mark.long, pytest.mark.timeout(1200)]),
    ],
)
def test_merges_land_beside_a_writer_optimize_and_cleanup(
    tmp_path: Path, processes: int, branches: int, writes: int
) -> None:
    uri = str(tmp_path / "graph")
    graph = og.init(uri, SCHEMA)
    graph.insert({"Person": [{"name": f"key{i}", "age": 0} for i in range(KEYS)]})
    jobs = [["merger", uri, str(number), str(branches)] for number in range(processes)]
    *mergers, written, kept = _run([*jobs, ["writer", uri, str(writes)]], beside=[["upkeep", uri]], timeout_s=1_000)
    names = {name for done in mergers for name in done["merged"]}
    assert len(names) == processes * branches
    assert {kind for done in mergers for kind in done["refused"]} <= {"divergent_update"}
    assert min(kept.values()) > 0, kept
    fresh = og.open(uri)
    stored = fresh.nodes("Person", columns=["id"])["id"].to_pylist()
    expected = {f"{name}/{j}" for name in names for j in range(3)} | set(written["written"])
    expected |= {f"key{i}" for i in range(KEYS)}
    assert sorted(stored) == sorted(expected), "each once"
    assert fresh.snapshot().count("Knows") == len(names)
    merges = [commit for commit in fresh.commits() if commit.kind == "merge"]
    assert len({commit.parents[1] for commit in merges}) == len(merges) == len(names)
    left = {b.name for b in fresh.branches()} - {"main"}
    assert len(left) == len(names) // 2
    for name in sorted(left)[:5]:
        assert fresh.merge(name).outcome == "already_up_to_date"
    assert fresh.verify().ok


def test_two_merges_into_one_branch_at_once_both_land(tmp_path: Path) -> None:
    uri = str(tmp_path / "graph")
    graph = og.init(uri, SCHEMA)
    graph.insert({"Person": [{"name": f"key{i}", "age": 0} for i in range(KEYS)]})
    done = _run([["merger", uri, str(number), "4"] for number in range(2)], timeout_s=200)
    assert all(len(d["merged"]) == 4 for d in done)
    fresh = og.open(uri)
    assert fresh.snapshot().count("Person") == KEYS + 2 * 4 * 3
    assert len([commit for commit in fresh.commits() if commit.kind == "merge"]) == 2 * 4
    assert fresh.verify().ok


if __name__ == "__main__":
    job, address, *numbers = sys.argv[1:]
    print(json.dumps(JOBS[job](address, *map(int, numbers))))
