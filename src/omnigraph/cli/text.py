"""Results as lines and tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from omnigraph.cli.output import Table, count

if TYPE_CHECKING:
    from omnigraph.graph.results import BranchInfo, CommitInfo, LoadResult, SchemaResult
    from omnigraph.graph.snapshot import TableInfo
    from omnigraph.language.schema.plan.planner import SchemaPlan

Lines = list[str | Table]


def plan_text(plan: SchemaPlan) -> Lines:
    if not plan.changed:
        return ["the graph has this schema already; there is nothing to do"]
    lines: Lines = [f"  {step}" for step in plan.steps]
    for found in plan.findings:
        lines.append(f"{found.severity} {found.code} {found.entity}: {found.message}\n  → {found.suggestion}")
    if plan.supported:
        return [f"{count(len(plan.steps), 'step', 'steps')}:", *lines]
    return ["this schema can't be applied:", *lines]


def dropped_text(result: SchemaResult) -> Lines:
    """What became of dropped data and its history, after a drop that was to remove them."""
    lines: Lines = []
    for name, branches in result.held_by.items():
        where = f"{'branch' if len(branches) == 1 else 'branches'} {', '.join(branches)}"
        lines.append(f"{name} is not removed: the {where} still holds it, and it stays readable there and by --commit")
    held = {name.partition(".")[0] for name in result.held_by}
    for table in result.left_for_cleanup:
        if table.table_key not in held:
            because = "; ".join(table.because)
            lines.append(f"old versions of {table.table_key} are still there ({because}): cleanup removes them later")
    hard = [step.to_json() for step in result.plan.steps if step.kind.startswith("drop_")]
    if sum(step["mode"] == "hard" for step in hard) > len(result.held_by):
        lines.append("commits from before this change can't be read any more where they hold what was dropped")
    return lines


def load_text(result: LoadResult) -> Lines:
    keys = sorted({*result.inserted, *result.updated, *result.deleted}, key=lambda k: (not k.startswith("node:"), k))
    rows = [[k, *(f"{c.get(k, 0):,}" for c in (result.inserted, result.updated, result.deleted))] for k in keys]
    columns = ("type", "inserted", "updated", "deleted")
    lines: Lines = []
    if result.commit is None:
        lines.append(f"nothing changed on {result.branch}; no commit was made")
    else:
        loaded = sum(result.inserted.values()) + sum(result.updated.values())
        lines.append(f"loaded {count(loaded, 'row', 'rows')} into {result.branch}, commit {result.commit.id}")
    if rows:
        lines.append(Table(columns, rows, frozenset(columns[1:])))
    for key, gone in result.emptied.items():
        removed = f"its {count(gone, 'row was', 'rows were')} removed"
        lines.append(f"warning: {key} is empty now: {removed}, and no row of the input was accepted in their place")
    if result.rejected:
        rules = sorted(result.rejected_by_rule.items(), key=lambda item: (-item[1], item[0]))
        told = ", ".join(f"{rule} {number:,}" for rule, number in rules)
        lines.append(f"{count(result.rejected, 'row was', 'rows were')} rejected ({told}), see {result.quarantine}")
    return lines


def tables_text(tables: Sequence[TableInfo]) -> Table:
    columns = ("table", "version", "rows", "fragments", "path")
    rows = [[t.table_key, str(t.version), f"{t.rows:,}", f"{t.fragments:,}", t.path] for t in tables]
    return Table(columns, rows, frozenset(columns[1:4]), names=True)


def branches_text(branches: Sequence[BranchInfo]) -> Table:
    return Table(("branch", "commit", "made from"), [[b.name, b.commit, b.parent_branch or ""] for b in branches])


def commits_text(commits: Sequence[CommitInfo]) -> Table:
    rows = [[c.id, f"{c.created_at:%Y-%m-%d %H:%M:%S}Z", c.kind, c.branch, c.actor or ""] for c in commits]
    return Table(("commit", "created", "kind", "branch", "actor"), rows)


def commit_text(commit: CommitInfo) -> Lines:
    """One field per line; what is not set is left out."""
    lines: Lines = []
    for name, value in commit.to_json().items():
        label = name.replace("_", " ")
        if isinstance(value, dict) and value:
            lines.append(f"{label}:")
            lines.extend(f"  {k}: {_plain(v)}" for k, v in value.items())
        elif name != "parents" and value not in (None, {}, ""):
            lines.append(f"{label}: {value}")
    return lines


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_plain(v)}" for k, v in value.items()) or "none"
    return "gone" if value is None else str(value)
