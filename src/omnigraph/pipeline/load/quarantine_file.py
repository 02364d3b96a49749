"""The quarantine file: rejected lines with source, line, rule, reason and their own text, as JSON lines or Parquet.

1. place     as given, or beside the first input; refused, before anything is read, where it would replace an input or
             where the same load, run again, would read it as one
2. write     part by part beside its place, synced, and renamed: it appears whole or not at all

Keeps: no input is ever written to. The name of the default place ends in one that folders and patterns do not mean.
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


def checked_place(given: str | os.PathLike[str]) -> str:
    """The absolute path of a file that can be written. UsageError, before inputs are looked for."""
    place = plain_path(given)
    if "://" in place:
        raise UsageError(detail=f"rejected lines go to a local file, not to {place}.")
    place = os.path.abspath(place)
    if os.path.isdir(place):
        raise UsageError(detail=f"rejected lines can't be written to {place}: it is a folder; name a file.")
    folder = os.path.dirname(place)
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise UsageError(detail=f"rejected lines can't be written to {place}: the folder is missing or read-only.")
    return place


def quarantine_place(
    checked: str | None, *, names: Sequence[str | os.PathLike[str]], files: Sequence[InputFile]
) -> str:
    """Step 1. `names` are the inputs as the user named them, `files` the files that these mean, in the same order."""
    if checked is not None:
        place = checked
    elif files and not is_remote(files[0].path):
        place = checked_place(files[0].path + REJECTED[0])
    else:
        raise UsageError(detail="say where rejected lines shall go: the input has no name to derive one from.")
    detail = input_at(place, names=names, files=files)
    if detail is not None:
        raise UsageError(detail=f"rejected lines can't be written to {place}: {detail}; name another file.")
    return place


def input_at(place: str, *, names: Sequence[str | os.PathLike[str]], files: Iterable[InputFile] = ()) -> str | None:
    """What of the input is at this place, in words; None if nothing is."""
    if any(not is_remote(file.path) and _is_same(file.path, place) for file in files):
        return "it is an input of this load"
    found = next((name for name in names if would_find(name, place)), None)
    return None if found is None else f"{os.fspath(found)} would read it as an input of the next load"


def _is_same(one: str, other: str) -> bool:
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    # Also where the disk takes two spellings for one name.
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


def write_aside(path: str, tables: Iterable[pa.Table]) -> None:
    """Tables of SHAPE, in order, for their owner alone: they hold what was refused. Parquet if the name ends so."""
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
