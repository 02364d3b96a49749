"""Consent: what destroys data on a target that is not a local path happens with --yes, or after a question.

The question goes to stderr and is answered on a terminal only. Without one, or with --json, the command refuses: a
script says --yes on purpose, or does not do it at all.
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
    from typer import Abort

    write_text(sys.stderr, f"{effect} on {target.uri}. Go on? [y/N] ")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Abort
