"""The texts of the steps of `maintain`: one sentence each, and notes that need attention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from omnigraph.config.sizes import short_size_text
from omnigraph.maintenance.cleanup import CleanupResult
from omnigraph.maintenance.optimize import OptimizeResult
from omnigraph.maintenance.recover import RecoverResult
from omnigraph.maintenance.verify import VerifyResult

NOTES_MAX = 20


def recover_text(result: RecoverResult) -> str:
    if not result.settled:
        return "no writer has left anything behind"
    words = {"rolled_forward": "finished for them", "rolled_back": "taken back", "committed": "finished by themselves"}
    counts: dict[str, int] = {}
    for operation in result.settled:
        counts[operation.outcome] = counts.get(operation.outcome, 0) + 1
    text = ", ".join(f"{number:,} {words[outcome]}" for outcome, number in sorted(counts.items()))
    return f"{_many(len(result.settled), 'operation')} of other writers recovered: {text}"


def verify_text(result: VerifyResult) -> str:
    seen = f"{_many(result.checked['files'], 'file')} of {_many(result.checked['tables'], 'table version')}"
    if not result.findings:
        return f"nothing is wrong with {seen}"
    parts = [
        _many(result.count(severity), severity) for severity in ("error", "warning", "info") if result.count(severity)
    ]
    codes = ", ".join(dict.fromkeys(f.code for f in result.findings))
    return f"{', '.join(parts)} in {seen}: {codes}"


def verify_notes(result: VerifyResult) -> Iterator[str]:
    errors = [f for f in result.findings if f.severity == "error"]
    for finding in errors[:NOTES_MAX]:
        where = " ".join(part for part in (finding.table, finding.branch and f"on {finding.branch}") if part)
        yield f"{finding.code} {where}".rstrip() + f": {finding.message} → {finding.remedy}"
    if len(errors) > NOTES_MAX:
        yield f"and {len(errors) - NOTES_MAX:,} errors more"


def optimize_text(result: OptimizeResult) -> str:
    removed = sum(t.fragments_removed for t in result.tables)
    added = sum(t.fragments_added for t in result.tables)
    built = sum(t.indexes_built for t in result.tables)
    parts = [f"{_many(removed, 'fragment')} merged into {added:,}"] if removed else []
    parts += [f"{_many(built, 'index segment')} built"] if built else []
    if not parts:
        return "there was nothing to merge or to build"
    return " and ".join(parts) + (f", commit {result.commit.id}" if result.commit is not None else "")


def optimize_notes(result: OptimizeResult) -> Iterator[str]:
    for t in result.tables:
        if t.error:
            yield f"{t.table_key} failed: {t.error}"
        if t.skipped:
            yield f"{t.table_key} was skipped, {t.why_skipped}"
        if t.left_fragments or t.left_indexes:
            remaining = (
                f"{_many(t.left_fragments, 'fragment')} and {_many(t.left_indexes, 'index work', 'index works')}"
            )
            yield f"{t.table_key}: {remaining} left for a later run"
        yield from (f"{t.table_key}: {p.kind} of {p.property} is pending: {p.reason}" for p in t.pending_indexes)


def cleanup_text(result: CleanupResult) -> str:
    text = f"{_many(result.old_versions_removed, 'old version')} and {short_size_text(result.bytes_removed)}"
    if not result.old_versions_removed and not result.bytes_removed:
        return "there is nothing to remove"
    return f"{text} removed" if result.confirmed else f"{text} could be removed"


def brief_cleanup(body: Mapping[str, Any]) -> dict[str, Any]:
    """A short report: figures per table, without the name of every file."""

    def without(rows: Sequence[Mapping[str, Any]], *names: str) -> list[dict[str, Any]]:
        return [{k: v for k, v in row.items() if k not in names} for row in rows]

    return {
        **body,
        "tables": without(body["tables"], "versions", "files", "kept"),
        "reclaimed_forks": without(body["reclaimed_forks"], "files"),
        "staging": without(body["staging"], "files"),
        "caches": without(body["caches"], "files"),
    }


def _many(number: int, singular: str, plural: str = "") -> str:
    return f"{number:,} {singular if number == 1 else plural or f'{singular}s'}"
