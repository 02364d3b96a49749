"""SQL of a pipeline file: its sources as views, its selects as frames.

Each source becomes a temporary view of its name; each target with `sql` a DataFrame, its columns renamed by `map`,
`from` and `to`. The views exist while the block runs; a view of the caller with the same name is restored afterwards.
CSV is read by `pipeline.csv`, as for a target that names the source: its values are texts, and SQL has to cast them to
the types of the schema. Parquet, ORC and JSON lines are read by Spark, with their types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from omnigraph.errors import OmnigraphError, PipelineFileError, UsageError
from omnigraph.pipeline.bulk.input.input_splits import piece_bytes
from omnigraph.pipeline.csv.frame import csv_frame
from omnigraph.pipeline.file.model import Input, PipelineFile, Target
from omnigraph.pipeline.load.chunks import checked_line_bytes
from omnigraph.pipeline.load.input_files import find_files, total_bytes
from omnigraph.pipeline.load.table_sources import TableSource, with_format
from omnigraph.tasks.engine import EngineSettings
from omnigraph.tasks.progress import Watcher
from omnigraph.tasks.runner import SparkRunner, error_line
from omnigraph.tasks.session import spark_session

_SPARK_OPTIONS = {
    "parquet": {"mergeSchema": "true"},
    "orc": {"mergeSchema": "true"},
    "jsonl": {"mode": "FAILFAST"},
}
"""With these Spark reads columns that only some files have, and refuses lines that are no JSON."""


@contextmanager
def prepared_frames(file: PipelineFile, engines: EngineSettings) -> Iterator[Mapping[str, Any]]:
    """A DataFrame per target with SQL, by table key. PipelineFileError if Spark refuses the SQL."""
    sql_targets = [t for t in file.targets if t.sql is not None]
    if not sql_targets:
        yield {}
        return
    engines.watcher.engine("spark", "sql runs on Spark")
    session = engines.session or spark_session(engines.settings)
    hidden = {name: session.table(name) for name in file.sources if _is_view(session, name)}
    try:
        for name, source in file.sources.items():
            _view(session, name, source, engines.watcher, file.max_line_bytes)
        yield {t.key: _frame(session, file, t) for t in sql_targets}
    finally:
        for name in file.sources:
            session.catalog.dropTempView(name)
        for name, frame in hidden.items():
            frame.createOrReplaceTempView(name)


def _is_view(session: Any, name: str) -> bool:
    return bool(session.catalog.tableExists(name) and session.catalog.getTable(name).isTemporary)


def _view(session: Any, name: str, source: Input, watcher: Watcher, max_line_bytes: int | None) -> None:
    table = with_format(TableSource(path=source.path, format=source.format, options=source.options))
    if table.kind in ("arrow", "lance"):
        raise UsageError(detail=f"the source {name} is {table.kind}, which sql does not read; use Parquet, ORC or CSV.")
    files = find_files(source.path)
    try:
        if table.kind == "csv":
            runner = SparkRunner(session, watcher=watcher)
            size = piece_bytes(total_bytes(files), runner.parallelism)
            limit = checked_line_bytes(max_line_bytes)
            frame = csv_frame(session, runner, name, files, table.format_options, size=size, max_line_bytes=limit)
        else:
            options = {**_SPARK_OPTIONS.get(table.kind, {}), **source.options}
            form = {"jsonl": "json"}.get(table.kind, table.kind)
            frame = session.read.format(form).options(**options).load([file.path for file in files])
        frame.createOrReplaceTempView(name)
    except OmnigraphError:
        raise
    except Exception as error:
        raise UsageError(detail=f"Spark does not read the source {name}: {error_line(error)}") from error


def _frame(session: Any, file: PipelineFile, target: Target) -> Any:
    assert target.sql is not None
    try:
        frame = session.sql(target.sql)
    except Exception as error:
        raise _refused(file, target, error_line(error)) from error
    renamed = dict(target.columns)
    for column, end in ((target.from_column, "from"), (target.to_column, "to")):
        if column is not None:
            renamed[column] = end
    absent = [column for column in renamed if column not in frame.columns]
    if absent:
        raise _refused(file, target, f"it gives no column {absent[0]}; it gives {', '.join(frame.columns)}.")
    return frame.drop(*target.skip).withColumnsRenamed(renamed)


def _refused(file: PipelineFile, target: Target, reason: str) -> PipelineFileError:
    return file.text.error(target.place, f"the sql of {target.type_name} can't run: {reason}")
