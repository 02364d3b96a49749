"""Deletion vectors: the offsets of a fragment's deleted rows, read from Lance's deletion files.

Lance writes a deletion file in one of two formats: an Arrow file with one column of offsets, or, where many rows of a
fragment are deleted, a 32-bit Roaring bitmap in its portable serialization. Both are small. Reading one costs less than
a scan of the fragment, and its cost does not grow with the rows that are left.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from omnigraph.errors import StorageError
from omnigraph.storage.layout import Location
from omnigraph.storage.objects.store import ObjectStore

_ARROW_MAGIC = b"ARROW1"
_COOKIE_PLAIN, _COOKIE_RUNS = 12346, 12347
_OFFSETS_FROM_CONTAINERS = 4
"""A bitmap with runs stores the offsets of its containers from this many containers on."""
_ARRAY_MAX = 4096
"""A container of more values is a bitmap of 8 KiB."""
_BITMAP_BYTES = 8192


def read_graph_file(location: Location, path: str) -> bytes:
    """A small file of the graph, by its path relative to the graph. FileNotFoundError if there is none."""
    return ObjectStore(location).get(path)


def deleted_offsets(raw: bytes, *, path: str) -> np.ndarray:
    """The offsets in a deletion file, ascending. StorageError, naming `path`, if it is damaged."""
    try:
        if raw[: len(_ARROW_MAGIC)] == _ARROW_MAGIC:
            offsets = ipc.open_file(pa.py_buffer(raw)).read_all().column(0).to_numpy()
            return np.sort(np.asarray(offsets).astype(np.int64))
        return _roaring_values(raw)
    except (pa.ArrowException, OSError, ValueError, IndexError) as error:
        raise StorageError(doing=f"reading {path}", detail=f"the deletion file is damaged: {error}") from error


def _roaring_values(raw: bytes) -> np.ndarray:
    cookie = int.from_bytes(raw[:4], "little")
    position = 4
    if cookie & 0xFFFF == _COOKIE_RUNS:
        count = (cookie >> 16) + 1
        size = (count + 7) // 8
        flags = np.frombuffer(raw, np.uint8, count=size, offset=position)
        is_run = np.unpackbits(flags, bitorder="little")[:count].astype(bool)
        position += size
    elif cookie == _COOKIE_PLAIN:
        count = int.from_bytes(raw[4:8], "little")
        position = 8
        is_run = np.zeros(count, dtype=bool)
    else:
        raise ValueError(f"unknown format {cookie}")
    headers = np.frombuffer(raw, "<u2", count=2 * count, offset=position).reshape(count, 2)
    position += 4 * count
    if cookie == _COOKIE_PLAIN or count >= _OFFSETS_FROM_CONTAINERS:
        position += 4 * count
    containers: list[np.ndarray] = []
    for key, cardinality, has_runs in zip(headers[:, 0], headers[:, 1], is_run, strict=True):
        values, position = _container(raw, position, cardinality=int(cardinality) + 1, has_runs=bool(has_runs))
        containers.append(values + (int(key) << 16))
    return np.concatenate(containers) if containers else np.empty(0, dtype=np.int64)


def _container(raw: bytes, position: int, *, cardinality: int, has_runs: bool) -> tuple[np.ndarray, int]:
    """The values of one container, and where the next one begins."""
    if has_runs:
        count = int.from_bytes(raw[position : position + 2], "little")
        runs = np.frombuffer(raw, "<u2", count=2 * count, offset=position + 2).reshape(count, 2).astype(np.int64)
        values = np.concatenate([np.arange(start, start + length + 1) for start, length in runs])
        return values, position + 2 + 4 * count
    if cardinality > _ARRAY_MAX:
        bits = np.frombuffer(raw, np.uint8, count=_BITMAP_BYTES, offset=position)
        return np.flatnonzero(np.unpackbits(bits, bitorder="little")), position + _BITMAP_BYTES
    values = np.frombuffer(raw, "<u2", count=cardinality, offset=position).astype(np.int64)
    return values, position + 2 * cardinality
