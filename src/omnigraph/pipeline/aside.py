"""The quarantine file: rejected lines with source, line, rule, reason and their own text, as JSON lines or Parquet.

It is put together part by part beside its place, synced, and renamed: it appears whole or not at all.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import orjson
import pyarrow as pa

from omnigraph.errors import StorageError

SHAPE = pa.schema(
    [
        ("source", pa.string()),
        ("line", pa.int64()),
        ("rule", pa.string()),
        ("reason", pa.string()),
        ("record", pa.large_string()),
    ]
)


def write_aside(path: str, tables: Iterable[pa.Table]) -> None:
    """Tables of SHAPE, in order. Parquet if the name ends so."""
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".quarantine-")
    try:
        with os.fdopen(handle, "wb") as file:
            if path.endswith(".parquet"):
                _parquet(file, tables)
            else:
                for table in tables:
                    file.writelines(orjson.dumps(row) + b"\n" for row in table.to_pylist())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise StorageError(doing=f"writing rejected lines to {path} (the rest is loaded)", detail=str(error)) from error


def _parquet(file: Any, tables: Iterable[pa.Table]) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(file, SHAPE) as writer:
        for table in tables:
            writer.write_table(table)
