"""How the tests of older graphs look at a graph from outside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.legacy.migrate import require_current
from omnigraph.storage.layout import locate
from omnigraph.storage.manifest.table import Manifest
from tests.storage.old_graphs import (
    read_state,
)

GENERATIONS = (1, 2)
INTENTS = (None, "forward", "back")
ROOT = Path(__file__).parents[2]
ZOE = {"Person": [{"name": "zoe", "age": 1}]}


def manifest_of(uri: str) -> Manifest:
    return Manifest(locate(uri))


def migrate(uri: str) -> None:
    require_current(manifest_of(uri))


def state_of(uri: str) -> dict[str, Any]:
    with og.open(uri) as graph:
        return read_state(graph)


def tree(uri: str) -> dict[str, bytes]:
    root = Path(uri)
    return {str(p.relative_to(root)): p.read_bytes() if p.is_file() else b"/" for p in sorted(root.rglob("*"))}


def loose(uri: str) -> list[str]:
    """Everything under __recovery, except empty folders."""
    return [str(p) for p in Path(uri, "__recovery").rglob("*") if p.is_file()]


def with_person(state: dict[str, Any], name: str, age: int, branch: str = "main") -> dict[str, Any]:
    at = state[branch]
    rows = [*at["rows"]["Person"], {"id": name, "name": name, "age": age}]
    at["rows"]["Person"] = sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))
    at["commits"] += 1
    return state


def recoveries(uri: str, branch: str = "main") -> list[tuple[str, str | None, str]]:
    """(kind, actor, outcome) of every decision of recovery on the branch, oldest first, notes included."""
    manifest = manifest_of(uri)
    head = manifest.head(branch)
    records = manifest.records(head.incarnation, 0, head.epoch)
    return [(r.kind, r.actor, r.recovery["outcome"]) for r in records if r.recovery is not None]
