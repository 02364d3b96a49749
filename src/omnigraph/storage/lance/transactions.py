"""The history of one table from its Lance transactions: the operation and the stamp of each version.

A version that was collected with its transaction, or truncated by a power loss, is a step without an operation, so that
callers see the gaps of a history. A failing store is not a gap: it raises StorageError.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omnigraph.errors import StorageError
from omnigraph.storage.files import truncated_versions
from omnigraph.storage.lance import lance_api

if TYPE_CHECKING:
    from lance import LanceDataset

RESERVE = "ReserveFragments"
UNKNOWN = "Unknown"
_BARE = "BaseOperation"
"""The class that Lance's Python API shows for every operation without a class of its own. The only such operation in a
compaction is the reservation of fragment ids."""


@dataclass(frozen=True)
class Step:
    """The origin of one version. `operation` is None if it is unknown; then `error` has the reason."""

    version: int
    operation: str | None
    stamp: str | None = None
    error: str | None = None
    body: Any = None
    """Lance's own operation, with its fragments."""


def steps_above(table: LanceDataset, version: int) -> Iterator[Step]:
    """Every version of the table above `version`, oldest first, up to the one that `table` is at."""
    for number in range(version + 1, int(table.version) + 1):
        yield step_at(table, number)


def step_at(table: LanceDataset, version: int) -> Step:
    """StorageError if the store fails, or what it holds can't be understood."""
    try:
        with lance_api.reading(f"reading the history of {table.uri}"):
            found = table.read_transaction(version)
            if found is None:
                return Step(version, None, error=f"version {version} has no transaction")
            name = type(found.operation).__name__
            if name == _BARE:
                name = RESERVE if _is_reservation(table, version) else UNKNOWN
    except (StorageError, ValueError) as error:
        if lance_api.is_missing(error):
            return Step(version, None, error=f"version {version} is gone, and its transaction with it")
        if truncated_versions.is_truncated(table.uri, version):
            return Step(version, None, error=f"version {version} is cut short")
        if isinstance(error, StorageError):
            raise
        raise StorageError(doing=f"reading the history of {table.uri}", detail=str(error)) from error
    return Step(version, name, stamp=(found.transaction_properties or {}).get(lance_api.STAMP), body=found.operation)


def _is_reservation(table: LanceDataset, version: int) -> bool:
    """A reservation leaves the schema and every fragment as they were; other nameless operations need not."""
    before, after = (table.checkout_version(v) for v in (version - 1, version))
    return before.schema == after.schema and fragments_json(before) == fragments_json(after)


def fragments_json(table: LanceDataset) -> list[dict[str, Any]]:
    return [fragment.metadata.to_json() for fragment in table.get_fragments()]
