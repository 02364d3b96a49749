"""Checks deletion files before Lance reads them.

Lance trusts the lengths in a deletion file: one flipped bit makes it allocate terabytes, and a failed allocation ends
the process without an error that names the file. So the deletion files of a version are read here first, when the
version is opened: each must be a complete Arrow file with the number of rows that the version records. Each file is
read once per process, because omnigraph never changes one. They are small, and few after a fold or an `optimize`.

On S3 this is a request per file, several at once. A file that this process has just written is not read again
(`note_written`): a small write on warm handles costs no more requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from omnigraph.errors import StorageError
from omnigraph.storage import durability
from omnigraph.storage.concurrency import map_threads
from omnigraph.storage.layout import Location
from omnigraph.storage.objects.client import store_errors
from omnigraph.storage.objects.store import ObjectStore

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.fragment import FragmentMetadata

CHECKED_MAX = 1 << 16
_checked: set[str] = set()


def require_deletions(location: Location, uri: str, table: LanceDataset) -> None:
    """Raise StorageError, which names the file, if a deletion file of this version of a table is damaged. A missing one
    is left to Lance.
    """
    marked = [f for f in table.get_fragments() if f.num_deletions]
    if not marked:
        return
    roots = {base.id: str(base.path) for base in table.base_paths().values()}
    unchecked: list[tuple[str, int | None]] = []
    for fragment in marked:
        deletion = fragment.metadata.deletion_file
        if deletion is None:
            continue
        root = uri if deletion.base_id is None else roots[deletion.base_id]
        path = durability.deletion_path(root, fragment.fragment_id, deletion.asdict())
        if path not in _checked:
            unchecked.append((path, deletion.num_deleted_rows))
    map_threads(lambda file: require_whole(location, file[0], rows=file[1]), unchecked)
    _note(path for path, _ in unchecked)


def note_written(location: Location, path: str, fragment: FragmentMetadata) -> None:
    """Note that this process has just written the fragment's deletion file, in the table at `path`. On a local disk the
    file is still read again, which costs almost nothing.
    """
    deletion = None if location.is_local else fragment.to_json().get("deletion_file")
    if deletion:
        _note([durability.deletion_path(location.join(path), fragment.id, deletion)])


def _note(paths: Iterable[str]) -> None:
    if len(_checked) >= CHECKED_MAX:
        _checked.clear()
    _checked.update(paths)


def require_whole(location: Location, path: str, *, rows: int | None) -> None:
    """Raise StorageError unless a deletion file, by its full address, can be read and marks this number of rows."""
    try:
        raw = _read(location, path)
    except FileNotFoundError:
        return
    _require_content(raw, path, rows)


def _read(location: Location, path: str) -> bytes:
    if location.is_local:
        with store_errors(f"reading {path}", keep_missing=True), open(path, "rb") as file:
            return file.read()
    return ObjectStore(location).get(path.removeprefix(f"{location.uri}/"), doing=f"reading {path}")


def _require_content(raw: bytes, path: str, rows: int | None) -> None:
    if not path.endswith(".arrow"):
        if not raw:
            raise StorageError(doing=f"reading {path}", detail=f"{path}: the file is empty", reason="damaged_data")
        return
    row_count = _rows(raw, path)
    if rows is not None and row_count != rows:
        detail = f"{path}: it marks {row_count} rows, not {rows}"
        raise StorageError(doing=f"reading {path}", detail=detail, reason="damaged_data")


def _rows(raw: bytes, path: str) -> int:
    import pyarrow as pa
    from pyarrow import ipc

    try:
        with ipc.open_file(pa.py_buffer(raw)) as reader:
            return sum(reader.get_batch(n).num_rows for n in range(reader.num_record_batches))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise StorageError(doing=f"reading {path}", detail=f"{path}: the deletion file is damaged: {error}") from error
