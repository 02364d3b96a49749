"""A crowd of clients under attack: whoever stops is continued later, whoever dies is replaced.

Signals come from two sides: from the clients themselves, before a phase of the door (`clients.Chaos`), and from here,
at any time, so also inside a call of Lance.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.contention.processes import Processes, is_stopped
from tests.faults.forkserver import Ended, Job

Replace = Callable[["Crowd", str], None]
STOPS_IN_LEASES = (0.3, 0.9, 1.5, 2.5)


@dataclass
class Member:
    """One process of the crowd."""

    name: str
    job: Job
    replaceable: bool = False
    kind: str = ""
    """The name of its job."""
    continue_at_s: float | None = None

    def __post_init__(self) -> None:
        # A number may be given to a stranger once its process is gone; this handle never means another process.
        self._handle: int | None = None
        with suppress(ProcessLookupError):
            self._handle = os.pidfd_open(self.pid)

    @property
    def pid(self) -> int:
        return self.job.pid.result(30)

    def signal(self, number: signal.Signals) -> None:
        if self._handle is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


@dataclass
class Tally:
    """How often the crowd was struck."""

    kills: int = 0
    stops: int = 0


class Crowd:
    """Clients on one graph. `lease_s` is what all of them use."""

    def __init__(
        self,
        processes: Processes,
        path: Path,
        *,
        lease_s: float,
        seed: int,
        uri: str | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        """The graph is at `uri`, or else at `path`, beside which the log is."""
        self.processes = processes
        self.path = path
        self.uri = uri or str(path)
        self.environment = {"OMNIGRAPH_LEASE_S": str(lease_s), **(environment or {})}
        self.log = path.parent / f"{path.name}.log"
        self.over = path.parent / f"{path.name}.over"
        self.lease_s = lease_s
        self.rng = random.Random(seed)
        self.tally = Tally()
        self.members: list[Member] = []
        self._number = 0

    def start(self, job: str, *, replaceable: bool = False, **arguments: Any) -> Member:
        """A client called `job`; jobs that log get a name of their own."""
        name = f"{job}{self._number}"
        self._number += 1
        arguments = {"uri": self.uri, "log": str(self.log), **arguments}
        if job == "watch":
            arguments["until_there"] = str(self.over)
        else:
            arguments["client"] = name
        member = Member(name, self.processes.start(job, arguments, self.environment), replaceable, job)
        self.members.append(member)
        return member

    def finish(self, *, timeout_s: float = 240.0) -> list[Ended]:
        """Wait for every writer, then let watchers have their last look. How each of them ended."""
        watchers = [m for m in self.members if m.name.startswith("watch")]
        writers = [m for m in self.members if m not in watchers]
        ended = [m.job.wait(timeout_s) for m in writers]
        self.over.touch()
        ended += [m.job.wait(timeout_s) for m in watchers]
        for member in self.members:
            member.close()
        return ended

    def attack(self, seconds: float, *, replace: Replace, signals_per_s: float, calm_s: float = 60.0) -> list[Ended]:
        """Signals at random for a while, then calm until everybody has ended, for at most `calm_s`.

        `replace(crowd, job)` starts a new client for one that died.
        """
        began = time.monotonic()
        ended: list[Ended] = []
        while True:
            now = time.monotonic()
            writers = [m for m in self.members if not m.name.startswith("watch")]
            for member in writers:
                self._continue_if_due(member, now)
                if member.job.is_over:
                    self.members.remove(member)
                    ended.append(self._bury(member))
                    if now - began < seconds and member.replaceable and ended[-1].status != 0:
                        replace(self, member.kind)
            if not writers or now - began > seconds + calm_s:
                break
            if now - began < seconds and self.rng.random() < signals_per_s * 0.01:
                self._strike(self.rng.choice(writers))
            time.sleep(0.01)
        return ended + self.finish(timeout_s=30.0)

    def _strike(self, member: Member) -> None:
        if member.replaceable and not is_stopped(member.pid):
            member.signal(self.rng.choice([signal.SIGSTOP, signal.SIGSTOP, signal.SIGKILL]))

    def _continue_if_due(self, member: Member, now: float) -> None:
        if not is_stopped(member.pid):
            return
        if member.continue_at_s is None:
            self.tally.stops += 1
            member.continue_at_s = now + self.lease_s * self.rng.choice(STOPS_IN_LEASES)
        elif now >= member.continue_at_s:
            member.continue_at_s = None
            member.signal(signal.SIGCONT)

    def _bury(self, member: Member) -> Ended:
        ended = member.job.wait(5.0)
        member.close()
        if ended.status == -signal.SIGKILL:
            self.tally.kills += 1
        return ended
