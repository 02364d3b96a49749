"""Staged files of one job: Arrow tables and plain arrays that tasks pass to each other, below `__staging/<job>/`.

A name is used once: a task that runs twice writes two files, and its result names the one that counts. Local files are
memory-mapped; on S3 they are objects, read by ranges. Staged files are never part of the graph.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from omnigraph.commit import owner
from omnigraph.errors import StorageError, SymlinkInGraph
from omnigraph.storage.layout import STAGING, Location
from omnigraph.storage.objects import nofollow
from omnigraph.storage.objects.client import store_errors
from omnigraph.storage.objects.store import ObjectStore, shared_store

_OWNER = "owner.json"


@dataclass(frozen=True)
class Staging:
    """The files of one job."""

    location: Location
    job: str

    @property
    def folder(self) -> str:
        return f"{STAGING}/{self.job}"

    def to_json(self) -> dict[str, Any]:
        location = self.location
        return {"uri": location.uri, "local": location.is_local, "options": dict(location.options), "job": self.job}

    @staticmethod
    def of(body: Mapping[str, Any]) -> Staging:
        return Staging(Location(body["uri"], body["local"], body["options"]), body["job"])

    def path(self, name: str) -> str:
        return os.path.join(self.location.uri, self.folder, name)

    # ---- writing -----------------------------------------------------------------------------------------------------

    def put(self, stem: str, raw: bytes | memoryview | pa.Buffer) -> str:
        """A new file; its name starts with `stem`."""
        name = f"{stem}-{secrets.token_hex(5)}"
        self.put_named(name, raw)
        return name

    def put_named(self, name: str, raw: bytes | memoryview | pa.Buffer) -> None:
        """The same under a fixed name; only one process may write it."""
        with _storage_errors(f"writing {self.folder}/{name}"):
            if self.location.is_local:
                with open(self.path(name), "wb") as file:
                    file.write(raw)
            else:
                self._store().put(name, bytes(raw))

    def put_chunks(self, stem: str, chunks: Iterable[bytes], *, ending: str = "") -> tuple[str, int]:
        """A new file, written chunk by chunk; its name ends in `ending`. Returns its name and its size."""
        name = f"{stem}-{secrets.token_hex(5)}{ending}"
        size = 0
        with _storage_errors(f"writing {self.folder}/{name}"), self._writer(name) as file:
            for chunk in chunks:
                file.write(chunk)
                size += len(chunk)
        return name, size

    def _writer(self, name: str) -> Any:
        if self.location.is_local:
            return open(self.path(name), "wb")
        return self._store().writer(name)

    def put_json(self, stem: str, value: Any) -> str:
        return self.put(stem, orjson.dumps(value))

    def put_array(self, stem: str, array: np.ndarray) -> str:
        """A two-dimensional array of uint64."""
        assert array.dtype == np.uint64
        assert array.ndim == 2
        return self.put(stem, np.ascontiguousarray(array).data.cast("B"))

    def put_table(self, stem: str, table: pa.Table) -> str:
        if self.location.is_local:
            name = f"{stem}-{secrets.token_hex(5)}"
            with (
                _storage_errors(f"writing {self.folder}/{name}"),
                pa.OSFile(self.path(name), "wb") as file,
                pa.ipc.new_file(file, table.schema) as writer,
            ):
                writer.write_table(table)
            return name
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        return self.put(stem, sink.getvalue())

    # ---- reading -----------------------------------------------------------------------------------------------------

    def get(self, name: str) -> bytes:
        with _storage_errors(f"reading {self.folder}/{name}"):
            if self.location.is_local:
                with open(self.path(name), "rb") as file:
                    return file.read()
            return self._store().get(name)

    def get_json(self, name: str) -> Any:
        return orjson.loads(self.get(name))

    def get_array(self, name: str, *, width: int, start: int = 0, count: int | None = None) -> np.ndarray:
        """Rows `start` to `start + count` of an array that `put_array` wrote; all of them by default."""
        if count == 0:
            return np.empty((0, width), dtype=np.uint64)
        size = 8 * width
        with _storage_errors(f"reading {self.folder}/{name}"):
            if self.location.is_local:
                items = -1 if count is None else count * width
                values = np.fromfile(self.path(name), dtype=np.uint64, count=items, offset=start * size)
            else:
                if count is None:
                    raw = self._store().get(name)[start * size :]
                else:
                    raw = self._store().get_range(name, start * size, (start + count) * size)
                values = np.frombuffer(raw, dtype=np.uint64)
        if count is not None and len(values) != count * width:
            raise StorageError(doing=f"reading {self.folder}/{name}", detail="the file is cut short")
        return values.reshape(-1, width)

    def get_table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        with _storage_errors(f"reading {self.folder}/{name}"):
            local = self.location.is_local
            source = pa.memory_map(self.path(name)) if local else pa.BufferReader(self.get(name))
            options = None
            if columns is not None:
                names = pa.ipc.open_file(source).schema.names
                options = pa.ipc.IpcReadOptions(included_fields=[names.index(c) for c in columns])
            table = pa.ipc.open_file(source, options=options).read_all()
            return table if columns is None else table.select(list(columns))

    # ---- the folder --------------------------------------------------------------------------------------------------

    def _store(self) -> ObjectStore:
        return shared_store(self.location, self.folder)

    def remove(self) -> None:
        """Remove all files of this job. What can't be removed is left to the next load or to cleanup."""
        if self.location.is_local:
            nofollow.remove_tree(self.location, self.folder)
            with suppress(OSError):  # not empty: another load is running
                os.rmdir(os.path.join(self.location.uri, STAGING))
            return
        with suppress(StorageError):
            store = self._store()
            store.delete_many([file.path for file in store.iter_files()])


def new_staging(location: Location) -> Staging:
    """A folder for one job. Also removes the folders of local jobs whose process is gone."""
    nofollow.require_path(location, STAGING)
    _sweep(location)
    staging = Staging(location, secrets.token_hex(8))
    with _storage_errors(f"creating {staging.folder}"):
        if location.is_local:
            _make_folder(staging.path(""))
            with open(staging.path(_OWNER), "wb") as file:
                file.write(orjson.dumps(owner.myself()))
    return staging


def _make_folder(path: str) -> None:
    """Create the folder. Retries, because another load that ends may remove the empty parent at the same time."""
    for attempt in range(10):
        try:
            os.makedirs(path)
            return
        except FileNotFoundError:
            if attempt == 9:
                raise


def _sweep(location: Location) -> None:
    if not location.is_local:
        return
    for job in nofollow.children(location, STAGING).folders:
        try:
            job_owner = orjson.loads(nofollow.read(location, f"{STAGING}/{job}/{_OWNER}"))
        except (OSError, SymlinkInGraph, orjson.JSONDecodeError):
            continue  # being created or removed by another process
        if owner.is_gone(job_owner):
            nofollow.remove_tree(location, f"{STAGING}/{job}")


def _storage_errors(doing: str) -> store_errors:
    return store_errors(doing, also=(pa.ArrowInvalid,))
