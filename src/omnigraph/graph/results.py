"""What calls return: frozen values that print, compare and turn into the JSON that the command line shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from omnigraph.commit.request import Outcome
from omnigraph.storage.manifest.records import Head, Record
from omnigraph.storage.manifest.tags import Tag

if TYPE_CHECKING:
    from omnigraph.language.schema.plan.planner import SchemaPlan


@dataclass(frozen=True)
class CommitInfo:
    """One graph commit. `manifest_version` is the version of the manifest that it was published on."""

    id: str
    branch: str
    parent: str | None
    merged_parent: str | None
    actor: str | None
    kind: str
    created_at: datetime
    schema: str
    manifest_version: int
    operation_id: str | None = None
    tables: Mapping[str, int | None] = field(default_factory=dict)
    """Tables that it moved, by table id: the new version, None if the table's lifetime ended."""
    summary: Mapping[str, Any] | None = None
    recovery: Mapping[str, Any] | None = None

    @staticmethod
    def of(record: Record) -> CommitInfo:
        assert record.commit is not None
        return CommitInfo(
            id=record.commit,
            branch=record.branch,
            parent=record.parent,
            merged_parent=record.merged_parent,
            actor=record.actor,
            kind=record.kind,
            created_at=record.created_at,
            schema=record.schema,
            manifest_version=record.based_on,
            operation_id=record.operation_id,
            tables={t: None if p is None else p.version for t, p in record.delta.items()},
            summary=record.summary,
            recovery=record.recovery,
        )

    @property
    def parents(self) -> list[str]:
        """The commit before it and, of a merge, the one that was merged."""
        return [commit for commit in (self.parent, self.merged_parent) if commit is not None]

    def to_json(self) -> dict[str, Any]:
        created_at = self.created_at.isoformat(timespec="microseconds")
        return {**asdict(self), "created_at": created_at, "parents": self.parents}


@dataclass(frozen=True)
class BranchInfo:
    name: str
    commit: str
    parent_branch: str | None

    @staticmethod
    def of(head: Head) -> BranchInfo:
        return BranchInfo(head.branch, head.commit, None if head.made_from is None else head.made_from[0])

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class TagInfo:
    """A name for a commit. Cleanup keeps everything that the commit pins."""

    name: str
    commit: str
    created_at: datetime
    actor: str | None = None
    message: str | None = None

    @staticmethod
    def of(tag: Tag) -> TagInfo:
        return TagInfo(tag.name, tag.commit, tag.created_at, tag.actor, tag.message)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "created_at": self.created_at.isoformat(timespec="microseconds")}


def _commit_json(commit: CommitInfo | None) -> dict[str, Any] | None:
    return None if commit is None else commit.to_json()


def _commit_of(outcome: Outcome) -> CommitInfo | None:
    return None if outcome.record is None else CommitInfo.of(outcome.record)


@dataclass(frozen=True)
class ResetResult:
    """`previous` is the commit that the branch was at, `target` the one that it was reset to. `commit` records the
    reset; None if the branch was there already.
    """

    branch: str
    previous: str
    target: str
    commit: CommitInfo | None

    @staticmethod
    def of(branch: str, head: str, outcome: Outcome) -> ResetResult:
        summary = (outcome.record.summary if outcome.record is not None else None) or {}
        return ResetResult(branch, summary.get("from", head), summary.get("to", head), _commit_of(outcome))

    def to_json(self) -> dict[str, Any]:
        body = {"branch": self.branch, "previous": self.previous, "target": self.target}
        return {**body, "commit": _commit_json(self.commit)}


@dataclass(frozen=True)
class WriteResult:
    """`commit` is None if nothing changed. `ids` are those of inserted and upserted rows, in the order given."""

    commit: CommitInfo | None
    inserted: Mapping[str, int]
    updated: Mapping[str, int]
    deleted: Mapping[str, int]
    ids: Mapping[str, list[str]] = field(default_factory=dict)
    repeated: bool = False

    @staticmethod
    def of(outcome: Outcome) -> WriteResult:
        counts = (outcome.record.summary if outcome.record is not None else None) or {}
        result = outcome.result or {}
        return WriteResult(
            commit=_commit_of(outcome),
            inserted=counts.get("inserted", {}),
            updated=counts.get("updated", {}),
            deleted=counts.get("deleted", {}),
            ids=result.get("ids") or counts.get("ids", {}),
            repeated=outcome.repeated,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "commit": _commit_json(self.commit),
            "inserted": dict(self.inserted),
            "updated": dict(self.updated),
            "deleted": dict(self.deleted),
            "ids": {k: list(v) for k, v in self.ids.items()},
            "repeated": self.repeated,
        }


