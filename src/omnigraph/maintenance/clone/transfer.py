"""Copy files from one graph's address to another's: disk to disk, disk to bucket, bucket to disk, bucket to bucket.

* on one file system, immutable files are hard links, which take no space; other files are copied, and all files where
  links do not work
* within one bucket the store copies; from one bucket to another the bytes pass through this process in parts, so
  that memory grows with the number of concurrent files and not with their size

A file gets its name when it is complete: on a disk it is written under another name and renamed, in a bucket an upload
becomes visible when it is complete. So a file with the right size is complete, and a repeated clone keeps it.
"""

from __future__ import annotations

import errno
import os
import secrets
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from omnigraph.errors import StorageError
from omnigraph.maintenance.clone.plan import CopiedFile, CopiedVersion
from omnigraph.storage import durability
from omnigraph.storage.files.rebase import read_version, rebased
from omnigraph.storage.files.version_file import NotUnderstood
from omnigraph.storage.lance.flatten import flattened
from omnigraph.storage.layout import Location
from omnigraph.storage.objects.store import bucket_and_key, open_bucket, open_store

PIECE_BYTES = 8 << 20
PIECES_MAX = 9_000
"""An upload of S3 has 10,000 parts at the most."""
COPIED_BY_THE_STORE_MAX = 5 << 30
"""The largest object that S3 copies in one request."""
_NO_LINK = frozenset((errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS))

How = Literal["linked", "copied"]


@dataclass(frozen=True)
class WrittenVersion:
    """`crc`: its checksum, if it is not the same file as in the source."""

    path: str
    size: int
    crc: int | None


@dataclass(frozen=True)
class Transfer:
    source: Location
    target: Location
    links: bool = True

    def file(self, file: CopiedFile) -> How:
        """Copy or link one file; an existing one is replaced."""
        with _failing(f"copying {file.source} to {self.target.uri}"):
            if self.target.is_local:
                return self._to_disk(file)
            self._to_bucket(file)
            return "copied"

    def version(self, version: CopiedVersion) -> WrittenVersion:
        """Write the file of a version for its new address."""
        stored = read_version(self.source, version.source)
        if stored is None:
            raise StorageError(doing=f"reading {version.source}", detail="it is not there any more")
        try:
            is_flat = version.is_flattened
            raw = flattened(stored.raw) if is_flat else rebased(stored, version.table, root=self.target.uri)
        except NotUnderstood as error:
            detail = f"this omnigraph does not know what is in it: {error}"
            raise StorageError(doing=f"reading {version.source}", detail=detail) from error
        self.put(version.target, raw)
        return WrittenVersion(version.target, len(raw), None if raw == stored.raw else zlib.crc32(raw))

    def put(self, path: str, raw: bytes, *, create: bool = False) -> None:
        """Write a small file. With `create`, FileExistsError if there is one."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with _failing(f"writing {self.target.join(path)}"):
            try:
                obstore.put(open_store(self.target, ""), path, raw, mode="create" if create else "overwrite")
            except AlreadyExistsError as error:
                raise FileExistsError(path) from error

    # ---- to a disk ---------------------------------------------------------------------------------------------------

    def _to_disk(self, file: CopiedFile) -> How:
        path = self.target.join(file.target)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        half_written = os.path.join(os.path.dirname(path), f".tmp_clone_{secrets.token_hex(8)}")
        try:
            how = self._fill(file, half_written)
            os.replace(half_written, path)
            return how
        finally:
            with suppress(FileNotFoundError):
                os.unlink(half_written)

    def _fill(self, file: CopiedFile, path: str) -> How:
        if self.source.is_local and self.links and file.is_immutable:
            try:
                os.link(self.source.join(file.source), path, follow_symlinks=False)
                return "linked"
            except OSError as error:
                if error.errno not in _NO_LINK:
                    raise
        with open(path, "xb") as out:
            for piece in self._pieces(file):
                out.write(piece)
        durability.sync_files([path])
        return "copied"

    def _pieces(self, file: CopiedFile) -> Iterator[Any]:
        if self.source.is_local:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(self.source.join(file.source), flags), "rb") as opened:
                while piece := opened.read(PIECE_BYTES):
                    yield piece
            return
        import obstore

        yield from obstore.get(self._from, file.source).stream(min_chunk_size=PIECE_BYTES)

    # ---- to a bucket -------------------------------------------------------------------------------------------------

    def _to_bucket(self, file: CopiedFile) -> None:
        import obstore

        if self._in_one_bucket and file.size <= COPIED_BY_THE_STORE_MAX:
            keys = (f"{bucket_and_key(uri)[1]}/{path}" for uri, path in self._ends(file))
            obstore.copy(open_bucket(self.target), *keys)
            return
        piece_bytes = max(PIECE_BYTES, file.size // PIECES_MAX + 1)
        if file.size <= piece_bytes:
            obstore.put(self._to, file.target, b"".join(bytes(piece) for piece in self._pieces(file)))
        elif self.source.is_local:
            path = Path(self.source.join(file.source))
            obstore.put(self._to, file.target, path, chunk_size=piece_bytes, max_concurrency=2)
        else:
            writer = obstore.open_writer(self._to, file.target, buffer_size=piece_bytes, max_concurrency=2)
            for piece in self._pieces(file):
                writer.write(piece)
            writer.close()  # which completes the upload: one that failed is never closed, and never shows

    def _ends(self, file: CopiedFile) -> tuple[tuple[Location, str], tuple[Location, str]]:
        return (self.source, file.source), (self.target, file.target)

    @property
    def _in_one_bucket(self) -> bool:
        if self.source.is_local or self.target.is_local or self.source.options != self.target.options:
            return False
        return bucket_and_key(self.source)[0] == bucket_and_key(self.target)[0]

    @cached_property
    def _from(self) -> Any:
        return open_store(self.source, "")

    @cached_property
    def _to(self) -> Any:
        return open_store(self.target, "")


@contextmanager
def _failing(doing: str) -> Iterator[None]:
    from obstore.exceptions import BaseError

    try:
        yield
    except FileExistsError:
        raise
    except (BaseError, OSError) as error:
        raise StorageError(doing=doing, detail=str(error)) from error
