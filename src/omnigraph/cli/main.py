"""The entry of the command line: arguments in, exit code out.

1. parse    typer finds the verb and its options; wrong usage is a failure like any other
2. run      the verb returns an Answer and prints nothing itself, except export, whose rows are its output
3. print    the answer on stdout, as one JSON document with --json; a failure on stderr, or as JSON on stdout

Keeps: no traceback unless OMNIGRAPH_DEBUG=1; stdout is flushed before the exit code is decided, so that a full disk
behind `> file` is a failure. A reader that goes away while the answer is printed (`| head`) changes nothing: the work
is done.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from omnigraph.cli.logs import hide_logs

COMPLETE = "_OMNIGRAPH_COMPLETE"
"""Set by the scripts of `omnigraph completion`: the words typed so far are to be completed."""
_OLD_NAMES = {
    ("check",): "lint",
    ("query", "lint"): "lint",
    ("query", "check"): "lint",
    ("change",): "mutate",
    ("read",): "query",
}


def main(argv: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    _open_closed_streams()
    try:
        if COMPLETE in os.environ:
            return _complete(os.environ[COMPLETE])
        return _run(_renamed(args) or ["--help"])
    except BaseException as error:  # the last line of defence: whatever it is gets a sentence and an exit code
        if isinstance(error, SystemExit):
            raise
        return _fail(error, args)
    finally:
        hide_logs()


def _open_closed_streams() -> None:
    """Behind `>&-` or `<&-` there is no stream, and the next file that is opened would take its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _renamed(args: Sequence[str]) -> list[str]:
    """A copy, because the parser eats its list; old names of commands are replaced, with a warning."""
    old = next((words for words in _OLD_NAMES if tuple(args[: len(words)]) == words), None)
    if old is None:
        return [*args]
    new = _OLD_NAMES[old]
    sys.stderr.write(f"warning: `omnigraph {' '.join(old)}` is now called `omnigraph {new}`.\n")
    return [new, *args[len(old) :]]


def _complete(instruction: str) -> int:
    from omnigraph.cli.commands.completion import complete

    return complete(instruction)


def _run(args: list[str]) -> int:
    from typer import Exit

    from omnigraph.cli.app import command
    from omnigraph.cli.failure import report, unsaid
    from omnigraph.cli.output import Answer, show

    try:
        with command().make_context("omnigraph", args) as context:
            answer = command().invoke(context)
    except Exit as done:
        sys.stdout.flush()
        return done.exit_code
    if isinstance(answer, Answer):
        try:
            show(answer)
        except BrokenPipeError:
            _drop_stdout()
        except OSError as error:
            _drop_stdout()
            report(unsaid(error), as_json=False)
            return 1
        return answer.exit_code
    return 0


def _fail(error: BaseException, args: Sequence[str]) -> int:
    from omnigraph.cli.failure import describe, report, report_traceback

    if os.environ.get("OMNIGRAPH_DEBUG", "") not in ("", "0"):
        report_traceback(error)
    if isinstance(error, BrokenPipeError):
        _drop_stdout()
        return 1
    if isinstance(error, KeyboardInterrupt):
        # Where it struck code that a library runs from text, Python would end by a signal and not with our exit code:
        # it remembers the last such run, so one that ends well makes it forget.
        exec("")
    failure = describe(error)
    try:
        report(failure, as_json=_wants_json(args))
        # What is still to be written fails now, and not when Python ends, which would change the exit code.
        sys.stdout.flush()
    except OSError:
        # Nobody can be told any more; the exit code still says it.
        _drop_stdout()
    return failure.exit_code


def _wants_json(args: Sequence[str]) -> bool:
    """Also known when parsing failed: --json stands among the options."""
    options = args[: args.index("--")] if "--" in args else args
    return "--json" in options


def _drop_stdout() -> None:
    """Python flushes stdout once more on exit and would complain about the pipe or the disk a second time."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


if __name__ == "__main__":
    sys.exit(main())
