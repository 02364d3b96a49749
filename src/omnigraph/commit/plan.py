"""The plan of one attempt: the commit record to be, and per table the base version and the number of effects.

It is written once, before the effects, and never changed; owner and recovering process publish this same commit. An
object that can't be parsed, because a crash truncated it or another program wrote it, is ignored: then the epoch can't
be rolled forward.
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
    """The planned effects on one table. `unstamped` are the operations of the last effects, if these carry no stamp."""

    pin: Pin
    steps: int
    unstamped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    attempt: int
    tables: Mapping[str, PlannedTable]
    record: Record

    def follows(self, head: Head) -> bool:
        """Whether the plan was made for exactly this head."""
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
