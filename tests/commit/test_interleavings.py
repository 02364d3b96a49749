"""Two operations through all interleavings of the door's phases.

Two families. While both live, whoever finds the ticket taken waits. When one is stopped past its lease it is taken for
dead, the other settles what it left, and it wakes up with a ticket that has been decided.

    python -m tests.commit.test_interleavings [--pair "different keys"] [--all]

`--all` runs every order of every step, also those that differ in nothing, and operations that are stopped three times:
hours.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commit import pairs
from tests.commit.explore import interleavings, with_stops
from tests.commit.pairs import PAIRS, Pair
from tests.commit.stepper import Stepper, waiting_is_a_step, waiting_is_over_at_once

# Much like others here: these run in `make test-slow`, or in `make torture` only.
MARKS = {
    **dict.fromkeys(("different keys", "a write and a new property"), pytest.mark.slow),
    **dict.fromkeys(("the same insert", "a write and a renamed property", "the same key"), pytest.mark.long),
}
STOPPED_PAIRS = ("different keys", "a write and a new property", "a write and the end of its branch")


class Stage:
    """A fresh copy of the start, and two operations on it, for every schedule."""

    def __init__(self, folder: Path) -> None:
        self._template = folder / "template"
        self._folder = folder
        self._numbers = itertools.count()
        self.path = folder
        self.commits_before = pairs.create(self._template)

    def start(self, pair: Pair) -> tuple[Stepper, Stepper]:
        if self.path != self._folder:
            shutil.rmtree(self.path)
        self.path = self._folder / f"graph-{next(self._numbers)}"
        shutil.copytree(self._template, self.path, copy_function=_link)
        return Stepper("a", self.path, pair.first), Stepper("b", self.path, pair.second)


def _link(source: str, target: str) -> None:
    """Lance never writes into a file that is there; the one that it replaces is copied."""
    if source.endswith(".json"):
        shutil.copy(source, target)
    else:
        os.link(source, target)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return Stage(tmp_path_factory.mktemp("interleavings"))


def judge_all(stage: Stage, pair: Pair, schedules: Iterator[tuple[str, tuple[Stepper, Stepper]]]) -> int:
    count = 0
    for schedule, (first, second) in schedules:
        count += 1
        try:
            pairs.judge(pair, first, second, stage.path, stage.commits_before)
        except AssertionError as error:
            passed = f"a: {first.passed} {first.error!r}\nb: {second.passed} {second.error!r}"
            raise AssertionError(f"{pair.name}, schedule {schedule}: {error}\n{passed}") from error
    assert count > 1, f"{pair.name}: {count} schedules"
    return count


def live(stage: Stage, pair: Pair, *, reduced: bool = True) -> int:
    with waiting_is_a_step():
        return judge_all(
            stage, pair, interleavings(lambda: stage.start(pair), reduced=reduced, symmetric=pair.symmetric)
        )


def stopped(stage: Stage, pair: Pair, *, stops: int = 2, stride: int = 1) -> int:
    with waiting_is_over_at_once():
        return judge_all(stage, pair, with_stops(lambda: stage.start(pair), stops=stops, stride=stride))


@pytest.mark.parametrize(
    "pair",
    [pytest.param(p, marks=MARKS.get(p.name, ())) for p in PAIRS],
    ids=lambda pair: pair.name,
)
def test_every_interleaving_of_two_live_operations_ends_right(stage: Stage, pair: Pair) -> None:
    print(f"{pair.name}: {live(stage, pair)} interleavings")


@pytest.mark.parametrize("pair", [p for p in PAIRS if p.name in STOPPED_PAIRS], ids=lambda pair: pair.name)
def test_every_operation_stopped_at_every_phase_beside_every_phase_of_another_ends_right(
    stage: Stage, pair: Pair
) -> None:
    """Every fourth place of either stop; all of them are part of `make torture`."""
    print(f"{pair.name}: {stopped(stage, pair, stride=4)} schedules with stops")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="every order of every step, and three stops")
    parser.add_argument("--pair", choices=[pair.name for pair in PAIRS], help="this pair only")
    given = parser.parse_args()
    os.environ["OMNIGRAPH_FSYNC"] = "off"
    with tempfile.TemporaryDirectory(prefix="omnigraph-interleavings-") as folder:
        stage = Stage(Path(folder))
        for pair in PAIRS:
            if given.pair in (None, pair.name):
                print(f"{pair.name}: {live(stage, pair, reduced=not given.all)} interleavings, all right", flush=True)
                count = stopped(stage, pair, stops=3 if given.all else 2)
                print(f"{pair.name}: {count} schedules with stops, all right", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
