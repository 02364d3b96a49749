"""Counts the N requests of a verb by a dry run, then runs it N times with each fault; the command line of the torture.

    python -m tests.faults.runner --all                       every verb, request and fault, on S3 and on disk
    python -m tests.faults.runner --fast                      the sample that is part of the test suite
    python -m tests.faults.runner --all --verb insert         one verb
    python -m tests.faults.runner --all --fault kill_before,kill_after       two faults
    python -m tests.faults.runner --all --share 0.1 --seed 7  a tenth of everything, drawn by that seed
    python -m tests.faults.runner --store s3 --verb insert --fault ghost --k 17 --seed 1     replay one run

Every violation is printed with the line that replays it. The exit code is 1 if there was one.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import random
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.faults.diskbench import DiskBench
from tests.faults.forkserver import ForkServer
from tests.faults.localdisk import fast_directory
from tests.faults.oracle import Judgement, judge
from tests.faults.s3bench import S3Bench
from tests.faults.s3server import S3Server
from tests.faults.verbs import VERBS, Verb, by_name

Bench = S3Bench | DiskBench
# More than there are cores: freezes and refused requests mostly wait.
JOBS_AT_ONCE = 6
PROBLEM_CHARACTERS_MAX = 600
STORES = ("s3", "disk")


@dataclass(frozen=True)
class Case:
    store: str
    verb: str
    fault: str
    k: int
    seed: int

    @property
    def replay(self) -> str:
        return (
            f"python -m tests.faults.runner --store {self.store} --verb {self.verb} --fault {self.fault} "
            f"--k {self.k} --seed {self.seed}"
        )


@dataclass(frozen=True)
class Result:
    case: Case
    struck: str
    judgement: Judgement
    took_s: float = 0.0


@dataclass
class Report:
    results: list[Result] = field(default_factory=list)

    @property
    def violations(self) -> list[Result]:
        return [result for result in self.results if result.judgement.problems]

    def text(self) -> str:
        lines = [f"{len(self.results)} runs, {len(self.violations)} violations"]
        for result in self.violations:
            struck = result.struck or "nothing"
            lines.append(f"  {result.case.replay}   # struck {struck}")
            lines += [f"      {problem[:PROBLEM_CHARACTERS_MAX]}" for problem in result.judgement.problems]
        return "\n".join(lines)

    def slowest(self) -> str:
        slow = max(self.results, key=lambda result: result.took_s, default=None)
        return f"slowest {slow.took_s:.1f} s ({slow.case.fault} at {slow.case.k})" if slow else ""

    def outcomes(self) -> str:
        counts = collections.Counter(result.judgement.outcome or "?" for result in self.results)
        return ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))


@contextlib.contextmanager
def s3_bench() -> Iterator[S3Bench]:
    with S3Server() as server, ForkServer() as forks:
        yield S3Bench(server, forks)


@contextlib.contextmanager
def disk_bench(*, slots: int = JOBS_AT_ONCE, environment: dict[str, str] | None = None) -> Iterator[DiskBench]:
    directory = fast_directory()
    try:
        with ForkServer(environment) as forks:
            yield DiskBench(forks, directory, slots=slots)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def all_cases(bench: Bench, verb: Verb, *, seed: int, faults: Collection[str] | None = None) -> list[Case]:
    """Every request with every fault that makes sense there."""
    points = bench.stage(verb).points
    return [Case(bench.store, verb.name, kind, k, seed) for kind, k, _ in points if faults is None or kind in faults]


def shared_cases(
    bench: Bench, verb: Verb, *, seed: int, share: float, faults: Collection[str] | None = None
) -> list[Case]:
    """A random part of all cases, or of those with these faults, the same for the same seed."""
    rng = random.Random(f"{seed}/{verb.name}/{bench.store}/share")
    return [case for case in all_cases(bench, verb, seed=seed, faults=faults) if rng.random() < share]


def fast_cases(bench: Bench, verb: Verb, *, seed: int, count: int) -> list[Case]:
    """A sample that prefers requests that change something, because there the outcome turns."""
    rng = random.Random(f"{seed}/{verb.name}/{bench.store}")
    points = bench.stage(verb).points
    drawn = sorted(points, key=lambda point: rng.random() ** (1 / 3 if point[2] else 1), reverse=True)
    return [Case(bench.store, verb.name, kind, k, seed) for kind, k, _ in drawn[:count]]


def run_case(bench: Bench, case: Case) -> Result:
    stage = bench.stage(by_name(case.verb))
    started = time.monotonic()
    evidence = bench.strike(stage, case.fault, case.k, case.seed)  # type: ignore[arg-type]
    return Result(case, evidence.struck, judge(stage.expected, evidence), time.monotonic() - started)


def run_cases(bench: Bench, cases: Iterable[Case], *, at_once: int = JOBS_AT_ONCE) -> Report:
    with ThreadPoolExecutor(at_once) as pool:
        return Report(list(pool.map(lambda case: run_case(bench, case), cases)))


def run_sample(bench: Bench, verbs: Iterable[Verb], *, seed: int, count: int) -> dict[str, Report]:
    """A sample of every verb, several verbs at once: staging one takes longer than its runs."""

    def one(verb: Verb) -> tuple[str, Report]:
        cases = fast_cases(bench, verb, seed=seed, count=count)
        return verb.name, Report([run_case(bench, case) for case in cases])

    with ThreadPoolExecutor(JOBS_AT_ONCE) as pool:
        return dict(pool.map(one, verbs))


def torture(bench: Bench, verbs: Iterable[Verb], cases: Callable[[Verb], list[Case]]) -> Report:
    whole = Report()
    for verb in verbs:
        started = time.monotonic()
        try:
            report = run_cases(bench, cases(verb))
        except AssertionError as problem:  # the undisturbed verb already fails: a violation of its own
            unstruck = Case(bench.store, verb.name, "none", 0, 0)
            whole.results.append(Result(unstruck, "", Judgement("unusable", [str(problem)])))
            print(f"{bench.store} {verb.name}: {problem}", flush=True)
            continue
        took_s = time.monotonic() - started
        requests = len(bench.stage(verb).requests)
        print(
            f"{bench.store} {verb.name}: {requests} requests, {took_s:.0f} s, {report.slowest()}, {report.outcomes()}",
            flush=True,
        )
        print(report.text(), flush=True)
        whole.results += report.results
    return whole


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.runner", description="Fault injection for every verb."
    )
    parser.add_argument("--all", action="store_true", help="every request with every fault")
    parser.add_argument("--fast", action="store_true", help="a sample of 12 runs per verb")
    parser.add_argument("--share", type=float, default=1.0, help="a random part of --all, as 0.1")
    parser.add_argument("--store", choices=STORES, help="one kind of store only")
    parser.add_argument("--verb", choices=[verb.name for verb in VERBS], help="one verb only")
    parser.add_argument("--fault", help="these faults only, as kill_before,kill_after")
    parser.add_argument("--k", type=int, help="one request only")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    whole = Report()
    chosen = [by_name(options.verb)] if options.verb else list(VERBS)
    for store in (options.store,) if options.store else STORES:
        with s3_bench() if store == "s3" else disk_bench() as bench:

            def cases(verb: Verb, bench: Bench = bench) -> list[Case]:
                if options.fast:
                    return fast_cases(bench, verb, seed=options.seed, count=12)
                faults = options.fault.split(",") if options.fault else None
                if options.share < 1:
                    return shared_cases(bench, verb, seed=options.seed, share=options.share, faults=faults)
                found = all_cases(bench, verb, seed=options.seed, faults=faults)
                return [case for case in found if options.k in (None, case.k)]

            if isinstance(bench, DiskBench) and bench.unsupervisable:
                print(f"NOT RUN: faults at file system calls and loss of power, because of {bench.unsupervisable}")
                chosen = [verb for verb in chosen if bench.can_stage(verb)]
            whole.results += torture(bench, chosen, cases).results
    print(f"in all {whole.text().partition(chr(10))[0]}")
    for result in whole.violations:
        print(f"  {result.case.replay}")
    return 1 if whole.violations else 0


if __name__ == "__main__":
    sys.exit(main())
