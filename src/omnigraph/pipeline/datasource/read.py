"""Reading a type of the graph on Spark: from one pinned commit to record batches on the executors.

1. pin         on the driver: open the graph, resolve the commit, look up type, columns and filter
2. partitions  on the driver: groups of consecutive fragments, of limited rows; a lease on the version, for an hour
3. read        on an executor: open the table at its pinned version, scan the fragments, cast to Spark's types. Every
               task renews the lease when it starts

| property       | Spark                 |                                                              |
|----------------|-----------------------|--------------------------------------------------------------|
| U32            | bigint                | Spark has no unsigned numbers                                |
| U64            | decimal(20,0)         |                                                              |
| DateTime       | timestamp             | a moment; shown in the session's time zone                   |
| enum           | string                |                                                              |
| Vector, list   | array                 |                                                              |
| Blob           | binary                |                                                              |

A filter is pushed down if Lance evaluates it exactly as Spark would, for every value, null included; Spark evaluates
all others. Nothing is written; a task that runs twice reads twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource, types
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

import omnigraph
from omnigraph.errors import UsageError
from omnigraph.graph.reads import Condition, columns_of, condition_of, type_of
from omnigraph.language.schema.model import EntityType, PropertyType
from omnigraph.pipeline.snapshot_lease import lease_for_tasks
from omnigraph.storage.lance import filters
from omnigraph.storage.lance.fragment_groups import fragment_groups
from omnigraph.storage.lance.scan import scan
from omnigraph.storage.lance.tables import Tables, name_of
from omnigraph.storage.layout import Location, locate
from omnigraph.storage.manifest.records import Pin
from omnigraph.storage.objects import leases
from omnigraph.tasks.error_text import with_remedy

PARTITION_ROWS = 500_000
PARTITION_BYTES = 512 << 20
IN_VALUES_MAX = 1_000
BATCH_BYTES_MAX = 256 << 20
"""Spark's byte arrays are limited to 2 GiB: larger batches, which only blobs cause, are split before."""

_SCALARS: dict[str, types.DataType] = {
    "String": types.StringType(),
    "Enum": types.StringType(),
    "Blob": types.BinaryType(),
    "Bool": types.BooleanType(),
    "I32": types.IntegerType(),
    "I64": types.LongType(),
    "U32": types.LongType(),
    "U64": types.DecimalType(20, 0),
    "F32": types.FloatType(),
    "F64": types.DoubleType(),
    "Date": types.DateType(),
    "DateTime": types.TimestampType(),
}


@dataclass(frozen=True)
class Pinned:
    """What is read: a table at a version, some of its columns, some of its rows."""

    location: Location
    commit: str
    type: EntityType
    pin: Pin
    columns: tuple[str, ...]
    condition: Condition
    pushdown: bool
    partition_rows: int


@dataclass
class Fragments(InputPartition):  # type: ignore[misc]
    """The fragments that one task reads."""

    numbers: tuple[int, ...]
    lease: str | None


def pin(
    graph: str,
    type_name: str,
    *,
    storage: Mapping[str, str] | None,
    branch: str,
    commit: str | None,
    as_of: str | None,
    columns: Sequence[str] | None,
    where: str | None,
    pushdown: bool,
    partition_rows: int | None,
) -> Pinned:
    snapshot = omnigraph.open(graph, storage_options=storage).snapshot(branch, commit=commit, as_of=as_of)
    t = type_of(snapshot.schema, type_name)
    pinned = Pinned(
        location=locate(graph, options=storage),
        commit=snapshot.commit,
        type=t,
        pin=snapshot.view.pins[t.id],
        columns=tuple(columns_of(t, columns)),
        condition=condition_of(t, where),
        pushdown=pushdown,
        partition_rows=partition_rows or PARTITION_ROWS,
    )
    if where is not None:
        # Scanned here, so that load() raises the error of a wrong filter, and not a task.
        _scan(pinned, fragments=None, more=())
    return pinned


# ---- columns ---------------------------------------------------------------------------------------------------------


def spark_schema(pinned: Pinned) -> types.StructType:
    return types.StructType([types.StructField(c, spark_column_type(pinned.type, c), True) for c in pinned.columns])


def spark_column_type(t: EntityType, column: str) -> types.DataType:
    p = t.by_name[column].type if column in t.by_name else PropertyType("String")
    if p.kind == "List":
        return types.ArrayType(_SCALARS[p.item or ""], True)
    return types.ArrayType(types.FloatType(), True) if p.kind == "Vector" else _SCALARS[p.kind]


def require_same(pinned: Pinned, schema: types.StructType) -> None:
    """The user's schema may choose columns; their types must be those of the graph."""
    for field in schema:
        columns_of(pinned.type, [field.name])
        expected = spark_column_type(pinned.type, field.name)
        if field.dataType != expected:
            detail = (
                f"{field.name} of {pinned.type.key} is {expected.simpleString()}, not {field.dataType.simpleString()}."
            )
            raise UsageError(detail=f"{detail} Leave the schema out, and cast after reading.")


