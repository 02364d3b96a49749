"""The verb clone: copy a graph to a new address, verified, beside its writers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from typer import Option

from omnigraph.cli.commands.verify import findings_text
from omnigraph.cli.options import AsOf, At, Json, Quiet, Words
from omnigraph.cli.output import Answer, count, echo_target
from omnigraph.cli.target import resolve
from omnigraph.cli.text import Lines
from omnigraph.cli.watch import watching
from omnigraph.config.sizes import size_text
from omnigraph.errors import UsageError

if TYPE_CHECKING:
    from omnigraph.maintenance.clone import CloneResult

SHOWN_MAX = 10
OneBranch = Annotated[
    str | None,
    Option(
        "--branch",
        "-b",
        metavar="NAME",
        help="Only the newest state of this branch, as main of the clone; by default the whole history.",
        show_default=False,
    ),
]
Verify = Annotated[
    Literal["quick", "full", "none"],
    Option("--verify", help="How deep the clone is checked at the end: quick reads no data, full all of it."),
]
Copy = Annotated[bool, Option("--copy", help="Copy every byte. Without it, files on one file system are hard links.")]


def clone(
    words: Words = None,
    branch: OneBranch = None,
    commit: At = None,
    as_of: AsOf = None,
    verify: Verify = "quick",
    copy: Copy = False,
    json: Json = False,
    quiet: Quiet = False,
) -> Answer:
    """Copy a graph to a new address: its whole history or, with --branch, --commit or --as-of, one state of it.

    The source is not changed, and may be written meanwhile; later commits are not part of the clone. A clone that was
    stopped is no graph, and is completed by the same command. Exit code 1 if the clone is not whole.
    """
    given = words or []
    if len(given) != 2:
        detail = "two arguments are expected: the graph's URI and the address of the clone."
        raise UsageError(detail=f"{detail} Given: {' '.join(given)}" if given else detail)
    source, target = resolve(given[0], None), resolve(given[1], None)
    echo_target(f"cloning {source.uri} to", target.uri, quiet=quiet)
    import omnigraph

    with watching(quiet=quiet) as watcher:
        result = omnigraph.clone(
            source.uri,
            target.uri,
            branch=branch,
            commit=commit,
            as_of=as_of,
            verify=verify,
            links=not copy,
            watcher=watcher,
        )
    return Answer(result.to_json(), clone_text(result), json, exit_code=0 if result.ok else 1)


def clone_text(result: CloneResult) -> Lines:
    what = "the whole history" if result.commit is None else f"commit {result.commit} of {result.branch}"
    copied = result.copied
    size = f"{count(copied.files, 'file', 'files')}, {size_text(copied.bytes)}"
    ways = [f"{number:,} {name}" for name, number in (("linked", copied.linked), ("copied", copied.copied)) if number]
    ways += [f"{copied.present:,} there before"] if copied.present else []
    lines: Lines = [f"cloned {what}: {count(result.tables, 'table', 'tables')}, {size} ({', '.join(ways)})"]
    lines += [f"missing in the source: {path}" for path in result.missing[:SHOWN_MAX]]
    if len(result.missing) > SHOWN_MAX:
        lines.append(f"and {len(result.missing) - SHOWN_MAX:,} more; --json names them all")
    lines += [] if result.verified is None else findings_text(result.verified)
    return [*lines, f"{result.target} is a graph of its own, after {result.seconds:.1f} s"]
