"""Addresses, row ids and narrow columns of many rows, packed to travel with a task or its result.

Neighbouring addresses differ by one: their differences compress to almost nothing.
"""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pyarrow as pa


def packed(values: np.ndarray) -> bytes:
    return zlib.compress(np.diff(values.astype("<u8"), prepend=np.uint64(0)).tobytes(), 1)


def unpacked(raw: bytes) -> np.ndarray:
    return np.cumsum(np.frombuffer(zlib.decompress(raw), "<u8"), dtype=np.uint64)


def packed_text(values: np.ndarray) -> str:
    """The same as text, for JSON."""
    return base64.b64encode(packed(values)).decode()


def unpacked_text(text: str) -> np.ndarray:
    return unpacked(base64.b64decode(text))


def table_text(rows: pa.Table) -> str:
    """A small table as text, for JSON."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(rows)
    return base64.b64encode(sink.getvalue()).decode()


def table_of_text(text: str) -> pa.Table:
    return pa.ipc.open_stream(base64.b64decode(text)).read_all()
