"""Random histories against the written oracle: `random_histories` has the steps, `oracle` what they have to leave.

A failure prints its seed and every step. `python -m tests.branch.merge.random_histories --seed S` replays it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from omnigraph.branch.merge.rows.tasks import RowTasks
from tests.branch.merge.random_histories import Settings, run_history
from tests.branch.merge.random_settings import stores

FAST = [("disk", seed) for seed in (101, 115, 122, 137)] + [("s3", 103), ("s3", 128)]
FAST_BY_TASKS = (201, 206, 224)
"""Their limits make every merge run as tasks of a few rows."""
SLOW = [("disk", seed) for seed in range(200, 232)] + [("s3", seed) for seed in range(232, 240)]


def _run(store: str, seed: int, folder: Path, settings: Settings) -> Counter[str]:
    counts: Counter[str] = Counter()
    with stores(store) as place:
        run_history(place(seed, folder), seed, settings, folder, counts)
    return counts


@pytest.mark.parametrize(("store", "seed"), FAST)
def test_a_random_history_equals_the_oracle(store: str, seed: int, tmp_path: Path) -> None:
    counts = _run(store, seed, tmp_path, Settings(steps=12 if store == "disk" else 8))
    assert counts["writes"] > 3


@pytest.mark.parametrize("seed", FAST_BY_TASKS)
def test_a_random_history_that_merges_by_tasks_equals_the_oracle(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks: Counter[str] = Counter()

    def run(self: RowTasks, function: Any, tasks: Sequence[Any], **options: Any) -> list[Any]:
        chunks[function.__name__] += len(tasks)
        return original(self, function, tasks, **options)

    original = RowTasks.run
    monkeypatch.setattr(RowTasks, "run", run)
    counts = _run("disk", seed, tmp_path, Settings(steps=12))
    assert counts["merged"]
    assert min(chunks["compare_rows"], chunks["decide_rows"], chunks["write_rows"]) > 1, chunks


@pytest.mark.slow
@pytest.mark.parametrize(("store", "seed"), SLOW)
def test_more_random_histories_equal_the_oracle(store: str, seed: int, tmp_path: Path) -> None:
    counts = _run(store, seed, tmp_path, Settings(steps=25))
    assert counts["writes"] > 5


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("store", ["disk", "s3"])
def test_hundreds_of_random_histories_equal_the_oracle(store: str, tmp_path: Path) -> None:
    total: Counter[str] = Counter()
    for seed in range(10_000, 10_500 if store == "disk" else 10_100):
        folder = tmp_path / str(seed)
        folder.mkdir()
        total += _run(store, seed, folder, Settings(steps=15))
    for kind in ("divergent_update", "orphan_edge", "unique_violation", "several bases", "adopted fragments"):
        assert total[kind], f"no history came to {kind}"
