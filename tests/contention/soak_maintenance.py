"""The long run of maintenance beside live writers and readers.

    python -m tests.contention.soak_maintenance --minutes 10 --seed 1

1. four writers with ledgers (appends, upserts, deletes), two readers through every kind of index on leased snapshots,
   one process that optimizes and one that cleans up, again and again, all of them until the time is over
2. every few seconds the sizes of everything on disk are noted
3. afterwards: no writer failed, no reader got a wrong answer; the rows are exactly the ledgers; every index answers
   what a scan answers; `verify` finds nothing; optimize came to an end at least once a minute; nothing has grown
   without bound

A seed fixes what writers write and readers ask; who meets whom is up to the machine. Growth is judged from four
minutes on: the limits of cleanup have to come into play first.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.contention import keepers
from tests.contention.audit import objects_left, wrong_epochs
from tests.contention.processes import Processes
from tests.faults.forkserver import Job

WRITERS, READERS = 4, 2
ROWS = 3000
ROWS_MAX = 1200
"""Rows of one writer: then it deletes as many as it appends, and the graph stays as large as it is."""
KEEP = 10
ORPHANS_S = 60.0
LOOK_EVERY_S = 5.0
JUDGED_FROM_S = 240.0
OPTIMIZE_AT_LEAST_EVERY_S = 60.0
GROWTH_MAX = 1.5


@dataclass(frozen=True)
class Figures:
    """What is on disk: files of tables by kind, versions of the most versioned table, and the graph's manifest."""

    data_files: int
    data_mb: float
    index_files: int
    versions_max: int
    manifest_versions: int
    manifest_kb: float
    """The size of its newest version, which every reader and writer reads."""
    all_files: int

    @staticmethod
    def of(path: Path) -> Figures:
        files: list[tuple[str, int]] = []
        for folder, _, names in os.walk(path):
            for name in names:
                place = os.path.join(folder, name)
                try:
                    files.append((place, os.stat(place).st_size))
                except FileNotFoundError:
                    continue  # cleanup was quicker
        versions: dict[str, int] = {}
        for place, _ in files:
            if "/_versions/" in place:
                table = place.partition("/_versions/")[0]
                versions[table] = versions.get(table, 0) + 1
        data = [size for place, size in files if "/data/" in place and "__manifest" not in place]
        mine = str(path / "__manifest")
        newest = sorted((place, size) for place, size in files if place.startswith(f"{mine}/_versions/"))
        return Figures(
            data_files=len(data),
            data_mb=round(sum(data) / 2**20, 1),
            index_files=sum("/_indices/" in place for place, _ in files),
            versions_max=max(n for table, n in versions.items() if table != mine),
            manifest_versions=versions[mine],
            manifest_kb=round(newest[0][1] / 1024, 1),  # Lance counts names down: the first is the newest
            all_files=len(files),
        )

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in asdict(self).items())


def run(processes: Processes, path: Path, *, seconds: float, seed: int) -> tuple[list[str], str]:
    """What was wrong, and the summary."""
    keepers.create(str(path), rows=ROWS)
    rng = random.Random(seed)
    started_s = time.monotonic()

    def start(job: str, **arguments: Any) -> Job:
        return processes.start(job, {"uri": str(path), "seconds": seconds, **arguments})

    writers = [
        start("keep_writing", client=f"w{i}", seed=rng.randrange(2**32), rows_max=ROWS_MAX, pause_s=0.02)
        for i in range(WRITERS)
    ]
    readers = [start("keep_reading", seed=rng.randrange(2**32), pause_s=0.2) for _ in range(READERS)]
    optimizer = start("keep_optimizing", pause_s=1.0, target_rows_per_fragment=2000)
    cleaner = start("keep_cleaning", pause_s=2.0, keep=KEEP, orphans_s=ORPHANS_S)
    everybody = [*writers, *readers, optimizer, cleaner]
    seen = [Figures.of(path)]
    print(f"start:  {seen[0]}", flush=True)
    told_middle = False
    while not all(job.is_over for job in everybody):
        time.sleep(LOOK_EVERY_S)
        seen.append(Figures.of(path))
        if not told_middle and time.monotonic() - started_s > seconds / 2:
            print(f"middle: {seen[-1]}", flush=True)
            told_middle = True
    print(f"end:    {seen[-1]}", flush=True)

    found: list[str] = []
    told: dict[str, list[Any]] = {}
    for name, jobs in (("writer", writers), ("reader", readers), ("optimize", [optimizer]), ("cleanup", [cleaner])):
        for job in jobs:
            ended = job.wait(5.0)
            if not ended.acknowledged:
                found.append(f"{name} did not come to its end: status {ended.status}, {ended.error}")
                continue
            value = ended.value
            told.setdefault(name, []).append(value)
            found += [f"{name}: {wrong}" for key in ("refused", "wrong", "failed") for wrong in value.get(key, ())]
    if not found:
        found += _wrong_afterwards(path, told)
        found += _too_seldom(told["optimize"][0], started_s, seconds)
        found += _grown(seen, seconds)
    return found, _summary(told, seconds)


