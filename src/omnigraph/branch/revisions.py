"""Revisions: the words that name a commit.

A revision is, in this order: the id of a commit, a branch (its newest commit), a tag, or a time, as `as_of` takes it
(the newest commit of a branch that was not made after it). Branches and tags never share a name. A branch or tag whose
name has the form of a commit id is found by it as long as there is no such commit.
"""

from __future__ import annotations

import re

from omnigraph.errors import CommitNotFound, RevisionNotFound, UsageError
from omnigraph.graph.commits import newest_at
from omnigraph.graph.snapshot import moment_us
from omnigraph.storage.manifest.records import MAIN
from omnigraph.storage.manifest.table import Manifest
from omnigraph.storage.manifest.tags import read_tags
from omnigraph.write.violations import hint

_COMMIT_ID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")
CANDIDATES_MAX = 5


def resolve(manifest: Manifest, text: str, *, branch: str = MAIN) -> str:
    """The id of the commit that a revision names; `branch` is the one whose history a time is looked up in."""
    is_id = _COMMIT_ID.fullmatch(text) is not None
    if is_id and _is_commit(manifest, text):
        return text
    heads, tags = manifest.heads(), read_tags(manifest)
    if text in heads:
        return heads[text].commit
    if text in tags:
        return tags[text].commit
    if not is_id and _is_commit(manifest, text):
        return text
    try:
        moment = moment_us(text)
    except UsageError:
        raise _not_found(text, list(heads), list(tags)) from None
    return newest_at(manifest, branch, moment_us=moment, told=text)


def _is_commit(manifest: Manifest, text: str) -> bool:
    try:
        manifest.record(text)
    except CommitNotFound:
        return False
    return True


def _not_found(text: str, branches: list[str], tags: list[str]) -> RevisionNotFound:
    return RevisionNotFound(
        commit=text,
        hint=hint(text, [*branches, *tags]),
        branches=sorted(branches)[:CANDIDATES_MAX],
        tags=sorted(tags)[:CANDIDATES_MAX],
    )
