"""Files that a command reads and writes beside the graph.

The inputs of a load are one stream of bytes to the graph: files in the order given, names with * ? [ expanded and
sorted, `-` for stdin, .gz and .zst unpacked by their ending. All of them are looked at before the first is read, so
that a mistyped name costs nothing. `Inputs.located` turns a line of the stream back into a file and a line in it.
"""

from __future__ import annotations

import glob
import os
import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

from omnigraph.errors import FileUnreadable, FileUnwritable, UsageError

STDIN = "-"
CHUNK_BYTES = 1 << 20
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}


def expand(names: Sequence[str]) -> list[str]:
    """The files that are meant. A name that exists is itself, even with a * in it."""
    found: list[str] = []
    for name in names:
        if name == STDIN:
            found.append(name)
        elif "://" in name and not name.startswith("file://"):
            raise UsageError(detail=f"input is read from local files and stdin in this version, not from {name}.")
        else:
            found.extend(_expanded(name.removeprefix("file://")))
    if found.count(STDIN) > 1:
        raise UsageError(detail="stdin (-) can be read once only.")
    return found


def _expanded(name: str) -> list[str]:
    if os.path.isdir(name):
        raise FileUnreadable(path=name, detail=f"it is a folder; its files are named by {name.rstrip('/')}/*.")
    if os.path.exists(name):
        if not os.access(name, os.R_OK):
            raise FileUnreadable(path=name, detail="permission denied.")
        return [name]
    if not glob.has_magic(name):
        raise FileUnreadable(path=name, detail="there is no such file.")
    matches = sorted(path for path in glob.glob(name, recursive=True) if not os.path.isdir(path))
    if not matches:
        raise FileUnreadable(path=name, detail="no file matches this pattern.")
    return matches


class Inputs:
    """The files as one stream. Iterating gives chunks; a file without a final line feed gets one."""

    def __init__(self, files: Sequence[str]) -> None:
        self.files = tuple(files)
        self.read_bytes = 0
        self.total_bytes = None if STDIN in files else sum(os.path.getsize(f) for f in files)
        self._first_lines: list[int] = []

    def __iter__(self) -> Iterator[bytes]:
        line = 1
        for name in self.files:
            self._first_lines.append(line)
            last = b"\n"
            for chunk in self._chunks(name):
                yield chunk
                line += chunk.count(b"\n")
                last = chunk[-1:]
            if last != b"\n":
                yield b"\n"
                line += 1

    def _chunks(self, name: str) -> Iterator[bytes]:
        before = self.read_bytes
        with _reading(name), _opened(name) as raw:
            unpacked = _unpacked(raw, name)
            while chunk := bytes(unpacked.read(CHUNK_BYTES)):
                self.read_bytes = before + raw.tell() if raw.seekable() else self.read_bytes + len(chunk)
                yield chunk

    def located(self, line: int) -> tuple[str, int]:
        """The file that a line of the stream is from, and its number in that file."""
        at = bisect_right(self._first_lines, line) - 1
        return self.files[at], line - self._first_lines[at] + 1


def read_text(name: str) -> str:
    """A whole text file, or stdin for `-`."""
    shown = "stdin" if name == STDIN else name
    with _reading(shown), _opened(name) as raw:
        content = raw.read()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileUnreadable(path=shown, detail=f"it is not UTF-8 text (byte {error.start}).") from error


@contextmanager
def written(path: str) -> Iterator[IO[bytes]]:
    """A new file that appears under its name when it is complete and on disk; until then the old one stays."""
    partial = f"{path}.{os.getpid()}.part"
    compression = _COMPRESSIONS.get(os.path.splitext(path)[1])
    try:
        with open(partial, "wb") as raw:
            packed: Any = raw
            if compression is not None:
                import pyarrow as pa

                packed = pa.CompressedOutputStream(pa.PythonFile(raw, mode="w"), compression)
            yield packed
            if packed is not raw:
                packed.close()
            if not raw.closed:
                raw.flush()
                os.fsync(raw.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise FileUnwritable(path=path, detail=f"{reason_of(error)}.") from error
    finally:
        if os.path.exists(partial):
            os.unlink(partial)


def reason_of(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).rstrip(".").lower()


@contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    if name == STDIN:
        yield sys.stdin.buffer
        return
    with open(name, "rb") as raw:
        yield raw


def _unpacked(raw: IO[bytes], name: str) -> Any:
    compression = _COMPRESSIONS.get(os.path.splitext(name)[1].lower())
    if compression is None:
        return raw
    import pyarrow as pa

    return pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), compression)


@contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileUnreadable(path=name, detail=f"{reason_of(error)}.") from error
