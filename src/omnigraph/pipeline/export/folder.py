"""Export into a folder: one folder per type, written by tasks on Spark or in this process.

    <out>/schema.pg                             the schema of the exported state
    <out>/nodes/Person/part-00000.parquet       one file per task; for lance, nodes/Person.lance is one table
    <out>/edges/Knows/part-00000.parquet
    <out>/_export.json                          what was exported; written last

1. plan    one snapshot; every table is split into groups of fragments, each group is one task and one file. The groups
           depend on the snapshot only, so the same state gives the same files. A type without rows gets one file
           without rows. The snapshot's versions are leased, so that no cleanup removes them meanwhile
2. claim   the folder is empty, or has the files of an export that is not running any more, which are removed first;
           `_unfinished.json`, created only if there is none, names the owner
3. write   the tasks; a file appears when it is complete
4. check   the files in the folder have the sizes that the tasks returned. This detects executors that write to disks of
           their own
5. finish  write `_export.json`, then remove `_unfinished.json`

A crash before the last step leaves a folder without `_export.json`: an unfinished export. The next export into it
removes exactly the files of this module, and only if their owner recorded that it gave up, or is provably gone; if
there is anything else in the folder, it refuses and removes nothing. A finished export is never overwritten.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from omnigraph.commit import owner
from omnigraph.errors import ExportFolderTaken, OmnigraphError, StorageError, UsageError
from omnigraph.graph.results import ExportResult
from omnigraph.graph.snapshot import Snapshot
from omnigraph.language import identifiers as form
from omnigraph.language.schema.model import EntityType
from omnigraph.language.schema.syntax.show import render
from omnigraph.pipeline.export.stream import chosen_types
from omnigraph.pipeline.export.tasks import EXTENSIONS, PartTask, lance_schema, write_part
from omnigraph.pipeline.snapshot_lease import under_lease
from omnigraph.storage.lance.fragment_groups import fragment_groups
from omnigraph.storage.lance.plain_tables import commit_table
from omnigraph.storage.layout import Location, locate
from omnigraph.storage.objects.folder import Folder
from omnigraph.tasks.engine import EngineSettings

DONE, UNFINISHED, SCHEMA, SCRATCH = "_export.json", "_unfinished.json", "schema.pg", "_partial"
SHAPE = 1
"""The format version of `_export.json`."""
ROWS_PER_FILE = 500_000
BYTES_PER_FILE = 128 << 20
_LANCE_FOLDERS = r"(data|_versions|_transactions|_deletions|_indices|_refs)/.+"


@dataclass(frozen=True)
class Plan:
    """The plan of an export: its types in order, and one task per file."""

    snapshot: Snapshot
    out: Location
    format: str
    run: str
    types: tuple[EntityType, ...]
    tasks: tuple[PartTask, ...]

    @property
    def scratch(self) -> str:
        return f"{SCRATCH}/{self.run}"

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(_type_path(t, self.format) for t in self.types)

    @property
    def size_bytes(self) -> int:
        return sum(task.size_bytes for task in self.tasks)

    def tasks_of(self, t: EntityType) -> list[int]:
        return [number for number, task in enumerate(self.tasks) if task.type is t]


def export_folder(
    snapshot: Snapshot,
    out: Location,
    engines: EngineSettings,
    *,
    format: str = "jsonl",
    types: Sequence[str] | None = None,
    engine: str | None = None,
) -> ExportResult:
    """Write one snapshot into a folder that is empty or does not exist."""
    started = time.monotonic()
    if format not in EXTENSIONS:
        raise UsageError(detail=f"the format is one of {', '.join(EXTENSIONS)}, not {format!r}.")
    _require_outside(snapshot, out)
    plan = make_plan(snapshot, out, format=format, types=types)
    folder = Folder(out)
    _leftovers(folder)  # refuse a folder that is in use before Spark starts
    runner = engines.runner(work_bytes=plan.size_bytes, requested=engine)
    with under_lease(snapshot, required=False):
        _claim(folder, plan)
        try:
            folder.make(plan.scratch, *plan.folders)
            results = runner.run(write_part, [task.to_json() for task in plan.tasks], stage=f"writing {format}")
            files = _finish(folder, plan, results)
        except BaseException:
            _give_up(folder, plan)
            raise
    return ExportResult(
        branch=snapshot.branch,
        commit=snapshot.commit,
        rows=_rows(plan, results),
        format=format,
        out=out.uri,
        files=len(files),
        engine=runner.engine,
        seconds=round(time.monotonic() - started, 3),
    )


def folder_location(address: str | os.PathLike[str]) -> Location:
    """The location of a folder for an export. A name that looks like that of a file is refused."""
    text = os.fspath(address)
    if re.search(r"\.(jsonl|ndjson|json)(\.(gz|zst))?$", text, re.IGNORECASE):
        raise UsageError(detail=f"{text} names a file, and an export goes into a folder; records go to a function.")
    return locate(text)


def _require_outside(snapshot: Snapshot, out: Location) -> None:
    graph = snapshot.view.tables.location.uri
    if f"{out.uri}/".startswith(f"{graph}/"):
        raise UsageError(detail=f"{out.uri} lies in the graph {graph}; an export goes elsewhere.")


# ---- plan ------------------------------------------------------------------------------------------------------------


def make_plan(snapshot: Snapshot, out: Location, *, format: str, types: Sequence[str] | None) -> Plan:
    """The tasks of an export. Only the lists of fragments are read."""
    chosen = tuple(chosen_types(snapshot, types))
    run = secrets.token_hex(6)
    tasks: list[PartTask] = []
    for t in chosen:
        parts = fragment_groups(snapshot.view.open(t), rows_max=ROWS_PER_FILE, bytes_max=BYTES_PER_FILE)
        for number, part in enumerate(parts):
            file = "" if format == "lance" else f"/part-{number:05}{EXTENSIONS[format]}"
            tasks.append(
                PartTask(
                    graph=snapshot.view.tables.location,
                    out=out,
                    format=format,
                    type=t,
                    pin=snapshot.view.pins[t.id],
                    fragments=part.fragments,
                    rows=part.rows,
                    size_bytes=part.size_bytes,
                    path=_type_path(t, format) + file,
                    scratch=f"{SCRATCH}/{run}",
                )
            )
    return Plan(snapshot, out, format, run, chosen, tuple(tasks))


def _type_path(t: EntityType, format: str) -> str:
    with form.reading("the schema of the snapshot"):  # here the name becomes a path
        return f"{t.kind}s/{form.type_name(t.name)}{'.lance' if format == 'lance' else ''}"


# ---- claim -----------------------------------------------------------------------------------------------------------


def _claim(folder: Folder, plan: Plan) -> None:
    """Claim the folder, or refuse. The files of an export that is not running any more are removed."""
    leftovers = _leftovers(folder)
    folder.delete(name for name in leftovers if name != UNFINISHED)
    if leftovers:
        folder.drop_empty()
        folder.delete([UNFINISHED])
    mark = {
        "omnigraph_export": SHAPE,
        "run": plan.run,
        "owner": owner.myself(),
        "format": plan.format,
        "folders": plan.folders,
    }
    if not folder.create(UNFINISHED, orjson.dumps(mark)):
        raise ExportFolderTaken(path=folder.uri, detail="another export has just begun to write there.")


def _leftovers(folder: Folder) -> list[str]:
    """The files of an export that is not running any more; ExportFolderTaken if there is anything else."""
    names = sorted(folder.files())
    if not names:
        return []
    if DONE in names:
        raise ExportFolderTaken(path=folder.uri, detail="it holds a finished export.")
    mark = _mark(folder)
    if mark is None:
        raise ExportFolderTaken(path=folder.uri, detail=f"it is not empty: {names[0]}.")
    if mark["owner"] is not None and not owner.is_gone(mark["owner"]):
        raise ExportFolderTaken(path=folder.uri, detail="an unfinished export is there, and it may still be running.")
    foreign = [name for name in names if not _is_ours(name, mark)]
    if foreign:
        raise ExportFolderTaken(path=folder.uri, detail=f"beside an unfinished export it holds {foreign[0]}.")
    return names


def _mark(folder: Folder) -> dict[str, Any] | None:
    """The content of `_unfinished.json` in this folder; None if there is none, or if it is malformed."""
    try:
        mark = orjson.loads(folder.read(UNFINISHED) or b"null")
    except orjson.JSONDecodeError:
        return None
    is_known = isinstance(mark, dict) and mark.get("omnigraph_export") == SHAPE and mark.get("format") in EXTENSIONS
    return mark if is_known and {"run", "owner", "folders"} <= set(mark) else None


def _is_ours(name: str, mark: dict[str, Any]) -> bool:
    if name in (UNFINISHED, SCHEMA) or re.fullmatch(rf"({SCRATCH}/[0-9a-f]+/)?\.[0-9a-f]+\.part", name):
        return True
    pattern = _LANCE_FOLDERS if mark["format"] == "lance" else rf"part-\d{{5,}}{re.escape(EXTENSIONS[mark['format']])}"
    return any(name.startswith(f"{f}/") and re.fullmatch(pattern, name[len(f) + 1 :]) for f in mark["folders"])


def _give_up(folder: Folder, plan: Plan) -> None:
    """Record that the export gave up, so that the next one may clean up. If that fails, the end of this process shows
    it.
    """
    try:
        mark = _mark(folder)
        if mark is not None and mark["run"] == plan.run:
            folder.write(UNFINISHED, orjson.dumps({**mark, "owner": None}))
    except OmnigraphError:
        return


# ---- finish ----------------------------------------------------------------------------------------------------------


def _finish(folder: Folder, plan: Plan, results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    if plan.format == "lance":
        for t in plan.types:
            fragments = [body for number in plan.tasks_of(t) for body in results[number]["fragments"]]
            commit_table(folder, _type_path(t, plan.format), lance_schema(t), fragments)
    folder.drop(SCRATCH)
    schema = plan.snapshot.schema
    folder.write(SCHEMA, (schema.source or render(schema)).encode())
    files = _files(plan, results)
    _check(folder, plan, files)
    document = {
        "omnigraph_export": SHAPE,
        "branch": plan.snapshot.branch,
        "commit": plan.snapshot.commit,
        "format": plan.format,
        "types": [t.key for t in plan.types],
        "rows": _rows(plan, results),
        "files": files,
    }
    folder.write(DONE, orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
    folder.delete([UNFINISHED])
    return files


def _rows(plan: Plan, results: Sequence[dict[str, Any]]) -> dict[str, int]:
    return {t.key: sum(int(results[number]["rows_done"]) for number in plan.tasks_of(t)) for t in plan.types}


def _files(plan: Plan, results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every file with its type and rows; a Lance table counts as one, because its own files have random names."""
    if plan.format == "lance":
        rows = _rows(plan, results)
        return [{"path": _type_path(t, plan.format), "table_key": t.key, "rows": rows[t.key]} for t in plan.types]
    return [
        {"path": task.path, "table_key": task.type.key, "rows": result["rows_done"], "bytes": result["bytes_done"]}
        for task, result in zip(plan.tasks, results, strict=True)
    ]


def _check(folder: Folder, plan: Plan, files: Sequence[dict[str, Any]]) -> None:
    mark = _mark(folder)
    if mark is None or mark["run"] != plan.run:
        raise ExportFolderTaken(path=folder.uri, detail="another export took the folder over meanwhile.")
    if plan.format == "lance":
        return  # the commit has read every table
    sizes = folder.files()
    for file in files:
        size = sizes.get(file["path"])
        if size != file["bytes"]:
            actual = "it is not there" if size is None else f"{size} bytes are there"
            detail = (
                f"{actual}, {file['bytes']} were written by a task. "
                "If executors run on other machines, the folder has to be one that all of them share."
            )
            raise StorageError(doing=f"checking {folder.uri}/{file['path']}", detail=detail)
