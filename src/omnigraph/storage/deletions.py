"""Deletion files are looked at before Lance reads them.

Lance takes the lengths in a deletion file for true: one changed bit makes it ask for terabytes, and a failed allocation
ends the process, without an error and without a name. So the deletion files of a version on a local disk are read here
first, when the version is opened: a whole Arrow file, with as many rows as the version says. Each file once per
process: no program of ours ever changes one. They are small, and few after a fold or an `optimize`.

On S3 this would cost a request per file, and the store has checksums of its own: nothing is read there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.errors import StorageError
from omnigraph.storage import durable

if TYPE_CHECKING:
    from lance import LanceDataset

CHECKED_MAX = 1 << 16
_checked: set[str] = set()


def require_deletions(uri: str, table: LanceDataset) -> None:
    """StorageError, with the file, if a deletion file of this version of a local table is damaged. One that is missing
    is left to Lance.
    """
    marked = [f for f in table.get_fragments() if f.num_deletions]
    if not marked:
        return
    roots = {base.id: str(base.path) for base in table.base_paths().values()}
    for fragment in marked:
        deletion = fragment.metadata.deletion_file
        if deletion is None:
            continue
        root = uri if deletion.base_id is None else roots[deletion.base_id]
        path = durable.deletion_path(root, fragment.fragment_id, deletion.asdict())
        if path not in _checked:
            require_whole(path, rows=deletion.num_deleted_rows)
            if len(_checked) >= CHECKED_MAX:
                _checked.clear()
            _checked.add(path)


def require_whole(path: str, *, rows: int | None) -> None:
    """StorageError unless a deletion file can be read, and marks so many rows."""
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(doing=f"reading {path}", detail=str(error)) from error
    if not path.endswith(".arrow"):
        if not raw:
            raise StorageError(doing=f"reading {path}", detail=f"{path}: the file is empty")
        return
    found = _rows(raw, path)
    if rows is not None and found != rows:
        raise StorageError(doing=f"reading {path}", detail=f"{path}: it marks {found} rows, not {rows}")


def _rows(raw: bytes, path: str) -> int:
    import pyarrow as pa
    from pyarrow import ipc

    try:
        with ipc.open_file(pa.py_buffer(raw)) as reader:
            return sum(reader.get_batch(n).num_rows for n in range(reader.num_record_batches))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise StorageError(doing=f"reading {path}", detail=f"{path}: the deletion file is damaged: {error}") from error
