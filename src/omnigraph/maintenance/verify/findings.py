"""Findings of verify: stable codes, each with a severity and a remedy; and the result.

A finding combines everything of one kind about one table, branch or index: `count` is how much there is, `examples`
names the first few. Its remedy is a complete command with the graph's address, table and branch.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Set
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

Severity = Literal["error", "warning", "info"]
EXAMPLES_MAX = 5
_ORDER = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True)
class Code:
    """`means` is for the docs; `remedy` names {uri}, {branch}, {table} and {type} of the finding.

    `special` are other remedies, for causes that the code alone does not determine.
    """

    severity: Severity
    means: str
    remedy: str
    special: Mapping[str, str] = field(default_factory=dict)


_REINDEX = (
    "Run `omnigraph optimize {uri} --tables {table} --branch {branch} --rebuild-indexes`: it builds the table's "
    "indices anew from its rows."
)
_INDEX_FILES = (
    "Run `omnigraph optimize {uri} --tables {table} --branch {branch}`: it finds indices whose files are missing or "
    "cut short, and builds them anew from the rows."
)
_LOST = (
    "Put the file back from a copy of the store; if there is none, `omnigraph commit list {uri} --branch {branch}` "
    "names older states that may be whole, and `omnigraph export {uri} --commit ID` saves them."
)
_REBUILD = "Save the rows with `omnigraph export {uri} --branch {branch}` and load them into a new graph."
_MERGE = "`omnigraph load {uri} --data FILE --mode merge --branch {branch}`"
_APPLY = "`omnigraph schema apply {uri} --schema FILE --branch {branch}`"
_SAVED = "`omnigraph export {uri} --type {type} --branch {branch} --out rows.jsonl`"
_ANEW = "`omnigraph load {uri} --data rows.jsonl --mode overwrite --branch {branch}`"
_CLEANUP = "See what may go with `omnigraph cleanup {uri} --older-than 7d`, and run it again with `--confirm`."
_DAMAGED = (
    "Put the file back from a copy of the store. If there is none: the rows of this file can't be trusted, also where "
    "they can be read; `omnigraph commit list {uri} --branch {branch}` names older states that may not have the file, "
    "and `omnigraph export {uri} --commit ID` saves them. Do not rebuild indices or optimize before: they would take "
    "over the damage."
)
_INDEX_OF_DAMAGED = (
    "First put the damaged data files of {table} back from a copy of the store, or write its rows anew: an index that "
    "is built from damaged rows answers with the damage. Then run `omnigraph verify {uri} --full` again."
)
_MANIFEST_BACK = "Put the files of `__manifest` back from a copy of the store, and run `omnigraph verify {uri}` again."
INDEX = "index"
"""A file of an index, which can be built again from the rows."""
MANIFEST_FILE = "authority"
"""A file of the manifest."""
FOREIGN = "foreign"
"""A file where omnigraph puts none."""
DROPPED = "dropped"
"""An index of a property that the table does not have any more."""


def _deleted(where: str) -> str:
    """The command that removes edges; its names in capitals are for the user to fill in."""
    query = f"query remove() {{{{ delete {{type}} where {where} }}}}"
    return f"`omnigraph mutate {{uri}} -e '{query}' --branch {{branch}}`"


_BY_ID, _BY_ENDS = _deleted('id = "ID"'), _deleted('from = "ID" and to = "ID"')


CODES: Mapping[str, Code] = {
    "manifest_unreadable": Code(
        "error",
        "rows of `__manifest` can't be read: schemas and the history; only what heads hold is checked",
        _MANIFEST_BACK,
    ),
    "commit_lost": Code(
        "error",
        "a table holds versions of an operation that the head of its branch lacks and that no writer is running",
        "Before the next write to {branch}, put the newest version of `__manifest` back from a copy of the store: "
        "`omnigraph commit list {uri} --branch {branch}` shows whether the commit is there again. The next writer "
        "takes the table back to what is published. After a power loss it may be a write that was never acknowledged: "
        "then there is nothing to put back.",
    ),
    "manifest_row_broken": Code("error", "a row of `__manifest` can't be understood", _REBUILD),
    "manifest_duplicate": Code("error", "`__manifest` holds one object twice, with different contents", _REBUILD),
    "record_missing": Code("error", "a commit or a decided epoch has no record", _REBUILD),
    "head_mismatch": Code("error", "a branch's head is not what its records add up to", _REBUILD),
    "schema_missing": Code("error", "an accepted schema that a head or a commit names is not there", _REBUILD),
    "branch_broken": Code("error", "a branch does not hang together with the one that it was made from", _REBUILD),
    "tag_broken": Code(
        "error",
        "a tag names a commit that has no record",
        "Put the files of `__manifest` back from a copy of the store, or remove the tag with "
        "`omnigraph tag delete {uri} NAME`.",
    ),
    "version_missing": Code("error", "a published version of a table is not there", _LOST),
    "version_unreadable": Code("error", "a published version of a table can't be opened", _LOST),
    "missing_file": Code("error", "a file that a published version needs is not there", _LOST, {INDEX: _INDEX_FILES}),
    "wrong_size": Code(
        "error", "a file is shorter or longer than the version that needs it records", _LOST, {INDEX: _INDEX_FILES}
    ),
    "checksum_mismatch": Code(
        "error",
        "a file does not hold the bytes that were written",
        _DAMAGED,
        {INDEX: _REINDEX, MANIFEST_FILE: _MANIFEST_BACK},
    ),
    "unreadable_data": Code("error", "rows can't be read, although their files have the right size", _LOST),
    "wrong_rows": Code(
        "error",
        "a version has more or fewer rows than it records: a file was replaced by another one",
        _LOST,
    ),
    "unreadable_blob": Code("error", "the bytes of a blob are not there", _LOST),
    "graph_moved": Code(
        "error",
        "a fork refers to its data at another address: the graph's folder was moved or copied",
        "Run `omnigraph relocate {uri}` to see what refers to the old address, and with --confirm to rewrite it.",
    ),
    "schema_mismatch": Code(
        "error",
        "a table's columns are not those of the accepted schema",
        "Look at what happened to the table with `omnigraph repair {uri} --branch {branch}`.",
    ),
    "index_unreadable": Code(
        "error",
        "questions that go through an index fail",
        _REINDEX,
        {
            DROPPED: "Run `omnigraph optimize {uri} --tables {table} --branch {branch}`: it drops indices of "
            "properties that were removed."
        },
    ),
    "index_stale": Code("error", "an index finds rows by values that they do not have, or no longer", _REINDEX),
    "index_wrong_answer": Code("error", "an index does not find what a full scan finds", _REINDEX),
    "dead_row_address": Code(
        "error",
        "an index points to rows that no version since has, and there is no record of where they went",
        _REINDEX,
    ),
    "dangling_endpoint": Code(
        "error",
        "an edge starts or ends at a node that is not there",
        f"Add the missing nodes with {_MERGE}, or remove the edges by their ids with {_BY_ID}.",
    ),
    "duplicate_key": Code(
        "error",
        "two rows of a table have the same id",
        f"Save the type's rows with {_SAVED}, leave one line of each id in rows.jsonl, and write them anew with "
        f"{_ANEW}.",
    ),
    "duplicate_value": Code(
        "error",
        "two rows share a value that is declared @unique",
        f"Correct one of the rows with {_MERGE}.",
    ),
    "cardinality": Code(
        "error",
        "a node has fewer or more edges of a type than its @card allows",
        f"Add edges with {_MERGE}, remove some with {_BY_ENDS}, or change the schema with {_APPLY}.",
    ),
    "key_mismatch": Code(
        "error",
        "a row's id is not the one that its key gives",
        f"Save the type's rows with {_SAVED}, take the id out of these rows in rows.jsonl, since the key gives it, and "
        f"write them anew with {_ANEW}.",
    ),
    "null_key": Code(
        "error",
        "a row has no id, or an edge has no start or no end",
        f"Save the type's rows with {_SAVED}, complete these rows in rows.jsonl or take them out, and write them anew "
        f"with {_ANEW}.",
    ),
    "broken_rule": Code(
        "error",
        "a row breaks a rule of the schema: required, enum, @range or @check",
        f"Correct the rows with {_MERGE}, or the rule with {_APPLY}.",
    ),
    "uncovered_drift": Code(
        "error",
        "a table has versions that no operation explains; writers refuse it",
        "Run `omnigraph repair {uri} --branch {branch}` to see what happened and to publish or discard it.",
    ),
    "dead_ticket": Code(
        "warning",
        "an operation of a crashed writer is not recovered",
        "Run `omnigraph maintain {uri}`, or write anything to {branch}: the next writer recovers it.",
    ),
    "index_uncovered": Code(
        "warning",
        "rows that indices do not cover yet: answers are right and slower",
        "Run `omnigraph optimize {uri} --tables {table} --branch {branch}`.",
    ),
    "wrong_count": Code(
        "warning",
        "the counts of rows and fragments that a head notes are not those of the table",
        "Run `omnigraph optimize {uri} --tables {table} --branch {branch} --rebuild-indexes`: a commit of the table "
        "notes them anew.",
    ),
    "unexplained_file": Code(
        "warning",
        "a file that no version refers to, older than work in flight can be; or one where omnigraph puts none",
        _CLEANUP,
        {FOREIGN: "Nothing of omnigraph wrote it, and cleanup leaves it alone: move it out of {uri}."},
    ),
    "symlink": Code(
        "error",
        "a symbolic link lies in the folder of a table; it is never followed, and cleanup refuses the table",
        "Look at where it points. Move what belongs to the table to its place, or remove the link; then run "
        "`omnigraph verify {uri}` again.",
    ),
    "history_unreadable": Code(
        "warning",
        "older versions of a table can't be read: it is not known which of its files are needed",
        _LOST,
    ),
    "orphan_fork": Code(
        "warning",
        "a fork of a table that no branch has, older than work in flight can be",
        _CLEANUP,
    ),
    "collected_meanwhile": Code(
        "info",
        "a version was replaced and removed by others while it was being checked; nothing is wrong with that",
        "Run `omnigraph verify {uri}` again if it is to be checked as well.",
    ),
}


@dataclass(frozen=True)
class Finding:
    """`table` and `branch` are None if the finding is about the graph. `remedy` names the command that repairs it."""

    code: str
    severity: Severity
    message: str
    remedy: str
    table: str | None = None
    branch: str | None = None
    count: int = 1
    examples: tuple[str, ...] = ()
    version: tuple[str, int] | None = None
    """The checked folder and version; not part of the JSON."""
    cause: str | None = None
    """Which of the special remedies of its code it needs; not part of the JSON."""

    def to_json(self) -> dict[str, Any]:
        body = {k: v for k, v in asdict(self).items() if k not in ("version", "cause")}
        return {**body, "table_key": self.table, "examples": list(self.examples)}


def make_finding(
    code: str,
    message: str,
    *,
    table: str | None = None,
    branch: str | None = None,
    count: int = 1,
    examples: Iterable[object] = (),
    version: tuple[str, int] | None = None,
    cause: str | None = None,
) -> Finding:
    """A finding as a task makes it, without a remedy: that names the graph's address, which only the driver knows."""
    return Finding(
        code=code,
        severity=CODES[code].severity,
        message=message,
        remedy="",
        table=table,
        branch=branch,
        count=count,
        examples=tuple(str(e)[:200] for _, e in zip(range(EXAMPLES_MAX), examples, strict=False)),
        version=version,
        cause=cause,
    )


