"""The verb embed: fill vector properties from the texts that they are declared to be made from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Option

from omnigraph.cli.options import Actor, Branch, Conf, Engine, Json, Master, Quiet, Store, Uri
from omnigraph.cli.output import Answer, Table, count, echo_target
from omnigraph.cli.target import checked_actor, open_direct, resolve
from omnigraph.cli.text import Lines
from omnigraph.cli.watch import watching

if TYPE_CHECKING:
    from omnigraph.graph.results import EmbedResult

Type = Annotated[
    str | None, Option("--type", metavar="NAME", help="Only this type; by default all of them.", show_default=False)
]
Property = Annotated[
    str | None,
    Option("--property", metavar="NAME", help="Only the vector properties of this name.", show_default=False),
]
Provider = Annotated[
    str | None,
    Option(
        "--provider",
        metavar="NAME",
        help="local, the default: a small model in this installation, offline. openai: OpenAI or any endpoint like it, "
        "by OPENAI_API_KEY and OPENAI_BASE_URL. gemini: by GEMINI_API_KEY.",
        show_default=False,
    ),
]
Model = Annotated[
    str | None,
    Option(
        "--model",
        metavar="NAME",
        help="The provider's model; by default the one that @embed declares, else the provider's own.",
        show_default=False,
    ),
]
Batch = Annotated[
    int | None,
    Option("--batch", metavar="N", help="Texts per request; by default what suits the provider.", show_default=False),
]
CommitEvery = Annotated[
    int | None,
    Option(
        "--commit-every",
        metavar="N",
        help="Commit after about so many rows: what is committed is not lost. By default once, at the end.",
        show_default=False,
    ),
]
Rate = Annotated[
    float | None,
    Option(
        "--rate", metavar="N", help="At most so many requests per minute, all workers together.", show_default=False
    ),
]
All = Annotated[bool, Option("--all", help="Embed every text anew, also where the vector is there and fits.")]


def embed(
    uri: Uri = None,
    store: Store = None,
    type: Type = None,
    property: Property = None,
    provider: Provider = None,
    model: Model = None,
    batch: Batch = None,
    commit_every: CommitEvery = None,
    rate: Rate = None,
    all: All = False,
    branch: Branch = "main",
    engine: Engine = None,
    master: Master = None,
    conf: Conf = None,
    actor: Actor = None,
    json: Json = False,
    quiet: Quiet = False,
) -> Answer:
    """Fill vector properties that are declared @embed("source") from the text of their source.

    Only rows whose vector is missing or whose text has changed since it was embedded; running it again does what is
    left, or nothing.
    """
    target = resolve(uri, store)
    named = checked_actor(actor)
    with watching(quiet=quiet) as watcher, open_direct(target, engine, master, conf, watcher, actor=named) as graph:
        echo_target("embedding in", target.uri, branch=branch, quiet=quiet)
        result = graph.embed(
            type,
            property,
            provider=provider,
            model=model,
            batch=batch,
            commit_every=commit_every,
            rate_per_minute=rate,
            everything=all,
            branch=branch,
        )
    return Answer(result.to_json(), embed_text(result), json)


def embed_text(result: EmbedResult) -> Lines:
    if not result.commits:
        lines: Lines = [f"nothing to embed on {result.branch}; no commit was made"]
    else:
        made = f"{count(sum(result.embedded.values()), 'vector', 'vectors')} by {result.provider}"
        commits = count(len(result.commits), "commit", "commits")
        lines = [f"embedded {made} in {result.seconds:.1f} s, {commits}, the last is {result.commits[-1].id}"]
        rows = [
            [key, f"{result.embedded.get(key, 0):,}", f"{result.cleared.get(key, 0):,}"]
            for key in sorted({*result.embedded, *result.cleared})
        ]
        lines.append(Table(("type", "embedded", "cleared"), rows, frozenset(("embedded", "cleared"))))
    reasons = {
        "given": ("row keeps the vector that it was given", "rows keep the vectors that they were given"),
        "without_text": ("row has no text", "rows have no text"),
        "changed_meanwhile": ("row was changed by others: run it again", "rows were changed by others: run it again"),
    }
    lines += [count(number, *reasons[name]) for name, number in result.skipped.items() if number]
    return lines
