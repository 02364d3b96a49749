"""What is in flight: tables for which a writer may have written files that no version refers to yet.

* an undecided advisory lock names the tables that its operation may write; an unreadable one counts for all tables
* a lease of long work (`Lease.prepares`) names the tables whose files it writes before it has a lock

Orphan files, forks and table folders of these are kept, whatever their age. The order decides: a cleanup
announces its files and swaps `refs` before it reads this, a writer creates its advisory lock before it reads `refs` and
the announcements (`commit/operation.py`). So one of the two sees the other, whatever any clock says. Locks are listed
before heads are read, and references after both: an operation that was decided in between has its versions in place
by then.
"""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.commit.committer import Committer
from omnigraph.maintenance.cleanup.orphans import table_of
from omnigraph.maintenance.cleanup.retained_versions import RetainedVersions, table_folder_of
from omnigraph.maintenance.recover import undecided


@dataclass(frozen=True)
class InFlight:
    """`tables` are type ids. `is_unknown`: an operation does not say which tables it writes."""

    tables: frozenset[str] = frozenset()
    is_unknown: bool = False

    @property
    def is_any(self) -> bool:
        return self.is_unknown or bool(self.tables)

    def writes(self, table: str) -> bool:
        return self.is_unknown or table in self.tables


def read_in_flight(committer: Committer, retained: RetainedVersions) -> InFlight:
    """What is in flight now. `retained` has the leases that count; it was read before, after the announcement."""
    leased = {line for lease in retained.leases if lease.prepares for line in lease.pins}
    tables = {table_of(table_folder_of(line)) for line in leased}
    locks = [lock for _, lock, _ in undecided(committer)]
    return InFlight(
        tables=frozenset(tables).union(*(lock.tables for lock in locks)),
        is_unknown=any(not lock.tables for lock in locks),
    )
