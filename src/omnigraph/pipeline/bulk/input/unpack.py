"""Unpack large packed inputs into the staging area, so that they are cut and read as plain files are.

1. measure   one task per packed file of text unpacks it, and counts its bytes without those of blank chunks
2. stage     a file that has more of them than one task reads is written to a plain file, chunk by chunk. A line above
             the limit ends the load in 1 or 2, before all of it is on the disk; for CSV, where a record may have line
             ends, the plain file ends there, and its reader refuses the record
3. replace   the driver reads the plain file under the name of the packed one. A file that was not staged is read as it
             is packed, and counts with its measured bytes

Invariants: a task has a few chunks in memory, whatever a file unpacks to. A task that runs twice writes another file.
A crash leaves files in the job's staging area, which are removed with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from omnigraph.errors import RecordTooLong
from omnigraph.pipeline.load.chunks import LineLimit, file_chunks
from omnigraph.pipeline.load.input_files import InputFile
from omnigraph.tasks.runner import Runner
from omnigraph.tasks.staging import Staging
from omnigraph.write.envelope.blocks import is_blank

ENCODED_TIMES_MAX = 8
"""A record is at most so many times as long in its own encoding as it is in UTF-8."""


def unpacked(
    runner: Runner,
    staging: Staging,
    groups: Sequence[tuple[str, Sequence[InputFile]]],
    *,
    size: int,
    max_line_bytes: int,
) -> list[list[InputFile]]:
    """The files of each group with packed ones replaced. A group is a format (`jsonl`, `csv`) and its files."""
    tasks: dict[tuple[str, str], dict[str, Any]] = {}
    for kind, files in groups:
        for file in files:
            if file.compression is not None:
                tasks[kind, file.path] = {
                    "staging": staging.to_json(),
                    "kind": kind,
                    "path": file.path,
                    "source": file.name,
                    "compression": file.compression,
                    "size": size,
                    "max_line_bytes": max_line_bytes,
                }
    if not tasks:
        return [list(files) for _, files in groups]
    results = runner.run(unpack_file, list(tasks.values()), stage="unpacking")
    result_by_file = dict(zip(tasks, results, strict=True))
    return [
        [_replaced(staging, file, result_by_file.get((kind, file.path))) for file in files] for kind, files in groups
    ]


def _replaced(staging: Staging, file: InputFile, result: Mapping[str, Any] | None) -> InputFile:
    if result is None:
        return file
    if result["staged"] is None:
        return replace(file, unpacked_bytes=result["unpacked_bytes"])
    return InputFile(staging.path(result["staged"]), result["unpacked_bytes"], file.name)


# ---- on a worker -----------------------------------------------------------------------------------------------------


def unpack_file(task: Mapping[str, Any]) -> dict[str, Any]:
    """The name of the staged file, None if there is none, and how many bytes it has."""
    filled = 0
    for chunk in _limited(task):
        filled += 0 if is_blank(chunk) else len(chunk)
        if filled > task["size"]:
            break
    else:
        return {"staged": None, "unpacked_bytes": filled}
    ending = os.path.splitext(os.path.splitext(task["path"])[0])[1]
    # Options of CSV depend on the ending: tabs are the delimiter of .tsv.
    name, size = Staging.of(task["staging"]).put_chunks("plain", _limited(task), ending=ending)
    return {"staged": name, "unpacked_bytes": size}


def _limited(task: Mapping[str, Any]) -> Iterator[bytes]:
    """The unpacked file: RecordTooLong for a line above the limit; of CSV what comes before the end of such a line."""
    is_csv = task["kind"] == "csv"
    limit = task["max_line_bytes"] * (ENCODED_TIMES_MAX if is_csv else 1)
    lines = LineLimit(task["source"], limit)
    for chunk in file_chunks(task["path"], task["compression"]):
        yield chunk
        try:
            lines.add(chunk.replace(b"\r", b"\n") if is_csv else chunk)
        except RecordTooLong:
            if not is_csv:
                raise
            return
