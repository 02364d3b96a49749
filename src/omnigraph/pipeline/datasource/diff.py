"""The changes of one type as a Spark DataFrame: the driver matches rows by address and id, tasks read the values.

1. match   on the driver, from metadata and ids (`branch/diff/type_changes`): the candidates
2. tasks   windows of candidates in the order of addresses, not of ids, so that a task reads neighbouring rows
3. read    on an executor: both states of the candidates, compared by value; equal ones are dropped

The DataFrame has the rows of `TypeChanges`, in no particular order, with the types of the format `omnigraph`. A lease
keeps both versions; every task renews it when it starts. Nothing is written; a task that runs twice reads twice. It is
a Python data source, because `mapInArrow` needs pandas, which this package does not require.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from omnigraph.branch.diff.change_rows import ChangeShape, change_rows, image_columns
from omnigraph.branch.diff.diff import ChangeFilter, DataFrames
from omnigraph.branch.diff.type_changes import Candidates, SideRows, TypeChanges
from omnigraph.language.schema.model import EntityType
from omnigraph.pipeline.datasource.read import cut_by_bytes, spark_column_type
from omnigraph.pipeline.snapshot_lease import lease_for_tasks
from omnigraph.storage.array_text import packed, unpacked
from omnigraph.storage.diff.table_version import TableVersion
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin
from omnigraph.storage.objects import leases
from omnigraph.tasks.engine import EngineSettings
from omnigraph.tasks.error_text import with_remedy
from omnigraph.tasks.session import spark_session

FORMAT = "omnigraph_changes"
TASK_ROWS_MAX = 50_000


@dataclass
class ChangeTask(InputPartition):  # type: ignore[misc]
    """Some candidates: their possible kinds of change, and their addresses in both versions; compressed."""

    kinds: bytes
    old: bytes
    new: bytes


@dataclass(frozen=True)
class _Job:
    """What all tasks have in common."""

    location: Location
    shape: ChangeShape
    pins: tuple[Pin | None, Pin | None]
    lease: str | None
    tasks: tuple[ChangeTask, ...]

    def run(self, task: ChangeTask) -> pa.Table:
        tables = Tables(self.location)
        sides = zip(self.pins, (self.shape.old, self.shape.new), (task.old, task.new), strict=True)
        before, after = (_images(tables, pin, t, unpacked(packed)) for pin, t, packed in sides)
        return change_rows(self.shape, unpacked(task.kinds).astype(np.int64), before, after)


def _images(tables: Tables, pin: Pin | None, t: EntityType | None, addresses: np.ndarray) -> pa.Table | None:
    if pin is None or t is None:
        return None
    columns = image_columns(t)
    return TableVersion.open(tables, pin, t).rows_in_order(addresses, columns).select(columns)


def dataframes(engines: EngineSettings) -> DataFrames:
    """The function by which a diff creates its DataFrames. The session is started with the first of them."""

    def make(changes: TypeChanges, chosen: ChangeFilter) -> Any:
        spark = engines.session or spark_session(engines.settings)
        return dataframe(spark, changes, chosen)

    return make


def dataframe(spark: Any, changes: TypeChanges, chosen: ChangeFilter, *, rows_max: int = TASK_ROWS_MAX) -> Any:
    """All changes of one type, read by tasks of at most `rows_max` candidates."""
    job_description = _job(changes, chosen, rows_max)
    shape = spark_schema(changes.shape)

    class Changes(DataSource):  # type: ignore[misc]
        job = job_description

        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> types.StructType:
            return shape

        def reader(self, schema: types.StructType) -> DataSourceReader:
            # Spark plans in a process of its own, and then sends source and reader to every task: the candidates of
            # the other tasks are not sent along.
            tasks = type(self).job.tasks
            type(self).job = replace(type(self).job, tasks=())
            return ChangeReader(type(self).job, tasks, schema)

    spark.dataSource.register(Changes)
    return spark.read.format(FORMAT).load()


def _job(changes: TypeChanges, chosen: ChangeFilter, rows_max: int) -> _Job:
    sides = changes.sides
    pins = tuple(None if side is None else side.version.pin for side in sides)
    location = changes.location
    lease = lease_for_tasks(
        location, [pin for pin in pins if pin], changes.commit, {pin.table: changes.table_key for pin in pins if pin}
    )
    candidates = changes.chosen(chosen.operations, chosen.ids)
    candidates = candidates.take(_address_order(candidates, sides))
    tasks = []
    for start, stop in changes.windows(candidates, rows_max):
        for first in range(start, stop, rows_max):
            part = candidates.slice(first, min(first + rows_max, stop))
            old, new = (
                packed(_addresses(side, rows)) for side, rows in zip(sides, (part.old_rows, part.new_rows), strict=True)
            )
            tasks.append(ChangeTask(packed(part.kinds), old, new))
    return _Job(location, changes.shape, (pins[0], pins[1]), lease, tuple(tasks))


def _addresses(side: SideRows | None, rows: np.ndarray) -> np.ndarray:
    return np.empty(0, dtype=np.uint64) if side is None else side.addresses[rows[rows >= 0]]


def _address_order(candidates: Candidates, sides: Sequence[SideRows | None]) -> np.ndarray:
    """By the address in the newer version; deleted ones last, by that in the older one."""
    addresses = np.zeros(len(candidates), dtype=np.uint64)
    for side, rows in zip(sides, (candidates.old_rows, candidates.new_rows), strict=True):
        addresses[rows >= 0] = _addresses(side, rows)
    return np.lexsort((addresses, candidates.new_rows < 0))


class ChangeReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, job: _Job, tasks: Sequence[ChangeTask], schema: types.StructType) -> None:
        self.job = job
        self.tasks: list[ChangeTask] | None = list(tasks)
        self.shape = schema

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "tasks": None}

    def partitions(self) -> Sequence[InputPartition]:
        assert self.tasks is not None, "partitions are made where the reader was made"
        return self.tasks or [ChangeTask(*(packed(np.empty(0, dtype=np.uint64)) for _ in range(3)))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.pandas.types import to_arrow_schema

        assert isinstance(partition, ChangeTask)
        target = to_arrow_schema(self.shape, timezone="UTC")
        with with_remedy():
            if self.job.lease is not None:
                leases.renew(self.job.location, self.job.lease)
            for batch in self.job.run(partition).to_batches():
                for part in cut_by_bytes(batch):
                    yield from pa.table(part).cast(target).to_batches()


def spark_schema(shape: ChangeShape) -> types.StructType:
    text = types.StringType()
    fields = [types.StructField(name, text, True) for name in ("operation", "table_key", "id", "src", "dst")]
    fields.append(types.StructField("changed", types.ArrayType(text, True), True))
    for name, t in (("before", shape.old or shape.type), ("after", shape.new or shape.type)):
        columns = [types.StructField(c, spark_column_type(t, c), True) for c in image_columns(t)]
        fields.append(types.StructField(name, types.StructType(columns), True))
    return types.StructType(fields)
