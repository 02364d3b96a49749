"""Input files, on a local disk or on S3: found by name, folder or pattern; read by ranges.

A folder or a pattern leaves out quarantine files (`*.rejected.jsonl`, `*.rejected.parquet`), unless the pattern itself
ends so: a load that is run again does not read its own rejects. A folder leaves out files, at any depth, whose name or
folder begins with `.` or `_`.
"""

from __future__ import annotations

import fnmatch
import glob
import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from omnigraph.errors import FileUnreadable, StorageError, UsageError
from omnigraph.storage.layout import Location, locate
from omnigraph.storage.objects.store import ObjectStore, StoredFile, shared_store

REMOTE_BUFFER_BYTES = 1 << 20
COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
REJECTED = (".rejected.jsonl", ".rejected.parquet")
_MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class InputFile:
    """`path` is an absolute local path or an s3:// URI, so that it means the same to every process; `name` is what
    users typed and read. `unpacked_bytes` are those of a packed file, where they have been counted.
    """

    path: str
    size_bytes: int
    name: str
    unpacked_bytes: int | None = None

    @property
    def compression(self) -> str | None:
        return COMPRESSED.get(os.path.splitext(self.path)[1].lower())

    @property
    def text_bytes(self) -> int:
        """The size of the text, estimated for packed files."""
        if self.unpacked_bytes is not None:
            return self.unpacked_bytes
        return self.size_bytes if self.compression is None else 4 * self.size_bytes


def is_remote(path: str) -> bool:
    return path.startswith("s3://")


def plain_path(path: str | os.PathLike[str]) -> str:
    """A local path without `file://`, or the URI of what is not local."""
    text = os.fspath(path)
    return unquote(urlsplit(text).path) if text.startswith("file://") else text


def find_files(path: str | os.PathLike[str]) -> list[InputFile]:
    """The files of a name, a folder or a pattern, sorted by name; FileUnreadable if there are none."""
    text = plain_path(path)
    if is_remote(text):
        files = _remote_files(text)
    elif "://" in text:
        raise UsageError(detail=f"input is read from local files and from s3://, not from {text}.")
    else:
        files = [InputFile(os.path.abspath(p), _size(p), p) for p in _local_files(text)]
    if not files:
        raise FileUnreadable(path=text, detail=_nothing(text))
    return files


def would_find(path: str | os.PathLike[str], candidate: str) -> bool:
    """Whether `find_files(path)` returns the local file `candidate`, or would if that existed."""
    text, real = plain_path(path), os.path.realpath(candidate)
    if "://" in text:
        return False
    if not _MAGIC.search(text) or os.path.exists(text):
        within = os.path.relpath(real, os.path.realpath(text)).split(os.sep)
        if within == ["."] or within[0] == ".." or not os.path.isdir(text):
            return within == ["."]
        return text.rstrip("/").endswith(".lance") or (all(map(_is_data, within)) and not _is_rejected(real))
    if _is_rejected(real) and not _is_rejected(text):
        return False
    parts = os.path.abspath(text).split(os.sep)
    fixed = next(i for i, part in enumerate(parts) if _MAGIC.search(part))
    root = os.path.realpath(os.sep.join(parts[:fixed]) or os.sep)
    within = os.path.relpath(real, root).split(os.sep)
    return within[0] != ".." and _matches(within, parts[fixed:])


