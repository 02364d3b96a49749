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
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from omnigraph.errors import StorageError
from omnigraph.maintenance.clone.plan import CopiedFile, CopiedVersion
from omnigraph.storage import durability
from omnigraph.storage.files.rebase import read_version, rebased
from omnigraph.storage.files.version_file import NotUnderstood
from omnigraph.storage.lance.rewrites.flatten import flattened
from omnigraph.storage.layout import Location
from omnigraph.storage.objects.client import in_one_bucket, store_errors
from omnigraph.storage.objects.store import ObjectStore

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
        with store_errors(self._doing(file)):
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
        store, doing = ObjectStore(self.target), f"writing {self.target.join(path)}"
        if create:
            store.create(path, raw, doing=doing)
        else:
            store.put(path, raw, doing=doing)

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
        yield from self._from.stream(file.source, chunk_bytes=PIECE_BYTES, doing=self._doing(file))

    # ---- to a bucket -------------------------------------------------------------------------------------------------

    def _to_bucket(self, file: CopiedFile) -> None:
        if in_one_bucket(self.source, self.target) and file.size <= COPIED_BY_THE_STORE_MAX:
            self._to.copy_from(self._from, file.source, to=file.target, doing=self._doing(file))
            return
        piece_bytes = max(PIECE_BYTES, file.size // PIECES_MAX + 1)
        if file.size <= piece_bytes:
            self._to.put(file.target, b"".join(bytes(piece) for piece in self._pieces(file)), doing=self._doing(file))
        elif self.source.is_local:
            path = self.source.join(file.source)
            self._to.put_file(file.target, path, chunk_bytes=piece_bytes, doing=self._doing(file))
        else:
            writer = self._to.writer(file.target, chunk_bytes=piece_bytes)
            for piece in self._pieces(file):
                writer.write(piece)
            writer.close()  # which completes the upload: one that failed is never closed, and never shows

    def _doing(self, file: CopiedFile) -> str:
        return f"copying {file.source} to {self.target.uri}"

    @cached_property
    def _from(self) -> ObjectStore:
        return ObjectStore(self.source)

    @cached_property
    def _to(self) -> ObjectStore:
        return ObjectStore(self.target)
