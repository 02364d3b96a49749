"""Verbs on tags: names for commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Option

from omnigraph.cli.options import Actor, Branch, Json, Quiet, Store, Uri, Words
from omnigraph.cli.output import Answer, Table, echo_target
from omnigraph.cli.target import checked_actor, open_graph, resolve, resolve_with

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph.graph.results import TagInfo

Message = Annotated[
    str | None, Option("--message", "-m", metavar="TEXT", help="What the tag is for.", show_default=False)
]


def tag_create(
    words: Words = None,
    store: Store = None,
    branch: Branch = "main",
    message: Message = None,
    actor: Actor = None,
    json: Json = False,
    quiet: Quiet = False,
) -> Answer:
    """Name a commit: the newest of the branch, or the one that REVISION says. Cleanup keeps what it pins.

    REVISION is the id of a commit, a branch, another tag, or a time, as 2026-01-31 (its end) or 2026-01-31T12:00:00.
    """
    given = list(words or [])
    revision = given.pop() if len(given) == (2 if store is not None else 3) else None
    target, name = resolve_with(given, store, name="the tag's name")
    with open_graph(target, actor=checked_actor(actor)) as graph:
        echo_target(f"creating the tag {name} of", target.uri, quiet=quiet)
        tag = graph.create_tag(name, revision, branch=branch, message=message)
    return Answer({"tag": tag.to_json(), "commit": None}, [f"created the tag {tag.name} of commit {tag.commit}"], json)


def tag_list(uri: Uri = None, store: Store = None, json: Json = False) -> Answer:
    """List the tags, by name."""
    target = resolve(uri, store)
    with open_graph(target) as graph:
        tags = graph.tags()
    return Answer({"tags": [tag.to_json() for tag in tags]}, [tags_text(tags)], json)


def tag_delete(
    words: Words = None,
    store: Store = None,
    actor: Actor = None,
    json: Json = False,
    quiet: Quiet = False,
) -> Answer:
    """Delete a tag. The commit stays readable as long as cleanup keeps it."""
    target, name = resolve_with(words or [], store, name="the tag's name")
    with open_graph(target, actor=checked_actor(actor)) as graph:
        echo_target(f"deleting the tag {name} of", target.uri, quiet=quiet)
        tag = graph.delete_tag(name)
    document = {"tag": tag.to_json(), "deleted": True, "commit": None}
    return Answer(document, [f"deleted the tag {tag.name} of commit {tag.commit}"], json)


def tags_text(tags: Sequence[TagInfo]) -> Table:
    rows = [[t.name, t.commit, f"{t.created_at:%Y-%m-%d %H:%M:%S}Z", t.actor or "", t.message or ""] for t in tags]
    return Table(("tag", "commit", "created", "actor", "message"), rows)
