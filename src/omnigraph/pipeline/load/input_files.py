"""Input files, on a local disk or on S3: found by name, folder or pattern; read by ranges.

A folder or a pattern does not mean files of rejected rows (`*.rejected.jsonl`, `*.rejected.parquet`), unless the
pattern itself ends so: a load that is run again does not read what it put aside. A folder means no file, at any depth,
whose name or folder begins with `.` or `_`.
"""

from __future__ import annotations

import fnmatch
import glob
import io
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit

from omnigraph.errors import FileUnreadable, UsageError
from omnigraph.storage.layout import Location, locate
from omnigraph.storage.objects.control_objects import open_store

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
        """About how much text there is to read."""
        if self.unpacked_bytes is not None:
            return self.unpacked_bytes
        return self.size_bytes if self.compression is None else 4 * self.size_bytes


def is_remote(path: str) -> bool:
    return path.startswith("s3://")


def plain_path(path: str | os.PathLike[str]) -> str:
    """A path as the disk takes it, or the URI of what is not local."""
    text = os.fspath(path)
    return unquote(urlsplit(text).path) if text.startswith("file://") else text


def find_files(path: str | os.PathLike[str]) -> list[InputFile]:
    """The files that a name, a folder or a pattern means, by name; FileUnreadable if there are none."""
    text = plain_path(path)
    if is_remote(text):
        found = _remote_files(text)
    elif "://" in text:
        raise UsageError(detail=f"input is read from local files and from s3://, not from {text}.")
    else:
        found = [InputFile(os.path.abspath(p), _size(p), p) for p in _local_files(text)]
    if not found:
        raise FileUnreadable(path=text, detail=_nothing(text))
    return found


def would_find(path: str | os.PathLike[str], place: str) -> bool:
    """Whether `find_files(path)` means the local file `place`, or would if that were there."""
    text, real = plain_path(path), os.path.realpath(place)
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
    """Whether the pattern means the path, or a folder that it lies in."""
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
    found: list[str] = []
    for one in sorted(glob.glob(path, recursive=True)):
        if os.path.isfile(one) or one.endswith(".lance"):
            found += [one] if not _is_rejected(one) or _is_rejected(path) else []
        elif os.path.isdir(one):
            found += _below(one)
    return found


def _below(folder: str) -> list[str]:
    found: list[str] = []
    for root, folders, names in os.walk(folder):
        tables = [n for n in folders if n.endswith(".lance") and _is_data(n)]
        folders[:] = sorted(n for n in folders if _is_data(n) and n not in tables)
        found += [os.path.join(root, n) for n in tables]
        found += [os.path.join(root, n) for n in sorted(names) if _is_data(n) and not _is_rejected(n)]
    return sorted(found)


def _remote_files(uri: str) -> list[InputFile]:
    import obstore
    from obstore.exceptions import BaseError

    bucket, _, key = uri.removeprefix("s3://").partition("/")
    if not bucket:
        raise UsageError(detail=f"{uri} names no bucket; write s3://bucket/path.")
    fixed = _MAGIC.split(key, maxsplit=1)[0]
    prefix = fixed if fixed == key else fixed.rpartition("/")[0]
    store = _store(f"s3://{bucket}")
    try:
        entries = [e for batch in obstore.list(store, prefix=prefix or None) for e in batch]
        if fixed == key and not entries:
            # A listing takes whole path segments only; the name may be that of a file.
            entries = [e for e in [_head(store, key)] if e is not None]
    except (BaseError, OSError) as error:
        raise FileUnreadable(path=uri, detail=str(error)) from error
    wanted = [
        e
        for e in entries
        if all(map(_is_data, e["path"].removeprefix(prefix).strip("/").split("/")))
        and (fixed == key or fnmatch.fnmatchcase(e["path"], key))
        and (not _is_rejected(e["path"]) or _is_rejected(key))
    ]
    uris = [(f"s3://{bucket}/{e['path']}", e["size"]) for e in sorted(wanted, key=lambda e: e["path"])]
    return [InputFile(uri, size, uri) for uri, size in uris]


def _head(store: Any, key: str) -> Any:
    import obstore

    try:
        return obstore.head(store, key)
    except FileNotFoundError:
        return None


@lru_cache(maxsize=16)
def _store(bucket: str) -> Any:
    # A location needs a prefix; the store is opened one level above it.
    place: Location = locate(f"{bucket}/x")
    return open_store(Location(bucket, False, place.options), "")


def read_range(path: str, start: int, stop: int) -> bytes:
    """The bytes `start` to `stop` of a file; fewer at its end."""
    if stop <= start:
        return b""
    if not is_remote(path):
        try:
            with open(path, "rb") as file:
                file.seek(start)
                return file.read(stop - start)
        except OSError as error:
            raise FileUnreadable(path=path, detail=str(error)) from error
    import obstore
    from obstore.exceptions import BaseError

    bucket, _, key = path.removeprefix("s3://").partition("/")
    try:
        return bytes(obstore.get_range(_store(f"s3://{bucket}"), key, start=start, end=stop))
    except (BaseError, OSError) as error:
        raise FileUnreadable(path=path, detail=str(error)) from error


def open_input(path: str) -> Any:
    """The file as Arrow reads files: with `read`, `seek` and a size."""
    import pyarrow as pa

    if not is_remote(path):
        try:
            return pa.memory_map(path)
        except OSError as error:
            raise FileUnreadable(path=path, detail=str(error)) from error
    return pa.PythonFile(io.BufferedReader(_Remote(path), REMOTE_BUFFER_BYTES), mode="r")


class _Remote(io.RawIOBase):
    """An object of a store as a file that can be read anywhere."""

    def __init__(self, path: str) -> None:
        import obstore
        from obstore.exceptions import BaseError

        bucket, _, key = path.removeprefix("s3://").partition("/")
        try:
            self._size: int = obstore.head(_store(f"s3://{bucket}"), key)["size"]
        except (BaseError, OSError) as error:
            raise FileUnreadable(path=path, detail=str(error)) from error
        self._path = path
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        stop = min(self._at + len(buffer), self._size)
        found = read_range(self._path, self._at, stop)
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)


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
