"""The quarantine file: rejected lines with source, line, rule, reason and their own text, as JSON lines or Parquet.

1. choose    the path: as requested, or beside the first input; refused, before anything is read, if it would replace an
             input or if the same load, run again, would read it as one
2. write     part by part to a temporary file beside it, synced, and renamed: it appears whole or not at all

Invariant: no input is ever written to. The default name has an ending that folders and patterns of inputs leave out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import orjson
import pyarrow as pa

from omnigraph.errors import StorageError, UsageError
from omnigraph.pipeline.load.input_files import REJECTED, InputFile, is_remote, plain_path, would_find
from omnigraph.storage.objects.atomic_file import placed

SHAPE = pa.schema(
    [
        ("source", pa.string()),
        ("line", pa.int64()),
        ("rule", pa.string()),
        ("reason", pa.string()),
        ("record", pa.large_string()),
    ]
)


def checked_path(requested: str | os.PathLike[str]) -> str:
    """The absolute path of a file that can be written. UsageError, before inputs are looked for."""
    path = plain_path(requested)
    if "://" in path:
        raise UsageError(detail=f"rejected lines go to a local file, not to {path}.")
    path = os.path.abspath(path)
    if os.path.isdir(path):
        raise UsageError(detail=f"rejected lines can't be written to {path}: it is a folder; name a file.")
    folder = os.path.dirname(path)
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise UsageError(detail=f"rejected lines can't be written to {path}: the folder is missing or read-only.")
    return path


def quarantine_path(checked: str | None, *, names: Sequence[str | os.PathLike[str]], files: Sequence[InputFile]) -> str:
    """Step 1. `names` are the inputs as the user named them, `files` the files that these mean, in the same order."""
    if checked is not None:
        path = checked
    elif files and not is_remote(files[0].path):
        path = checked_path(files[0].path + REJECTED[0])
    else:
        raise UsageError(detail="say where rejected lines shall go: the input has no name to derive one from.")
    detail = input_at(path, names=names, files=files)
    if detail is not None:
        raise UsageError(detail=f"rejected lines can't be written to {path}: {detail}; name another file.")
    return path


def input_at(path: str, *, names: Sequence[str | os.PathLike[str]], files: Iterable[InputFile] = ()) -> str | None:
    """Why this path can't be written, because of the inputs; None if it can."""
    if any(not is_remote(file.path) and _is_same(file.path, path) for file in files):
        return "it is an input of this load"
    reader = next((name for name in names if would_find(name, path)), None)
    return None if reader is None else f"{os.fspath(reader)} would read it as an input of the next load"


def _is_same(path: str, other: str) -> bool:
    if os.path.realpath(path) == os.path.realpath(other):
        return True
    # Also on file systems where two spellings mean one name.
    return os.path.exists(path) and os.path.exists(other) and os.path.samefile(path, other)


def write_quarantine_file(path: str, tables: Iterable[pa.Table]) -> None:
    """Write tables of SHAPE, in order, readable by the owner only. Parquet if the name ends in .parquet."""
    try:
        with placed(path, private=True) as file:
            if path.endswith(".parquet"):
                _parquet(file, tables)
            else:
                for table in tables:
                    file.writelines(orjson.dumps(row) + b"\n" for row in table.to_pylist())
    except OSError as error:
        raise StorageError(doing=f"writing rejected lines to {path} (the rest is loaded)", detail=str(error)) from error


def _parquet(file: Any, tables: Iterable[pa.Table]) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(file, SHAPE) as writer:
        for table in tables:
            writer.write_table(table)
