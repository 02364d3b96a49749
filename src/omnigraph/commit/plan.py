"""The plan of one attempt: the commit to be, and per table where its steps begin and how many there are.

Written once, before the effects, and never changed; owner and recoverer publish this same commit. What can't be read as
a plan, because a crash cut it short or a stranger wrote it, is no plan: then there is nothing to roll forward.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph.commit.operation import TableWork
from omnigraph.language import identifiers as form
from omnigraph.storage.manifest.records import Head, Pin, Record


@dataclass(frozen=True)
class PlannedTable:
    """`unstamped` are the operations of the last of the steps, if these bear no stamp."""

    pin: Pin
    steps: int
    unstamped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    attempt: int
    tables: Mapping[str, PlannedTable]
    record: Record

    def follows(self, head: Head) -> bool:
        """Whether it was made for exactly this head."""
        record = self.record
        same_branch = (record.branch, record.incarnation) == (head.branch, head.incarnation)
        return same_branch and record.parent == head.commit and record.epoch == head.epoch + 1

    def to_json(self) -> dict[str, Any]:
        tables = {
            t: {"pin": p.pin.to_json(), "steps": p.steps, "unstamped": list(p.unstamped)}
            for t, p in self.tables.items()
        }
        return {"attempt": self.attempt, "tables": tables, "record": self.record.to_json()}

    @staticmethod
    def of(attempt: int, tables: Mapping[str, TableWork], record: Record) -> Plan:
        planned = {t: PlannedTable(work.pin, work.step_count, work.unstamped) for t, work in tables.items()}
        return Plan(attempt, planned, record)

    @staticmethod
    def read(body: Mapping[str, Any]) -> Plan | None:
        try:
            tables = {
                t: PlannedTable(Pin.from_json(t, p["pin"]), form.count(p["steps"]), _operations(p))
                for t, p in form.mapping(body["tables"]).items()
            }
            return Plan(form.count(body["attempt"]), tables, Record.from_json(body["record"]))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            return None


def _operations(body: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(form.word(name) for name in body.get("unstamped", ()))
