"""The long run of everything at once: writers, readers, optimize, embed, cleanup, branches, merges, schemas.

    python -m tests.contention.soak_mixed --minutes 10 --store disk --seed 1
    python -m tests.contention.soak_mixed --minutes 10 --store s3

1. a round is a new graph, on disk or on the S3 server of the fault tests; three writers, a leased reader, and one
   process each that optimizes, embeds, cleans up with `--keep 1` and a short orphan age, creates and deletes branches,
   writes to branches and merges them into main, adds a type and properties and drops them with their data
2. all but the reader are stopped past their lease and continued, and killed and replaced: by themselves before any
   phase of the commit protocol, and from outside at any instruction
3. afterwards a fresh handle writes on every branch; acknowledged and merged writes are there once, a merge is one
   commit of main, branches that were not deleted are readable, `verify` reports no error, before and after one more
   `cleanup --keep 1`

A seed fixes the cast and its own signals; when signals from outside strike is up to the machine. The graph of a round
with a violation is kept (on disk).
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.contention import mixed_clients, world
from tests.contention.audit import snapshots_of, violations, wrong_end
from tests.contention.clients import read_log
from tests.contention.crowd import Crowd
from tests.contention.processes import Processes
from tests.faults.forkserver import Ended
from tests.faults.s3server import REGION, S3Server, World

ROUND_S = 25.0
ORPHANS_S = 2.0
NOISE_S = 10.0
LEASES_S = (0.5, 1.0)
WRITERS = 3
SIGNALS_PER_S = (1.0, 2.0, 4.0)
PER_PHASE = (0.0, 0.01, 0.03)
KEEPERS = ("optimize_again", "embed_again", "clean_again", "branch_again", "merge_again", "change_schema_again")
# Conditions with which a maintenance verb may end that others have overtaken, per verb. Writers are never refused.
MAY_END_WITH = {
    "optimize": {"version_reclaimed", "recovery_pending", "writer_busy"},
    "embed": {"version_reclaimed", "recovery_pending", "writer_busy"},
    "cleanup": {"recovery_pending", "version_reclaimed", "stale_view"},
    "branch": {"version_reclaimed", "recovery_pending", "stale_view", "branch_exists", "branch_not_found"},
    "merge": {"recovery_pending", "merge_conflicts", "branch_exists"},
    "schema": {"recovery_pending", "unknown_type", "version_reclaimed", "writer_busy"},
}


@dataclass
class Totals:
    rounds: int = 0
    kills: int = 0
    stops: int = 0
    acknowledged: int = 0
    snapshots: int = 0
    violations: int = 0
    verbs: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    seeds: list[int] = field(default_factory=list)

    def line(self) -> str:
        verbs = ", ".join(f"{count} {verb}" for verb, count in sorted(self.verbs.items()))
        refused = ", ".join(f"{count} {what}" for what, count in sorted(self.refused.items())) or "none"
        return (
            f"{self.rounds} rounds, {self.kills} kills, {self.stops} stops, {self.acknowledged} writes acknowledged, "
            f"{verbs}; refused: {refused}; {self.snapshots} snapshots: {self.violations} violations"
            + (f", seeds {self.seeds}" if self.seeds else "")
        )


class Soak:
    """Rounds on one store. `server` is the S3 server, or None for the disk."""

    def __init__(self, processes: Processes, folder: Path, server: S3Server | None, *, orphans_s: float) -> None:
        self._processes = processes
        self._folder = folder
        self._server = server
        self._orphans_s = orphans_s
        self.totals = Totals()

    def round(self, seed: int, *, seconds: float = ROUND_S) -> list[str]:
        """One round; the violations."""
        rng = random.Random(seed)
        lease_s = rng.choice(LEASES_S)
        os.environ["OMNIGRAPH_LEASE_S"] = str(lease_s)
        path = self._folder / f"graph-{seed}"
        uri, environment = self._store(seed, path)
        os.environ.update(environment)
        mixed_clients.create(uri)
        crowd = Crowd(self._processes, path, lease_s=lease_s, seed=seed, uri=uri, environment=environment)
        ended = self._attack(crowd, rng, seconds)
        wrong = [line for end in ended for line in wrong_end(end)]
        self.totals.snapshots += sum(snapshots_of(end) for end in ended)
        wrong += self._read_log(crowd)
        wrong += _wrong_afterwards(uri, crowd, wait_max_s=lease_s + NOISE_S)
        self.totals.rounds += 1
        self.totals.kills += crowd.tally.kills
        self.totals.stops += crowd.tally.stops
        return wrong

    def _store(self, seed: int, path: Path) -> tuple[str, dict[str, str]]:
        if self._server is None:
            return str(path), {}
        world_name = f"soak{seed}"
        self._server.add(World(world_name))
        return "s3://graphs/g", {
            "AWS_ENDPOINT_URL": self._server.endpoint,
            "AWS_ACCESS_KEY_ID": f"{world_name}.client.0",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": REGION,
            "AWS_ALLOW_HTTP": "true",
        }

    def _attack(self, crowd: Crowd, rng: random.Random, seconds: float) -> list[Ended]:
        per_phase, signals_per_s = rng.choice(PER_PHASE), rng.choice(SIGNALS_PER_S)
        until = time.monotonic() + seconds

        def start(crowd: Crowd, job: str) -> None:
            own = crowd.rng.randrange(2**32)
            arguments: dict[str, Any] = {
                "seconds": max(1.0, until - time.monotonic()),
                "chaos": {"seed": own, "per_phase": per_phase, "kinds": ["stop", "stop", "kill"]},
            }
            if job == "write_keys":
                arguments |= {"kinds": ["own", "shared", "counted"], "seed": own}
            if job in ("branch_again", "merge_again"):
                arguments |= {"seed": own}
            if job == "clean_again":
                arguments |= {"keep": 1, "orphans_s": self._orphans_s}
            crowd.start(job, replaceable=True, **arguments)

        crowd.start("watch_leased", seconds=seconds)
        for job in ["write_keys"] * WRITERS + list(KEEPERS):
            start(crowd, job)
        return crowd.attack(
            seconds, replace=lambda crowd, job: start(crowd, job), signals_per_s=signals_per_s, calm_s=180.0
        )

    def _read_log(self, crowd: Crowd) -> list[str]:
        wrong = []
        for line in read_log(crowd.log):
            if line["did"] == "ack":
                self.totals.acknowledged += 1
            if line["did"] == "done":
                self.totals.verbs[line["key"]] += 1
            if line["did"] == "refused":
                verb = line["key"] if line["key"] in MAY_END_WITH else "write"
                self.totals.refused[f"{verb} {line['condition']}"] += 1
                if line["condition"] not in MAY_END_WITH.get(verb, set()):
                    wrong.append(f"{line['key']} was refused: {line['condition']}: {line['message']}")
        return wrong


def _wrong_afterwards(uri: str, crowd: Crowd, *, wait_max_s: float) -> list[str]:
    import omnigraph
    from omnigraph.errors import OmnigraphError

    lines = read_log(crowd.log)
    deleting = {line["key"] for line in lines if line["did"] == "deleting"}
    graph = omnigraph.open(uri, engine="local")
    try:
        branches = tuple(branch.name for branch in graph.branches())
        created = {line["branch"] for line in lines if line["did"] == "ack"} - {"main"} - deleting
        lost = sorted((created | {"kept"}) - set(branches))
        wrong = [f"branches are lost: {lost[:3]}"] if lost else []
        for branch in set(branches) - {"main", "kept"}:
            world.write(graph, "afterwards", n=time.monotonic_ns(), branch=branch)
        wrong += violations(uri, crowd.log, branches=("main", "kept"), wait_max_s=wait_max_s)
        wrong += _wrong_merges(graph, lines)
        wrong += _verified(graph)
        graph.cleanup(keep=1, confirm=True)
        wrong += _verified(graph)
        for branch in branches:
            must_hold = {line["key"] for line in lines if line["did"] == "ack" and line["branch"] == branch}
            wrong += world.broken_rules(graph.snapshot(branch), must_hold=must_hold)
    except OmnigraphError as error:
        return [f"afterwards: {error.condition}: {error}"]
    return wrong


def _wrong_merges(graph: Any, lines: list[dict[str, Any]]) -> list[str]:
    """What was acknowledged as merged is one commit of main, and nothing was merged twice."""
    times = Counter(commit.parents[1] for commit in graph.commits() if commit.kind == "merge")
    missing = [line["key"] for line in lines if line["did"] == "merged" and line["source"] not in times]
    twice = [commit for commit, count in times.items() if count > 1]
    wrong = [f"merges that are not in the history: {missing[:3]}"] if missing else []
    return wrong + ([f"commits that were merged twice: {twice[:3]}"] if twice else [])


def _verified(graph: Any) -> list[str]:
    findings = graph.verify().findings
    return [f"verify: {f.code} {f.table}: {f.message}" for f in findings if f.severity == "error"]


def attack(soak: Soak, *, seed: int, rounds: int | None, minutes: float, folder: Path) -> Totals:
    totals = soak.totals
    until = time.monotonic() + minutes * 60
    while (rounds is None or totals.rounds < rounds) and time.monotonic() < until:
        now = seed + totals.rounds
        wrong = soak.round(now)
        if wrong:
            totals.violations += len(wrong)
            totals.seeds.append(now)
            print(f"seed {now}, graph kept in {folder}:", flush=True)
            for line in wrong[:8]:
                print(f"    {line}", flush=True)
        else:
            shutil.rmtree(folder / f"graph-{now}", ignore_errors=True)
        print(totals.line(), flush=True)
    return totals


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, help="stop after this many rounds")
    parser.add_argument("--store", choices=("disk", "s3"), default="disk")
    parser.add_argument("--seed", type=int, help="the first round's seed; random if it is left out, and printed")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    os.environ["OMNIGRAPH_FSYNC"] = "off"
    os.environ.setdefault("LANCE_LOG", "error")
    folder = Path(tempfile.mkdtemp(prefix="omnigraph-soak-"))
    print(f"mixed soak on {options.store}: first seed {seed}", flush=True)
    with ExitStack() as stack:
        server = stack.enter_context(S3Server()) if options.store == "s3" else None
        soak = Soak(stack.enter_context(Processes()), folder, server, orphans_s=ORPHANS_S)
        totals = attack(soak, seed=seed, rounds=options.rounds, minutes=options.minutes, folder=folder)
    print(totals.line())
    if not totals.violations:
        shutil.rmtree(folder)
    return 1 if totals.violations else 0


if __name__ == "__main__":
    raise SystemExit(main())
