"""What must be true of a graph after a crowd has been at it: of its rows and of its history, by a fresh handle."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

from omnigraph.storage.manifest.records import RECOVERY_ACTOR
from tests.contention import world
from tests.contention.clients import read_log
from tests.faults.forkserver import Ended


def wrong_end(ended: Ended) -> list[str]:
    """What is wrong with how a client of a soak ended: it may be killed, nothing else. A reader says what it saw."""
    if ended.hung:
        return [f"a client never came to an end: {ended}"]
    if ended.error is not None:
        return [f"a client failed: {ended.error}"]
    if ended.status not in (0, -signal.SIGKILL):
        return [f"a client ended with status {ended.status}"]
    return [f"a reader saw: {wrong}" for wrong in _reading(ended).get("broken", ())]


def snapshots_of(ended: Ended) -> int:
    """How many snapshots a client has read, if it is a reader that came to its end."""
    return int(_reading(ended).get("snapshots", 0))


def _reading(ended: Ended) -> dict[str, Any]:
    value = (ended.result or {}).get("value")
    return value if isinstance(value, dict) and "snapshots" in value else {}


def objects_left(path: Path | str) -> list[str]:
    """Files under `__recovery`: of a graph at rest there are none."""
    below = os.path.join(path, "__recovery")
    return sorted(os.path.join(folder, name) for folder, _, names in os.walk(below) for name in names)


def wrong_epochs(graph: Any, branch: str = "main") -> list[str]:
    """Every epoch of a branch is decided exactly once, in a commit or an abort, and stays on record."""
    manifest = graph._manifest
    head = manifest.head(branch)
    in_head = [record.epoch for record in head.recent]
    found = []
    if in_head != sorted(set(in_head)):
        found.append(f"the head of {branch} holds the epochs {in_head}, not each once and in order")
    if in_head and in_head[-1] != head.epoch:
        found.append(f"the head of {branch} is at epoch {head.epoch}, its newest record at {in_head[-1]}")
    rows = {body["e"] for body in manifest._rows(f"inc = '{head.incarnation}'")}
    undecided = set(range(1, head.epoch + 1)) - rows - set(in_head)
    if undecided:
        found.append(f"epochs of {branch} without a record: {sorted(undecided)[:5]}")
    return found


def wrong_history(graph: Any, log: Path | str, branch: str = "main") -> list[str]:
    """Every acknowledged operation is one commit; none is there twice; what nobody asked for is not there."""
    lines = [line for line in read_log(log) if line.get("branch") == branch and "operation" in line]
    asked = {line["operation"] for line in lines}
    promised = {line["operation"] for line in lines if line["did"] == "ack"}
    refused = {line["operation"] for line in lines if line["did"] == "refused"} - promised
    made = [c for c in graph.commits(branch) if c.kind == "write" and c.operation_id and c.actor != RECOVERY_ACTOR]
    times = Counter(c.operation_id for c in made)
    found = []
    for what, wrong in (
        ("doubled", {o for o, n in times.items() if n > 1}),
        ("acknowledged and not there", promised - times.keys()),
        ("refused and there", refused & times.keys()),
        ("there and never asked for", times.keys() - asked),
    ):
        if wrong:
            found.append(f"{len(wrong)} operations are {what}, e.g. {sorted(wrong)[:3]}")
    return found + _wrong_winners(graph, lines, [c.operation_id for c in made], branch)


def _wrong_winners(graph: Any, lines: list[dict[str, Any]], newest_first: list[str], branch: str) -> list[str]:
    """The row of a key that many write is the one of the newest commit that wrote it."""
    writes = {line["operation"]: (line["key"], line["n"]) for line in lines if line["did"] == "begin"}
    expected: dict[str, tuple[int, str]] = {}
    for operation in newest_first:
        key, n = writes[operation]
        expected.setdefault(key, (n, operation))
    there = world.rows(graph.snapshot(branch), "Left")
    wrong = [
        (key, there.get(key), value)
        for key, value in expected.items()
        if not key.startswith(world.COUNTED) and there.get(key) != value
    ]
    return [f"keys do not hold what their newest commit wrote: {wrong[:3]}"] if wrong else []


def violations(
    path: Path | str, log: Path | str, *, branches: tuple[str, ...] = ("main",), wait_max_s: float
) -> list[str]:
    """Everything that is wrong afterwards: read by a fresh handle, before and after it writes once on every branch."""
    import omnigraph

    graph = omnigraph.open(path)
    found = []
    for branch in branches:
        promised = {line["key"] for line in read_log(log) if line["did"] == "ack" and line["branch"] == branch}
        found += world.broken_rules(graph.snapshot(branch), must_hold=promised)
        began = time.monotonic()
        world.write(graph, "afterwards", n=int(began * 1e6), branch=branch)
        waited_s = time.monotonic() - began
        if waited_s > wait_max_s:
            found.append(f"{branch} could be written only after {waited_s:.2f} s")
        found += world.broken_rules(graph.snapshot(branch), must_hold=promised | {"afterwards"})
        found += wrong_epochs(graph, branch)
        found += wrong_history(graph, log, branch)
    left = objects_left(path)
    if left:
        found.append(f"left under __recovery: {left[:3]}")
    return found
