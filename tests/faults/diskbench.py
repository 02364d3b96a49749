"""Runs verbs on a local directory: stages them, counts their file system calls, strikes one of them.

Forks of tables hold absolute paths, so a graph can't be moved: every worker has a slot, a path of its own at which it
stages each verb once and to which it copies that stage back before every run.

Besides the faults of `localdisk` there are

    power, power_partly       the process is killed, then all or part of what was not synced is lost
    power_acknowledged        the same after an undisturbed run: what was acknowledged must have been synced
    stopped                   SIGSTOP before a call, until its lease is over; others settle what it left, write, and
                              clean up with the shortest limits; then it goes on
    kill_phase                SIGKILL at a named phase of the door
    kill_sometime             SIGKILL at a random time

The last two work on machines that don't let a process hand its system calls over; there they are all that is run.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.forkserver import Ended, ForkServer, Job
from tests.faults.localdisk import Call, DiskFault, Supervisor, why_unsupervisable
from tests.faults.once import Once
from tests.faults.oracle import (
    FREEZES,
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

# A kill before a call leaves what a kill after the last call left that changed anything: one before the first will do.
AT_CALLS = ("kill_after", "torn", "enospc", "eio", "full", "broken", "power", "power_partly")
RANDOM_KILLS = 5
STOPPED_MAX_S = 180.0


@dataclass(frozen=True)
class Stage:
    """A verb, ready to be struck: what is expected, and the calls, phases and time of an undisturbed run."""

    verb: Verb
    expected: Expectation
    requests: tuple[Call, ...]
    phases: tuple[str, ...]
    took_s: float

    @property
    def points(self) -> list[tuple[str, int, bool]]:
        """Every fault that makes sense: its kind, the number of what it strikes, and whether that changes anything."""
        found = [("kill_phase", k, True) for k in range(len(self.phases))]
        found += [("kill_sometime", k, True) for k in range(RANDOM_KILLS)]
        if self.requests:
            found.append(("power_acknowledged", 0, True))
            found.append(("kill_before", self.requests[0].n, False))
        for call in self.requests:
            found.append(("stopped", call.n, call.mutates))
            if call.mutates:
                kinds = [kind for kind in AT_CALLS if kind != "torn" or call.kind == "write"]
                found += [(kind, call.n, True) for kind in kinds]
            else:
                found.append(("eio", call.n, False))
        return found


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

    def restore_start(self, verb: Verb) -> None:
        self.restore(verb.name if verb.interrupted else verb.start.__name__)

    def files(self) -> list[str]:
        return [str(path.relative_to(self.home)) for path in self.graph.rglob("*") if path.is_file()]


class DiskBench:
    store = "disk"

    def __init__(self, forks: ForkServer, directory: Path, *, slots: int) -> None:
        self._forks = forks
        self.unsupervisable = why_unsupervisable(forks, directory)
        self._free = [Slot(directory.resolve() / f"slot{number}") for number in range(slots)]
        self._freed = threading.Condition()
        self._stages = Once[Stage]()

    def can_stage(self, verb: Verb) -> bool:
        """A verb that starts on what another one left half-done needs that one killed at a system call."""
        return not (self.unsupervisable and verb.interrupted)

    @contextlib.contextmanager
    def _slot(self, verb: Verb) -> Iterator[Slot]:
        start = verb.start.__name__
        slot = self._take_slot(verb)
        try:
            if not slot.has(start):
                shutil.rmtree(slot.graph, ignore_errors=True)
                self._run(slot, "prepare", verb=verb.name)
                slot.keep(start)
            if verb.interrupted and not slot.has(verb.name):
                slot.restore(start)
                self._interrupt(slot, *verb.interrupted)
                slot.keep(verb.name)
            slot.restore_start(verb)
            yield slot
        finally:
            with self._freed:
                self._free.append(slot)
                self._freed.notify()

    def _take_slot(self, verb: Verb) -> Slot:
        """A free slot, if possible one at which this start has been made before."""
        with self._freed:
            self._freed.wait_for(lambda: self._free)
            slot = next((slot for slot in self._free if slot.has(verb.start.__name__)), self._free[0])
            self._free.remove(slot)
            return slot

    # ---- one client --------------------------------------------------------------------------------------------------

    def _run(self, slot: Slot, job: str, **arguments: Any) -> Any:
        ended = self._try(slot, job, **arguments)
        assert ended.acknowledged, f"{job} {arguments} on an undisturbed disk: {ended}"
        return ended.value

    def _try(self, slot: Slot, job: str, lease_s: float = LONG_LEASE_S, **arguments: Any) -> Ended:
        return self._start(slot, job, lease_s, **arguments).wait()

    def _start(self, slot: Slot, job: str, lease_s: float, **arguments: Any) -> Job:
        environment = {"OMNIGRAPH_LEASE_S": str(lease_s)}
        return self._forks.start(job, {"uri": str(slot.graph), "store": None, **arguments}, environment)

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
        old = verb.settled(before)
        started = time.monotonic()
        phases = self._run(slot, "perform_observed", verb=verb.name)
        took_s = time.monotonic() - started
        new = verb.new(old)
        seen = self._run(slot, "look")
        assert seen == new, f"{verb.name}, undisturbed, differs from its oracle: {difference(new, seen)}"
        traces = Traces.between(start, slot.files())
        expected = Expectation(
            before, old, new, traces, verb.overtaken, verb.some(old), verb.by_owner_only, verb.again(old), verb.partly
        )
        calls: list[Call] = []
        if not self.unsupervisable:
            slot.restore_start(verb)
            ended, supervisor = self._watched(slot, verb.name, None)
            assert ended.acknowledged, f"{verb.name} on an undisturbed disk: {ended}"
            calls = supervisor.log
        return Stage(verb, expected, tuple(calls), tuple(phases), took_s)

    # ---- strike ------------------------------------------------------------------------------------------------------

    def strike(self, stage: Stage, kind: str, k: int, seed: int) -> Evidence:
        rng = random.Random(f"{seed}/{stage.verb.name}/{kind}/{k}")
        with self._slot(stage.verb) as slot:
            start = slot.files()
            if kind in FREEZES:
                return self._stop(slot, stage, kind, k)
            if kind == "kill_phase":
                victim, struck = self._kill_at_phase(slot, stage, k)
            elif kind == "kill_sometime":
                victim, struck = self._kill_sometime(slot, stage, rng)
            else:
                victim, struck = self._strike_call(slot, stage.verb, kind, k, rng)
            traces = Traces.between(start, slot.files())
            lease_s = LEASE_S if kind in POWER_LOSSES else LONG_LEASE_S
            checks = self._check(slot, lease_s)
            leftovers = tuple(name for name in slot.files() if "/__recovery/" in name)
            return Evidence(kind, struck, victim, traces, checks, leftovers)

    def _check(self, slot: Slot, lease_s: float) -> tuple[Ended, ...]:
        """Two checks in one process: the victim is gone, so nothing lands between them."""
        ended = self._try(slot, "check_again", lease_s, probes=[probe_name(1), probe_name(2)])
        if not ended.acknowledged or ended.hung:
            return (ended,)
        return tuple(Ended(ended.status, {"value": value}) for value in ended.value)

    def _stop(self, slot: Slot, stage: Stage, kind: str, k: int) -> Evidence:
        """What the victim left when it was stopped; a check that cleans up; after it went on, one that verifies."""
        start, checks, traces = slot.files(), list[Ended](), list[Traces]()

        def others() -> None:
            traces.append(Traces.between(start, slot.files()))
            checks.append(self._start(slot, "check_and_clean", LEASE_S, probe=probe_name(1)).wait(STOPPED_MAX_S))

        supervisor = Supervisor(slot.home, DiskFault(kind, k), meanwhile=others)
        arguments = {"uri": str(slot.graph), "store": None, "verb": stage.verb.name}
        environment = {"OMNIGRAPH_LEASE_S": str(LEASE_S)}
        victim = supervisor.run(self._forks, "perform", arguments, environment, timeout_s=STOPPED_MAX_S)
        if not checks:
            others()
        number = probe_name(len(checks) + 1)
        checks.append(self._start(slot, "check_and_verify", LEASE_S, probe=number).wait(STOPPED_MAX_S))
        leftovers = tuple(name for name in slot.files() if "/__recovery/" in name)
        struck = supervisor.struck
        return Evidence(
            kind, f"{struck.kind} {struck.path}" if struck else "", victim, traces[0], tuple(checks), leftovers
        )

    def _kill_at_phase(self, slot: Slot, stage: Stage, k: int) -> tuple[Ended, str]:
        victim = self._try(slot, "perform_observed", verb=stage.verb.name, die_at=k)
        return victim, f"phase {stage.phases[k]}" if victim.status == -signal.SIGKILL else ""

    def _kill_sometime(self, slot: Slot, stage: Stage, rng: random.Random) -> tuple[Ended, str]:
        after_s = rng.uniform(0, stage.took_s)
        job = self._start(slot, "perform", LONG_LEASE_S, verb=stage.verb.name)
        pid = job.pid.result(30)
        time.sleep(after_s)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        victim = job.wait()
        return victim, f"the process after {after_s * 1000:.0f} ms" if victim.status == -signal.SIGKILL else ""

    def _strike_call(self, slot: Slot, verb: Verb, kind: str, k: int, rng: random.Random) -> tuple[Ended, str]:
        fault = DiskFault("kill_before" if kind in POWER_LOSSES else kind, k)
        if kind == "power_acknowledged":
            fault = None
        victim, supervisor = self._watched(slot, verb.name, fault)
        if kind in POWER_LOSSES:
            performed = supervisor.log if fault is None else supervisor.log[:k]
            lose_power(slot.home, performed, rng=rng if kind == "power_partly" else None)
        struck = supervisor.struck
        return victim, f"{struck.kind} {struck.path}" if struck else ""
