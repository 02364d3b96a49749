"""Checksums of the files that versions refer to: computed when a file is made durable, kept in commit records.

    note      after a file was written and checked on a local disk, its CRC-32 is noted, read from the page cache
    hand on   a task on a worker returns its noted checksums to the driver, with its result
    publish   the noted checksums of the tables of a commit go into its plan and its record, so that a process that
              rolls the commit forward publishes the same
    compare   `verify --full` reads every file again

A record holds nine bytes per file: five of a digest of the file's path in the graph, four of its CRC. Records outlive
versions, so a checksum exists for as long as its file may, whichever versions a cleanup removes. The checksums of many
files go into a row of the manifest instead, so that heads stay small.

Lance's metadata has no field for a checksum. So this process notes them by path until they are published; unpublished
ones are dropped with the process, or when there are too many. A file without a checksum was written by an older
program, by another Lance client or to a store without a local disk: it counts as unchecked.
"""

from __future__ import annotations

import base64
import os
import re
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Set
from hashlib import blake2b
from typing import Any

from omnigraph.errors import StorageError
from omnigraph.language import identifiers as form
from omnigraph.storage.layout import MANIFEST, table_file

INLINE_MAX = 48
"""More files than this go into a row of their own, not into the head's list of recent records."""
NOTED_MAX = 1 << 19
_CHUNK_BYTES = 1 << 20
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{12})*")
"""Nine bytes are twelve characters: an entry never needs padding."""
KEY_BYTES, ENTRY_BYTES = 5, 9

Packed = str
"""Entries in base64."""


def crc_of(path: str) -> int:
    """The CRC-32 of a local file."""
    crc = 0
    buffer = bytearray(_CHUNK_BYTES)
    view = memoryview(buffer)
    try:
        with open(path, "rb", buffering=0) as file:
            while size := file.readinto(buffer):
                crc = zlib.crc32(view[:size], crc)
    except OSError as error:
        raise StorageError(doing=f"reading {path}", detail=str(error)) from error
    return crc


# ---- noted by this process -------------------------------------------------------------------------------------------


class _Noted:
    """Checksums of files that are not published yet: by graph and table, then by path in the graph."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: OrderedDict[tuple[str, str], dict[str, int]] = OrderedDict()
        self._count = 0

    def add(self, graph: str, table: str, path: str, crc: int) -> None:
        with self._lock:
            entries = self._tables.setdefault((graph, table), {})
            self._count += path not in entries
            entries[path] = crc
            self._tables.move_to_end((graph, table))
            while self._count > NOTED_MAX and len(self._tables) > 1:
                self._count -= len(self._tables.popitem(last=False)[1])

    def of(self, graph: str, table: str) -> dict[str, int]:
        with self._lock:
            return dict(self._tables.get((graph, table), ()))

    def drop(self, graph: str, paths: Set[str]) -> None:
        with self._lock:
            for key in [key for key in self._tables if key[0] == graph]:
                entries = self._tables[key]
                for path in paths & entries.keys():
                    del entries[path]
                    self._count -= 1
                if not entries:
                    del self._tables[key]

    def take(self) -> dict[str, int]:
        """Everything, by full path, for the process that published it."""
        with self._lock:
            taken = {
                f"{graph}/{path}": crc for (graph, _), entries in self._tables.items() for path, crc in entries.items()
            }
            self._tables.clear()
            self._count = 0
        return taken


_noted = _Noted()


def note(paths: Iterable[str]) -> None:
    """Read local files that were just written and checked, and note their checksums."""
    note_known({path: crc_of(path) for path in paths})


def note_known(checksums: Mapping[str, int]) -> None:
    """Note checksums that a task has computed. Files outside of a graph's tables are ignored."""
    for full_path, crc in checksums.items():
        location_of_file = table_file(full_path)
        if location_of_file is not None:
            _noted.add(*location_of_file, crc)


def note_folder(folder: str) -> None:
    """Note every file of a folder: an index is one."""
    with os.scandir(folder) as entries:
        note([entry.path for entry in entries if entry.is_file()])


def take_noted() -> dict[str, int]:
    """Return and clear the unpublished checksums of this process, by full path."""
    return _noted.take()


def noted(graph: str, tables: Iterable[str]) -> dict[str, int]:
    """The noted checksums of these tables of a graph and of its manifest, by path in the graph."""
    return {path: crc for table in (*tables, MANIFEST) for path, crc in _noted.of(graph, table).items()}


def published(graph: str, paths: Iterable[str]) -> None:
    """Drop checksums that are in a record now."""
    _noted.drop(graph, set(paths))


# ---- in records ------------------------------------------------------------------------------------------------------


def key_of(path: str) -> bytes:
    return blake2b(path.encode(), digest_size=KEY_BYTES).digest()


def pack(checksums: Mapping[str, int]) -> Packed:
    """Checksums by path in the form of records."""
    return _packed(key_of(path) + crc.to_bytes(4, "little") for path, crc in sorted(checksums.items()))


def merge(first: Packed, second: Packed) -> Packed:
    """The entries of both, each once."""
    return _packed(dict.fromkeys((*_entries(first), *_entries(second))))


def count(packed: Packed) -> int:
    return len(packed) * 3 // 4 // ENTRY_BYTES


def read_packed(value: Any) -> Packed:
    """Checksums as they were stored; Malformed if they have another form."""
    if _BASE64.fullmatch(form.text(value)) is None:
        raise form.Malformed(f"{form.shown(value)} are no checksums")
    return str(value)


def _packed(entries: Iterable[bytes]) -> Packed:
    return base64.b64encode(b"".join(entries)).decode()


def _entries(packed: Packed) -> Iterator[bytes]:
    raw = base64.b64decode(packed)
    return (raw[start : start + ENTRY_BYTES] for start in range(0, len(raw), ENTRY_BYTES))


def paths_in(packed: Packed, paths: Iterable[str]) -> set[str]:
    """Those of these files, by their paths in the graph, that have a checksum."""
    keys = {entry[:KEY_BYTES] for entry in _entries(packed)}
    return {path for path in paths if key_of(path) in keys}
