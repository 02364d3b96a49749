"""The long random attack on the door.

    python -m tests.contention.soak --minutes 10 --seed 1        one run after the other, seeds 1, 2, 3, …
    python -m tests.contention.soak --runs 1 --seed 17           the cast of one run again

1. a run is a new graph and 3 to 5 writers, on main or on a branch, on own, shared and counted keys; a reader beside
   them; in some runs also branches that come and go, or schema changes
2. for some seconds they are killed and stopped past their lease, by themselves before any phase of the door, and from
   outside at any instruction, so also inside calls of Lance; whoever dies is replaced; clocks are wrong, answers of the
   store get lost; folds happen by themselves
3. then calm: everybody ends, a fresh handle writes at once or within a lease, and `audit` reads rows and history

A seed fixes the cast, its keys and its own signals. When signals from outside strike is up to the machine, so a
violation may need several runs of its seed to come back; the graph of a run with a violation is kept.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.contention import world
from tests.contention.audit import snapshots_of, violations, wrong_end
from tests.contention.clients import read_log
from tests.contention.crowd import Crowd
from tests.contention.processes import Processes

NOISE_S = 4.0
LEASES_S = (0.3, 0.5, 1.0)
SIDE_SHOWS = ("none", "none", "branches", "schema")


@dataclass
class Sum:
    runs: int = 0
    kills: int = 0
    stops: int = 0
    operations: int = 0
    snapshots: int = 0
    violations: int = 0
    seeds: list[int] = field(default_factory=list)

    def line(self) -> str:
        return (
            f"{self.runs} runs, {self.kills} kills, {self.stops} stops, {self.operations} operations acknowledged, "
            f"{self.snapshots} snapshots read beside them: {self.violations} violations"
            + (f", seeds {self.seeds}" if self.seeds else "")
        )


@dataclass(frozen=True)
class Cast:
    """What one seed means."""

    lease_s: float
    writers: int
    branches: tuple[str, ...]
    side_show: str
    per_phase: float
    signals_per_s: float
    seconds: float
    off_s: float
    lost_answers: float

    @staticmethod
    def of(seed: int) -> Cast:
        rng = random.Random(seed)
        return Cast(
            lease_s=rng.choice(LEASES_S),
            writers=rng.randint(3, 5),
            branches=rng.choice((("main",), ("main",), ("main", "work"))),
            side_show=rng.choice(SIDE_SHOWS),
            per_phase=rng.choice((0.0, 0.005, 0.02, 0.05)),
            signals_per_s=rng.choice((1.0, 3.0, 8.0)),
            seconds=rng.choice((3.0, 5.0)),
            off_s=rng.choice((0.0, 0.0, -30.0, 30.0)),
            lost_answers=rng.choice((0.0, 0.0, 0.02, 0.1)),
        )


def run(processes: Processes, folder: Path, seed: int, total: Sum) -> list[str]:
    """One run; what was wrong."""
    cast = Cast.of(seed)
    path = folder / f"graph-{seed}"
    os.environ["OMNIGRAPH_LEASE_S"] = str(cast.lease_s)
    world.create(path)
    if len(cast.branches) > 1:
        import omnigraph

        omnigraph.open(path).create_branch("work")
    crowd = Crowd(processes, path, lease_s=cast.lease_s, seed=seed)

    def writer(crowd: Crowd, _: str = "") -> None:
        own = crowd.rng.randrange(2**32)
        crowd.start(
            "write_keys",
            replaceable=True,
            seconds=cast.seconds,
            branch=crowd.rng.choice(cast.branches),
            kinds=["own", "shared", "counted"],
            chaos={"seed": own, "per_phase": cast.per_phase, "kinds": ["stop", "stop", "kill"]},
            seed=own,
            clock_off_s=crowd.rng.choice((0.0, cast.off_s)),
            lost_answers=cast.lost_answers,
        )

    crowd.start("watch", branch=cast.branches[-1], pause_s=0.05)
    for _ in range(cast.writers):
        writer(crowd)
    if cast.side_show == "branches":
        crowd.start("change_branches", rounds=6)
    if cast.side_show == "schema":
        crowd.start("change_schema", rounds=3)
    ended = crowd.attack(cast.seconds, replace=writer, signals_per_s=cast.signals_per_s)
    found = [wrong for end in ended for wrong in wrong_end(end)]
    total.snapshots += sum(snapshots_of(end) for end in ended)
    found += [
        f"{line['operation']} was refused: {line['condition']}: {line['message']}"
        for line in read_log(crowd.log)
        if line["did"] == "refused" and not (cast.lost_answers and line["condition"] == "storage_failed")
    ]
    found += violations(path, crowd.log, branches=cast.branches, wait_max_s=cast.lease_s + NOISE_S)
    _count(crowd, total)
    return found


def _count(crowd: Crowd, total: Sum) -> None:
    lines = read_log(crowd.log)
    total.runs += 1
    total.kills += crowd.tally.kills
    total.stops += crowd.tally.stops
    total.operations += sum(line["did"] == "ack" for line in lines)


def attack(*, seed: int, runs: int | None, minutes: float, folder: Path) -> Sum:
    total = Sum()
    until = time.monotonic() + minutes * 60
    with Processes() as processes:
        while (runs is None or total.runs < runs) and time.monotonic() < until:
            now = seed + total.runs
            found = run(processes, folder, now, total)
            if found:
                total.violations += len(found)
                total.seeds.append(now)
                print(f"seed {now} ({Cast.of(now)}), graph kept in {folder}:", flush=True)
                for wrong in found[:8]:
                    print(f"    {wrong}", flush=True)
            else:
                shutil.rmtree(folder / f"graph-{now}")
            if total.runs % 10 == 0:
                print(total.line(), flush=True)
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--runs", type=int, help="stop after this many runs")
    parser.add_argument("--seed", type=int, help="the first run's seed; random if it is left out, and printed")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    os.environ["OMNIGRAPH_FSYNC"] = "off"
    folder = Path(tempfile.mkdtemp(prefix="omnigraph-soak-"))
    print(f"soak: first seed {seed}", flush=True)
    total = attack(seed=seed, runs=given.runs, minutes=given.minutes, folder=folder)
    print(total.line())
    if not total.violations:
        shutil.rmtree(folder)
    return 1 if total.violations else 0


if __name__ == "__main__":
    raise SystemExit(main())
