"""What a pipeline file would do: which files are read, how large they are, which columns become what.

1. inspect   the names and sizes of inputs and the columns of the first file of each; no row is read
2. match     columns with properties: mapped, skipped, unknown (a run refuses these), and required properties that no
             column fills

The plan is a value that can be printed and converted to JSON. The columns of SQL and of formats that only Spark reads
are known only at run time, and None here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from omnigraph.errors import FileUnreadable
from omnigraph.language.schema.model import EntityType, Schema
from omnigraph.pipeline.csv.options import csv_format
from omnigraph.pipeline.csv.read import csv_header
from omnigraph.pipeline.file.check import type_of
from omnigraph.pipeline.file.model import PipelineFile, Target
from omnigraph.pipeline.load.chunks import checked_line_bytes
from omnigraph.pipeline.load.input_files import InputFile, find_files, open_input, total_bytes
from omnigraph.pipeline.load.table_sources import TableSource, with_format

LOOK_BYTES = 1 << 20
"""The size of the beginning of a file of lines that must contain its first line."""


@dataclass(frozen=True)
class FilesPlan:
    """The files of one input."""

    path: str
    format: str
    files: int
    size_bytes: int


@dataclass(frozen=True)
class ColumnsPlan:
    """`mapped`: column to property. `unknown`: columns that match no property and are not skipped. `missing`: required
    properties without a column, and columns that the file maps and the input does not have."""

    mapped: Mapping[str, str]
    skipped: tuple[str, ...]
    unknown: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def fits(self) -> bool:
        return not self.unknown and not self.missing


@dataclass(frozen=True)
class TargetPlan:
    """One type to fill. `columns` is None if they are known only at run time."""

    table_key: str
    source: str
    files: FilesPlan | None
    columns: ColumnsPlan | None


@dataclass(frozen=True)
class PipelinePlan:
    file: str
    graph: str
    creates_graph: bool
    branch: str
    mode: str
    on_error: str
    engine: str
    steps: tuple[str, ...]
    targets: tuple[TargetPlan, ...]
    data: tuple[FilesPlan, ...]

    @property
    def size_bytes(self) -> int:
        """The size of all inputs, each counted once."""
        files_by_path = {t.files.path: t.files for t in self.targets if t.files is not None}
        return sum(f.size_bytes for f in (*files_by_path.values(), *self.data))

    @property
    def fits(self) -> bool:
        return all(t.columns is None or t.columns.fits for t in self.targets)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "size_bytes": self.size_bytes, "fits": self.fits}


def make_plan(file: PipelineFile, schema: Schema, *, creates_graph: bool, engine: str) -> PipelinePlan:
    """The plan of a file. FileUnreadable for an input that does not exist, or is not of its format."""
    return PipelinePlan(
        file=file.text.file,
        graph=file.graph,
        creates_graph=creates_graph,
        branch=file.branch,
        mode=file.mode,
        on_error=file.on_error,
        engine=engine,
        steps=steps_of(file, creates_graph=creates_graph),
        targets=tuple(_target_plan(schema, t, file) for t in file.targets),
        data=tuple(_files_plan(path, "records", find_files(path)) for path in file.data),
    )


def steps_of(file: PipelineFile, *, creates_graph: bool) -> tuple[str, ...]:
    """What a run does, in order."""
    steps = [f"create the graph with {os.path.basename(file.schema or '')}"] if creates_graph else []
    if file.targets or file.data:
        inputs = [t.type_name for t in file.targets] + [os.path.basename(path) for path in file.data]
        steps.append(f"load {', '.join(inputs)} in one commit")
    for step in file.embed:
        properties = ".".join(name for name in (step.type_name, step.property) if name) or "every @embed property"
        steps.append(f"embed {properties} with the provider {step.provider or 'local'}")
    if file.optimize:
        steps.append(f"optimize the branch {file.branch}")
    if file.cleanup is not None:
        kept = [f"the newest {file.cleanup['keep']}"] if file.cleanup["keep"] is not None else []
        kept += [f"those of the last {file.cleanup['older_than']}"] if file.cleanup["older_than"] is not None else []
        steps.append(f"remove old versions of the graph, except {' and '.join(kept)}")
    return tuple(steps)


def input_paths(file: PipelineFile) -> list[str]:
    """Every input that a run would read, once, as the file names it."""
    paths = [*file.data, *(t.input.path for t in file.targets if t.input is not None)]
    paths += [source.path for source in file.sources.values()] if file.needs_sql else []
    return list(dict.fromkeys(paths))


def input_bytes(file: PipelineFile) -> int:
    """The size of what a run would read. FileUnreadable for an input that does not exist."""
    return sum(total_bytes(find_files(path)) for path in input_paths(file))


def _target_plan(schema: Schema, target: Target, file: PipelineFile) -> TargetPlan:
    entity_type = type_of(schema, target)
    assert entity_type is not None, "checked against the schema before"
    table = target.table_source()
    if table is None:
        return TargetPlan(target.key, "sql", None, None)
    table = with_format(table)
    files = find_files(table.path)
    columns = columns_of(table, files[0], max_line_bytes=file.max_line_bytes)
    label = f"source {target.source}" if target.source is not None else "path"
    matched = None if columns is None else _matched(entity_type, table, columns)
    return TargetPlan(target.key, label, _files_plan(table.path, table.kind, files), matched)


def _files_plan(path: str, kind: str, files: Sequence[InputFile]) -> FilesPlan:
    return FilesPlan(path, kind, len(files), total_bytes(files))


def _matched(entity_type: EntityType, table: TableSource, columns: Sequence[str]) -> ColumnsPlan:
    """Like `table_sources.fields_of`, but with all columns that do not match instead of the first."""
    renamed = table.renamed()
    aliases = {"src": "from", "dst": "to"} if entity_type.kind == "edge" else {}
    allowed = {"id", *entity_type.by_name, *(("from", "to", "src", "dst") if entity_type.kind == "edge" else ())}
    mapped: dict[str, str] = {}
    skipped: list[str] = []
    unknown: list[str] = []
    for column in columns:
        name = renamed.get(column, column)
        if column not in renamed and (column in table.skip or (name not in allowed and "*" in table.skip)):
            skipped.append(column)
        elif name not in allowed or name in mapped.values():
            unknown.append(column)
        else:
            mapped[column] = name
    filled = {aliases.get(name, name) for name in mapped.values()}
    required = [p.name for p in entity_type.properties if not p.nullable and p.default is None]
    required += ["from", "to"] if entity_type.kind == "edge" else []
    missing = [column for column in renamed if column not in columns]
    missing += [name for name in required if name not in filled and name not in (renamed[c] for c in missing)]
    if table.kind == "jsonl":
        missing = []  # later lines may have members that the first one leaves out
    return ColumnsPlan(mapped, tuple(skipped), tuple(unknown), tuple(missing))


# ---- columns ---------------------------------------------------------------------------------------------------------


def columns_of(table: TableSource, first: InputFile, *, max_line_bytes: int | None = None) -> list[str] | None:
    """The columns of an input's first file; None if they are known only at run time."""
    import pyarrow as pa

    try:
        if table.kind == "csv":
            format = csv_format(table.format_options, path=first.path)
            return csv_header(first, format, max_line_bytes=checked_line_bytes(max_line_bytes)).names
        if table.kind == "jsonl":
            return _json_columns(_beginning(first))
        return _arrow_columns(table.kind, first)
    except (OSError, ValueError, StopIteration, pa.ArrowException) as error:
        raise FileUnreadable(path=first.path, detail=f"it is no {table.kind}: {error}") from error


def _beginning(first: InputFile) -> str:
    import pyarrow as pa

    with open_input(first.path) as raw:
        packed = first.compression
        file = raw if packed is None else pa.CompressedInputStream(raw, packed)
        return bytes(file.read(LOOK_BYTES)).decode("utf-8-sig", "replace")


def _json_columns(text: str) -> list[str]:
    import orjson

    line = next(line for line in text.splitlines() if line.strip())
    record = orjson.loads(line)
    if not isinstance(record, dict):
        raise ValueError("its first line is no object.")
    return list(record)


def _arrow_columns(kind: str, first: InputFile) -> list[str] | None:
    if kind == "parquet":
        from pyarrow import parquet

        return list(parquet.read_schema(open_input(first.path)).names)
    if kind == "arrow":
        from pyarrow import ipc

        return list(ipc.open_file(open_input(first.path)).schema.names)
    if kind == "orc":
        from pyarrow import orc

        return list(orc.ORCFile(open_input(first.path)).schema.names)
    return None