# ---- reading ---------------------------------------------------------------------------------------------------------


class GraphReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, pinned: Pinned, schema: types.StructType) -> None:
        self.pinned = pinned
        self.shape = schema
        self.pushed: tuple[str, ...] = ()
        if pinned.pushdown:
            self.pushFilters = _Pushing(self)

    def partitions(self) -> Sequence[InputPartition]:
        rows = self.pinned.partition_rows
        with with_remedy():
            table_keys = {self.pinned.pin.table: self.pinned.type.key}
            lease = lease_for_tasks(self.pinned.location, [self.pinned.pin], self.pinned.commit, table_keys)
            groups = fragment_groups(_open(self.pinned), rows_max=rows, bytes_max=PARTITION_BYTES)
        return [Fragments(group.fragments, lease) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.pandas.types import to_arrow_schema

        assert isinstance(partition, Fragments)
        target = to_arrow_schema(self.shape, timezone="UTC")
        with with_remedy():
            if partition.lease is not None:
                leases.renew(self.pinned.location, partition.lease)
            for batch in _scan(self.pinned, fragments=partition.numbers, more=self.pushed, columns=target.names):
                for part in cut_by_bytes(batch):
                    yield from pa.table(part).cast(target).to_batches()


def _open(pinned: Pinned) -> Any:
    return Tables(pinned.location).open(pinned.pin, table_key=pinned.type.key)


def _scan(
    pinned: Pinned, *, fragments: Sequence[int] | None, more: Sequence[str], columns: Sequence[str] | None = None
) -> pa.RecordBatchReader:
    conditions = [*([pinned.condition.sql] if pinned.condition.sql else []), *more]
    return scan(
        _open(pinned),
        pinned.type,
        columns or pinned.columns,
        where=" AND ".join(conditions) or None,
        shown=pinned.condition.shown,
        fragments=fragments,
    )


def cut_by_bytes(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.num_rows <= 1 or batch.get_total_buffer_size() <= BATCH_BYTES_MAX or batch.nbytes <= BATCH_BYTES_MAX:
        yield batch
        return
    half = batch.num_rows // 2
    yield from cut_by_bytes(batch.slice(0, half))
    yield from cut_by_bytes(batch.slice(half))


# ---- filters ---------------------------------------------------------------------------------------------------------


class _Pushing:
    """`pushFilters` of a reader, in a form that Spark also accepts if `…filterPushdown.enabled` is off: then it refuses
    a reader that overrides the method, instead of evaluating the filters itself.
    """

    def __init__(self, reader: GraphReader) -> None:
        self.reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, offered: list[Filter]) -> list[Filter]:
        kept: list[Filter] = []
        pushed: list[str] = []
        for spark_filter in offered:
            text = condition(self.reader.pinned.type, spark_filter)
            if text is None:
                kept.append(spark_filter)
            else:
                pushed.append(text)
        self.reader.pushed = tuple(pushed)
        return kept


_COMPARISONS: dict[type[Filter], str] = {
    datasource.EqualTo: "=",
    datasource.LessThan: "<",
    datasource.LessThanOrEqual: "<=",
    datasource.GreaterThan: ">",
    datasource.GreaterThanOrEqual: ">=",
}


def condition(t: EntityType, spark_filter: Filter) -> str | None:
    """A filter of Spark in Lance's SQL; None unless both select the same rows for all values."""
    path: tuple[str, ...] = getattr(spark_filter, "attribute", ())
    if len(path) != 1:
        return None
    name, kind = name_of(path[0]), filters.kind_of(t, path[0])
    # Blobs are stored as a structure of their own; lists and vectors have no literals.
    if kind == "Blob":
        return None
    if isinstance(spark_filter, datasource.IsNull):
        return f"{name} IS NULL"
    if isinstance(spark_filter, datasource.IsNotNull):
        return f"{name} IS NOT NULL"
    make: Callable[[Any], str | None] = lambda value: filters.literal(kind, _plain(value))  # noqa: E731
    if isinstance(spark_filter, datasource.In):
        values = [make(value) for value in spark_filter.value if value is not None]
        texts = [text for text in values if text is not None]
        return f"{name} IN ({', '.join(texts)})" if 0 < len(texts) == len(values) <= IN_VALUES_MAX else None
    literal = make(spark_filter.value) if hasattr(spark_filter, "value") else None
    if literal is None:
        return None
    if isinstance(spark_filter, datasource.StringStartsWith):
        return f"starts_with({name}, {literal})"
    operator = _COMPARISONS.get(type(spark_filter))
    return None if operator is None or (kind == "Bool" and operator != "=") else f"{name} {operator} {literal}"


def _plain(value: Any) -> Any:
    """Values of U64 columns come as decimals."""
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    return value
