"""Differences of random states of random histories, against a plain comparison of full scans."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.branch.diff.oracle import History, require_equal

PAIRS = 25


@pytest.mark.parametrize("row_ids", ["stable", "address"])
@pytest.mark.parametrize("seed", [1, 120, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
def test_changes_are_those_of_a_full_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, row_ids: str
) -> None:
    monkeypatch.setattr("omnigraph.commit.operation.FOLD_AT", 4)
    print(f"seed {seed}, row ids {row_ids}")
    history = History(tmp_path / "graph", seed, row_ids=row_ids)
    history.run(40)
    chance = random.Random(seed)
    total = 0
    for _ in range(PAIRS):
        old, new = chance.choice(history.commits), chance.choice(history.commits)
        total += require_equal(history, old, new, rows_max=chance.choice([1, 3, 8192]))
    assert total > 50
