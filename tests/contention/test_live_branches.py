"""Two hundred branches of one graph are live at once; four processes write and merge all of them back into main.

1. create    each process creates its share; nobody goes on before all branches exist
2. write     rows of the branch's own, and one of the keys that all branches and main change; every fifth branch first
             takes over what main has by then
3. merge     into main, which moves meanwhile; a conflict is resolved by a strategy, ours and theirs by turns
4. audit     a fresh handle: all rows are there once, every merge is a commit of main, and the keys hold what replaying
             main's history gives

No branch is deleted before the audit.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import errors

SCHEMA = "node Person { name: String @key  age: I64? }\nedge Knows: Person -> Person"
PROCESSES, BRANCHES, KEYS = 4, 200, 60
CATCH_UP_EVERY = 5
ROWS = 3


def client(uri: str, number: int) -> list[dict[str, Any]]:
    """One entry per branch: its key and value, the conflicts and strategy of its merge, main's key and value."""
    graph = og.open(uri, actor=f"client{number}")
    numbers = range(number, BRANCHES, PROCESSES)
    for i in numbers:
        graph.create_branch(f"b{i}")
    _wait_for_all(uri, number)
    return [_write_and_merge(graph, i) for i in numbers]


def _wait_for_all(uri: str, number: int) -> None:
    Path(f"{uri}.created{number}").touch()
    while not all(Path(f"{uri}.created{n}").exists() for n in range(PROCESSES)):
        time.sleep(0.01)


def _write_and_merge(graph: og.Graph, i: int) -> dict[str, Any]:
    branch, key, moved_key = f"b{i}", f"key{i % KEYS}", f"key{(i * 7 + 1) % KEYS}"
    value, moved_value = 1_000 + i, 5_000 + i
    if i % CATCH_UP_EVERY == 0:
        graph.merge("main", into=branch)
    rows = [{"name": f"{branch}/{j}", "age": j} for j in range(ROWS)]
    graph.insert({"Person": rows, "Knows": [{"from": f"{branch}/0", "to": f"{branch}/1"}]}, branch=branch)
    graph.update("Person", {"age": value}, ids=[key], branch=branch)
    graph.upsert(
        {"Person": [{"name": f"main{i}", "age": i}, {"name": moved_key, "age": moved_value}]}, operation_id=f"main{i}"
    )
    done = {"branch": branch, "key": key, "value": value, "moved_key": moved_key, "moved_value": moved_value}
    try:
        graph.merge(branch)
    except errors.MergeConflicts as error:
        strategy = "ours" if i % 2 else "theirs"
        graph.merge(branch, strategy=strategy)  # type: ignore[arg-type]
        return {**done, "strategy": strategy, "conflicts": [[c.kind, c.id] for c in error.plan.conflicts]}
    return {**done, "strategy": None, "conflicts": []}


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_two_hundred_live_branches_are_written_and_merged_by_four_processes(tmp_path: Path) -> None:
    uri = str(tmp_path / "graph")
    graph = og.init(uri, SCHEMA)
    graph.insert({"Person": [{"name": f"key{i}", "age": 0} for i in range(KEYS)]})
    done = _run_clients(uri)
    assert {d["branch"] for d in done} == {f"b{i}" for i in range(BRANCHES)}
    assert {kind for d in done for kind, _ in d["conflicts"]} == {"divergent_update"}
    assert all(d["conflicts"] == [["divergent_update", d["key"]]] for d in done if d["conflicts"])
    assert {d["strategy"] for d in done} == {None, "ours", "theirs"}
    fresh = og.open(uri)
    branches = {branch.name: branch for branch in fresh.branches()}
    assert branches.keys() == {"main"} | {d["branch"] for d in done}
    stored = {row["id"]: row["age"] for row in fresh.nodes("Person").to_pylist()}
    assert fresh.snapshot().count("Person") == len(stored), "no row is there twice"
    rows = {f"{d['branch']}/{j}": j for d in done for j in range(ROWS)} | {f"main{i}": i for i in range(BRANCHES)}
    assert stored == {**rows, **_replayed(fresh, done)}
    assert fresh.snapshot().count("Knows") == BRANCHES
    for name in ("b0", "b1", f"b{BRANCHES - 1}"):
        assert fresh.merge(name).outcome == "already_up_to_date"
        assert {f"{name}/{j}" for j in range(ROWS)} <= set(fresh.snapshot(name).read("Person")["id"].to_pylist())
    assert fresh.verify().ok


def _replayed(graph: og.Graph, done: list[dict[str, Any]]) -> dict[str, int]:
    """The keys after every write and merge of main, in the order of its history, which has each of them once."""
    by_head = {graph.snapshot(d["branch"]).commit: d for d in done}
    by_write = {f"main{d['branch'][1:]}": d for d in done}
    values = {f"key{i}": 0 for i in range(KEYS)}
    merged, written = [], []
    for commit in reversed(graph.commits()):
        if commit.kind == "merge":
            d = by_head[commit.parents[1]]
            merged.append(d["branch"])
            if d["strategy"] != "ours":
                values[d["key"]] = d["value"]
        elif commit.operation_id in by_write:
            d = by_write[commit.operation_id]
            written.append(d["branch"])
            values[d["moved_key"]] = d["moved_value"]
    assert sorted(merged) == sorted(written) == sorted(d["branch"] for d in done)
    return values


def _run_clients(uri: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.contention.test_live_branches", uri]
    running = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in range(PROCESSES)]
    outputs = [process.communicate(timeout=300)[0] for process in running]
    assert [process.returncode for process in running] == [0] * PROCESSES
    return [entry for output in outputs for entry in json.loads(output)]


if __name__ == "__main__":
    print(json.dumps(client(sys.argv[1], int(sys.argv[2]))))
