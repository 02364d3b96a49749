"""Work for the tests of the runners, found by its name on the workers."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from omnigraph.errors import KeyConflict, StorageError


def double(task: dict[str, Any]) -> dict[str, Any]:
    return {"value": task["value"] * 2, "rows_done": 1, "bytes_done": 10}


def conflict(task: dict[str, Any]) -> Any:
    if task["value"] >= 2:
        raise KeyConflict(table_key="node:Person", entity_id=str(task["value"]), count=1)
    return None


def divide(task: dict[str, Any]) -> float:
    return 1 / int(task["value"])


def flaky(task: dict[str, Any]) -> int:
    """Fails twice as a store would, and counts its turns in a file."""
    path = Path(task["path"])
    turn = len(path.read_text()) if path.exists() else 0
    path.write_text("x" * (turn + 1))
    if turn < 2:
        raise StorageError(doing="reading", detail="503")
    return turn


def die_once(task: dict[str, Any]) -> int:
    path = Path(task["path"])
    if not path.exists():
        path.write_text("died")
        os.kill(os.getpid(), signal.SIGKILL)
    return 7


def sleep(task: dict[str, Any]) -> None:
    time.sleep(task["seconds"])
