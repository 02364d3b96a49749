"""Runners: both give the same results and the same errors."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import KeyConflict, TaskFailed, UsageError
from omnigraph.tasks.engine import EngineSettings
from omnigraph.tasks.runner import LocalRunner, Runner, SparkRunner, task_function, task_name
from tests.spark import work
from tests.support.counting import Counting


@pytest.fixture(params=["local", "spark"])
def runner(request: pytest.FixtureRequest) -> tuple[Runner, Counting]:
    watcher = Counting()
    if request.param == "local":
        return LocalRunner(watcher=watcher), watcher
    return SparkRunner(request.getfixturevalue("spark"), watcher=watcher), watcher


def test_results_come_in_the_order_of_the_tasks_and_progress_counts_them(runner: tuple[Runner, Counting]) -> None:
    run, watcher = runner
    tasks = [{"value": n} for n in range(20)]
    found = run.run(work.double, tasks, stage="doubling")
    assert [f["value"] for f in found] == [2 * n for n in range(20)]
    assert watcher.stages == [("doubling", 20)]
    assert watcher.last == (20, 20, 200)


def test_no_tasks_are_no_job(runner: tuple[Runner, Counting]) -> None:
    assert runner[0].run(work.double, [], stage="nothing") == []


def test_a_task_function_has_a_name_by_which_workers_import_it() -> None:
    assert task_name(work.double) == "tests.spark.work:double"
    assert task_function("tests.spark.work:double") is work.double


@pytest.mark.parametrize("function", [lambda task: task, Counting().stage], ids=["lambda", "method"])
def test_what_a_worker_can_not_import_is_refused_by_the_driver(function: Any, runner: tuple[Runner, Counting]) -> None:
    with pytest.raises(AssertionError, match="can't import"):
        runner[0].run(function, [{}], stage="nothing")


def test_a_typed_error_of_a_task_is_raised_as_it_was(runner: tuple[Runner, Counting]) -> None:
    with pytest.raises(KeyConflict) as caught:
        runner[0].run(work.conflict, [{"value": n} for n in (0, 2, 3)], stage="checking")
    assert caught.value.fields == {"table_key": "node:Person", "entity_id": "2", "count": 1}


def test_any_other_failure_names_the_stage_and_the_reason(runner: tuple[Runner, Counting]) -> None:
    with pytest.raises(TaskFailed, match="ZeroDivisionError: division by zero") as caught:
        runner[0].run(work.divide, [{"value": 0}], stage="dividing")
    assert caught.value.fields["stage"] == "dividing"


def test_a_failing_store_is_tried_again(runner: tuple[Runner, Counting], tmp_path: Path) -> None:
    assert runner[0].run(work.flaky, [{"path": str(tmp_path / "turns")}], stage="reading") == [2]


def test_a_killed_worker_costs_a_retry(spark: Any, tmp_path: Path) -> None:
    found = SparkRunner(spark).run(work.die_once, [{"path": str(tmp_path / "mark")}], stage="dying")
    assert found == [7]


def test_ctrl_c_cancels_the_job(runner: tuple[Runner, Counting]) -> None:
    main = threading.main_thread().ident
    assert main is not None
    seconds = 20 if runner[0].engine == "spark" else 2
    timer = threading.Timer(1.0, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        runner[0].run(work.sleep, [{"seconds": seconds}] * 8, stage="sleeping")
    assert time.monotonic() - started < 15


def test_small_work_runs_here_and_large_work_on_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.tasks.engine.active_session", lambda: None)
    monkeypatch.delenv("OMNIGRAPH_ENGINE", raising=False)
    engines = EngineSettings()
    assert engines.choose(work_bytes=1000)[0] == "local"
    assert engines.choose(work_bytes=100 << 20) == ("spark", "work of 100 MiB")
    assert engines.choose(work_bytes=None)[0] == "spark"
    assert engines.choose(work_bytes=None, requested="local") == ("local", "as asked for")
    monkeypatch.setenv("OMNIGRAPH_ENGINE", "spark")
    assert engines.choose(work_bytes=1)[0] == "spark"
    with pytest.raises(UsageError, match="auto, spark, local"):
        engines.choose(work_bytes=1, requested="flink")


def test_a_stage_is_logged_with_its_engine_and_tasks(
    runner: tuple[Runner, Counting], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="omnigraph"):
        runner[0].run(work.double, [{"value": 1}, {"value": 2}], stage="doubling")
    (record,) = caplog.records
    assert record.getMessage().startswith(f"stage finished stage=doubling engine={runner[0].engine} tasks=2 seconds=")
