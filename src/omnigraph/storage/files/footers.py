"""Checks the footers of data files before Lance reads them.

Lance trusts the counts in a footer: one flipped bit makes it allocate gigabytes, and a failed allocation ends the
process. A data file of Lance ends with

    column metadata offsets   (position, size) of each, 16 bytes
    global buffer offsets     the same
    footer                    40 bytes: where column metadata and both tables begin, their counts, the version, a mark

On a local disk every range that these name must lie within the file, each part before the next. This is checked when a
version is opened, once per process and fragment, with two short reads per file. Other damage of a data file is found by
its checksum (`verify`). Files of other versions of the format, and missing files, are left to Lance.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

from omnigraph.errors import StorageError

if TYPE_CHECKING:
    from lance import LanceDataset

CHECKED_MAX = 1 << 18
_MAJOR = 2
_FOOTER = struct.Struct("<QQQIIHH4s")
_ENTRY = struct.Struct("<QQ")
_MARK = b"LANC"
_checked: set[tuple[str, int]] = set()


def require_footers(uri: str, table: LanceDataset) -> None:
    """Raise StorageError, which names the file, if a data file of this version of a local table has no valid footer."""
    unchecked = [f for f in table.get_fragments() if (uri, f.fragment_id) not in _checked]
    if not unchecked:
        return
    roots = {base.id: str(base.path) for base in table.base_paths().values()}
    for fragment in unchecked:
        for file in fragment.metadata.files:
            base = getattr(file, "base_id", None)
            require_footer(os.path.join(uri if base is None else roots[base], "data", file.path))
        if len(_checked) >= CHECKED_MAX:
            _checked.clear()
        _checked.add((uri, fragment.fragment_id))


def require_footer(path: str) -> None:
    """Raise StorageError unless the footer of a data file is consistent."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(doing=f"reading {path}", detail=str(error)) from error
    try:
        problem = _problem(file)
    except OSError as error:
        raise StorageError(doing=f"reading {path}", detail=str(error)) from error
    finally:
        os.close(file)
    if problem is not None:
        raise StorageError(doing=f"reading {path}", detail=f"{path}: the data file is damaged: {problem}")


def _problem(file: int) -> str | None:
    end = os.fstat(file).st_size - _FOOTER.size
    if end < 0:
        return "it is too short"
    footer = os.pread(file, _FOOTER.size, end)
    metadata, columns, buffers, buffer_count, column_count, major, _, mark = _unpacked(footer)
    if mark != _MARK:
        return "it does not end as Lance ends its files"
    if major != _MAJOR:
        return None
    if not (metadata <= columns and columns + 16 * column_count <= buffers and buffers + 16 * buffer_count <= end):
        return "its footer names places outside of it"
    for start, count in ((columns, column_count), (buffers, buffer_count)):
        for position, size in _ENTRY.iter_unpack(os.pread(file, 16 * count, start)):
            if position + size > end:
                return "its footer names places outside of it"
    return None


def _unpacked(footer: bytes) -> tuple[int, int, int, int, int, int, int, bytes]:
    fields: tuple[int, int, int, int, int, int, int, bytes] = _FOOTER.unpack(footer)
    return fields
