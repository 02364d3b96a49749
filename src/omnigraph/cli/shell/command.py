"""The verb shell: queries and commands, one after the other, on one open graph.

On a terminal it asks (`shell_prompt`); elsewhere it reads statements from stdin and runs each as soon as it is whole.
Then the exit code is that of the first statement that failed; those after it have been run.

    shell_text      words, and where statements end
    shell_session   what the commands set, and the running of statements
    shell_complete  what may stand where the cursor is
    shell_prompt    the terminal; the only module that needs prompt_toolkit
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from typer import Option

from omnigraph.cli.files import read_text
from omnigraph.cli.options import Actor, AsOf, At, Branch, Quiet, Store, Uri
from omnigraph.cli.output import Answer, write_text
from omnigraph.cli.target import checked_actor, open_graph, resolve
from omnigraph.errors import FileUnreadable

if TYPE_CHECKING:
    from omnigraph.cli.shell.session import Session

Params = Annotated[
    str | None,
    Option(
        "--params", metavar="JSON|@FILE", help="Parameters to begin with, as :params sets them.", show_default=False
    ),
]
Format = Annotated[
    str, Option("--format", "-f", metavar="FORM", help="The form of answers: table, json, jsonl, csv or kv.")
]


def shell(
    uri: Uri = None,
    store: Store = None,
    branch: Branch = "main",
    commit: At = None,
    as_of: AsOf = None,
    params: Params = None,
    format: Format = "table",
    actor: Actor = None,
    quiet: Quiet = False,
) -> Answer:
    """Ask a graph: queries that read or write, one after the other. `:help` tells the commands.

    Without a terminal, statements are read from stdin, and the exit code is that of the first one that fails.
    """
    target = resolve(uri, store)
    from omnigraph.cli.shell.session import Session, form_of, params_of

    form = form_of(format)
    given = {} if params is None else params_of(read_text(params[1:]) if params.startswith("@") else params)
    interactive = sys.stdin.isatty()
    with open_graph(target, actor=checked_actor(actor)) as graph:
        session = Session(
            graph=graph,
            target=target,
            branch=branch,
            commit=commit,
            as_of=as_of,
            params=given,
            format=form,
            file="<query>" if interactive else "<stdin>",
            interactive=interactive,
            quiet=quiet,
        )
        session.snapshot()
        return Answer({}, [], False, _on_terminal(session) if interactive else _from_stdin(session))


def _on_terminal(session: Session) -> int:
    from omnigraph.cli.shell.prompt import interact

    if not session.quiet:
        write_text(sys.stderr, f"{session.target.uri}, branch {session.branch}. :help tells the commands.\n")
    interact(session)
    return 0


def _from_stdin(session: Session) -> int:
    from omnigraph.cli.shell.session import Quit
    from omnigraph.cli.shell.text import split

    first = 0
    try:
        for statement in split(_lines()):
            code = session.run(statement)
            first = first or code
    except Quit:
        return first
    return first


def _lines() -> Iterator[str]:
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise FileUnreadable(path="stdin", detail=f"line {number} is not UTF-8 text.") from error
