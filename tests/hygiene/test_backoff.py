"""Pauses between attempts grow up to their limit, and the random source decides the rest."""

from __future__ import annotations

import ast
import random
from pathlib import Path

import pytest

import omnigraph
from omnigraph.config.backoff import Backoff

SOURCE = Path(omnigraph.__file__).parent


def test_the_pauses_grow_up_to_the_limit() -> None:
    backoff = Backoff(first_s=0.1, max_s=1.0, growth=3.0, uniform=lambda low, high: (low + high) / 2)
    assert [round(backoff.next_s(), 6) for _ in range(4)] == [0.1, 0.3, 0.9, 1.0]


def test_the_jitter_stays_within_its_share_and_follows_the_random_source() -> None:
    def pauses(seed: int) -> list[float]:
        backoff = Backoff(first_s=1.0, max_s=1.0, jitter=0.25, uniform=random.Random(seed).uniform)
        return [backoff.next_s() for _ in range(200)]

    assert pauses(1) == pauses(1) != pauses(2)
    assert 0.75 <= min(pauses(1)) < 0.8
    assert 1.2 < max(pauses(1)) <= 1.25


def test_a_call_sleeps_for_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    Backoff(first_s=2.0, max_s=1.0, uniform=lambda low, high: 1.0)()
    assert slept == [1.0]


def test_no_other_module_sleeps_for_a_random_time() -> None:
    offenders = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "sleep"):
                argument = ast.unparse(node.args[0])
                if "random" in argument or "**" in argument:
                    offenders.append(f"{path.relative_to(SOURCE)}: {ast.unparse(node)}")
    assert offenders == []
