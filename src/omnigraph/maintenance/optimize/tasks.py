"""The tasks of optimize, as they run on workers: rewrite fragments, train centroids, build segments.

A failure is a value: `{"failed": …, "reason": …}`, the latter without places, with `by_store` if files could not be
read or written, with `gone` if the version does not exist any more. A failure of one table or one index must not stop
the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from omnigraph.config.backoff import store_backoff
from omnigraph.errors import OmnigraphError, StorageError
from omnigraph.index import build
from omnigraph.storage.lance import lance_api
from omnigraph.storage.lance.rewrites import rewrite
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin
from omnigraph.tasks.staging import Staging

if TYPE_CHECKING:
    from lance import LanceDataset

TRIES_MAX = 3
_STORE = re.compile(r"LanceError\(IO\)|not found:|no such file|os error|object at location|input/output", re.IGNORECASE)
"""Lance's messages for a file that can't be read, in contrast to rows that it can't build an index from."""


def table_json(location: Location, pin: Pin, version: int) -> dict[str, Any]:
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
    table = lance_api.open_table(location, location.join(pin.path), version=version or task["version"])
    return location, pin, table


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
    result = rewrite.rewrite_deferred(location, pin, table, task["fragments"])
    return {"result": result, "rows_done": task["rows"], "bytes_done": task["read_bytes"]}


def train_centroids(task: Mapping[str, Any]) -> dict[str, Any]:
    return _valued(_train_centroids, task)


def _train_centroids(task: Mapping[str, Any]) -> dict[str, Any]:
    _, _, table = _opened(task)
    metric = (task.get("made_with") or {}).get("metric", build.METRIC)
    centroids = build.train(table, task["column"], vectors=task["vectors"], metric=metric)
    name = Staging.of(task["staging"]).put("centroids", np.ascontiguousarray(centroids).data.cast("B"))
    return {"name": name, "dimension": centroids.shape[1]}


def build_segment(task: Mapping[str, Any]) -> dict[str, Any]:
    return _valued(_build_segment, task)


def _build_segment(task: Mapping[str, Any]) -> dict[str, Any]:
    location, pin, table = _opened(task)
    segment = build.build_segment(
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
    return {"segment": segment, "rows_done": task["rows"]}


def _centroids(task: Mapping[str, Any]) -> np.ndarray | None:
    stored = task.get("centroids")
    if stored is None:
        return None
    if "of" in stored:
        _, _, published = _opened(task, stored["version"])
        return build.centroids_of(published, stored["of"])
    raw = Staging.of(stored["staging"]).get(stored["name"])
    return np.frombuffer(raw, dtype=np.float32).reshape(-1, stored["dimension"])


def _valued(work: Callable[[Mapping[str, Any]], dict[str, Any]], task: Mapping[str, Any]) -> dict[str, Any]:
    pause = store_backoff()
    for attempt in range(1, TRIES_MAX + 1):
        try:
            return work(task)
        except StorageError as error:
            if attempt == TRIES_MAX:
                detail, by_store = str(error.fields.get("detail")), bool(_STORE.search(str(error)))
                return {"failed": str(error), "reason": f"Lance can't build it: {detail}", "by_store": by_store}
            pause()
        except lance_api.TableMissing:
            reason = "the version that it was planned on has been removed"
            return {"failed": reason, "reason": reason, "gone": True}
        except OmnigraphError as error:
            return {"failed": str(error), "reason": str(error)}
        except Exception as error:  # noqa: BLE001 any failure is recorded in the row of its table
            detail = f"{type(error).__name__}: {error}" if not isinstance(error, ValueError) else str(error)
            return {"failed": detail, "reason": detail}
    raise AssertionError("unreachable")
