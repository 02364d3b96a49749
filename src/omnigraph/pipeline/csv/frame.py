"""CSV as a Spark DataFrame of texts, read by the same code as every other load.

1. split     the driver reads headers, and splits large files where records begin (`splits`)
2. columns   those of all files, by name, in the order in which they appear; a file without one of them gives nulls
3. read      one task per segment, when an action runs: a Python data source that returns Arrow batches

A record that is no row (too many values, not UTF-8) fails the action: SQL reads all rows of a source or none. Typed
errors of tasks are returned to the driver in the text of Spark's exception (`runner.encoded_error`). Writes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa

from omnigraph.errors import OmnigraphError, RecordError, UsageError, Violation
from omnigraph.pipeline.csv.blocks import count_lines
from omnigraph.pipeline.csv.read import csv_blocks
from omnigraph.pipeline.csv.splits import csv_segments, split_files, with_headers
from omnigraph.pipeline.load.input_files import InputFile
from omnigraph.tasks.runner import Runner, encoded_error
from omnigraph.write.violations import told

FORMAT = "omnigraph_csv"
ROWS_HINT = "Correct these rows, or load the source without sql and --on-error quarantine; nothing was written."


def csv_frame(
    session: Any,
    runner: Runner,
    name: str,
    files: Sequence[InputFile],
    options: Mapping[str, str],
    *,
    size: int,
    max_line_bytes: int,
) -> Any:
    """The rows of some files, in pieces of about `size` bytes. `name` is the user's name of the source."""
    from pyspark.sql.types import StringType, StructField, StructType

    inputs = [(csv, options) for csv in with_headers(files, options, max_line_bytes=max_line_bytes)]
    columns: dict[str, None] = {}
    for csv, _ in inputs:
        names = csv.header.names
        twice = next((column for column, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            raise UsageError(detail=f"{csv.file.name} has the column {twice!r} twice: sql can't tell them apart.")
        columns |= dict.fromkeys(names)
    if not columns:
        raise UsageError(detail=f"the source {name} has no columns: its files are empty.")
    cut = split_files(runner, inputs, size=size)
    segments = [segment for csv in cut for segment in csv_segments(csv)]
    about = orjson.dumps({"segments": segments, "options": dict(options), "columns": list(columns)}).decode()
    session.dataSource.register(_source())
    schema = StructType([StructField(column, StringType()) for column in columns])
    return session.read.format(FORMAT).schema(schema).option("about", about).load()


def segment_batches(
    segment: Mapping[str, Any], options: Mapping[str, str], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of a segment under the columns of the whole source."""
    try:
        for rows in csv_blocks(segment, options):
            if rows.bad:
                raise _no_rows(segment, rows.bad)
            nulls = pa.nulls(rows.table.num_rows, pa.string())
            names = set(rows.table.column_names)
            arrays = [rows.table.column(column) if column in names else nulls for column in columns]
            yield from pa.table(arrays, names=list(columns)).to_batches(max_chunksize=100_000)
    except OmnigraphError as error:
        raise encoded_error(error) from None


def _no_rows(segment: Mapping[str, Any], bad: Sequence[tuple[int, str, str]]) -> RecordError:
    before = (
        max(0, count_lines(segment["path"], segment["start"]) - segment["header_lines"]) if "start" in segment else 0
    )
    violations = [
        Violation("record", "record", reason, line=line + before, source=segment["source"]) for line, reason, _ in bad
    ]
    return RecordError(**told(violations, {"record": len(violations)}), hint=ROWS_HINT)


def _source() -> type:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Segment(InputPartition):  # type: ignore[misc]
        def __init__(self, segment: Mapping[str, Any]) -> None:
            self.segment = segment

    class Reader(DataSourceReader):  # type: ignore[misc]
        def __init__(self, about: str) -> None:
            self._about = about

        def partitions(self) -> list[Any]:
            return [Segment(segment) for segment in orjson.loads(self._about)["segments"]]

        def read(self, partition: Any) -> Iterator[Any]:
            from omnigraph.pipeline.csv.frame import segment_batches

            about = orjson.loads(self._about)
            if partition is None:  # Spark calls this once with None if there are no partitions
                return
            yield from segment_batches(partition.segment, about["options"], about["columns"])

    class Source(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def reader(self, schema: Any) -> Any:
            return Reader(self.options["about"])

    return Source
