"""What runs inside a client process. Everything goes through the public handle, as a user's program would.

Whatever a client begins and whatever it was promised goes to a log that all clients append to, one line of JSON each,
so that the log of a killed process is as long as its life:

    {"did": "begin" | "ack" | "refused", "client", "key", "n", "branch", "at_s", "condition"}

`at_s` is the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.commit.deeds import DEEDS
from tests.contention import world
from tests.faults.jobs import JOBS, State, job, read_state
from tests.faults.scenes import Place

MANY = 10**9


@dataclass(frozen=True)
class Chaos:
    """At every phase of the door the process may kill or stop itself; whoever started it continues it."""

    seed: int
    per_phase: float
    kinds: tuple[str, ...]

    def observer(self) -> Callable[[str], None]:
        rng = random.Random(self.seed)

        def observe(_: str) -> None:
            if rng.random() < self.per_phase:
                kind = rng.choice(self.kinds)
                os.kill(os.getpid(), signal.SIGKILL if kind == "kill" else signal.SIGSTOP)

        return observe


class Log:
    def __init__(self, path: str, client: str) -> None:
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        self._client = client

    def say(self, did: str, key: str, **more: Any) -> None:
        line = {"did": did, "client": self._client, "key": key, "at_s": time.monotonic(), **more}
        os.write(self._file, json.dumps(line).encode() + b"\n")


def read_log(path: Path | str) -> list[dict[str, Any]]:
    """What has been said so far. A line without its end is still being written: nobody has said it yet."""
    try:
        *lines, _ = Path(path).read_text().split("\n")
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]


def acknowledged(path: Path | str, *, branch: str = "main") -> set[str]:
    return {line["key"] for line in read_log(path) if line["did"] == "ack" and line["branch"] == branch}


@job
def create(uri: str) -> None:
    world.create(uri)


@job
def write_keys(
    uri: str,
    log: str,
    client: str,
    *,
    count: int = MANY,
    seconds: float = 600.0,
    branch: str = "main",
    kinds: list[str],
    shared_keys: int = 4,
    clock_off_s: float = 0.0,
    chaos: dict[str, Any] | None = None,
    lost_answers: float = 0.0,
    seed: int = 0,
) -> dict[str, Any]:
    """One write after the other; `kinds` are own, shared, counted, taken at random. How long the longest one took."""
    import omnigraph

    if clock_off_s:
        shift_clock(clock_off_s)
    rng = random.Random(seed)
    if lost_answers:
        lose_answers(random.Random(seed), lost_answers)
    said = Log(log, client)
    way = Way(Chaos(**{**chaos, "kinds": tuple(chaos["kinds"])}).observer() if chaos else None)
    graph = omnigraph.open(uri, observer=way.observe)
    until = time.monotonic() + seconds
    done = 0
    for i in _turns(count, until):
        kind = rng.choice(kinds)
        key = f"shared-{rng.randrange(shared_keys)}" if kind == "shared" else f"{client}-{i}"
        operation = f"{client}-{i}"
        written = world.COUNTED + key if kind == "counted" else key
        done += _one(graph, said, kind, key, written, i, operation, branch, way)
    return {"done": done, "longest_s": way.longest_s, "longest": way.longest}


class Way:
    """When a write came to which phase, kept for the one that took longest."""

    def __init__(self, then: Callable[[str], None] | None) -> None:
        self._then = then
        self._phases: list[str] = []
        self._began_s = 0.0
        self.longest_s = 0.0
        self.longest: list[str] = []

    def observe(self, phase: str) -> None:
        self._phases.append(f"{phase} after {time.monotonic() - self._began_s:.2f} s")
        if self._then is not None:
            self._then(phase)

    @contextmanager
    def of_one_write(self) -> Iterator[None]:
        self._phases = []
        self._began_s = time.monotonic()
        try:
            yield
        finally:
            took_s = time.monotonic() - self._began_s
            if took_s > self.longest_s:
                self.longest_s, self.longest = took_s, self._phases


def _turns(count: int, until: float) -> Iterator[int]:
    for i in itertools.takewhile(lambda i: i < count, itertools.count()):
        if time.monotonic() >= until:
            return
        yield i


def _one(
    graph: Any, said: Log, kind: str, key: str, written: str, i: int, operation: str, branch: str, way: Way
) -> bool:
    """One write, tried again whenever what it read has changed. How often that is is luck; how long one call takes
    is not.
    """
    from omnigraph.errors import OmnigraphError, ReadSetConflict

    about = {"branch": branch, "n": i, "operation": world.COUNTED + key if kind == "counted" else operation}
    said.say("begin", written, **about)
    while True:
        try:
            with way.of_one_write():
                if kind == "counted":
                    world.count_up(graph, key, branch=branch)
                else:
                    world.write(graph, key, n=i, by=operation, branch=branch, operation_id=operation)
        except ReadSetConflict:
            continue
        except OmnigraphError as error:
            said.say("refused", written, condition=error.condition, message=str(error)[:300], **about)
            return False
        said.say("ack", written, **about)
        return True


def shift_clock(seconds: float) -> None:
    """This process's wall clock goes wrong. Monotonic clocks are the kernel's and can't."""
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() + seconds
    time.time_ns = lambda: real_ns() + int(seconds * 1e9)


