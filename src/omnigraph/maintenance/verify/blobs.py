"""Blobs: the bytes that rows refer to exist. One task per group of fragments.

Small blobs lie in the data file, larger ones in files beside it. Every row's reference is compared with the
stored files: only references define which files a table needs, and how long they are. The bytes are read of some rows,
with `full` of all, with `quick` of none.
"""

from __future__ import annotations

import posixpath
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.language import identifiers as form
from omnigraph.language.schema.model import EntityType
from omnigraph.maintenance.verify.findings import Finding
from omnigraph.maintenance.verify.scope import Depth, Line, line_json, line_of, location_of
from omnigraph.maintenance.verify.tables import finding_json, grouped, line_finding, opened, tried
from omnigraph.storage.files.blob_values import ALONE, PACKED, is_elsewhere
from omnigraph.storage.layout import Location
from omnigraph.storage.objects.store import ObjectStore

SAMPLE_BLOBS = 16
READ_ROWS = 16


def blob_columns(t: EntityType) -> list[str]:
    return [p.name for p in t.properties if p.type.kind == "Blob"]


def blob_tasks(
    location_body: Mapping[str, Any], lines: Sequence[Line], facts: Mapping[str, Any], *, read: Depth, seed: int
) -> list[dict[str, Any]]:
    """`read` says of how many rows the bytes are read."""
    return [
        {
            "place": location_body,
            "line": line_json(line),
            "fragments": group,
            "read": _depth(line, facts, read),
            "seed": seed,
        }
        for line in lines
        if blob_columns(line.type) and facts.get(line.version_id, {}).get("whole")
        for group in grouped(facts[line.version_id]["fragments"])
    ]


def _depth(line: Line, facts: Mapping[str, Any], read: Depth) -> Depth:
    """Bytes are read by a filter, which a table may refuse for a reason that is reported elsewhere."""
    return read if facts[line.version_id]["filters"] else "none"


def check_blobs(task: Mapping[str, Any]) -> dict[str, Any]:
    location, line = location_of(task["place"]), line_of(task["line"])
    blobs_done = 0

    def work() -> list[Finding]:
        nonlocal blobs_done
        table = opened(location, line)
        findings: list[Finding] = []
        sidecars = _Sidecars(location)
        for number in task["fragments"]:
            fragment = table.get_fragment(number)
            for column in blob_columns(line.type):
                rows = table.scanner(columns=[column], fragments=[fragment], with_row_id=True).to_table()
                blobs = rows.filter(rows.column(column).is_valid())
                blobs_done += blobs.num_rows
                missing = list(_missing(table, location, line, fragment, column, blobs, sidecars))
                if missing:
                    text = f"the bytes of {column} are not there"
                    findings.append(line_finding("unreadable_blob", line, text, count=len(missing), examples=missing))
                elif task["read"] != "none":
                    findings += _read(table, line, fragment, column, blobs, task)
        return findings

    def as_finding(why: str) -> Finding:
        return line_finding("unreadable_blob", line, f"blobs of {line.pin.path} can't be read", examples=[why])

    findings = tried(location, work, as_finding)
    return {"findings": [finding_json(f) for f in findings], "blobs": blobs_done, "rows_done": blobs_done}


class _Sidecars:
    """Sizes of the files beside data files, listed once per data file."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._known: dict[str, dict[str, int]] = {}

    def of(self, folder: str) -> dict[str, int]:
        if folder not in self._known:
            self._known[folder] = {f.path: f.size for f in ObjectStore(self._location, folder).list_files(links=[])}
        return self._known[folder]


def _missing(
    table: Any, location: Location, line: Line, fragment: Any, column: str, rows: pa.Table, sidecars: _Sidecars
) -> Iterator[str]:
    """References to missing files beside the data file."""
    if rows.num_rows == 0:
        return
    descriptions = rows.column(column).combine_chunks()
    if "kind" not in {descriptions.type.field(i).name for i in range(descriptions.type.num_fields)}:
        return  # an older form, whose bytes all lie in the data file
    if is_elsewhere(descriptions):
        yield "a value is an address outside of the graph and not bytes"
        return
    kinds, ends, ids = (np.asarray(descriptions.field(n)).astype(np.int64) for n in ("kind", "position", "blob_id"))
    ends = ends + np.asarray(descriptions.field("size")).astype(np.int64)
    beside = np.isin(kinds, (PACKED, ALONE))
    if not beside.any():
        return
    sizes = sidecars.of(_folder(table, location, line, fragment, column))
    for blob in np.unique(ids[beside]).tolist():
        name = f"{blob:032b}"[::-1] + ".blob"
        end = int(ends[beside & (ids == blob)].max())
        if sizes.get(name, -1) < end:
            yield f"{name}: {sizes.get(name, 'no')} bytes, not {end}"


def _folder(table: Any, location: Location, line: Line, fragment: Any, column: str) -> str:
    """Where the large blobs of a column lie: a folder named like the data file that holds the column."""
    field = next(f for f in table.lance_schema.fields() if f.name() == column).id()
    body = fragment.metadata.to_json()
    file = next(f for f in reversed(body["files"]) if field in f["fields"])
    base = file.get("base_id")
    root = line.pin.path
    if base is not None:
        path = next(b.path for b in table.base_paths().values() if b.id == base)
        root = line.pin.root + path.rstrip("/").rpartition(line.pin.root)[2]
    with form.reading(f"a version of {line.pin.path}"):
        return posixpath.join(root, "data", form.file_name(file["path"]).removesuffix(".lance"))


def _read(
    table: Any, line: Line, fragment: Any, column: str, rows: pa.Table, task: Mapping[str, Any]
) -> Iterator[Finding]:
    """Read bytes, and compare their number with what the reference says."""
    positions = list(range(rows.num_rows))
    if task["read"] == "some":
        chance = random.Random(task["seed"])
        positions = sorted(chance.sample(positions, min(len(positions), SAMPLE_BLOBS)))
    for start in range(0, len(positions), READ_ROWS):
        some = rows.take(positions[start : start + READ_ROWS])
        ids = some.column("_rowid").to_pylist()
        where = f"_rowid IN ({','.join(str(i) for i in ids)})"
        read = table.scanner(
            columns=[column], filter=where, fragments=[fragment], with_row_id=True, blob_handling="all_binary"
        ).to_table()
        lengths = dict(zip(read.column("_rowid").to_pylist(), map(_length, read.column(column)), strict=True))
        sizes = dict(zip(ids, (description["size"] for description in some.column(column).to_pylist()), strict=True))
        wrong = [f"row {i}: {lengths.get(i)} bytes, not {size}" for i, size in sizes.items() if lengths.get(i) != size]
        if wrong:
            text = f"the bytes of {column} are not those that were written"
            yield line_finding("unreadable_blob", line, text, count=len(wrong), examples=wrong)


def _length(value: pa.Scalar) -> int | None:
    body = value.as_py()
    return None if body is None else len(body)
