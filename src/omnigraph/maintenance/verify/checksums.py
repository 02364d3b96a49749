"""The checksums task: compare the bytes of files with the checksums in the records of commits.

1. collect   the driver has every record and every row of checksums (`storage/files/checksums.py`)
2. choose    of each checked version: its own file, before Lance opens it (files.py), and its deletion files,
             which are small; its data files, blobs and index files as well, with `full` of all versions, with `quick`
             of none, otherwise of the smallest ones, up to SMALL_BYTES_MAX together. Each file once, however many
             branches have it
3. compare   tasks read files, a bounded number of bytes each, a chunk at a time

A file without a record is counted as `unchecked`, and only its footer is checked. A missing one is reported by the
files task. A table whose data is damaged is not read further: its rows and indices are not what was written, and
damaged bytes make Lance fail in any way. Versions of which files were not compared are read in child processes
(isolated.py).
"""

from __future__ import annotations

import base64
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from omnigraph.errors import StorageError
from omnigraph.maintenance.verify.findings import INDEX, MANIFEST_FILE, Finding, make_finding
from omnigraph.maintenance.verify.reading import read
from omnigraph.maintenance.verify.scope import Depth, Line, location_of
from omnigraph.maintenance.verify.tables import finding_json
from omnigraph.storage import durability
from omnigraph.storage.files.checksums import ENTRY_BYTES, KEY_BYTES, crc_of, key_of
from omnigraph.storage.files.deletion_files import require_whole
from omnigraph.storage.files.footers import FOOTED_SUFFIXES, require_footer
from omnigraph.storage.layout import MANIFEST, Location
from omnigraph.storage.manifest.table import Manifest
from omnigraph.storage.objects.store import ObjectStore

TASK_BYTES_MAX = 256 << 20
SMALL_BYTES_MAX = 64 << 20
"""Comparing this much takes a fraction of the time in which a child process starts."""
DELETION, DATA, BLOB = "deletion file", "data file", "blob"


