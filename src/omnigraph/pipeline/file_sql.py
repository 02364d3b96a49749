"""SQL of a pipeline file: its sources as views, its selects as frames.

Each source becomes a temporary view of its name; each target with `sql` a DataFrame, its columns renamed by `map`,
`from` and `to`. The views are there while the block runs; one of the caller's own of that name is put back.
Values that come from CSV are texts: SQL casts what the schema wants otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from omnigraph.errors import PipelineFileError, UsageError
from omnigraph.pipeline.engine import Engines
from omnigraph.pipeline.file_model import Input, PipelineFile, Target
from omnigraph.pipeline.files import find_files
from omnigraph.pipeline.runner import reason_of
from omnigraph.pipeline.session import spark_session
from omnigraph.pipeline.tabular import TableSource, with_format

_SPARK_FORMATS = {"csv": "csv", "parquet": "parquet", "jsonl": "json", "orc": "orc"}
_SPARK_OPTIONS = {"delimiter": "sep", "null": "nullValue", "multiline": "multiLine"}


@contextmanager
def prepared_frames(file: PipelineFile, engines: Engines) -> Iterator[Mapping[str, Any]]:
    """A DataFrame per target that SQL fills, by table key. PipelineFileError where Spark does not take the SQL."""
    wanted = [t for t in file.targets if t.sql is not None]
    if not wanted:
        yield {}
        return
    engines.watcher.engine("spark", "sql runs on Spark")
    session = engines.session or spark_session(engines.settings)
    hidden = {name: session.table(name) for name in file.sources if _is_view(session, name)}
    try:
        for name, source in file.sources.items():
            _view(session, name, source)
        yield {t.key: _frame(session, file, t) for t in wanted}
    finally:
        for name in file.sources:
            session.catalog.dropTempView(name)
        for name, frame in hidden.items():
            frame.createOrReplaceTempView(name)


def _is_view(session: Any, name: str) -> bool:
    return bool(session.catalog.tableExists(name) and session.catalog.getTable(name).isTemporary)


def _view(session: Any, name: str, source: Input) -> None:
    table = with_format(TableSource(path=source.path, format=source.format, options=source.options))
    form = _SPARK_FORMATS.get(table.kind, table.kind)
    if table.kind in ("arrow", "lance"):
        raise UsageError(detail=f"the source {name} is {table.kind}, which sql does not read; use Parquet, ORC or CSV.")
    options = {_SPARK_OPTIONS.get(key, key): value for key, value in source.options.items()}
    if form == "csv":
        options = {"header": "true", "mode": "FAILFAST", **options}
    paths = [file.path for file in find_files(source.path)]
    try:
        session.read.format(form).options(**options).load(paths).createOrReplaceTempView(name)
    except Exception as error:
        raise UsageError(detail=f"Spark does not read the source {name}: {reason_of(error)}") from error


def _frame(session: Any, file: PipelineFile, target: Target) -> Any:
    assert target.sql is not None
    try:
        frame = session.sql(target.sql)
    except Exception as error:
        raise _refused(file, target, reason_of(error)) from error
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
