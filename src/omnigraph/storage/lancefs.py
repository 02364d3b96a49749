"""The few Lance calls that everything else is made of: open, commit a stamped transaction, read stamps, survive a
torn newest version.

Opening is by version wherever a version is known. A commit is one `Transaction` on an exact base; its stamp is a
transaction property, so that whoever looks at a version later can tell whose it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from omnigraph.errors import StorageError
from omnigraph.storage import durable
from omnigraph.storage.layout import Location

if TYPE_CHECKING:
    from lance import LanceDataset, LanceOperation, Transaction

STAMP = "omnigraph"
RETRIES = 20
"""How often Lance itself rebases a commit that lost a race, as it does by default."""
PROBES_MOST = 64
_MANIFEST_MARK = b"LANC"
_MISSING = re.compile(r"not found|no such file|does not exist|not a directory", re.IGNORECASE)


class TableMissing(Exception):
    """There is no Lance table, or no such version of it, at this address. Callers say what that means."""


@lru_cache(maxsize=1)
def _lance() -> Any:
    """Import Lance once, quiet, with its transaction reader able to read every kind of history."""
    os.environ.setdefault("LANCE_LOG", "error")
    import lance

    # Reading a Rewrite that remapped an index raises TypeError because three fields have no defaults.
    lance.LanceOperation.RewrittenIndex.__init__.__defaults__ = ("", b"", 0)
    return lance


def operations() -> type[LanceOperation]:
    found: type[LanceOperation] = _lance().LanceOperation
    return found


def open_table(location: Location, uri: str, *, version: int | None = None) -> LanceDataset:
    """Open a table at a version, or at its newest one; TableMissing if there is none."""
    try:
        return _lance().dataset(uri, version=version, storage_options=location.lance_options)
    except (ValueError, OSError) as error:
        if _MISSING.search(str(error)):
            raise TableMissing(uri, version) from error
        raise StorageError(doing=f"opening {uri}", detail=str(error)) from error
    except BaseException as error:
        # Lance panics on some files that were cut short, and its panic is no Exception.
        if type(error).__name__ != "PanicException":
            raise
        raise StorageError(doing=f"opening {uri}", detail=f"Lance can't read it: {error}") from error


@contextmanager
def reading(doing: str) -> Iterator[None]:
    """Turn what the store raises through Lance into StorageError, whatever class it comes in."""
    try:
        yield
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        # Lance names itself in what it raises; anything else of these kinds is a mistake of ours and stays visible.
        if isinstance(error, OSError) or "LanceError" in str(error) or ".rs:" in str(error):
            raise StorageError(doing=doing, detail=str(error)) from error
        raise
    except BaseException as error:
        # Lance panics on some files that were cut short, and its panic is no Exception.
        if type(error).__name__ != "PanicException":
            raise
        raise StorageError(doing=doing, detail=f"Lance can't read it: {error}") from error


def is_gone(table: LanceDataset) -> bool:
    """Whether the version that this handle reads has been removed since it was opened."""
    try:
        _lance().dataset(table.uri, version=table.version, storage_options=table._storage_options)
    except (ValueError, OSError) as error:
        return bool(_MISSING.search(str(error)))
    return False


def open_newest(location: Location, uri: str) -> LanceDataset:
    """Open the newest version that is whole.

    A power loss can leave the newest version's file short. It was never acknowledged, because acknowledging syncs
    it first, so the version below it is the truth; `mend_torn` removes the debris before the next commit.
    """
    try:
        return open_table(location, uri)
    except StorageError:
        torn = torn_versions(location, uri)
        if not torn:
            raise
        return open_table(location, uri, version=min(torn) - 1)


def newest_version(location: Location, table: LanceDataset) -> int:
    """The number of the table's newest version, seen from a handle at some version of it.

    Lance lists all versions on a local disk, which costs more the longer the history is. Versions are dense above
    the one that is read and are removed oldest first, so a version that is there and has no successor is the newest.
    """
    if location.is_local:
        version = int(table.version)
        for _ in range(PROBES_MOST):
            if not os.path.exists(durable.manifest_path(table.uri, version + 1)):
                if os.path.exists(durable.manifest_path(table.uri, version)):
                    return version
                break
            version += 1
    return int(table.latest_version)


def torn_versions(location: Location, uri: str) -> list[int]:
    """Versions at the top of a local table whose files are provably cut short, newest first; empty elsewhere.

    Only what can be read and does not end as Lance ends a manifest counts: a read that fails says nothing about the
    file.
    """
    if not location.is_local:
        return []
    found: list[int] = []
    for version in sorted(_listed_versions(uri), reverse=True):
        if not _is_torn(durable.manifest_path(uri, version)):
            break
        found.append(version)
    return found


def _is_torn(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - len(_MANIFEST_MARK)))
            return file.read() != _MANIFEST_MARK
    except OSError as error:
        raise StorageError(doing=f"reading {path}", detail=str(error)) from error


def mend_torn(location: Location, uri: str, *, above: int) -> None:
    """Move torn newest versions above a published one aside, so that their numbers can be used again."""
    torn = [v for v in torn_versions(location, uri) if v > above]
    for version in torn:
        path = durable.manifest_path(uri, version)
        with suppress(FileNotFoundError):  # another recoverer mends the same table
            os.replace(path, f"{path}.torn")
    if torn:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(uri, "_versions", "latest_version_hint.json"))


def _listed_versions(folder: str) -> list[int]:
    try:
        names = os.listdir(os.path.join(folder, "_versions"))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StorageError(doing=f"listing {folder}", detail=str(error)) from error
    return [2**64 - 1 - int(n[:20]) for n in names if re.fullmatch(r"\d{20}\.manifest", n)]


def conflicts() -> type[Exception]:
    """What Lance raises when a commit lost against another one."""
    from lance.commit import CommitConflictError

    found: type[Exception] = CommitConflictError
    return found


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
    """One Lance commit, made durable. The caller compares the version it got with the one it expected."""
    lance = _lance()
    done = lance.LanceDataset.commit(
        base,
        tx,
        storage_options=location.lance_options,
        enable_stable_row_ids=stable_row_ids or None,
        max_retries=retries,
    )
    if location.is_local and durable.fsync_enabled():
        files = durable.commit_files(done.uri, done.version, read_version=tx.read_version, transaction_uuid=tx.uuid)
        durable.sync_files(files)
    return done


def is_missing(error: Exception) -> bool:
    """Whether what the store said is that something is not there."""
    return bool(_MISSING.search(str(error)))


def stamp_of(table: LanceDataset, version: int) -> str | None:
    """The stamp of one version; None if it has none of ours or its transaction is gone."""
    try:
        found = table.read_transaction(version)
    except (ValueError, OSError, KeyError) as error:
        if _MISSING.search(str(error)):
            return None
        raise StorageError(doing=f"reading the history of {table.uri}", detail=str(error)) from error
    if found is None:
        return None
    return (found.transaction_properties or {}).get(STAMP)


def stamps_above(table: LanceDataset, version: int) -> list[tuple[int, str | None]]:
    """(version, stamp) of every version of the table above `version`, oldest first. `table` must be at its newest."""
    return [(v, stamp_of(table, v)) for v in range(version + 1, table.version + 1)]
