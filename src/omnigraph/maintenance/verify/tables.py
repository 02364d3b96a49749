"""Opening lines in tasks, and telling what is broken of them.

A task that finds a table broken returns that as a finding: one broken table must not stop the others. On a remote
store a failure is tried again first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from omnigraph.errors import StorageError
from omnigraph.maintenance.verify.findings import Finding, found
from omnigraph.maintenance.verify.reading import read, reason
from omnigraph.maintenance.verify.scope import Line
from omnigraph.storage.lance import lance_api
from omnigraph.storage.layout import Location

GROUP_ROWS = 250_000
"""How many rows one task scans: memory follows this, not the table."""


def opened(location: Location, line: Line, *, reads_rows: bool = True) -> Any:
    uri = location.join(line.pin.path)
    return lance_api.open_table(location, uri, version=line.pin.version, reads_rows=reads_rows)


def tried(location: Location, work: Callable[[], list[Finding]], told: Callable[[str], Finding]) -> list[Finding]:
    """What `work` finds, or `told(why)` if it can't read what it must read."""
    try:
        return read(location, "checking", work)
    except lance_api.TableMissing:
        return [told("the version is not there")]
    except StorageError as error:
        return [told(reason(error))]


def unreadable(line: Line, why: str, *, count: int = 1) -> Finding:
    text = f"rows of {line.pin.path} at version {line.pin.version} can't be read"
    return tell("unreadable_data", line, text, count=count, examples=[why])


def live_rows(fragment: Mapping[str, Any]) -> int:
    """How many rows a fragment has, as its version records it."""
    deleted = (fragment.get("deletion_file") or {}).get("num_deleted_rows") or 0
    return int(fragment["physical_rows"]) - int(deleted)


def tell(code: str, line: Line, message: str, **more: Any) -> Finding:
    """A finding about one line."""
    at = (line.pin.path, line.pin.version)
    return found(code, message, table=line.type.key, branch=line.branch, version=at, **more)


def grouped(fragments: Sequence[Sequence[int]], *, most_rows: int = GROUP_ROWS) -> Iterator[list[int]]:
    """Ids of neighbouring fragments, (id, rows) each, in groups of about so many rows."""
    group: list[int] = []
    rows = 0
    for fragment, count in fragments:
        if group and rows + count > most_rows:
            yield group
            group, rows = [], 0
        group.append(fragment)
        rows += count
    if group:
        yield group


def finding_json(one: Finding) -> dict[str, Any]:
    return {
        "code": one.code,
        "message": one.message,
        "table": one.table,
        "branch": one.branch,
        "count": one.count,
        "examples": list(one.examples),
        "version": None if one.version is None else list(one.version),
        "cause": one.cause,
    }


def finding_of(body: dict[str, Any]) -> Finding:
    version = body.pop("version")
    return found(**body, version=None if version is None else (version[0], version[1]))
