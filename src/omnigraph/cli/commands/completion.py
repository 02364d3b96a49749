"""The verb completion: a script that lets a shell complete commands, options, branches and types.

The script calls `omnigraph` again with the words typed so far and `_OMNIGRAPH_COMPLETE` set; `main` answers through
typer. Branches and types are read from the graph that the words name, one read of its manifest; a graph that can't be
opened has none to offer, and so has one that is not on a local path: a request to a bucket takes too long for a key.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from typer import Argument

from omnigraph.cli.output import Answer

PROGRAM = "omnigraph"
VARIABLE = "_OMNIGRAPH_COMPLETE"
Shell = Annotated[Literal["bash", "zsh", "fish"], Argument(hidden=True)]


def completion(shell: Shell) -> Answer:
    """Print a script that completes commands and options, and the branches and types of a local graph.

    bash: eval "$(omnigraph completion bash)" in ~/.bashrc. zsh: the same with zsh in ~/.zshrc, after compinit. fish:
    omnigraph completion fish > ~/.config/fish/completions/omnigraph.fish
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script = get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell)
    return Answer({}, [script], False)


def complete(instruction: str) -> int:
    """Answer a completion script; `instruction` is the value of its variable."""
    from typer.completion import completion_init, shell_complete  # type: ignore[attr-defined]

    from omnigraph.cli.app import command

    completion_init()
    return shell_complete(command(), {}, PROGRAM, VARIABLE, instruction)


def branch_names(ctx: Any, incomplete: str) -> list[str]:
    graph = _graph(ctx.params)
    return [] if graph is None else [b.name for b in graph.branches() if b.name.startswith(incomplete)]


def type_names(ctx: Any, incomplete: str) -> list[str]:
    graph = _graph(ctx.params)
    if graph is None:
        return []
    names = [t.name for t in graph.schema(ctx.params.get("branch") or "main").types()]
    return [name for name in names if name.startswith(incomplete)]


def _graph(params: Mapping[str, Any]) -> Any:
    """The local graph that the words name; None if they name none that can be read."""
    import omnigraph
    from omnigraph.cli.target import open_graph, resolve

    address = next(
        (a for a in (params.get("store"), params.get("uri"), *_typed_words()) if a and os.path.isdir(a)), None
    )
    if address is None:
        return None
    try:
        return open_graph(resolve(address, None))
    except omnigraph.errors.OmnigraphError:
        return None


def _typed_words() -> list[str]:
    """The words of the command line, as the scripts pass them: typer parses nothing behind an unfinished option."""
    line = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS") or ""
    try:
        return shlex.split(line)[1:]
    except ValueError:  # an open quote
        return line.split()[1:]
