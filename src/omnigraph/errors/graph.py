"""Errors of a graph: conflicts of writers, recovery, format, look-ups, clusters."""

from __future__ import annotations

from omnigraph.errors.base import OmnigraphError

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
        """A plan for an older state has to be made again; to repeat it never helps."""
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
    text = "operation {operation_id} of a crashed writer on {branch} is not recovered: {detail}"
    remedy_text = (
        "Any write to {branch} recovers it, and so does `omnigraph maintain`. If this persists, look at {path}."
    )


class UncoveredDrift(RecoveryError):
    condition = "uncovered_drift"
    text = (
        "{table_key} on {branch} is at version {lance_head_version}, ahead of the published version "
        "{manifest_version}, and no operation of omnigraph explains it."
    )
    remedy_text = (
        "Run `omnigraph repair --branch {branch}` to see what happened and to publish or discard it; nothing was "
        "written."
    )


class BranchPinUnreadable(RecoveryError):
    condition = "branch_pin_unreadable"
    text = "the branch {branch!r} pins version {version} of {table_key}, which can't be opened: {detail}"
    remedy_text = (
        "Run `omnigraph verify` to see what is damaged, then bring the files back from a copy, or publish a newer "
        "version of the table with `omnigraph repair --force` if there is one, or delete the branch if it is not main; "
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
    text = "the graph has format {found}; this omnigraph supports up to {known}. Nothing was touched."
    remedy_text = "Upgrade omnigraph first."


class NotAGraph(FormatError):
    condition = "not_a_graph"
    text = "{uri} is not a graph: {detail}"
    remedy_text = "Check the address, or create a graph with `omnigraph init`."


class GraphMoved(FormatError):
    condition = "graph_moved"
    text = (
        "the graph at {uri} was moved or copied there from {recorded_root}: forks of {table} still refer to their data "
        "at the old address. Nothing was touched."
    )
    remedy_text = (
        "Run `omnigraph relocate {uri} --confirm` to rewrite the addresses; the graph is then independent of "
        "{recorded_root}. If that is this very folder under another path (a mount, a container), use the graph by that "
        "path everywhere."
    )


class HostileOrDamagedManifest(FormatError):
    condition = "hostile_or_damaged_manifest"
    text = "stored metadata of the graph can't be used: {where}: {detail}."
    remedy_text = (
        "Nothing outside of the graph was read, written or removed. Do not use this graph if you do not trust who "
        "wrote it; otherwise its storage is damaged: put the files back from a copy of the store."
    )


class ManifestMissing(FormatError):
    """`tables` names up to 20 of the folders of tables that are there, relative to `uri`."""

    condition = "manifest_missing"
    text = "the manifest of the graph at {uri} is lost: {detail} there, and no record of the published versions exists."
    remedy_text = (
        "Bring the folder __manifest back from a copy of the store; nothing was changed. If you do not need that "
        "graph, use another address, or remove what is there first."
    )


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


class CloneUnfinished(LookupFailed):
    condition = "clone_unfinished"
    text = "{uri} holds a clone of {source} that is not finished, and is no graph yet{detail}."
    remedy_text = (
        "Run `omnigraph clone {source} {uri}` again with the same options: it continues where it was stopped. Or "
        "remove {uri}."
    )


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
    text = "the branch {branch!r} can't be {action}: {detail}"
    remedy_text = "Delete the branches that were made from it first."

    @property
    def remedy(self) -> str:
        if self.fields.get("branch") != "main" or self.fields.get("action") != "deleted":
            return super().remedy
        return (
            "Every graph has a main branch. If you want another state there, load it with --mode overwrite, or go back "
            "to a commit with `omnigraph branch reset`."
        )


class CommitNotOnMain(LookupFailed):
    condition = "commit_not_on_main"
    text = "main can't be reset to commit {commit}: its tables lie on forks of the branch {branch!r}."
    remedy_text = "Reset main to a commit of its own history, or bring the branch's changes to main."


class InvalidBranchName(LookupFailed):
    condition = "invalid_branch_name"
    text = "{branch!r} is not a branch name: {detail}"
    remedy_text = "Use letters, digits, '.', '_', '-' and '/' between parts, for example review/anna."
    exit_code = 2


class TagNotFound(LookupFailed):
    condition = "tag_not_found"
    text = "there is no tag named {tag!r}."
    remedy_text = "Run `omnigraph tag list {uri}` for the tags that exist."


class TagExists(LookupFailed):
    condition = "tag_exists"
    text = "there is already a tag named {tag!r}, of commit {commit}."
    remedy_text = "Choose another name, or delete that tag first with `omnigraph tag delete`. A tag never moves."


class InvalidTagName(LookupFailed):
    condition = "invalid_tag_name"
    text = "{tag!r} is not a tag name: {detail}"
    remedy_text = "Use letters, digits, '.', '_', '-' and '/' between parts, for example release/2026-01."
    exit_code = 2


class CommitNotFound(LookupFailed):
    condition = "commit_not_found"
    text = "there is no commit {commit!r}."
    remedy_text = "Run `omnigraph commit list` for the commits that exist."


class RevisionNotFound(CommitNotFound):
    condition = "revision_not_found"
    text = "{commit!r} is no commit id, no branch, no tag and no time{hint}."
    remedy_text = (
        "Name a commit by its id (`omnigraph commit list`), a branch (`omnigraph branch list`), a tag (`omnigraph tag "
        "list`), or a time as 2026-01-31 or 2026-01-31T12:00:00."
    )


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
