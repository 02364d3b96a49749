"""Errors of the call itself, and of pipeline and policy files."""

from __future__ import annotations

from omnigraph.errors.base import OmnigraphError

# ---- usage -----------------------------------------------------------------------------------------------------------


class UsageError(OmnigraphError):
    condition = "wrong_usage"
    text = "{detail}"
    remedy_text = "See the command's --help for its options and examples."
    exit_code = 2


class ConsentRequired(UsageError):
    condition = "consent_required"
    text = "{verb} destroys data on {target}, which is not a local path, and confirmation needs a terminal."
    remedy_text = "Add --yes if that is what you want."


class UnsupportedStore(UsageError):
    """`missing` is what a store of the right kind lacks: `create_only_put` or `hard_links`."""

    condition = "unsupported_store"
    text = "{uri} can't hold a graph: {detail}"
    remedy_text = "Use a local path, a file:// URI or an s3:// URI."

    @property
    def remedy(self) -> str:
        if not self.fields.get("missing"):
            return super().remedy
        return (
            "Use an object store that honours If-None-Match: * on PUT, as Amazon S3 does, or a file system with hard "
            "links; nothing was written."
        )


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
