"""The tasks of optimize by workers that die: each kind of work is done, and then its process is killed, once."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from omnigraph.maintenance.optimize import tasks


def rewrite_fragments(task: dict[str, Any]) -> Any:
    return _die_once("rewrite", task, tasks.rewrite_fragments(task))


def train_centroids(task: dict[str, Any]) -> Any:
    return _die_once("train", task, tasks.train_centroids(task))


def build_segment(task: dict[str, Any]) -> Any:
    return _die_once("build", task, tasks.build_segment(task))


def _die_once(name: str, task: dict[str, Any], done: Any) -> Any:
    mark = Path(task["uri"]).parent / f"died-{name}"
    if not mark.exists():
        mark.write_text("died")
        os.kill(os.getpid(), signal.SIGKILL)
    return done
