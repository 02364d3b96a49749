"""Whether a process is gone: only where that is proven. Real limits, users and namespaces; see `owners`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from omnigraph.commit import owner

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and other users need root")


def told(case: str) -> dict[str, Any]:
    run = subprocess.run(
        [sys.executable, "-m", "tests.commit.owners", case], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert "error" not in found, found
    return dict(found)


def test_an_observer_without_file_descriptors_declares_nobody_alive_gone() -> None:
    assert told("out_of_descriptors") == {"alive": False, "me": False, "ended": True, "later": True}


@AS_ROOT
def test_a_process_that_is_hidden_from_the_observer_is_not_gone() -> None:
    assert told("hidden_processes") == {"alive": False, "ended": True}


@AS_ROOT
def test_a_proc_of_another_pid_namespace_is_not_asked() -> None:
    expected = {"alive": False, "ended": True, "me": False, "unknown": False, "started": True}
    assert told("foreign_proc") == expected


@AS_ROOT
@pytest.mark.parametrize("case", ["other_pid_namespace", "other_uts_namespace"])
def test_of_a_process_in_another_namespace_nothing_is_known(case: str) -> None:
    assert told(case) == {"alive": False, "ended": False}


@AS_ROOT
def test_a_process_is_not_gone_because_another_time_namespace_tells_another_start() -> None:
    assert told("other_time_namespace") == {"alive": False}


def test_a_process_whose_first_thread_has_ended_is_not_gone() -> None:
    assert told("first_thread_ended") == {"zombie": True, "alive": False, "ended": True}


@pytest.mark.parametrize("pid", [0, -1, True, 2**40, "1", None, 1.0])
def test_a_pid_that_is_none_is_not_gone(pid: object) -> None:
    assert owner.is_gone({**owner.myself(), "pid": pid, "start": "1"}) is False


@pytest.mark.parametrize("field", ["boot", "namespace", "uts", "time", "start"])
def test_an_owner_that_does_not_say_where_it_runs_is_not_gone(field: str) -> None:
    body = {**owner.myself(), "pid": 2**22 - 1}
    assert owner.is_gone({**body, field: ""}) is False
    assert owner.is_gone({k: v for k, v in body.items() if k != field}) is False
