"""The plan of one attempt: the commit to be, and per table where its steps begin and how many there are.

Written once, before the effects, and never changed; owner and recoverer publish this same commit. What can't be read as
a plan, because a crash cut it short or a stranger wrote it, is no plan: then there is nothing to roll forward.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph.commit.stage import TableWork
from omnigraph.storage.records import Head, Pin, Record


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
        return self.record.parent == head.commit and self.record.epoch == head.epoch + 1

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
                t: PlannedTable(_pin(t, p["pin"]), int(p["steps"]), tuple(p.get("unstamped", ())))
                for t, p in body["tables"].items()
            }
            return Plan(int(body["attempt"]), tables, Record.from_json(body["record"]))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            return None


def _pin(table: str, body: Any) -> Pin:
    pin = Pin.from_json(table, body)
    if not isinstance(pin.incarnation, str) or not isinstance(pin.version, int) or not table:
        raise ValueError(table)
    return pin