def lose_answers(rng: random.Random, share: float) -> None:
    """Some calls of the object store and of Lance's commit do their work, and the caller sees an error."""
    import obstore
    from obstore.exceptions import GenericError

    from omnigraph.storage.lance import lance_api

    def losing(call: Callable[..., Any], error: Callable[[], Exception]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            result = call(*arguments, **options)
            if rng.random() < share:
                raise error()
            return result

        return called

    unknown = "Commit result for version 7 is unknown: the connection was closed"
    obstore.put = losing(obstore.put, lambda: GenericError("the connection was closed"))
    lance_api.commit = losing(lance_api.commit, lambda: OSError(unknown))


def signal_at(phase: str, occurrence: int, number: int) -> Callable[[str], None]:
    """An observer that sends this process a signal before the given occurrence of a phase, once."""
    left = itertools.count(-occurrence + 1)

    def observe(name: str) -> None:
        if name == phase and next(left) == 0:
            os.kill(os.getpid(), number)

    return observe


@job
def write_one(
    uri: str,
    log: str,
    client: str,
    *,
    key: str,
    n: int = 0,
    branch: str = "main",
    counted: bool = False,
    phase: str = "",
    occurrence: int = 1,
    number: int = signal.SIGKILL,
) -> float:
    """One write, by a process that is stopped or killed on its way. How long it took."""
    import omnigraph

    graph = omnigraph.open(uri, observer=signal_at(phase, occurrence, number))
    began = time.monotonic()
    kind = "counted" if counted else "own"
    written = world.COUNTED + key if counted else key
    _one(graph, Log(log, client), kind, key, written, n, f"{client}-{n}", branch, Way(None))
    return time.monotonic() - began


@job
def watch(uri: str, log: str, *, branch: str = "main", until_there: str, pause_s: float = 0.15) -> dict[str, Any]:
    """Take snapshots until the file `until_there` exists; every one must be whole, and hold what had been promised."""
    import omnigraph

    graph = omnigraph.open(uri)
    snapshots, broken = 0, []
    last = False
    while not last:
        last = os.path.exists(until_there)
        promised = acknowledged(log, branch=branch)
        broken += world.broken_rules(graph.snapshot(branch), must_hold=promised)
        snapshots += 1
        time.sleep(pause_s)
    return {"snapshots": snapshots, "broken": broken[:5]}


@job
def change_schema(uri: str, log: str, client: str, *, rounds: int, branch: str = "main") -> int:
    """Properties and types come, are renamed and go, while others write. Every round is one accepted schema."""
    import omnigraph

    graph = omnigraph.open(uri)
    said = Log(log, client)
    for i in range(rounds):
        extra = f"extra{i}: I32 @default({i})"
        text = world.SCHEMA.replace("by: String?", f"by: String?  {extra}") + f"node Round{i} {{ name: String @key }}\n"
        said.say("begin", f"schema-{i}", branch=branch)
        graph.apply_schema(text, branch=branch)
        said.say("ack", f"schema-{i}", branch="(schema)")
    return rounds


@job
def change_branches(uri: str, log: str, client: str, *, rounds: int) -> int:
    """Branches are made from main, written to, read and deleted, while others write to main."""
    import omnigraph

    graph = omnigraph.open(uri)
    said = Log(log, client)
    for i in range(rounds):
        name = f"{client}-{i}"
        promised = acknowledged(log)
        graph.create_branch(name)
        assert not world.broken_rules(graph.snapshot(name), must_hold=promised)
        world.write(graph, f"on-{name}", branch=name)
        assert not world.broken_rules(graph.snapshot(name), must_hold=promised | {f"on-{name}"})
        graph.delete_branch(name)
        said.say("ack", f"branch-{i}", branch="(branches)")
    return rounds


@job
def start_deed(uri: str, deed: str) -> None:
    """The state that a deed starts from."""
    DEEDS[deed].start(uri)


@job
def perform_deed(uri: str, deed: str, *, phase: str = "", occurrence: int = 1) -> list[str]:
    """A deed, by a process that dies before a phase of it. Otherwise the phases that it came through."""
    import omnigraph

    phases: list[str] = []
    strike = signal_at(phase, occurrence, signal.SIGKILL)

    def observe(name: str) -> None:
        phases.append(name)
        strike(name)

    DEEDS[deed].act(omnigraph.open(uri, observer=observe))
    return phases


@job
def read_all(uri: str) -> State:
    return read_state(Place(uri))


@job
def examine(uri: str, *, probe: str) -> dict[str, Any]:
    """What a fresh process finds; one write on every branch; what is there then, and whether history is in order."""
    import omnigraph
    from tests.contention.audit import objects_left, wrong_epochs

    before = read_state(Place(uri))
    graph = omnigraph.open(uri)
    began = time.monotonic()
    for branch in before:
        graph.upsert({"Right": [{"name": probe}]}, branch=branch)
    waited_s = time.monotonic() - began
    wrong = [found for branch in before for found in wrong_epochs(graph, branch)]
    after = read_state(Place(uri))
    return {"before": before, "after": after, "waited_s": waited_s, "wrong": wrong, "left": objects_left(uri)}


@job
def perform_operation(uri: str, operation: dict[str, Any], *, phase: str, occurrence: int) -> None:
    """An operation of the model, by a process that dies before a phase of it."""
    import omnigraph
    from tests.properties.perform import perform

    perform(omnigraph.open(uri, observer=signal_at(phase, occurrence, signal.SIGKILL)), operation)


assert JOBS
