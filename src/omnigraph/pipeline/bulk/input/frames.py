"""Spark DataFrames as inputs: their rows become staged Arrow tables, written where the partitions are.

Rows leave the JVM through a Python data source with an Arrow writer: it works on every kind of session, and needs no
shared file system but the graph's own store, and no pandas. The commit lists the files of the tasks in a file of an
agreed name; the file of a second run of a task is not in it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from omnigraph.errors import TaskFailed
from omnigraph.tasks.runner import decoded_error, error_line
from omnigraph.tasks.staging import Staging

FORMAT = "omnigraph_staging"
ROWS_PER_FILE = 400_000


def is_frame(value: Any) -> bool:
    return hasattr(value, "sparkSession") and hasattr(value, "schema") and hasattr(value, "write")


def stage_frame(staging: Staging, frame: Any) -> list[tuple[str, int]]:
    """The names and sizes of the staged tables that hold the frame's rows, in the order of its partitions."""
    from pyspark.sql import SparkSession

    # Spark looks a source up in the session that is active, which need not be the frame's own.
    source = _source()
    for session in {id(s): s for s in (frame.sparkSession, SparkSession.getActiveSession()) if s is not None}.values():
        session.dataSource.register(source)
    listing = f"frame-{secrets.token_hex(5)}"
    about = orjson.dumps(staging.to_json()).decode()
    try:
        frame.write.format(FORMAT).option("staging", about).option("listing", listing).mode("append").save()
    except Exception as error:
        failed = TaskFailed(stage="staging a DataFrame", engine="spark", detail=error_line(error))
        raise decoded_error(error) or failed from error
    files = orjson.loads(staging.get(listing))
    return [(name, size) for name, size in files]


def _source() -> type:
    from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

    @dataclass
    class Written(WriterCommitMessage):  # type: ignore[misc]
        partition: int
        files: list[tuple[str, int]]

    class Writer(DataSourceArrowWriter):  # type: ignore[misc]
        def __init__(self, staging: str, listing: str) -> None:
            self._staging = staging
            self._listing = listing

        def write(self, iterator: Iterator[Any]) -> Any:
            from pyspark import TaskContext

            from omnigraph.pipeline.bulk.input.frames import stage_batches

            context = TaskContext.get()
            number = context.partitionId() if context is not None else 0
            return Written(number, stage_batches(Staging.of(orjson.loads(self._staging)), iterator))

        def commit(self, messages: list[Any]) -> None:
            from omnigraph.pipeline.bulk.input.frames import list_files

            parts = sorted((m.partition, m.files) for m in messages if m is not None)
            staging = Staging.of(orjson.loads(self._staging))
            list_files(staging, self._listing, [f for _, files in parts for f in files])

        def abort(self, messages: list[Any]) -> None:
            return  # the staging area is removed as a whole

    class Source(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return Writer(self.options["staging"], self.options["listing"])

    return Source


def stage_batches(staging: Staging, batches: Iterator[Any]) -> list[tuple[str, int]]:
    """Record batches as staged tables of a good size."""
    import pyarrow as pa

    files: list[tuple[str, int]] = []
    pending: list[Any] = []

    def flush() -> None:
        if pending:
            table = pa.Table.from_batches(pending)
            files.append((staging.put_table("frame", table), max(1, table.nbytes)))
            pending.clear()

    for batch in batches:
        if batch.num_rows:
            pending.append(batch)
        if sum(b.num_rows for b in pending) >= ROWS_PER_FILE:
            flush()
    flush()
    return files


def list_files(staging: Staging, listing: str, files: list[tuple[str, int]]) -> None:
    staging.put_named(listing, orjson.dumps(files))
