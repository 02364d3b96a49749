"""Where the row work of merges runs: small ones in this process as one piece, large ones as tasks of a runner.

A merge plans from metadata and ids, and then knows how many rows it has to read and to copy. Only if these are as large
as the usual limit (`engine.SMALL_BYTES`), or if Spark was asked for, a runner is chosen, and perhaps a JVM started.
"""

from __future__ import annotations

from omnigraph.branch.merge.rows.tasks import RowTasks, TaskRunner
from omnigraph.tasks.engine import SMALL_BYTES, EngineSettings
from omnigraph.tasks.runner import Runner

TASKS_BYTES_MIN = SMALL_BYTES
"""A merge that reads or copies less of a type does that in this process, in one piece."""


def merge_tasks(engines: EngineSettings, engine: str | None) -> RowTasks:
    """The tasks of one merge. All of them run on the engine that was chosen for the first."""
    is_spark = engines.asked_for(engine) == "spark"
    chosen: list[Runner] = []

    def runner(work_bytes: int) -> TaskRunner:
        if not chosen:
            chosen.append(engines.runner(work_bytes=work_bytes, requested=engine))
        return chosen[0]

    return RowTasks(runner, bytes_min=0 if is_spark else TASKS_BYTES_MIN)
