"""Consent: what destroys data on a target that is not a local path happens with --yes, or after a question.

The question goes to stderr and is answered on a terminal only. Without one, or with --json, the command refuses: a
script says --yes on purpose, or does not do it at all.

A change that leaves nothing of a graph asks for the graph's name, on a local path too.
"""

from __future__ import annotations

import sys

from omnigraph.cli.output import write_text
from omnigraph.cli.target import Target
from omnigraph.errors import ConsentRequired


def require_consent(verb: str, effect: str, target: Target, *, yes: bool, as_json: bool) -> None:
    """`effect` is said in the question: what will be gone."""
    if target.is_local or yes:
        return
    if as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConsentRequired(verb=verb, target=target.uri)
    _ask(f"{effect} on {target.uri}. Go on? [y/N] ", ("y", "yes"))


def confirmed_by_name(effect: str, target: Target, *, as_json: bool) -> bool:
    """Whether somebody has typed the graph's name, the last part of its address. False if nobody is there to ask."""
    if as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    name = target.uri.rstrip("/").rpartition("/")[2]
    _ask(f"{effect} on {target.uri}. Type the graph's name, {name}, to go on: ", (name.lower(),))
    return True


def _ask(question: str, right: tuple[str, ...]) -> None:
    """Abort unless the answer, in any case of letters, is a right one."""
    from typer import Abort

    write_text(sys.stderr, question)
    if sys.stdin.readline().strip().lower() not in right:
        raise Abort