def _wrong_afterwards(path: Path, told: dict[str, list[Any]]) -> list[str]:
    """Of the rows, of every answer of every index, of the history, and of everything that `verify` knows."""
    import omnigraph

    graph = omnigraph.open(path, engine="local")
    promised = {f"base{i}": i % keepers.VALUES for i in range(ROWS)}
    for value in told["writer"]:
        promised |= value["ledger"]
    found = keepers.wrong_rows(graph, promised) + keepers.wrong_answers(graph) + wrong_epochs(graph)
    found += [f"verify: {f.code} {f.table}: {f.message}" for f in graph.verify().findings if f.severity == "error"]
    left = objects_left(path)
    return found + ([f"left under __recovery: {left[:3]}"] if left else [])


def _too_seldom(kept: dict[str, Any], started_s: float, seconds: float) -> list[str]:
    ends = [started_s, *kept["ended_s"], started_s + seconds]
    longest_s = max(b - a for a, b in itertools.pairwise(ends))
    if longest_s > OPTIMIZE_AT_LEAST_EVERY_S:
        return [f"for {longest_s:.0f} s no optimize came to its end"]
    return [] if kept["commits"] else ["no optimize had anything to do"]


def _grown(seen: list[Figures], seconds: float) -> list[str]:
    """Whether any figure of the last quarter is far above the one of the second quarter."""
    if seconds < JUDGED_FROM_S:
        print(f"growth is judged from {JUDGED_FROM_S / 60:.0f} minutes on: this run is too short for it")
        return []
    quarter = len(seen) // 4
    found = []
    for name in asdict(seen[0]):
        early, late = (
            sorted(getattr(f, name) for f in part)[len(part) // 2]
            for part in (seen[quarter : 2 * quarter], seen[3 * quarter :])
        )
        if late > GROWTH_MAX * early + 10:
            found.append(f"{name} has grown from {early} to {late}")
    return found


def _summary(told: dict[str, list[Any]], seconds: float) -> str:
    def total(who: str, what: str) -> int:
        return sum(value[what] for value in told.get(who, ()))

    longest_s = max((value["longest_s"] for value in told.get("writer", ())), default=0.0)
    return (
        f"{seconds / 60:.1f} minutes: {total('writer', 'operations')} writes, the longest took {longest_s:.1f} s; "
        f"{total('reader', 'questions')} questions; {total('optimize', 'runs')} optimize runs, of which "
        f"{total('optimize', 'commits')} had something to do, {total('optimize', 'fragments_removed')} fragments "
        f"merged; {total('cleanup', 'runs')} cleanup runs, {total('cleanup', 'versions_removed')} versions removed"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, help="random if it is left out, and printed")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    os.environ["OMNIGRAPH_FSYNC"] = "off"
    os.environ.setdefault("LANCE_LOG", "error")
    folder = Path(tempfile.mkdtemp(prefix="omnigraph-soak-"))
    print(f"soak of maintenance: seed {seed}", flush=True)
    with Processes() as processes:
        found, summary = run(processes, folder / "graph", seconds=given.minutes * 60, seed=seed)
    print(f"{summary}: {len(found)} violations")
    for wrong in found[:10]:
        print(f"    {wrong}")
    if found:
        print(f"graph kept in {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