@dataclass(frozen=True)
class Checksums:
    """Recorded checksums of files. Several CRCs of one path are alternatives: digests may collide, and `relocate`
    rewrites versions.
    """

    entries: np.ndarray

    @staticmethod
    def of(texts: Iterable[str]) -> Checksums:
        raw = bytearray()
        for text in texts:
            more = base64.b64decode(text)
            raw += more[: len(more) // ENTRY_BYTES * ENTRY_BYTES]
        numbers = np.frombuffer(bytes(raw), dtype=np.uint8).reshape(-1, ENTRY_BYTES)
        keys = np.zeros((len(numbers), 8), dtype=np.uint8)
        keys[:, :KEY_BYTES] = numbers[:, :KEY_BYTES]
        sums = np.empty(len(numbers), dtype=[("path", "<u8"), ("crc", "<u4")])
        sums["path"] = keys.view("<u8").reshape(-1)
        sums["crc"] = np.ascontiguousarray(numbers[:, KEY_BYTES:]).view("<u4").reshape(-1)
        return Checksums(sums[np.argsort(sums["path"], kind="stable")])

    def expected(self, path: str) -> list[int]:
        """The CRCs that a file, by its path in the graph, may have; none if it has no record."""
        key = int.from_bytes(key_of(path), "little")
        first, last = (int(np.searchsorted(self.entries["path"], key, side)) for side in ("left", "right"))
        return sorted({int(crc) for crc in self.entries["crc"][first:last]})


NO_CHECKSUMS = Checksums.of(())


# ---- the driver ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chosen:
    """The tasks, and how many files they compare and how many, of how many bytes, have nothing to be compared with.
    `complete` are the versions (`Line.version_id`) of which every file is compared.
    """

    tasks: list[dict[str, Any]]
    checked: int
    unchecked: int
    unchecked_bytes: int
    complete: frozenset[str]


def checksum_tasks(
    location_body: Mapping[str, Any],
    lines: Sequence[Line],
    facts: Mapping[str, Any],
    checksums: Checksums,
    *,
    depth: Depth,
) -> Chosen:
    tasks: list[dict[str, Any]] = []
    checked = unchecked = unchecked_bytes = 0
    seen: set[str] = set()
    whole = _smallest(lines, facts, size_max_bytes={"none": -1, "some": SMALL_BYTES_MAX, "all": 1 << 63}[depth])
    unsummed: set[str] = set()
    for line in lines:
        files: list[list[Any]] = []
        size_bytes = 0
        for name, size, what in facts.get(line.version_id, {}).get("files", ()):
            path = f"{line.pin.root}/{name}"
            if path in seen or (what != DELETION and line.version_id not in whole):
                continue
            seen.add(path)
            expected = checksums.expected(path)
            if not expected:
                unsummed.add(path)
            checked += bool(expected)
            unchecked += not expected
            unchecked_bytes += 0 if expected else size
            if not expected and what != DELETION and not (location_body["local"] and name.endswith(FOOTED_SUFFIXES)):
                continue
            if files and size_bytes + size > TASK_BYTES_MAX:
                tasks.append(_task(location_body, line, files, size_bytes))
                files, size_bytes = [], 0
            files.append([path, what, expected])
            size_bytes += size
        if files:
            tasks.append(_task(location_body, line, files, size_bytes))
    complete = frozenset(
        line.version_id
        for line in lines
        if line.version_id in whole and unsummed.isdisjoint(_paths(line, facts)) and line.version_id in facts
    )
    return Chosen(tasks, checked, unchecked, unchecked_bytes, complete)


def _paths(line: Line, facts: Mapping[str, Any]) -> Iterator[str]:
    return (f"{line.pin.root}/{name}" for name, _, _ in facts.get(line.version_id, {}).get("files", ()))


def _smallest(lines: Sequence[Line], facts: Mapping[str, Any], *, size_max_bytes: int) -> set[str]:
    """The smallest versions whose files have at most this many bytes together."""
    sizes = {
        line.version_id: sum(size for _, size, _ in facts.get(line.version_id, {}).get("files", ())) for line in lines
    }
    ascending = sorted(sizes, key=lambda version_id: sizes[version_id])
    totals = accumulate(sizes[version_id] for version_id in ascending)
    return {version_id for version_id, total in zip(ascending, totals, strict=True) if total <= size_max_bytes}


def _task(location_body: Mapping[str, Any], line: Line, files: list[list[Any]], size_bytes: int) -> dict[str, Any]:
    fields = {"table": line.type.key, "branch": line.branch, "is_base": line.is_base, "at": line.version_id}
    return {"place": location_body, **fields, "files": files, "bytes": size_bytes}


def version_file(line: Line) -> str:
    """The path in the graph of the version's own file."""
    return durability.manifest_path(line.pin.path, line.pin.version)


def version_crcs(lines: Iterable[Line], checksums: Checksums) -> dict[str, list[int]]:
    """The CRCs that the versions' own files may have; none for one without a record."""
    crcs = {line.version_id: checksums.expected(version_file(line)) for line in lines}
    return {version_id: expected for version_id, expected in crcs.items() if expected}


def check_manifest_files(manifest: Manifest, checksums: Checksums) -> Iterator[Finding]:
    """The files of the manifest's rows. They are few: rows are compacted as they are written."""
    names = [f"{MANIFEST}/data/{f.path}" for part in manifest.table().get_fragments() for f in part.metadata.files]
    expected = {name: checksums.expected(name) for name in names}
    damages = (damage(manifest.location, name, crcs) for name, crcs in expected.items() if crcs)
    damaged = [text for text in damages if text is not None]
    if damaged:
        text = "files of the manifest's rows do not hold what was written"
        yield make_finding(
            "checksum_mismatch", text, table=MANIFEST, count=len(damaged), examples=damaged, cause=MANIFEST_FILE
        )


# ---- the task --------------------------------------------------------------------------------------------------------


def check_checksums(task: Mapping[str, Any]) -> dict[str, Any]:
    location = location_of(task["place"])
    damaged: dict[str, list[str]] = {}
    for path, what, expected in task["files"]:
        detail = damage(location, path, expected)
        if detail is not None:
            damaged.setdefault(what, []).append(detail)
    findings = [_finding(task, what, files) for what, files in damaged.items()]
    return {"findings": [finding_json(f) for f in findings], "broken": sorted(damaged), "bytes_done": task["bytes"]}


def damage(location: Location, path: str, expected: Sequence[int]) -> str | None:
    """What is wrong with a file of the graph; None if nothing is, or if it is missing. Without a checksum a deletion
    file must at least be complete, and a data or index file on a local disk have a footer.
    """
    try:
        if not expected and path.endswith(FOOTED_SUFFIXES):
            require_footer(location.join(path), of="index" if "/_indices/" in path else "data")
            return None
        if not expected:
            read(location, f"reading {path}", lambda: require_whole(location, location.join(path), rows=None))
            return None
        actual = read(location, f"reading {path}", lambda: _crc(location, path))
    except StorageError as error:
        return f"{path}: {str(error.fields.get('detail', error)).removeprefix(f'{location.join(path)}: ')}"
    if actual is None or actual in expected:
        return None
    return f"{path}: CRC-32 {actual:08x}, recorded {' or '.join(f'{crc:08x}' for crc in expected)}"


def _finding(task: Mapping[str, Any], what: str, files: list[str]) -> Finding:
    text = f"files of {task['at'].partition('@')[0]} do not hold what was written ({what})"
    cause = INDEX if is_index(what) and not task["is_base"] else None
    return make_finding(
        "checksum_mismatch",
        text,
        table=task["table"],
        branch=task["branch"],
        count=len(files),
        examples=files,
        cause=cause,
    )


def is_index(what: str) -> bool:
    return what not in (DELETION, DATA, BLOB)


def _crc(location: Location, path: str) -> int | None:
    """None if the file does not exist."""
    if location.is_local:
        full_path = location.join(path)
        return crc_of(full_path) if os.path.exists(full_path) else None
    crc = 0
    try:
        for chunk in ObjectStore(location).stream(path, chunk_bytes=1 << 20):
            crc = zlib.crc32(chunk, crc)
    except FileNotFoundError:
        return None
    return crc
