"""The basic Lance calls: open a table, commit a stamped transaction, read stamps, ignore a truncated newest version.

Tables are opened by version wherever the version is known. A commit is one `Transaction` on a base version; its stamp
is a transaction property, which identifies the operation that made the version.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from omnigraph.errors import StorageError, SymlinkInGraph
from omnigraph.errors.reasons import reason_of
from omnigraph.storage import durability
from omnigraph.storage.files import checksums, truncated_versions
from omnigraph.storage.files.base_paths import require_own_bases, table_of
from omnigraph.storage.files.deletion_files import require_deletions
from omnigraph.storage.files.footers import require_footers
from omnigraph.storage.layout import Location
from omnigraph.storage.objects import nofollow

if TYPE_CHECKING:
    from lance import LanceDataset, LanceOperation, Transaction

STAMP = "omnigraph"
RETRIES = 20
"""How often Lance itself rebases a commit that lost a race, as it does by default."""
PROBES_MAX = 64
_PANIC = "PanicException"
"""The class is made anew by every library that is built with pyo3: it is known by its name."""
_MISSING = re.compile(r"not found|no such file|does not exist|not a directory", re.IGNORECASE)


class TableMissing(Exception):
    """There is no Lance table, or no such version of it, at this address."""


@lru_cache(maxsize=1)
def _lance() -> Any:
    """Import Lance once, without its log output, and patch its transaction reader to read every kind of history."""
    os.environ.setdefault("LANCE_LOG", "error")
    import lance

    # Reading a Rewrite that remapped an index raises TypeError because three fields have no defaults.
    lance.LanceOperation.RewrittenIndex.__init__.__defaults__ = ("", b"", 0)
    return lance


def operations() -> type[LanceOperation]:
    lance_operation: type[LanceOperation] = _lance().LanceOperation
    return lance_operation


def open_table(location: Location, uri: str, *, version: int | None = None, reads_rows: bool = True) -> LanceDataset:
    """Open a table at a version, or at its newest one; TableMissing if there is none, GraphMoved if it is a fork that
    refers to another place.

    Not `reads_rows`: for its metadata alone, whatever its deletion and data files hold.
    """
    nofollow.require_table(location, uri)
    try:
        with no_panic(f"opening {uri}"):
            table: LanceDataset = _lance().dataset(uri, version=version, storage_options=location.lance_options)
            table.schema  # noqa: B018  Lance reads the types of a version only here, and panics at one it does not know
    except (ValueError, OSError) as error:
        if is_missing(error):
            raise TableMissing(uri, version) from error
        raise StorageError(doing=f"opening {uri}", detail=str(error)) from error
    with_own_bases(location, uri, table)
    if reads_rows:
        require_deletions(location, uri, table)
        if location.is_local:
            require_footers(uri, table)
    return table


def with_own_bases(location: Location, uri: str, table: LanceDataset) -> LanceDataset:
    """The table. Raises GraphMoved or HostileOrDamagedManifest if its files are not in the graph."""
    require_own_bases(location, table_of(location, uri), (base.path for base in table.base_paths().values()))
    return table


@contextmanager
def reading(doing: str, *, decodes: bool = False) -> Iterator[None]:
    """Translate errors that the store raises through Lance into StorageError, whatever their class.

    `decodes`: the block only converts Lance rows to Arrow, so an Arrow error means a damaged file.
    """
    try:
        with no_panic(doing):
            yield
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        # Lance names itself in its errors; other errors of these classes are bugs and stay visible.
        by_lance = isinstance(error, OSError) or "LanceError" in str(error) or ".rs:" in str(error)
        if by_lance or (decodes and type(error).__module__ == "pyarrow.lib"):
            raise StorageError(doing=doing, detail=str(error)) from error
        raise


@contextmanager
def no_panic(doing: str) -> Iterator[None]:
    """Translate a panic of Lance into StorageError: damaged files and unexpected requests cause panics, which are not
    Exceptions.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        raise StorageError(doing=doing, detail=f"Lance can't do it: {error}") from error


def is_panic(error: StorageError) -> bool:
    """Whether this is a panic of Lance."""
    return type(error.__cause__).__name__ == _PANIC


