"""All interleavings of two operations: as many runs as there are schedules that differ in what they can show.

A schedule says who takes the next step. Two neighbouring steps that touch nothing in common can be exchanged without
changing anything, so of all orders of such steps one is enough: sleep sets (Godefroid) leave out the others, and
`reduced=False` leaves out none. A thread that waits for a ticket may step again when the other has done something that
it could see. Of a symmetric pair only the schedules in which the first begins are run.

`with_stops` is for operations that may be stopped past their lease: one runs i steps, the other j, the first to its
end, the other to its end, for all i and j (and, with three stops, again in between).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.commit.stepper import WAIT, Stepper

READS, WRITES = 1, 2
# What the step that begins at a phase does with the things that both operations can see.
TOUCHES: dict[str, dict[str, int]] = {
    "start": {"head": READS},  # takes a view; what a fresh handle sweeps is decided, so that nobody needs it
    "prepare": {},  # reads pinned versions only, which nobody can change
    "lock": {"tickets": WRITES, "head": READS},
    "check": {"head": READS, "tables": READS},
    "plan": {},  # written for recoverers, of which there are none while nobody stops
    "effect": {"tables": WRITES},
    "restore": {"tables": WRITES},
    "publish": {"head": WRITES},
    "acknowledge": {},
    "release": {"tickets": WRITES},
    "swap": {"head": WRITES, "tickets": WRITES},
    "wait": {"head": READS, "tickets": READS},
}
Pair = tuple[Stepper, Stepper]


def independent(one: str, other: str) -> bool:
    a, b = TOUCHES.get(one), TOUCHES.get(other)
    if a is None or b is None:
        return False
    return all(max(a[thing], b[thing]) < WRITES for thing in a.keys() & b.keys())


@dataclass
class _Node:
    """A point of the search: who could step and to what, who need not, and who has been tried."""

    enabled: dict[int, str]
    asleep: frozenset[int]
    tried: list[int] = field(default_factory=list)

    def next(self) -> int | None:
        for who in self.enabled:
            if who not in self.asleep and who not in self.tried:
                return who
        return None

    def asleep_below(self) -> frozenset[int]:
        chosen = self.tried[-1]
        others = self.asleep | set(self.tried[:-1])
        step = self.enabled[chosen]
        return frozenset(u for u in others if u in self.enabled and independent(self.enabled[u], step))


def interleavings(
    start: Callable[[], Pair], *, reduced: bool = True, symmetric: bool = False
) -> Iterator[tuple[str, Pair]]:
    """Run every schedule once; yields it, as a text such as 'abba', with the two operations at their end."""
    path: list[_Node] = []
    while True:
        pair = start()
        schedule, whole = _run(pair, path, reduced=reduced)
        if whole:
            yield schedule, pair
        while path and path[-1].next() is None:
            path.pop()
        if not path or (symmetric and len(path) == 1):
            return
        following = path[-1].next()
        assert following is not None
        path[-1].tried.append(following)


def _run(pair: Pair, path: list[_Node], *, reduced: bool) -> tuple[str, bool]:
    """Follow the path, then go on with whoever comes first. False if the rest is known from another order."""
    schedule = ""
    stale: set[int] = set()
    asleep: frozenset[int] = frozenset()
    depth = 0
    while any(stepper.at is not None for stepper in pair):
        if depth == len(path):
            enabled = {i: s.at for i, s in enumerate(pair) if s.at is not None and i not in stale}
            assert enabled, f"both wait for each other: {[s.passed for s in pair]}"
            path.append(_Node(enabled, asleep))
            first = path[-1].next()
            if first is None:
                path.pop()
                for stepper in pair:
                    stepper.run_free()
                return schedule, False
            path[-1].tried.append(first)
        node = path[depth]
        who = node.tried[-1]
        step = node.enabled[who]
        assert pair[who].at == step, f"the run is not repeatable at {schedule}: {pair[who].at} instead of {step}"
        asleep = node.asleep_below() if reduced else frozenset()
        pair[who].advance()
        schedule += "ab"[who]
        depth += 1
        _note_waiting(pair, who, step, stale)
    return schedule, True


def _note_waiting(pair: Pair, who: int, step: str, stale: set[int]) -> None:
    """Looking again is of use only after the other has changed something that a waiter looks at."""
    if pair[who].at == WAIT:
        stale.add(who)
    else:
        stale.discard(who)
    if max(TOUCHES.get(step, {"head": WRITES}).get(thing, 0) for thing in ("head", "tickets")) == WRITES:
        stale.discard(1 - who)
    if pair[who].at is None:
        stale.discard(1 - who)


def with_stops(start: Callable[[], Pair], *, stops: int = 2, stride: int = 1) -> Iterator[tuple[str, Pair]]:
    """Every schedule with this many stops: who is not let on has been stopped, and may be taken for dead."""
    yield from _stops(start, (), stops, stride)


def _stops(start: Callable[[], Pair], before: tuple[int, ...], stops: int, stride: int) -> Iterator[tuple[str, Pair]]:
    steps = 1
    while True:
        counts = (*before, steps)
        pair = start()
        reached = [_advance(pair[i % 2], count) for i, count in enumerate(counts)]
        ended = pair[(len(counts) - 1) % 2].at is None
        if not reached[-1]:
            _finish(pair, len(counts))
            return
        if len(counts) < stops and not ended:
            _finish(pair, len(counts))
            yield from _stops(start, counts, stops, stride)
        else:
            _finish(pair, len(counts))
            yield "-".join(map(str, counts)), pair
        if ended:
            return
        steps += stride


def _advance(stepper: Stepper, count: int) -> bool:
    """False if it ended before that many steps."""
    for _ in range(count):
        if stepper.at is None:
            return False
        stepper.advance()
    return True


def _finish(pair: Pair, turn: int) -> None:
    for who in (turn % 2, (turn + 1) % 2):
        pair[who].run_free()
