"""Files that a command reads and writes beside the graph; `-` is stdin."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from omnigraph.errors import FileUnreadable, FileUnwritable
from omnigraph.storage.objects.atomic_file import placed

STDIN = "-"
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}


def read_text(name: str) -> str:
    """A whole text file."""
    shown = "stdin" if name == STDIN else name
    try:
        if name == STDIN:
            content = sys.stdin.buffer.read()
        else:
            with open(name, "rb") as file:
                content = file.read()
        return content.decode("utf-8-sig")
    except OSError as error:
        raise FileUnreadable(path=shown, detail=f"{_reason(error)}.") from error
    except UnicodeDecodeError as error:
        raise FileUnreadable(path=shown, detail=f"it is not UTF-8 text (byte {error.start}).") from error


def read_json(name: str) -> dict[str, Any]:
    """A file that holds one JSON object."""
    try:
        body = parse_json(read_text(name))
    except ValueError as error:
        raise FileUnreadable(path=name, detail=f"it is no JSON ({error}).") from error
    if not isinstance(body, dict):
        raise FileUnreadable(path=name, detail="it holds no JSON object.")
    return body


def parse_json(text: str) -> Any:
    """What a user wrote as JSON; ValueError if it is none, or nested deeper than anybody means."""
    import json

    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


@contextmanager
def written(path: str) -> Iterator[IO[bytes]]:
    """A new file that appears under its name when it is complete and on disk; until then the old one stays."""
    compression = _COMPRESSIONS.get(os.path.splitext(path)[1].lower())
    try:
        with placed(path) as raw:
            if compression is None:
                yield raw
            else:
                packed = _packed(raw, compression)
                yield packed
                packed.close()
    except OSError as error:
        raise FileUnwritable(path=path, detail=f"{_reason(error)}.") from error


def _packed(raw: IO[bytes], compression: str) -> Any:
    import pyarrow as pa

    return pa.CompressedOutputStream(pa.PythonFile(raw, mode="w"), compression)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).rstrip(".").lower()
