"""Errors of the change feed."""

from __future__ import annotations

from omnigraph.errors.graph import LookupFailed
from omnigraph.errors.usage import UsageError


class InvalidCursor(UsageError):
    condition = "invalid_cursor"
    text = "{cursor!r} is neither a cursor of a change feed nor a commit of this graph."
    remedy_text = (
        "Give a cursor exactly as the feed printed it, or a commit id; --from-start begins at the first commit."
    )


class FeedBranchReplaced(LookupFailed):
    condition = "feed_branch_replaced"
    text = (
        "commit {commit} is not in the history of {branch} as it is now: the branch was deleted and created again, or "
        "the cursor is of another branch."
    )
    remedy_text = "Read a new baseline with `omnigraph changes baseline --branch {branch}`, and go on from its cursor."


class FeedCollected(LookupFailed):
    condition = "feed_collected"
    text = (
        "the changes after commit {commit} can't be computed: {table_key} at version {version}, which they start from, "
        "was removed by cleanup. The first commit that can still be read is {first_readable}."
    )
    remedy_text = (
        "Read a new baseline with `omnigraph changes baseline --branch {branch}` and go on from its cursor, or go on "
        "with --after {first_readable} without the changes in between. Cleanup keeps more with a larger --keep or "
        "--older-than."
    )
