"""Open lines in tasks, and make findings about them.

A task that finds a table broken returns that as a finding: one broken table must not stop the others. On a remote
store a failed read is retried first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from omnigraph.errors import StorageError
from omnigraph.maintenance.verify.findings import Finding, make_finding
from omnigraph.maintenance.verify.reading import read, reason
from omnigraph.maintenance.verify.scope import Line
from omnigraph.storage.lance import lance_api
from omnigraph.storage.layout import Location

GROUP_ROWS = 250_000
"""How many rows one task scans: memory depends on this, not on the table."""


def opened(location: Location, line: Line, *, reads_rows: bool = True) -> Any:
    uri = location.join(line.pin.path)
    return lance_api.open_table(location, uri, version=line.pin.version, reads_rows=reads_rows)


def tried(location: Location, work: Callable[[], list[Finding]], as_finding: Callable[[str], Finding]) -> list[Finding]:
    """The findings of `work`, or `as_finding(reason)` if it can't read what it needs."""
    try:
        return read(location, "checking", work)
    except lance_api.TableMissing:
        return [as_finding("the version is not there")]
    except StorageError as error:
        return [as_finding(reason(error))]


def unreadable(line: Line, why: str, *, count: int = 1) -> Finding:
    text = f"rows of {line.pin.path} at version {line.pin.version} can't be read"
    return line_finding("unreadable_data", line, text, count=count, examples=[why])


def live_rows(fragment: Mapping[str, Any]) -> int:
    """How many rows a fragment has, as its version records it."""
    deleted = (fragment.get("deletion_file") or {}).get("num_deleted_rows") or 0
    return int(fragment["physical_rows"]) - int(deleted)


def line_finding(code: str, line: Line, message: str, **more: Any) -> Finding:
    """A finding about one line."""
    version_id = (line.pin.path, line.pin.version)
    return make_finding(code, message, table=line.type.key, branch=line.branch, version=version_id, **more)


def grouped(fragments: Sequence[Sequence[int]], *, rows_max: int = GROUP_ROWS) -> Iterator[list[int]]:
    """Ids of neighbouring fragments, (id, rows) each, in groups of about `rows_max` rows."""
    group: list[int] = []
    rows = 0
    for fragment, count in fragments:
        if group and rows + count > rows_max:
            yield group
            group, rows = [], 0
        group.append(fragment)
        rows += count
    if group:
        yield group


def finding_json(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "message": finding.message,
        "table": finding.table,
        "branch": finding.branch,
        "count": finding.count,
        "examples": list(finding.examples),
        "version": None if finding.version is None else list(finding.version),
        "cause": finding.cause,
    }


def finding_of(body: dict[str, Any]) -> Finding:
    version = body.pop("version")
    return make_finding(**body, version=None if version is None else (version[0], version[1]))
