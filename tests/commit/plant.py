"""Plant objects under `__recovery`, as crashes, strangers and other machines leave them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import omnigraph

ELSEWHERE = {"boot": "another machine", "namespace": "pid:[1]", "pid": 1, "start": "1"}
"""An owner of whom nobody here can tell whether it lives."""


def folder(path: Path, branch: str = "main") -> Path:
    incarnation = omnigraph.open(path)._manifest.head(branch).incarnation
    found = path / "__recovery" / incarnation
    found.mkdir(parents=True, exist_ok=True)
    return found


def next_epoch(path: Path, branch: str = "main") -> int:
    return int(omnigraph.open(path)._manifest.head(branch).epoch) + 1


def lock(path: Path, body: Any = None, *, branch: str = "main", ahead: int = 0) -> Path:
    """The ticket of the epoch that comes next, held by somebody elsewhere; `body` is bytes, or a value of JSON."""
    if body is None:
        body = {"nonce": "planted", "owner": ELSEWHERE, "tables": [], "kind": "write"}
    found = folder(path, branch) / f"{next_epoch(path, branch) + ahead:012d}.0.json"
    found.write_bytes(body if isinstance(body, bytes) else json.dumps(body).encode())
    return found
