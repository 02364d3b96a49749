"""Flipped bytes never abort or hang a process: see tests/faults/flips.py."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest


def campaign(*, seed: int, flips: int, verbs: str, only: str = "", timeout_s: float = 300) -> None:
    command = [sys.executable, "-m", "tests.faults.flips", "--seed", str(seed), "--flips", str(flips), "--only", only]
    if verbs:
        command += ["--verbs", verbs]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    print(done.stdout[-8000:])
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def test_a_sample_of_flips() -> None:
    campaign(seed=1854058878, flips=5, verbs="read,verify")


@pytest.mark.long
@pytest.mark.parametrize("only", ["table deletions", "table versions", "table data", "table indices", "manifest", ""])
def test_flips_in_every_kind_of_file_over_every_verb(only: str) -> None:
    campaign(seed=random.randrange(2**31), flips=200, verbs="", only=only, timeout_s=4 * 3600)
