"""The tasks of optimize, as they run on workers: rewrite fragments, train centroids, build segments.

A failure is a value: `{"failed": …, "reason": …}`, the latter without places, with `by_store` if files could not be
read or written, with `gone` if the version is not there any more. One table, or one index, that can't be worked on must
not stop the others.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from omnigraph.errors import OmnigraphError, StorageError
from omnigraph.index import build
from omnigraph.storage.lance import lance_api, rewrite
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin
from omnigraph.tasks.staging import Staging

if TYPE_CHECKING:
    from lance import LanceDataset

TRIES_MAX = 3
_STORE = re.compile(r"LanceError\(IO\)|not found:|no such file|os error|object at location|input/output", re.IGNORECASE)
"""What Lance says when a file can't be had, in contrast to rows that it can't build an index from."""


def place(location: Location, pin: Pin, version: int) -> dict[str, Any]:
    """What a task needs to open one version of a table, also a detached one."""
    return {
        "uri": location.uri,
        "local": location.is_local,
        "options": dict(location.options),
        "table": pin.table,
        "pin": pin.to_json(),
        "version": version,
    }


def _opened(task: Mapping[str, Any], version: int | None = None) -> tuple[Location, Pin, LanceDataset]:
    location = Location(task["uri"], task["local"], task["options"])
    pin = Pin.from_json(task["table"], task["pin"])
    found = lance_api.open_table(location, location.join(pin.path), version=version or task["version"])
    return location, pin, found


def rewrite_fragments(task: Mapping[str, Any]) -> dict[str, Any]:
    return _valued(_rewrite_fragments, task)


def _rewrite_fragments(task: Mapping[str, Any]) -> dict[str, Any]:
    location, pin, table = _opened(task)
    group = rewrite.rewrite(location, pin, table, task["fragments"], new_id=task["new_id"])
    return {"old": group.old, "new": group.new, "rows_done": task["rows"], "bytes_done": task["read_bytes"]}


def rewrite_deferred(task: Mapping[str, Any]) -> dict[str, Any]:
    return _valued(_rewrite_deferred, task)


def _rewrite_deferred(task: Mapping[str, Any]) -> dict[str, Any]:
    location, pin, table = _opened(task)
    made = rewrite.rewrite_deferred(location, pin, table, task["fragments"])
    return {"result": made, "rows_done": task["rows"], "bytes_done": task["read_bytes"]}


def train_centroids(task: Mapping[str, Any]) -> dict[str, Any]:
    return _valued(_train_centroids, task)


def _train_centroids(task: Mapping[str, Any]) -> dict[str, Any]:
    _, _, table = _opened(task)
    metric = (task.get("made_with") or {}).get("metric", build.METRIC)
    found = build.train(table, task["column"], vectors=task["vectors"], metric=metric)
    name = Staging.of(task["staging"]).put("centroids", np.ascontiguousarray(found).data.cast("B"))
    return {"name": name, "dimension": found.shape[1]}


def build_segment(task: Mapping[str, Any]) -> dict[str, Any]:
    return _valued(_build_segment, task)


def _build_segment(task: Mapping[str, Any]) -> dict[str, Any]:
    location, pin, table = _opened(task)
    made = build.build_segment(
        location,
        pin,
        table,
        column=task["column"],
        kind=task["kind"],
        name=task["name"],
        fragments=task["fragments"],
        centroids=_centroids(task),
        partitions=task.get("partitions"),
        made_with=task.get("made_with"),
    )
    return {"segment": made, "rows_done": task["rows"]}


def _centroids(task: Mapping[str, Any]) -> np.ndarray | None:
    given = task.get("centroids")
    if given is None:
        return None
    if "of" in given:
        _, _, published = _opened(task, given["version"])
        return build.centroids_of(published, given["of"])
    raw = Staging.of(given["staging"]).get(given["name"])
    return np.frombuffer(raw, dtype=np.float32).reshape(-1, given["dimension"])


def _valued(work: Callable[[Mapping[str, Any]], dict[str, Any]], task: Mapping[str, Any]) -> dict[str, Any]:
    for turn in range(1, TRIES_MAX + 1):
        try:
            return work(task)
        except StorageError as error:
            if turn == TRIES_MAX:
                told, by_store = str(error.fields.get("detail")), bool(_STORE.search(str(error)))
                return {"failed": str(error), "reason": f"Lance can't build it: {told}", "by_store": by_store}
            time.sleep(0.2 * turn)
        except lance_api.TableMissing:
            gone = "the version that it was planned on has been removed"
            return {"failed": gone, "reason": gone, "gone": True}
        except OmnigraphError as error:
            return {"failed": str(error), "reason": str(error)}
        except Exception as error:  # noqa: BLE001 whatever it is, it is told in the row of its table
            told = f"{type(error).__name__}: {error}" if not isinstance(error, ValueError) else str(error)
            return {"failed": told, "reason": told}
    raise AssertionError("unreachable")
