"""What verify finds: stable codes, each with a severity and the way to mend it; the whole as one result.

A finding gathers everything of one kind in one place (a table, a branch, an index): `count` says how much there is,
`examples` names the first few.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

Severity = Literal["error", "warning", "info"]
EXAMPLES_MOST = 5
_ORDER = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True)
class Code:
    """`means` is for the docs; `remedy` may name {branch}, {type} and {property} of the finding."""

    severity: Severity
    means: str
    remedy: str


_OPTIMIZE = "Run `omnigraph optimize --branch {branch}`: it builds the index anew from the rows."
_LOST = (
    "Put the file back from a copy of the store; if there is none, `omnigraph commit list` names older states that may "
    "be whole, and `omnigraph export --commit ID` saves them."
)
_REBUILD = "Save the rows with `omnigraph export --branch {branch}` and load them into a new graph."

CODES: Mapping[str, Code] = {
    "manifest_row_broken": Code("error", "a row of `__manifest` can't be understood", _REBUILD),
    "manifest_duplicate": Code("error", "`__manifest` holds one object twice, with different contents", _REBUILD),
    "record_missing": Code("error", "a commit or a decided epoch has no record", _REBUILD),
    "head_mismatch": Code("error", "a branch's head is not what its records add up to", _REBUILD),
    "schema_missing": Code("error", "an accepted schema that a head or a commit names is not there", _REBUILD),
    "branch_broken": Code("error", "a branch does not hang together with the one that it was made from", _REBUILD),
    "version_missing": Code("error", "a published version of a table is not there", _LOST),
    "version_unreadable": Code("error", "a published version of a table can't be opened", _LOST),
    "missing_file": Code("error", "a file that a published version needs is not there", _LOST),
    "wrong_size": Code("error", "a file is shorter or longer than the version that needs it says", _LOST),
    "unreadable_data": Code("error", "rows can't be read, although their files have the right size", _LOST),
    "unreadable_blob": Code("error", "the bytes of a blob are not there", _LOST),
    "graph_moved": Code(
        "error",
        "a fork refers to its data at another address: the graph's folder was moved or copied",
        "Move the folder back to where it was; then `omnigraph export` and load it where you want it.",
    ),
    "schema_mismatch": Code(
        "error",
        "a table's columns are not those of the accepted schema",
        "Look at what happened to the table with `omnigraph repair --branch {branch}`.",
    ),
    "index_unreadable": Code("error", "questions that go through an index fail", _OPTIMIZE),
    "index_stale": Code("error", "an index finds rows by values that they do not have, or no longer", _OPTIMIZE),
    "index_wrong_answer": Code("error", "an index does not find what a full scan finds", _OPTIMIZE),
    "dead_row_address": Code(
        "error",
        "an index points to rows that no version since has, and nothing says where they went",
        "Run `omnigraph optimize --drain --branch {branch}`: it builds the indices anew from the rows.",
    ),
    "dangling_endpoint": Code(
        "error",
        "an edge starts or ends at a node that is not there",
        "Add the missing nodes, or remove the edges, with `omnigraph load --mode merge --branch {branch}` or from "
        "Python with `graph.delete`.",
    ),
    "duplicate_key": Code(
        "error",
        "two rows of a table have the same id",
        "Write the type's rows anew, each once: `omnigraph export --type {type} --branch {branch}`, then "
        "`omnigraph load --mode overwrite --branch {branch}`.",
    ),
    "duplicate_value": Code(
        "error",
        "two rows share a value that is declared @unique",
        "Correct one of the rows with `omnigraph load --mode merge --branch {branch}`.",
    ),
    "cardinality": Code(
        "error",
        "a node has fewer or more edges of a type than its @card allows",
        "Add or remove edges with `omnigraph load --mode merge --branch {branch}`, or change the schema with "
        "`omnigraph schema apply`.",
    ),
    "key_mismatch": Code(
        "error",
        "a row's id is not the one that its key gives",
        "Write the rows anew: `omnigraph export --type {type} --branch {branch}`, then "
        "`omnigraph load --mode overwrite --branch {branch}`.",
    ),
    "broken_rule": Code(
        "error",
        "a row breaks a rule of the schema: required, enum, @range or @check",
        "Correct the rows with `omnigraph load --mode merge --branch {branch}`, or the rule with "
        "`omnigraph schema apply`.",
    ),
    "uncovered_drift": Code(
        "error",
        "a table moved without the door; writers refuse it",
        "Run `omnigraph repair --branch {branch}` to see what happened and to publish or discard it.",
    ),
    "dead_ticket": Code(
        "warning",
        "an operation of a writer that died is not settled",
        "Run `omnigraph maintain`, or write anything to {branch}: whoever comes next settles it.",
    ),
    "index_uncovered": Code(
        "warning",
        "rows that an index does not cover yet: answers are right and slower",
        "Run `omnigraph optimize --branch {branch}`.",
    ),
    "wrong_count": Code(
        "warning",
        "the counts of rows and fragments that a head notes are not those of the table",
        "Run `omnigraph optimize --branch {branch}`: a commit of the table notes them anew.",
    ),
    "unexplained_file": Code(
        "warning",
        "a file that no version refers to, older than work in flight can be",
        "Run `omnigraph cleanup --older-than 7d`.",
    ),
    "orphan_fork": Code(
        "warning",
        "a fork of a table that no branch has, older than work in flight can be",
        "Run `omnigraph cleanup --older-than 7d`.",
    ),
    "collected_meanwhile": Code(
        "info",
        "a version was replaced and removed by others while it was being checked; nothing is wrong with that",
        "Run `omnigraph verify` again if it is to be checked as well.",
    ),
}


@dataclass(frozen=True)
class Finding:
    """`table` and `branch` are None where the finding is about the graph. `remedy` names the command that mends it."""

    code: str
    severity: Severity
    message: str
    remedy: str
    table: str | None = None
    branch: str | None = None
    count: int = 1
    examples: tuple[str, ...] = ()
    version: tuple[str, int] | None = None
    """The folder and version that was looked at; not part of the JSON."""

    def to_json(self) -> dict[str, Any]:
        body = {k: v for k, v in asdict(self).items() if k != "version"}
        return {**body, "examples": list(self.examples)}


def found(
    code: str,
    message: str,
    *,
    table: str | None = None,
    branch: str | None = None,
    count: int = 1,
    examples: Iterable[object] = (),
    version: tuple[str, int] | None = None,
) -> Finding:
    known = CODES[code]
    type_name = "" if table is None else table.partition(":")[2]
    return Finding(
        code=code,
        severity=known.severity,
        message=message,
        remedy=known.remedy.format(branch=branch or "main", type=type_name),
        table=table,
        branch=branch,
        count=count,
        examples=tuple(str(e)[:200] for _, e in zip(range(EXAMPLES_MOST), examples, strict=False)),
        version=version,
    )


def gathered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings that say the same of the same place as one, with counts added up; errors first."""
    groups: dict[tuple[Any, ...], Finding] = {}
    for one in findings:
        key = (one.code, one.table, one.branch, one.message)
        known = groups.get(key)
        if known is not None:
            examples = tuple(dict.fromkeys((*known.examples, *one.examples)))[:EXAMPLES_MOST]
            one = replace(known, count=known.count + one.count, examples=examples)
        groups[key] = one
    return tuple(
        sorted(groups.values(), key=lambda f: (_ORDER[f.severity], f.code, f.table or "", f.branch or "", f.message))
    )


@dataclass(frozen=True)
class VerifyResult:
    """`checked` counts what was looked at. `ok`: no finding is an error."""

    checked: Mapping[str, int]
    findings: tuple[Finding, ...]
    engine: str
    seconds: float

    @property
    def ok(self) -> bool:
        return not any(f.severity == "error" for f in self.findings)

    def count(self, severity: Severity) -> int:
        return sum(f.severity == severity for f in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "checked": dict(self.checked),
            "findings": [f.to_json() for f in self.findings],
            "engine": self.engine,
            "seconds": round(self.seconds, 3),
        }
