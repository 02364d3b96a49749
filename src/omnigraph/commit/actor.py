"""Actors: who a commit says made it. Names that begin with `omnigraph:` are the program's own."""

from __future__ import annotations

from omnigraph.errors import UsageError
from omnigraph.language.controls import has_controls

RESERVED = "omnigraph:"


def checked_actor(actor: str | None) -> str | None:
    """The name as a caller gives it, None for nobody; UsageError for one that nobody may have."""
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
