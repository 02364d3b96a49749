"""Runs verbs on the S3 server: stages them, counts their requests, strikes one of them, collects the evidence."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import dataclass
from typing import Any

from tests.faults.forkserver import Ended, ForkServer, Job
from tests.faults.once import Once
from tests.faults.oracle import (
    FREEZES,
    LEASE_S,
    LONG_LEASE_S,
    Evidence,
    Expectation,
    Traces,
    difference,
    probe_name,
)
from tests.faults.s3server import Entry, Fault, S3Server, World
from tests.faults.s3store import Object
from tests.faults.verbs import Point, Verb

URI = "s3://graphs/g"
VICTIM, CHECKER = "victim", "checker"
CHECK_MAX_S = 120.0

# Which faults make sense where. A read that is not answered is the same whether or not the store has "applied" it, also
# for a client that is killed, and the client treats a slow or overloaded store as it treats a failing one.
EVERYWHERE = ("kill_before", "error_500", "drop", "denied", "freeze_before", "stopped")
ON_MUTATIONS = (
    *("kill_after", "error_503", "delay", "lost", "applied_500", "ghost", "ghost_midway", "lost_denied"),
    "freeze_after",
)
KINDS = EVERYWHERE + ON_MUTATIONS


@dataclass(frozen=True)
class Stage:
    """A verb, ready to be struck: the store at its start, what is expected, and the requests of an undisturbed run."""

    verb: Verb
    objects: dict[str, Object]
    expected: Expectation
    requests: tuple[Entry, ...]
    check_requests: int

    @property
    def points(self) -> list[tuple[str, int, bool]]:
        """Every fault that makes sense: its kind, the request's number, and whether that request changes anything."""
        return [
            (kind, entry.n, entry.mutates)
            for entry in self.requests
            for kind in (KINDS if entry.mutates else EVERYWHERE)
        ]


class S3Bench:
    store = "s3"

    def __init__(self, server: S3Server, forks: ForkServer) -> None:
        self._server = server
        self._forks = forks
        self._numbers = itertools.count()
        self._starts = Once[dict[str, Object]]()
        self._stages = Once[Stage]()

    # ---- one client --------------------------------------------------------------------------------------------------

    def _world(self, objects: dict[str, Object] | None = None) -> World:
        return self._server.add(World(f"w{next(self._numbers)}", objects))

    def _start(self, world: World, client: str, job: str, lease_s: float, **arguments: Any) -> Job:
        store = {"endpoint": self._server.endpoint, "world": world.name, "client": client}
        return self._forks.start(job, {"uri": URI, "store": store, **arguments}, {"OMNIGRAPH_LEASE_S": str(lease_s)})

    def _run(self, world: World, client: str, job: str, **arguments: Any) -> Any:
        ended = self._start(world, client, job, LONG_LEASE_S, **arguments).wait()
        assert ended.acknowledged, f"{job} {arguments} on an undisturbed store: {ended}"
        return ended.value

    def _check(self, world: World, number: int, lease_s: float, job: str = "check") -> Ended:
        return self._start(world, f"{CHECKER}{number}", job, lease_s, probe=probe_name(number)).wait(CHECK_MAX_S)

    # ---- stage -------------------------------------------------------------------------------------------------------

    def stage(self, verb: Verb) -> Stage:
        return self._stages.get(verb.name, lambda: self._make_stage(verb))

    def _start_of(self, verb: Verb) -> dict[str, Object]:
        world = self._world()
        self._run(world, "starter", "prepare", verb=verb.name)
        self._server.remove(world)
        return dict(world.store.objects)

    def _make_stage(self, verb: Verb) -> Stage:
        world = self._world(self._starts.get(verb.start.__name__, lambda: self._start_of(verb)))
        if verb.interrupted:
            self._interrupt(world, *verb.interrupted)
        objects = dict(world.store.objects)
        before = self._run(world, "reader", "look")
        old = verb.settled(before)
        self._run(world, VICTIM, "perform", verb=verb.name)
        after = dict(world.store.objects)
        new = verb.new(old)
        seen = self._run(world, "reader", "look")
        assert seen == new, f"{verb.name}, undisturbed, differs from its oracle: {difference(new, seen)}"
        self._run(world, f"{CHECKER}1", "check", probe=probe_name(1))
        requests = tuple(entry for entry in world.log if entry.client == VICTIM)
        check_requests = sum(1 for entry in world.log if entry.client == f"{CHECKER}1")
        self._server.remove(world)
        traces = Traces.between(objects, after)
        expected = Expectation(
            before, old, new, traces, verb.overtaken, verb.some(old), verb.by_owner_only, verb.again(old), verb.partly
        )
        return Stage(verb, objects, expected, requests, check_requests)

    def _interrupt(self, world: World, name: str, point: Point) -> None:
        """Leave the graph as a writer leaves it that is killed at this point."""
        seen = itertools.count(1)

        def reached(entry: Entry) -> bool:
            return entry.mutates and bool(re.search(point.pattern, "/" + entry.key)) and next(seen) == point.nth

        kind = "kill_after" if point.after else "kill_before"
        world.faults.append(Fault(kind, "interrupted", when=reached))
        ended = self._start(world, "interrupted", "perform", LONG_LEASE_S, verb=name).wait()
        assert world.struck is not None, f"{name} never reached {point}: {ended}"
        world.struck = None
        world.has_struck.clear()

    # ---- strike ------------------------------------------------------------------------------------------------------

    def strike(self, stage: Stage, kind: str, k: int, seed: int) -> Evidence:
        world = self._world(stage.objects)
        try:
            return self._strike(world, stage, kind, k, random.Random(f"{seed}/{stage.verb.name}/{kind}/{k}"))
        finally:
            self._server.remove(world)

    def _strike(self, world: World, stage: Stage, kind: str, k: int, rng: random.Random) -> Evidence:
        fault = {"ghost_midway": "ghost", "stopped": "freeze_before"}.get(kind, kind)
        lease_s = LEASE_S if kind in FREEZES else LONG_LEASE_S
        world.faults.append(Fault(fault, VICTIM, k))
        if kind == "ghost_midway":
            world.faults.append(Fault("release_ghosts", f"{CHECKER}1", rng.randrange(stage.check_requests)))
        job = self._start(world, VICTIM, "perform", lease_s, verb=stage.verb.name)
        if kind in FREEZES:
            while not (job.is_over or world.has_struck.wait(0.01)):
                pass
        else:
            job.wait()
        traces = Traces.between(stage.objects, self._server.call(lambda: list(world.store.objects)))
        checks = [self._check(world, 1, lease_s, "check_and_clean" if kind == "stopped" else "check")]
        if world.struck and kind in (*FREEZES, "ghost", "ghost_midway"):
            self._server.call(world.release)
            job.wait()
            checks.append(self._check(world, 2, lease_s, "check_and_verify" if kind == "stopped" else "check"))
        struck = world.struck
        return Evidence(
            fault=kind,
            struck=f"{struck.operation} {struck.key}" if struck else "",
            victim=job.wait(),
            traces=traces,
            checks=tuple(checks),
            leftovers=tuple(key for key in world.store.objects if "/__recovery/" in key),
        )
