"""Actors: the name that a commit records as its author. Names that begin with `omnigraph:` are reserved."""

from __future__ import annotations

from omnigraph.errors import UsageError
from omnigraph.language.controls import has_controls

RESERVED = "omnigraph:"


def checked_actor(actor: str | None) -> str | None:
    """Return the caller's actor name, or None if there is none. Raises UsageError for an invalid or reserved name."""
    if actor is None:
        return None
    if not isinstance(actor, str):
        raise UsageError(detail=f"the actor is a name, not a {type(actor).__name__}.")
    if not actor.strip():
        raise UsageError(detail="the actor's name is empty.")
    if has_controls(actor):
        raise UsageError(detail=f"the actor's name has control characters: {actor!a}.")
    if actor.startswith(RESERVED):
        raise UsageError(detail=f"{actor} is not free: names that begin with {RESERVED} are the program's own.")
    return actor