@dataclass(frozen=True)
class LoadResult:
    branch: str
    mode: str
    commit: CommitInfo | None
    inserted: Mapping[str, int]
    updated: Mapping[str, int]
    deleted: Mapping[str, int]
    lines: int
    rejected: int
    rejected_by_rule: Mapping[str, int]
    quarantine: str | None
    repeated: bool = False
    engine: str = "local"
    emptied: Mapping[str, int] = field(default_factory=dict)
    """Types that an overwrite left without any row, and how many they had: their rows were all rejected, or none."""

    @staticmethod
    def of(outcome: Outcome, *, mode: str, counts: Mapping[str, Any], **rest: Any) -> LoadResult:
        parts = {name: counts.get(name, {}) for name in ("inserted", "updated", "deleted")}
        gone = parts["deleted"] if mode == "overwrite" else {}
        emptied = {key: count for key, count in gone.items() if key not in parts["inserted"]}
        told: dict[str, Any] = {"mode": mode, "emptied": emptied, **parts, **rest}
        return LoadResult(commit=_commit_of(outcome), repeated=outcome.repeated, **told)

    def to_json(self) -> dict[str, Any]:
        body = {k: dict(v) if isinstance(v, Mapping) else v for k, v in self.__dict__.items()}
        return {**body, "commit": _commit_json(self.commit)}


@dataclass(frozen=True)
class ExportResult:
    """`out` is the folder; None if the records went to the caller. `files` counts its data files."""

    branch: str
    commit: str
    rows: Mapping[str, int]
    format: str = "jsonl"
    out: str | None = None
    files: int = 0
    engine: str = "local"
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "rows": dict(self.rows)}


@dataclass(frozen=True)
class EmbedResult:
    """`commits` is empty if there was nothing to do. Counts are of vectors, by table key.

    `embedded` were made, `cleared` taken away because their text is gone. `skipped` counts rows that got none: their
    vector was `given`, they are `without_text`, or they were `changed_meanwhile` by others and are for the next run.
    """

    branch: str
    commits: tuple[CommitInfo, ...]
    embedded: Mapping[str, int]
    cleared: Mapping[str, int]
    skipped: Mapping[str, int]
    models: Mapping[str, str]
    """The model of each vector property, as node:Post.vector."""
    provider: str
    seconds: float

    def __str__(self) -> str:
        if not self.commits:
            return f"nothing to embed on {self.branch}"
        return f"embedded {sum(self.embedded.values()):,} vectors on {self.branch} by {self.provider}"

    def to_json(self) -> dict[str, Any]:
        body = {k: dict(v) if isinstance(v, Mapping) else v for k, v in self.__dict__.items()}
        return {**body, "commits": [c.to_json() for c in self.commits]}


@dataclass(frozen=True)
class LeftForCleanup:
    """A table of which versions with dropped data are still there. `because` are reasons as in `kept` of a cleanup
    (branch:, base:, merge_base:, tag:, lance_tag:, lease:), or what failed.
    """

    table_key: str
    because: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {"table_key": self.table_key, "because": list(self.because)}


@dataclass(frozen=True)
class SchemaResult:
    """`applied` is False if the schema was already what it should be.

    `held_by` are the branches that still hold what was dropped with its history, by its name. `left_for_cleanup` are
    tables of which old versions could not be removed yet, and why.
    """

    applied: bool
    plan: SchemaPlan
    commit: CommitInfo | None
    held_by: Mapping[str, Sequence[str]] = field(default_factory=dict)
    left_for_cleanup: Sequence[LeftForCleanup] = ()

    @staticmethod
    def of(outcome: Outcome, plan: SchemaPlan) -> SchemaResult:
        return SchemaResult(outcome.record is not None, plan, _commit_of(outcome))

    def to_json(self) -> dict[str, Any]:
        return {
            "applied": self.applied,
            "commit": _commit_json(self.commit),
            "plan": self.plan.to_json(),
            "held_by": {name: list(branches) for name, branches in self.held_by.items()},
            "left_for_cleanup": [one.to_json() for one in self.left_for_cleanup],
        }
