"""What a pipeline file would do: which files are read, how large they are, which columns become what.

1. look      at the names and sizes of inputs and at the columns of the first file of each; no row is read
2. match     columns with properties: mapped, skipped, unknown (a run refuses these), and required properties that no
             column fills

The plan is a value that prints and turns into JSON. What is known only when it runs, the columns of SQL and of formats
that Spark alone reads, is None.
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
"""How far into a file of lines the first line is looked for."""


@dataclass(frozen=True)
class FilesPlan:
    """The files that one input means."""

    path: str
    format: str
    files: int
    size_bytes: int


@dataclass(frozen=True)
class ColumnsPlan:
    """`mapped`: column to property. `unknown`: columns that fit no property and are not skipped. `missing`: required
    properties that no column fills, and columns that the file maps and the input does not have."""

    mapped: Mapping[str, str]
    skipped: tuple[str, ...]
    unknown: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def fits(self) -> bool:
        return not self.unknown and not self.missing


@dataclass(frozen=True)
class TargetPlan:
    """One type to fill. `columns` is None where they are known only when it runs."""

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
        """Everything that would be read, each input once."""
        found = {t.files.path: t.files for t in self.targets if t.files is not None}
        return sum(f.size_bytes for f in (*found.values(), *self.data))

    @property
    def fits(self) -> bool:
        return all(t.columns is None or t.columns.fits for t in self.targets)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "size_bytes": self.size_bytes, "fits": self.fits}


def make_plan(file: PipelineFile, schema: Schema, *, creates_graph: bool, engine: str) -> PipelinePlan:
    """FileUnreadable for an input that is not there, or not what it should be."""
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
    found = [f"create the graph with {os.path.basename(file.schema or '')}"] if creates_graph else []
    if file.targets or file.data:
        inputs = [t.type_name for t in file.targets] + [os.path.basename(path) for path in file.data]
        found.append(f"load {', '.join(inputs)} in one commit")
    for step in file.embed:
        what = ".".join(name for name in (step.type_name, step.property) if name) or "every @embed property"
        found.append(f"embed {what} with the provider {step.provider or 'local'}")
    if file.optimize:
        found.append(f"optimize the branch {file.branch}")
    if file.cleanup is not None:
        kept = [f"the newest {file.cleanup['keep']}"] if file.cleanup["keep"] is not None else []
        kept += [f"those of the last {file.cleanup['older_than']}"] if file.cleanup["older_than"] is not None else []
        found.append(f"remove old versions of the graph, except {' and '.join(kept)}")
    return tuple(found)


def input_paths(file: PipelineFile) -> list[str]:
    """Every input that a run would read, once, as the file names it."""
    paths = [*file.data, *(t.input.path for t in file.targets if t.input is not None)]
    paths += [source.path for source in file.sources.values()] if file.needs_sql else []
    return list(dict.fromkeys(paths))


def input_bytes(file: PipelineFile) -> int:
    """How much a run would read. FileUnreadable for an input that is not there."""
    return sum(total_bytes(find_files(path)) for path in input_paths(file))


def _target_plan(schema: Schema, target: Target, file: PipelineFile) -> TargetPlan:
    found = type_of(schema, target)
    assert found is not None, "checked against the schema before"
    table = target.table_source()
    if table is None:
        return TargetPlan(target.key, "sql", None, None)
    table = with_format(table)
    files = find_files(table.path)
    columns = columns_of(table, files[0], max_line_bytes=file.max_line_bytes)
    label = f"source {target.source}" if target.source is not None else "path"
    matched = None if columns is None else _matched(found, table, columns)
    return TargetPlan(target.key, label, _files_plan(table.path, table.kind, files), matched)


def _files_plan(path: str, kind: str, files: Sequence[InputFile]) -> FilesPlan:
    return FilesPlan(path, kind, len(files), total_bytes(files))


def _matched(found: EntityType, table: TableSource, columns: Sequence[str]) -> ColumnsPlan:
    """As `tabular.fields_of` does, and all that does not fit instead of the first."""
    renamed = table.renamed()
    aliases = {"src": "from", "dst": "to"} if found.kind == "edge" else {}
    allowed = {"id", *found.by_name, *(("from", "to", "src", "dst") if found.kind == "edge" else ())}
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
    required = [p.name for p in found.properties if not p.nullable and p.default is None]
    required += ["from", "to"] if found.kind == "edge" else []
    missing = [column for column in renamed if column not in columns]
    missing += [name for name in required if name not in filled and name not in (renamed[c] for c in missing)]
    if table.kind == "jsonl":
        missing = []  # later lines may have members that the first one leaves out
    return ColumnsPlan(mapped, tuple(skipped), tuple(unknown), tuple(missing))


# ---- columns ---------------------------------------------------------------------------------------------------------


def columns_of(table: TableSource, first: InputFile, *, max_line_bytes: int | None = None) -> list[str] | None:
    """The columns of an input's first file; None for what only a run can tell."""
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
    found = orjson.loads(line)
    if not isinstance(found, dict):
        raise ValueError("its first line is no object.")
    return list(found)


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
