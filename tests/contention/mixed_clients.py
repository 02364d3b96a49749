"""Clients of the mixed soak: maintenance verbs, branches and schema changes in a loop, each of which may be struck.

Every client strikes itself before phases of the commit protocol (`clients.Chaos`) and is struck from outside. What a
verb answers goes to the common log: `{"did": "done" | "refused", "client", "key": verb, "condition"}`. An error that
is not typed ends the client, which the soak reports.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from tests.contention import world
from tests.contention.clients import Chaos, Log, acknowledged
from tests.faults.jobs import JOBS, job

SCHEMA = world.SCHEMA.replace("by: String? }", 'by: String?  vector: Vector(64)? @embed("by") }').replace(
    "n: I64?", "n: I64? @index"
)
WITH_SCRATCH = SCHEMA.replace("by: String? ", "by: String?  scratch: I32? ") + "node Scratch { name: String @key }\n"
PAUSE_S = 0.05


def create(uri: str) -> None:
    import omnigraph

    with omnigraph.init(uri, SCHEMA) as graph:
        graph.insert({"Counter": [{"name": world.HOT, "value": 0}]})
        graph.create_branch("kept")
        world.write(graph, "on-kept", branch="kept")


def _repeat(
    uri: str, log: str, client: str, verb: str, seconds: float, chaos: dict[str, Any], act: Callable[[Any, int], None]
) -> int:
    """Call `act` again and again; how often it was done. Typed refusals are logged, anything else ends the client."""
    import omnigraph
    from omnigraph.errors import OmnigraphError

    observer = Chaos(**{**chaos, "kinds": tuple(chaos["kinds"])}).observer()
    graph = omnigraph.open(uri, observer=observer, engine="local")
    entries = Log(log, client)
    until = time.monotonic() + seconds
    done = turn = 0
    while time.monotonic() < until:
        turn += 1
        try:
            act(graph, turn)
        except OmnigraphError as error:
            entries.say("refused", verb, condition=error.condition, message=str(error)[:300])
        else:
            entries.say("done", verb)
            done += 1
        time.sleep(PAUSE_S)
    return done


@job
def optimize_again(uri: str, log: str, client: str, *, seconds: float, chaos: dict[str, Any]) -> int:
    def act(graph: Any, _: int) -> None:
        graph.optimize(target_rows_per_fragment=200)

    return _repeat(uri, log, client, "optimize", seconds, chaos, act)


@job
def embed_again(uri: str, log: str, client: str, *, seconds: float, chaos: dict[str, Any]) -> int:
    def act(graph: Any, turn: int) -> None:
        graph.embed(everything=turn % 4 == 0)

    return _repeat(uri, log, client, "embed", seconds, chaos, act)


@job
def clean_again(
    uri: str, log: str, client: str, *, seconds: float, chaos: dict[str, Any], keep: int, orphans_s: float
) -> int:
    from omnigraph.maintenance.cleanup import policy

    policy.ORPHANS_MIN_S = policy.MANIFEST_MIN_S = orphans_s

    def act(graph: Any, _: int) -> None:
        graph.cleanup(keep=keep, orphans_older_than=orphans_s, manifest_older_than=max(orphans_s, 60.0), confirm=True)

    return _repeat(uri, log, client, "cleanup", seconds, chaos, act)


@job
def branch_again(uri: str, log: str, client: str, *, seconds: float, chaos: dict[str, Any], seed: int) -> int:
    """Create a branch, write to it, read it, and mostly delete it. Which branches stay is in the log."""
    rng = random.Random(seed)
    entries = Log(log, client)

    def act(graph: Any, turn: int) -> None:
        name = f"{client}-{turn}"
        promised = acknowledged(log)
        graph.create_branch(name)
        world.write(graph, f"on-{name}", branch=name)
        entries.say("ack", f"on-{name}", branch=name)
        with graph.lease(name) as snapshot:
            wrong = world.broken_rules(snapshot, must_hold=promised | {f"on-{name}"})
        assert not wrong, wrong
        if rng.random() < 0.8:
            entries.say("deleting", name)
            graph.delete_branch(name)

    return _repeat(uri, log, client, "branch", seconds, chaos, act)


@job
def merge_again(uri: str, log: str, client: str, *, seconds: float, chaos: dict[str, Any], seed: int) -> int:
    """Create a branch, write to it and merge it into main, whose row is then acknowledged; mostly delete the branch.

    What was merged is in the log: `{"did": "merged", "key": branch, "source": commit}`. Beside schema changes a merge
    may be refused for a conflict between schemas, and for no other.
    """
    from omnigraph.errors import MergeConflicts

    rng = random.Random(seed)
    entries = Log(log, client)

    def act(graph: Any, turn: int) -> None:
        name = f"{client}-{turn}"
        graph.create_branch(name)
        for key in (f"on-{name}", f"more-{name}"):
            world.write(graph, key, branch=name)
            entries.say("ack", key, branch=name)
        try:
            graph.merge(name)
        except MergeConflicts as error:
            kinds = {conflict.kind for conflict in error.plan.conflicts}
            assert all(kind.startswith("schema_") for kind in kinds), kinds
            raise
        entries.say("merged", name, source=graph.snapshot(name).commit)
        for key in (f"on-{name}", f"more-{name}"):
            entries.say("ack", key, branch="main")
        if rng.random() < 0.8:
            entries.say("deleting", name)
            graph.delete_branch(name)

    return _repeat(uri, log, client, "merge", seconds, chaos, act)


@job
def change_schema_again(uri: str, log: str, client: str, *, seconds: float, chaos: dict[str, Any]) -> int:
    """A type and properties come, and go with their data."""

    def act(graph: Any, turn: int) -> None:
        graph.apply_schema(WITH_SCRATCH)
        graph.upsert({"Scratch": [{"name": f"{client}-{turn}"}]})
        graph.apply_schema(SCHEMA, allow_data_loss=True)

    return _repeat(uri, log, client, "schema", seconds, chaos, act)


@job
def watch_leased(uri: str, log: str, client: str, *, seconds: float) -> dict[str, Any]:
    """Read one leased snapshot after the other: each is whole and holds what had been acknowledged before it."""
    import omnigraph

    graph = omnigraph.open(uri)
    until = time.monotonic() + seconds
    snapshots, broken = 0, []
    while time.monotonic() < until:
        promised = acknowledged(log)
        with graph.lease() as snapshot:
            broken += world.broken_rules(snapshot, must_hold=promised)
        snapshots += 1
        time.sleep(0.1)
    return {"snapshots": snapshots, "broken": broken[:5]}


assert JOBS