def _matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the pattern matches the path, or a folder that contains it."""
    if not pattern:
        return all(map(_is_data, names))
    if not names:
        return False
    first, *rest = pattern
    if first == "**":
        return _matches(names, rest) or (not names[0].startswith(".") and _matches(names[1:], pattern))
    hidden = names[0].startswith(".") and not first.startswith(".")
    return not hidden and fnmatch.fnmatchcase(names[0], first) and _matches(names[1:], rest)


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError as error:
        raise FileUnreadable(path=path, detail=f"{(error.strerror or str(error)).lower()}.") from error


def _nothing(path: str) -> str:
    if not is_remote(path) and os.path.isdir(path):
        return "the folder holds no file of data."
    return "no file fits this pattern." if _MAGIC.search(path) else "there is no such file."


def _is_data(name: str) -> bool:
    return not name.startswith((".", "_"))


def _is_rejected(path: str) -> bool:
    return path.endswith(REJECTED)


def _local_files(path: str) -> list[str]:
    if os.path.isdir(path):
        return [path] if path.rstrip("/").endswith(".lance") else _below(path)
    if os.path.exists(path):
        return [path]
    files: list[str] = []
    for match in sorted(glob.glob(path, recursive=True)):
        if os.path.isfile(match) or match.endswith(".lance"):
            files += [match] if not _is_rejected(match) or _is_rejected(path) else []
        elif os.path.isdir(match):
            files += _below(match)
    return files


def _below(folder: str) -> list[str]:
    files: list[str] = []
    for root, folders, names in os.walk(folder):
        tables = [n for n in folders if n.endswith(".lance") and _is_data(n)]
        folders[:] = sorted(n for n in folders if _is_data(n) and n not in tables)
        files += [os.path.join(root, n) for n in tables]
        files += [os.path.join(root, n) for n in sorted(names) if _is_data(n) and not _is_rejected(n)]
    return sorted(files)


def _remote_files(uri: str) -> list[InputFile]:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    if not bucket:
        raise UsageError(detail=f"{uri} names no bucket; write s3://bucket/path.")
    fixed = _MAGIC.split(key, maxsplit=1)[0]
    prefix = fixed if fixed == key else fixed.rpartition("/")[0]
    store, _ = _store_of(uri)
    with _unreadable(uri):
        entries = store.list_files(prefix)
        if fixed == key and not entries:
            # A listing takes whole path segments only; the name may be that of a file.
            entries = _heads(store, key)
    matching = [
        e
        for e in entries
        if all(map(_is_data, e.path.removeprefix(prefix).strip("/").split("/")))
        and (fixed == key or fnmatch.fnmatchcase(e.path, key))
        and (not _is_rejected(e.path) or _is_rejected(key))
    ]
    uris = [(f"s3://{bucket}/{e.path}", e.size) for e in sorted(matching, key=lambda e: e.path)]
    return [InputFile(uri, size, uri) for uri, size in uris]


def _heads(store: ObjectStore, key: str) -> list[StoredFile]:
    try:
        return [store.head(key)]
    except FileNotFoundError:
        return []


def _store_of(uri: str) -> tuple[ObjectStore, str]:
    """The store of the bucket that an address names, and the key in it."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    # A location needs a prefix; the store is opened one level above it.
    options = locate(f"s3://{bucket}/x").options
    return shared_store(Location(f"s3://{bucket}", False, options)), key


@contextmanager
def _unreadable(path: str) -> Iterator[None]:
    """Turn an error of the store into FileUnreadable."""
    try:
        yield
    except StorageError as error:
        raise FileUnreadable(path=path, detail=str(error.fields["detail"])) from error
    except OSError as error:
        raise FileUnreadable(path=path, detail=str(error)) from error


def read_range(path: str, start: int, stop: int) -> bytes:
    """The bytes `start` to `stop` of a file; fewer at its end."""
    if stop <= start:
        return b""
    if not is_remote(path):
        with _unreadable(path), open(path, "rb") as file:
            file.seek(start)
            return file.read(stop - start)
    store, key = _store_of(path)
    with _unreadable(path):
        return store.get_range(key, start, stop)


def open_input(path: str) -> Any:
    """The file as Arrow reads files: with `read`, `seek` and a size."""
    import pyarrow as pa

    if not is_remote(path):
        with _unreadable(path):
            return pa.memory_map(path)
    return pa.PythonFile(io.BufferedReader(_Remote(path), REMOTE_BUFFER_BYTES), mode="r")


class _Remote(io.RawIOBase):
    """An object of a store as a seekable file."""

    def __init__(self, path: str) -> None:
        store, key = _store_of(path)
        with _unreadable(path):
            self._size = store.head(key).size
        self._path = path
        self._offset = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._offset

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self._size}[whence]
        self._offset = max(0, base + offset)
        return self._offset

    def readinto(self, buffer: Any) -> int:
        stop = min(self._offset + len(buffer), self._size)
        chunk = read_range(self._path, self._offset, stop)
        buffer[: len(chunk)] = chunk
        self._offset += len(chunk)
        return len(chunk)


def read_beginning(path: str, size_bytes: int, compression: str | None) -> bytes:
    """The first bytes of a file, unpacked; fewer if it has no more."""
    import pyarrow as pa

    if compression is None:
        return read_range(path, 0, size_bytes)
    parts: list[bytes] = []
    try:
        with open_input(path) as raw, pa.CompressedInputStream(raw, compression) as file:
            while size_bytes > 0 and (part := bytes(file.read(size_bytes))):
                parts.append(part)
                size_bytes -= len(part)
    except OSError as error:
        raise FileUnreadable(path=path, detail=str(error)) from error
    return b"".join(parts)


def total_bytes(files: Sequence[InputFile]) -> int:
    return sum(f.size_bytes for f in files)
