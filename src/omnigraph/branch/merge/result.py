"""What a merge answers: the outcome, the commit, counts per table, conflicts as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omnigraph.branch.merge.model import Conflict, MergeOutcome, MergePlan, TableMerge
from omnigraph.commit.request import Outcome
from omnigraph.graph.results import CommitInfo


@dataclass(frozen=True)
class MergeResult:
    """`commit` is None if nothing was committed. `base` is the merge base; `bases` are several after criss-cross
    merges. `branch_deleted` is set if the source branch was to be deleted afterwards.
    """

    source: str
    target: str
    outcome: MergeOutcome
    bases: tuple[str, ...]
    commit: CommitInfo | None
    tables: tuple[TableMerge, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    schema_steps: tuple[str, ...] = ()
    branch_deleted: bool | None = None
    repeated: bool = False

    @property
    def base(self) -> str | None:
        return self.bases[0] if self.bases else None

    @staticmethod
    def of_plan(plan: MergePlan, *, source: str, target: str, commit: CommitInfo | None = None) -> MergeResult:
        return MergeResult(
            source, target, plan.outcome, plan.bases, commit, plan.tables, plan.conflicts, plan.schema_steps
        )

    @staticmethod
    def of(outcome: Outcome, *, source: str, target: str) -> MergeResult:
        commit = None if outcome.record is None else CommitInfo.of(outcome.record)
        if isinstance(outcome.result, MergePlan):
            return MergeResult.of_plan(outcome.result, source=source, target=target, commit=commit)
        # The operation id was used before: the commit's record has what it did.
        summary = outcome.result or {}
        keys = {key for part in ("inserted", "updated", "deleted") for key in summary.get(part, {})}
        tables = tuple(
            TableMerge(key, *(summary.get(part, {}).get(key, 0) for part in ("inserted", "updated", "deleted")))
            for key in sorted(keys)
        )
        bases = tuple(summary.get("bases", ()))
        return MergeResult(source, target, summary.get("outcome", "merged"), bases, commit, tables, repeated=True)

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "source": self.source,
            "target": self.target,
            "outcome": self.outcome,
            "base": self.base,
            "bases": list(self.bases),
            "commit": None if self.commit is None else self.commit.to_json(),
            "tables": [table.to_json() for table in self.tables],
            "schema_steps": list(self.schema_steps),
            "conflicts": [conflict.to_json() for conflict in self.conflicts],
            "conflict_count": len(self.conflicts),
            "repeated": self.repeated,
        }
        return body if self.branch_deleted is None else {**body, "branch_deleted": self.branch_deleted}
