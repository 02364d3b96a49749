"""Plan and result as one JSON document: what a preview shows, what `--plan --json` saves, what `--apply` reads.

`confirmed` says whether it happened: with false the figures are what would be removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson

from omnigraph.errors import FileUnreadable, PlanUnusable, UsageError
from omnigraph.language import identifiers as form
from omnigraph.maintenance.cleanup.orphans import Staged
from omnigraph.maintenance.cleanup.plan import (
    CleanupPlan,
    Kept,
    RemovableFile,
    RemovableFork,
    RemovableVersion,
    TablePlan,
)
from omnigraph.maintenance.cleanup.policy import policy_from_json
from omnigraph.storage.objects.store import StoredFile

SHAPE = 1
"""Counts changes of the shape of the document."""


@dataclass(frozen=True)
class Refused:
    """Something that a saved plan names and that is kept, and why."""

    table_key: str
    what: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {"table_key": self.table_key, "what": self.what, "reason": self.reason}


@dataclass(frozen=True)
class TableResult:
    """One table. Figures count what was removed, or would be; `versions` and `files` name it."""

    table_key: str
    path: str
    bytes_removed: int
    old_versions_removed: int
    files_removed: int
    error: str | None = None
    whole: str | None = None
    versions: tuple[RemovableVersion, ...] = ()
    files: tuple[RemovableFile, ...] = ()
    kept: tuple[Kept, ...] = ()

    @staticmethod
    def of(plan: TablePlan) -> TableResult:
        return TableResult(
            table_key=plan.table_key,
            path=plan.path,
            bytes_removed=plan.size,
            old_versions_removed=len(plan.versions),
            files_removed=len(plan.versions) + len(plan.files),
            error=plan.error,
            whole=plan.whole,
            versions=plan.versions,
            files=plan.files,
            kept=plan.kept,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "table_key": self.table_key,
            "path": self.path,
            "bytes_removed": self.bytes_removed,
            "old_versions_removed": self.old_versions_removed,
            "files_removed": self.files_removed,
            "error": self.error,
            "whole": self.whole,
            "versions": [_version_json(v) for v in self.versions],
            "files": [_file_json(f) for f in self.files],
            "kept": [{"line": k.line, "version": k.version, "because": list(k.because)} for k in self.kept],
        }


@dataclass(frozen=True)
class ForkResult:
    fork: RemovableFork
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        fork = self.fork
        return {
            "table_key": fork.table_key,
            "fork": fork.fork,
            "path": fork.path,
            "reason": fork.reason,
            "bytes": fork.size,
            "error": self.error,
            "files": [_file_json(f) for f in fork.files],
        }


@dataclass(frozen=True)
class StagedResult:
    """A folder of staged files, or of arrays that queries keep."""

    staged: Staged
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        staged = self.staged
        files = [{"path": f.path, "bytes": f.size} for f in staged.files]
        return {"path": staged.path, "reason": staged.reason, "bytes": staged.size, "error": self.error, "files": files}


@dataclass(frozen=True)
class CleanupResult:
    plan: CleanupPlan
    confirmed: bool
    tables: tuple[TableResult, ...]
    reclaimed_forks: tuple[ForkResult, ...] = ()
    staging: tuple[StagedResult, ...] = ()
    caches: tuple[StagedResult, ...] = ()
    refused: tuple[Refused, ...] = ()
    seconds: float = field(default=0.0, compare=False)

    @property
    def bytes_removed(self) -> int:
        parts = [t.bytes_removed for t in self.tables]
        parts += [f.fork.size for f in self.reclaimed_forks if f.error is None]
        parts += [s.staged.size for s in (*self.staging, *self.caches) if s.error is None]
        return sum(parts)

    @property
    def old_versions_removed(self) -> int:
        return sum(t.old_versions_removed for t in self.tables)

    @property
    def failed(self) -> bool:
        """Whether cleanup failed for any table, fork or other folder."""
        errors = [*(t.error for t in self.tables), *(f.error for f in self.reclaimed_forks)]
        return any((*errors, *(s.error for s in (*self.staging, *self.caches))))

    @property
    def ok(self) -> bool:
        """Whether nothing failed; what a plan names and is kept is no failure."""
        return not self.failed

    def table(self, key: str) -> TableResult:
        """The result of one table, by its table key."""
        return next(t for t in self.tables if t.table_key == key)

    def to_json(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "omnigraph_cleanup": SHAPE,
            "graph": plan.graph,
            "ok": self.ok,
            "made_at": datetime.fromtimestamp(plan.made_at_s, UTC).isoformat(timespec="milliseconds"),
            "policy": plan.policy.to_json(),
            "confirmed": self.confirmed,
            "tables": [t.to_json() for t in self.tables],
            "reclaimed_forks": [f.to_json() for f in self.reclaimed_forks],
            "staging": [s.to_json() for s in self.staging],
            "caches": [s.to_json() for s in self.caches],
            "refused": [r.to_json() for r in self.refused],
            "leases": list(plan.leases),
            "warnings": list(plan.warnings),
            "bytes_removed": self.bytes_removed,
            "old_versions_removed": self.old_versions_removed,
            "seconds": round(self.seconds, 3),
        }


def preview_of(plan: CleanupPlan, *, seconds: float, refused: Sequence[Refused] = ()) -> CleanupResult:
    return CleanupResult(
        plan=plan,
        confirmed=False,
        tables=tuple(TableResult.of(t) for t in plan.tables),
        reclaimed_forks=tuple(ForkResult(f) for t in plan.tables for f in t.forks),
        staging=tuple(StagedResult(s) for s in plan.staging),
        caches=tuple(StagedResult(s) for s in plan.caches),
        refused=tuple(refused),
        seconds=seconds,
    )


def _version_json(version: RemovableVersion) -> dict[str, Any]:
    return {
        "line": version.line,
        "branch": version.branch,
        "version": version.version,
        "path": version.path,
        "bytes": version.size,
        "reason": version.reason,
    }


def _file_json(file: RemovableFile) -> dict[str, Any]:
    body = {"path": file.path, "bytes": file.size, "kind": file.kind, "reason": file.reason}
    return body if file.last_version is None else {**body, "last_version": file.last_version}


# ---- reading a saved plan --------------------------------------------------------------------------------------------


def read_plan(path: str) -> dict[str, Any]:
    """The document in a file that `--plan --json` made."""
    try:
        with open(path, "rb") as file:
            body = orjson.loads(file.read())
    except OSError as error:
        raise FileUnreadable(path=path, detail=str(error)) from error
    except orjson.JSONDecodeError as error:
        raise PlanUnusable(path=path, detail=f"it is no JSON ({error}).") from error
    if not isinstance(body, dict):
        raise PlanUnusable(path=path, detail="it is not a plan of a cleanup.")
    return body


def plan_from_json(body: Mapping[str, Any], *, graph: str, path: str = "the plan") -> CleanupPlan:
    if body.get("omnigraph_cleanup") != SHAPE:
        raise PlanUnusable(path=path, detail="it is not a plan of a cleanup that this version understands.")
    if body.get("confirmed"):
        raise PlanUnusable(path=path, detail="it is the report of a cleanup that was done, not a plan.")
    if body.get("graph") != graph:
        raise PlanUnusable(path=path, detail=f"it was made for {body.get('graph')}, not for {graph}.")
    try:
        forks: dict[str, list[RemovableFork]] = {}
        for entry in form.sequence(body["reclaimed_forks"]):
            key, fork, path, reason = (form.text(entry[name]) for name in ("table_key", "fork", "path", "reason"))
            removable_fork = RemovableFork(key, fork, path, reason, _files(entry["files"]))
            forks.setdefault(removable_fork.path.rpartition("/tree/")[0], []).append(removable_fork)
        return CleanupPlan(
            graph=graph,
            policy=policy_from_json(body["policy"]),
            made_at_s=datetime.fromisoformat(body["made_at"]).timestamp(),
            tables=tuple(
                _table(entry, forks.get(form.text(entry["path"]), [])) for entry in form.sequence(body["tables"])
            ),
            staging=_staged(body["staging"]),
            caches=_staged(body.get("caches") or ()),
            warnings=tuple(map(form.text, form.sequence(body.get("warnings") or ()))),
            leases=tuple(map(form.text, form.sequence(body.get("leases") or ()))),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, UsageError) as error:
        raise PlanUnusable(path=path, detail=f"it is damaged ({error!r}).") from error


def _table(body: Mapping[str, Any], forks: Sequence[RemovableFork]) -> TablePlan:
    versions = tuple(
        RemovableVersion(
            line=form.text(v["line"]),
            version=form.version(v["version"]),
            path=form.text(v["path"]),
            size=form.count(v["bytes"]),
            reason=form.text(v["reason"]),
            branch=form.optional(form.text, v.get("branch")),
        )
        for v in form.sequence(body["versions"])
    )
    return TablePlan(
        table_key=form.text(body["table_key"]),
        path=form.text(body["path"]),
        versions=versions,
        files=_files(body["files"]),
        forks=tuple(forks),
        whole=form.optional(form.text, body.get("whole")),
    )


def _staged(bodies: Any) -> tuple[Staged, ...]:
    def files(listed: Any) -> tuple[StoredFile, ...]:
        return tuple(StoredFile(form.text(f["path"]), form.count(f["bytes"]), 0.0) for f in form.sequence(listed))

    return tuple(Staged(form.text(s["path"]), files(s["files"]), form.text(s["reason"])) for s in form.sequence(bodies))


def _files(bodies: Any) -> tuple[RemovableFile, ...]:
    return tuple(
        RemovableFile(
            path=form.text(f["path"]),
            size=form.count(f["bytes"]),
            kind=form.text(f["kind"]),
            reason=form.text(f["reason"]),
            last_version=form.optional(form.count, f.get("last_version")),
        )
        for f in form.sequence(bodies)
    )
