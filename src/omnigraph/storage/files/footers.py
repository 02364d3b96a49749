"""Checks the footers of data files and index files before Lance reads them.

Lance trusts the counts in a footer: one flipped bit makes it allocate gigabytes, and a failed allocation ends the
process. A file of Lance ends with

    column metadata offsets   (position, size) of each, 16 bytes
    global buffer offsets     the same
    footer                    40 bytes: where column metadata and both tables begin, their counts, the version, a mark

On a local disk every range that these name must lie within the file, each part before the next. Data files are checked
when a version is opened, once per process and fragment. Index files are checked before the first filter or text search
over their column, once per process and segment: a read that does not use an index, or rebuilds it, is not refused. That
takes three short reads per file. Other damage is found by the checksum of a file (`verify`). Files of other versions of
the format, and missing files, are left to Lance.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from omnigraph.errors import StorageError

if TYPE_CHECKING:
    from lance import LanceDataset

CHECKED_MAX = 1 << 18
_MAJOR = 2
_FOOTER = struct.Struct("<QQQIIHH4s")
_ENTRY = struct.Struct("<QQ")
_MARK = b"LANC"
_checked: set[tuple[str, int]] = set()
_checked_segments: set[str] = set()
_unchecked: dict[tuple[str, int], list[tuple[str, str]]] = {}
"""By version the column and the folder of the segments that are not checked yet."""
FOOTED_SUFFIXES = (".lance", ".idx")
"""Files that end in a footer: of rows and of scalar and text indices; of vector indices."""


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
        _note(_checked, (uri, fragment.fragment_id))


def require_index_footers(table: LanceDataset, filter_or_column: str) -> None:
    """Raise StorageError if an index file that Lance may use ends in an invalid footer.

    `filter_or_column` is the filter, or the name of the column that is searched: an index is used only where the name
    of its column stands in it. Call it inside `reading`, as every other call of Lance. Nothing is checked on an object
    store.
    """
    uri = str(table.uri)
    key = (uri, int(table.version))
    segments = _unchecked.get(key)
    if segments is None:
        segments = [] if "://" in uri else [s for s in _segments(table, uri) if s[1] not in _checked_segments]
        if len(_unchecked) >= CHECKED_MAX:
            _unchecked.clear()
        _unchecked[key] = segments
    if not segments:
        return
    text = filter_or_column.lower()
    for _, folder in (segment for segment in segments if segment[0] in text):
        if folder not in _checked_segments:
            for path in index_files(folder):
                require_footer(path, of="index")
            _note(_checked_segments, folder)
    _unchecked[key] = [segment for segment in segments if segment[0] not in text]


def _segments(table: LanceDataset, uri: str) -> Iterator[tuple[str, str]]:
    """The name of the column, in lower case, and the folder of every segment of every index."""
    roots = {base.id: str(base.path) for base in table.base_paths().values()}
    for index in table.describe_indices():
        column = str(index.field_names[0]).lower() if index.field_names else ""
        for segment in index.segments:
            root = uri if segment.base_id is None else roots[segment.base_id]
            yield column, os.path.join(root, "_indices", str(segment.uuid))


def index_files(folder: str) -> list[str]:
    """The files of a segment that have a footer; none if it lies in the version's own file, or is missing."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.path for entry in entries if entry.name.endswith(FOOTED_SUFFIXES))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StorageError(doing=f"listing {folder}", detail=str(error)) from error


def _note(checked: set[Any], item: Any) -> None:
    if len(checked) >= CHECKED_MAX:
        checked.clear()
    checked.add(item)


def require_footer(path: str, *, of: Literal["data", "index"] = "data") -> None:
    """Raise StorageError unless the footer of a data file or an index file is consistent."""
    problem = footer_problem(path)
    if problem is not None:
        raise StorageError(
            doing=f"reading {path}", detail=f"{path}: the {of} file is damaged: {problem}", reason=f"damaged_{of}"
        )


def footer_problem(path: str) -> str | None:
    """What is wrong with the end of a file; None if nothing is, or if it is missing."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(doing=f"reading {path}", detail=str(error)) from error
    try:
        return _problem(file)
    except OSError as error:
        raise StorageError(doing=f"reading {path}", detail=str(error)) from error
    finally:
        os.close(file)


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
