"""Errors of merges."""

from __future__ import annotations

from typing import Any

from omnigraph.errors.graph import ConflictError


class MergeConflicts(ConflictError):
    """`plan` holds all conflicts; the fields hold the first 20."""

    condition = "merge_conflicts"
    text = "{source} can't be merged into {branch}: {count} conflicts, the first is {first}. Nothing was changed."
    remedy_text = (
        "Write the conflicts to a file with `omnigraph branch merge … --conflicts FILE`, fill in `resolution`, and "
        "merge again with --resolve FILE; or decide all of them with --strategy ours or --strategy theirs."
    )
    plan: Any = None


class ResolutionStale(ConflictError):
    condition = "resolution_stale"
    text = "{table_key} {entity_id!r} has changed since its conflict was resolved. Nothing was changed."
    remedy_text = "Merge again without resolutions to get the conflicts as they are now, and resolve them anew."