_DATA_DAMAGE = frozenset(
    ("checksum_mismatch", "missing_file", "wrong_size", "unreadable_data", "wrong_rows", "version_unreadable")
)


def _is_data_damage(finding: Finding) -> bool:
    return finding.code in _DATA_DAMAGE and finding.cause is None


def remedied(finding: Finding, uri: str, *, damaged: Set[str | None] = frozenset()) -> Finding:
    """The finding with its remedy, for the graph at this address. `damaged` are tables with damaged data."""
    about = CODES[finding.code]
    text = about.remedy if finding.cause is None else about.special[finding.cause]
    if finding.table in damaged and text in (_REINDEX, _INDEX_FILES):
        text = _INDEX_OF_DAMAGED
    remedy = text.format(
        uri=shlex.quote(uri),
        branch=shlex.quote(finding.branch or "main"),
        table=shlex.quote(finding.table or ""),
        type=shlex.quote((finding.table or "").partition(":")[2]),
    )
    return replace(finding, remedy=remedy)


def gathered(findings: Iterable[Finding], *, uri: str) -> tuple[Finding, ...]:
    """Equal findings about the same subject combined, with counts added up and remedies; errors first."""
    groups: dict[tuple[Any, ...], Finding] = {}
    for finding in findings:
        key = (finding.code, finding.table, finding.branch, finding.message, finding.cause)
        previous = groups.get(key)
        if previous is not None:
            examples = tuple(dict.fromkeys((*previous.examples, *finding.examples)))[:EXAMPLES_MAX]
            finding = replace(previous, count=previous.count + finding.count, examples=examples)
        groups[key] = finding
    damaged = {finding.table for finding in groups.values() if _is_data_damage(finding)}
    remedied_findings = [remedied(finding, uri, damaged=damaged) for finding in groups.values()]
    return tuple(
        sorted(remedied_findings, key=lambda f: (_ORDER[f.severity], f.code, f.table or "", f.branch or "", f.message))
    )


@dataclass(frozen=True)
class VerifyResult:
    """`checked` counts what was checked. `ok`: no finding is an error."""

    checked: Mapping[str, int]
    findings: tuple[Finding, ...]
    engine: str
    seconds: float

    @property
    def ok(self) -> bool:
        return not any(f.severity == "error" for f in self.findings)

    def count(self, severity: Severity) -> int:
        """The number of findings of a severity."""
        return sum(f.severity == severity for f in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "checked": dict(self.checked),
            "findings": [f.to_json() for f in self.findings],
            "engine": self.engine,
            "seconds": round(self.seconds, 3),
        }
