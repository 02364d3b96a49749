"""The change feed on Spark: `.option("changes", "true")` on `spark.readStream` and `spark.read`.

1. aim         on the driver: the branch, the type, where the feed begins and, for a batch, where it ends
2. offsets     for a stream: `{"cursor": …}` after a whole commit. A micro-batch ends at the newest commit, or after
               `maxCommitsPerTrigger` commits
3. read        one task per micro-batch reads the feed between two offsets, in the order of commits, under leases

A micro-batch that is run again has the same commits, so a checkpointed query with an idempotent or transactional sink
sees every change once. Where cleanup removed states within a micro-batch its rows are net changes; it never goes beyond
its end.

With a type, `before` and `after` are structs with the properties that the type had when the query was planned: a
property that was renamed is found under its new name, one that a state does not have is null or its default. Without a
type they are JSON texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql import types
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

import omnigraph
from omnigraph.branch.diff.change_rows import image_columns
from omnigraph.branch.diff.states import reshaped
from omnigraph.branch.feed.cursor import Cursor, read_cursor
from omnigraph.branch.feed.feed import Feed
from omnigraph.branch.feed.history import records_after
from omnigraph.branch.feed.page import ChangePage
from omnigraph.errors import UsageError
from omnigraph.graph.reads import type_of
from omnigraph.language.schema.model import EntityType
from omnigraph.pipeline.datasource.read import spark_column_type
from omnigraph.tasks.error_text import with_remedy
from omnigraph.write.values import json_value

NOW = "now"
_TEXT = types.StringType()


@dataclass(frozen=True)
class ChangeSource:
    """What is read, as of the planning of the query."""

    graph: str
    storage: Mapping[str, str] | None
    branch: str
    type: EntityType | None
    start: str
    """A cursor."""
    end: str
    """A commit: the newest when the query was planned, or where a batch ends."""

    def feed(self, until: str | None = None) -> Feed:
        opened = omnigraph.open(self.graph, storage_options=self.storage)
        return Feed(opened._committer, self.branch, types=None if self.type is None else [self.type], until=until)


def aim(
    graph: str,
    *,
    storage: Mapping[str, str] | None,
    branch: str,
    type_name: str | None,
    starting_commit: str | None,
    ending_commit: str | None,
) -> ChangeSource:
    """The source with these options. `starting_commit` is a commit, a cursor or `now`."""
    feed = Feed(omnigraph.open(graph, storage_options=storage)._committer, branch)
    head = feed.head()
    starts_now = starting_commit == NOW
    start = feed.start(head, after=None if starts_now else starting_commit, from_now=starts_now)
    end = head.commit if ending_commit is None else read_cursor(feed.manifest, head, ending_commit).commit
    if start.to is not None or end is None:
        raise UsageError(detail="startingCommit and endingCommit are whole commits, not cursors inside of one.")
    t = None if type_name is None else type_of(feed.manifest.schema(head.schema), type_name)
    return ChangeSource(graph, storage, branch, t, str(start), end)


def change_schema(source: ChangeSource) -> types.StructType:
    t = source.type
    image: types.DataType = _TEXT
    if t is not None:
        image = types.StructType([types.StructField(c, spark_column_type(t, c), True) for c in image_columns(t)])
    columns: list[tuple[str, types.DataType]] = [
        ("commit", _TEXT),
        ("merged_parent", _TEXT),
        ("committed_at", types.TimestampType()),
        ("operation", _TEXT),
        ("table_key", _TEXT),
        ("id", _TEXT),
        ("src", _TEXT),
        ("dst", _TEXT),
        ("changed", types.ArrayType(_TEXT, True)),
        ("before", image),
        ("after", image),
    ]
    return types.StructType([types.StructField(name, kind, True) for name, kind in columns])


# ---- rows ------------------------------------------------------------------------------------------------------------


@dataclass
class CommitRange(InputPartition):  # type: ignore[misc]
    """The commits after a cursor up to one commit."""

    start: str
    end: str


def read_range(source: ChangeSource, part: CommitRange) -> Iterator[pa.RecordBatch]:
    from pyspark.sql.pandas.types import to_arrow_schema

    target = to_arrow_schema(change_schema(source), timezone="UTC")
    with with_remedy():
        feed = source.feed(until=part.end)
        for page in feed.pages(feed.head(), Cursor.parse(part.start)):
            if page.rows is not None:
                yield from _batches(source, page, page.rows, target)


def _batches(source: ChangeSource, page: ChangePage, rows: pa.Table, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    commit = page.commit
    constants = {"commit": commit.id, "merged_parent": commit.merged_parent, "committed_at": commit.created_at}
    columns: list[pa.Array] = []
    for field in target:
        if field.name in constants:
            columns.append(pa.repeat(pa.scalar(constants[field.name], field.type), rows.num_rows))
        elif field.name in ("before", "after"):
            images = rows[field.name].combine_chunks()
            stored = None if page.shape is None else page.shape.old if field.name == "before" else page.shape.new
            columns.append(_images(images, stored or source.type, source.type, field.type))
        else:
            columns.append(rows[field.name].combine_chunks().cast(field.type))
    yield from pa.table(columns, schema=target).to_batches()


def _images(images: pa.StructArray, stored: EntityType | None, t: EntityType | None, target: pa.DataType) -> pa.Array:
    if t is None or stored is None:
        texts = [None if i is None else orjson.dumps(i, default=json_value).decode() for i in images.to_pylist()]
        return pa.array(texts, target)
    table = pa.table(images.flatten(), names=[field.name for field in images.type])
    values = reshaped(table, stored, t, image_columns(t))
    children = [values[field.name].combine_chunks().cast(field.type) for field in target]
    return pa.StructArray.from_arrays(children, fields=list(target), mask=images.is_null())


# ---- readers ---------------------------------------------------------------------------------------------------------


class ChangeReader(DataSourceReader):  # type: ignore[misc]
    """A batch of the feed."""

    def __init__(self, source: ChangeSource) -> None:
        self.source = source

    def partitions(self) -> Sequence[InputPartition]:
        return [CommitRange(self.source.start, self.source.end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, CommitRange)
        return read_range(self.source, partition)


class ChangeStreamReader(DataSourceStreamReader):  # type: ignore[misc]
    def __init__(self, source: ChangeSource, *, commits_max: int | None) -> None:
        self.source = source
        self.commits_max = commits_max
        self._opened: Feed | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}  # the reader is sent to workers, without its handle

    def _feed(self) -> Feed:
        """One handle for all polls: each only reads the head."""
        if self._opened is None:
            self._opened = self.source.feed()
        return self._opened

    def initialOffset(self) -> dict[str, str]:
        return {"cursor": self.source.start}

    def latestOffset(self, start: dict[str, str], limit: Any) -> dict[str, str]:
        with with_remedy():
            feed = self._feed()
            head, cursor = feed.head(), Cursor.parse(start["cursor"])
            feed.pages(head, cursor)  # refuses a cursor of another history
            commit: str | None = head.commit
            if self.commits_max is not None and cursor.commit != head.commit:
                records = records_after(feed.manifest, head, cursor.commit)
                commit = list(islice(records, self.commits_max))[-1].commit
            return {"cursor": str(Cursor(head.incarnation, commit))}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        with with_remedy():
            until = Cursor.parse(end["cursor"]).commit
        return [] if start == end or until is None else [CommitRange(start["cursor"], until)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, CommitRange)
        return read_range(self.source, partition)
