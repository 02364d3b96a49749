"""Four processes write and merge fifty branches each into main, beside a writer, optimize and cleanup: every merge
lands or says why, and nothing that was acknowledged is lost.
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
PROCESSES, BRANCHES, KEYS = 4, 50, 8
UPKEEP_ROUNDS = 12


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


def upkeep(uri: str, rounds: int) -> dict[str, Any]:
    graph = og.open(uri)
    for _ in range(rounds):
        graph.optimize()
        graph.cleanup(keep=1, older_than="0s", confirm=True)
    return {}


JOBS = {"merger": merger, "writer": writer, "upkeep": upkeep}


def _run(jobs: list[list[str]], *, timeout_s: float) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.contention.test_merges"]
    running = [subprocess.Popen([*command, *job], stdout=subprocess.PIPE, text=True) for job in jobs]
    outputs = [process.communicate(timeout=timeout_s)[0] for process in running]
    assert [process.returncode for process in running] == [0] * len(jobs)
    return [json.loads(output) for output in outputs]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_hundred_branches_are_merged_by_four_processes_beside_writers_and_upkeep(tmp_path: Path) -> None:
    uri = str(tmp_path / "graph")
    graph = og.init(uri, SCHEMA)
    graph.insert({"Person": [{"name": f"key{i}", "age": 0} for i in range(KEYS)]})
    jobs = [["merger", uri, str(number), str(BRANCHES)] for number in range(PROCESSES)]
    *mergers, written, _ = _run([*jobs, ["writer", uri, "60"], ["upkeep", uri, str(UPKEEP_ROUNDS)]], timeout_s=800)
    names = {name for done in mergers for name in done["merged"]}
    assert len(names) == PROCESSES * BRANCHES
    assert {kind for done in mergers for kind in done["refused"]} <= {"divergent_update"}
    fresh = og.open(uri)
    stored = set(fresh.nodes("Person", columns=["id"])["id"].to_pylist())
    expected = {f"{name}/{j}" for name in names for j in range(3)} | set(written["written"])
    assert expected <= stored
    assert len(stored) == len(expected) + KEYS
    assert fresh.snapshot().count("Knows") == len(names)
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
    assert og.open(uri).snapshot().count("Person") == KEYS + 2 * 4 * 3


if __name__ == "__main__":
    job, address, *numbers = sys.argv[1:]
    print(json.dumps(JOBS[job](address, *map(int, numbers))))
