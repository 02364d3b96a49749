"""Runs verbs on a local directory: stages them, counts their file system calls, strikes one of them.

Forks of tables hold absolute paths, so a graph can't be moved: every worker has a slot, a path of its own at which it
stages each verb once and to which it copies that stage back before every run.
"""

from __future__ import annotations

import itertools
import queue
import random
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults import verbs
from tests.faults.forkserver import Ended, ForkServer
from tests.faults.localdisk import Call, DiskFault, Supervisor
from tests.faults.once import Once
from tests.faults.oracle import (
    LEASE_S,
    LONG_LEASE_S,
    POWER_LOSSES,
    Evidence,
    Expectation,
    Traces,
    difference,
    probe_name,
)
from tests.faults.powerloss import lose_power
from tests.faults.verbs import Point, Verb

AFTER_THE_END = ("power_acknowledged",)
KINDS = ("kill_before", "kill_after", "torn", "enospc", "eio", "full", "broken", "power", "power_partly")


@dataclass(frozen=True)
class Stage:
    verb: Verb
    expected: Expectation
    requests: tuple[Call, ...]

    def kinds_at(self, k: int) -> tuple[str, ...]:
        once = AFTER_THE_END if k == 0 else ()
        if not self.requests[k].mutates:
            return ("eio", *once)
        kinds = KINDS if self.requests[k].kind == "write" else tuple(kind for kind in KINDS if kind != "torn")
        return (*kinds, *once)


@dataclass(frozen=True)
class Slot:
    """`graph` is where runs happen; `kept` holds a copy of the start of every verb staged here."""

    home: Path

    @property
    def graph(self) -> Path:
        return self.home / "g"

    def _kept(self, name: str) -> Path:
        return self.home / "kept" / name

    def has(self, name: str) -> bool:
        return self._kept(name).is_dir()

    def keep(self, name: str) -> None:
        self._kept(name).mkdir(parents=True)
        if self.graph.is_dir():
            shutil.copytree(self.graph, self._kept(name) / "g")

    def restore(self, name: str) -> None:
        shutil.rmtree(self.graph, ignore_errors=True)
        if (self._kept(name) / "g").is_dir():
            shutil.copytree(self._kept(name) / "g", self.graph)

    def files(self) -> list[str]:
        return [str(path.relative_to(self.home)) for path in self.graph.rglob("*") if path.is_file()]


class DiskBench:
    store = "disk"
    kinds = (*KINDS, *AFTER_THE_END)

    def __init__(self, forks: ForkServer, directory: Path, *, slots: int) -> None:
        self._forks = forks
        self._slots: queue.SimpleQueue[Slot] = queue.SimpleQueue()
        for number in range(slots):
            self._slots.put(Slot(directory.resolve() / f"slot{number}"))
        self._stages = Once[Stage]()

    @contextmanager
    def _slot(self, verb: Verb) -> Iterator[Slot]:
        slot = self._slots.get()
        try:
            start = verb.start.__name__
            if not slot.has(start):
                shutil.rmtree(slot.graph, ignore_errors=True)
                self._run(slot, "prepare", verb=verb.name)
                slot.keep(start)
            if verb.interrupted and not slot.has(verb.name):
                slot.restore(start)
                self._interrupt(slot, *verb.interrupted)
                slot.keep(verb.name)
            slot.restore(verb.name if verb.interrupted else start)
            yield slot
        finally:
            self._slots.put(slot)

    # ---- one client --------------------------------------------------------------------------------------------------

    def _run(self, slot: Slot, job: str, **arguments: Any) -> Any:
        ended = self._try(slot, job, **arguments)
        assert ended.acknowledged, f"{job} {arguments} on an undisturbed disk: {ended}"
        return ended.value

    def _try(self, slot: Slot, job: str, lease_s: float = LONG_LEASE_S, **arguments: Any) -> Ended:
        environment = {"OMNIGRAPH_LEASE_S": str(lease_s)}
        return self._forks.run(job, {"uri": str(slot.graph), "store": None, **arguments}, environment)

    def _watched(self, slot: Slot, verb: str, fault: DiskFault | None) -> tuple[Ended, Supervisor]:
        supervisor = Supervisor(slot.home, fault)
        arguments = {"uri": str(slot.graph), "store": None, "verb": verb}
        environment = {"OMNIGRAPH_LEASE_S": str(LONG_LEASE_S)}
        return supervisor.run(self._forks, "perform", arguments, environment), supervisor

    # ---- stage -------------------------------------------------------------------------------------------------------

    def _interrupt(self, slot: Slot, name: str, point: Point) -> None:
        seen = itertools.count(1)

        def reached(call: Call) -> bool:
            named = call.kind in ("link", "rename", "create") and re.search(point.pattern, "/" + call.path)
            return bool(named) and next(seen) == point.nth

        ended, supervisor = self._watched(
            slot, name, DiskFault("kill_after" if point.after else "kill_before", when=reached)
        )
        assert supervisor.struck, f"{name} never reached {point}: {ended}"

    def stage(self, verb: Verb) -> Stage:
        return self._stages.get(verb.name, lambda: self._make_stage(verb))

    def _make_stage(self, verb: Verb) -> Stage:
        with self._slot(verb) as slot:
            return self._try_undisturbed(slot, verb)

    def _try_undisturbed(self, slot: Slot, verb: Verb) -> Stage:
        start = slot.files()
        before = self._run(slot, "look")
        old = before
        if verb.interrupted:
            name, point = verb.interrupted
            with_start = verbs.by_name(name)
            # Readers see the interrupted verb only where it was published, and then it is settled as new already.
            if point.settles_to_new and not _is_published(point):
                old = with_start.new(before)
        ended, supervisor = self._watched(slot, verb.name, None)
        assert ended.acknowledged, f"{verb.name} on an undisturbed disk: {ended}"
        new = verb.new(old)
        seen = self._run(slot, "look")
        assert seen == new, f"{verb.name}, undisturbed, differs from its oracle: {difference(new, seen)}"
        expected = Expectation(before, old, new, Traces.between(start, slot.files()))
        return Stage(verb, expected, tuple(supervisor.log))

    # ---- strike ------------------------------------------------------------------------------------------------------

    def strike(self, stage: Stage, kind: str, k: int, seed: int) -> Evidence:
        rng = random.Random(f"{seed}/{stage.verb.name}/{kind}/{k}")
        with self._slot(stage.verb) as slot:
            start = slot.files()
            ends = kind in AFTER_THE_END
            fault = DiskFault("kill_before" if kind in POWER_LOSSES else kind, k)
            victim, supervisor = self._watched(slot, stage.verb.name, None if ends else fault)
            if kind in POWER_LOSSES:
                performed = supervisor.log if ends else supervisor.log[:k]
                lose_power(slot.home, performed, rng=rng if kind == "power_partly" else None)
            traces = Traces.between(start, slot.files())
            lease_s = LEASE_S if kind in POWER_LOSSES else LONG_LEASE_S
            checks = [self._try(slot, "check", lease_s, probe=probe_name(number)) for number in (1, 2)]
            struck = supervisor.struck
            return Evidence(
                fault=kind,
                struck=f"{struck.kind} {struck.path}" if struck else "",
                victim=victim,
                traces=traces,
                checks=tuple(checks),
                leftovers=tuple(key for key in slot.files() if "/__recovery/" in key),
            )


def _is_published(point: Point) -> bool:
    return point.pattern == verbs.GRAPH_VERSION and point.after