def is_gone(table: LanceDataset) -> bool:
    """Whether the version of this handle was removed since it was opened."""
    try:
        with no_panic(f"opening {table.uri}"):
            _lance().dataset(table.uri, version=table.version, storage_options=table._storage_options)
    except (ValueError, OSError) as error:
        return is_missing(error)
    except StorageError:
        return False
    return False


def open_newest(location: Location, uri: str) -> LanceDataset:
    """Open the newest complete version.

    A power loss can truncate the newest version's file. That version was never acknowledged, because it is synced
    before, so the version below it is the newest; `truncated_versions.move_aside` renames the file before the next
    commit. Opened for its metadata only: versions above a pin may be damaged, and their users check them.
    """
    try:
        return open_table(location, uri, reads_rows=False)
    except SymlinkInGraph:
        raise
    except StorageError:
        truncated = truncated_versions.truncated_versions(location, uri)
        if not truncated:
            raise
        return open_table(location, uri, version=min(truncated) - 1)


def newest_version(location: Location, table: LanceDataset) -> int:
    """The number of the table's newest version, from a handle at any version.

    Lance lists all versions on a local disk, which costs more with a longer history. Versions are dense above the one
    that is read and are removed oldest first, so an existing version without a successor is the newest.
    """
    if location.is_local:
        version = int(table.version)
        for _ in range(PROBES_MAX):
            if not os.path.exists(durability.manifest_path(table.uri, version + 1)):
                if os.path.exists(durability.manifest_path(table.uri, version)):
                    return version
                break
            version += 1
    return int(table.latest_version)


def conflicts() -> type[Exception]:
    """The error that Lance raises for a commit that lost against another one."""
    from lance.commit import CommitConflictError

    conflict_error: type[Exception] = CommitConflictError
    return conflict_error


def transaction(operation: Any, *, read_version: int, properties: Mapping[str, str] | None = None) -> Transaction:
    return _lance().Transaction(
        read_version=read_version, operation=operation, transaction_properties=dict(properties or {})
    )


def commit(
    location: Location,
    base: LanceDataset | str,
    tx: Transaction,
    *,
    stable_row_ids: bool = False,
    retries: int = RETRIES,
) -> LanceDataset:
    """Commit one transaction and sync it. The caller compares the returned version with the expected one."""
    lance = _lance()
    uri = base if isinstance(base, str) else base.uri
    nofollow.require_table(location, uri)
    with no_panic(f"committing to {uri}"):
        committed = lance.LanceDataset.commit(
            base,
            tx,
            storage_options=location.lance_options,
            enable_stable_row_ids=stable_row_ids or None,
            max_retries=retries,
        )
    if location.is_local and not committed.uri.startswith(location.manifest_uri):
        checksums.note([durability.manifest_path(committed.uri, committed.version)])
    if location.is_local and durability.fsync_enabled():
        files = durability.commit_files(
            committed.uri, committed.version, read_version=tx.read_version, transaction_uuid=tx.uuid
        )
        durability.sync_files(files)
    return committed


def is_missing(error: Exception) -> bool:
    """Whether the store's error means that the object does not exist.

    A missing bucket or an unknown access key says nothing about the object.
    """
    reason = reason_of(str(error))
    if reason is not None and reason.name != "not_a_folder":
        return False
    return bool(_MISSING.search(str(error)))


def stamp_of(table: LanceDataset, version: int) -> str | None:
    """The stamp of one version; None if it has no stamp, or if the version or its transaction is lost."""
    try:
        with no_panic(f"reading the history of {table.uri}"):
            tx = table.read_transaction(version)
    except (ValueError, OSError, KeyError) as error:
        if is_missing(error) or truncated_versions.is_truncated(table.uri, version):
            return None
        raise StorageError(doing=f"reading the history of {table.uri}", detail=str(error)) from error
    if tx is None:
        return None
    return (tx.transaction_properties or {}).get(STAMP)


def stamps_above(table: LanceDataset, version: int) -> list[tuple[int, str | None]]:
    """(version, stamp) of every version of the table above `version`, oldest first. `table` must be at its newest."""
    return [(v, stamp_of(table, v)) for v in range(version + 1, table.version + 1)]
