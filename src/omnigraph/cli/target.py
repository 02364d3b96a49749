"""Addressing: which graph a verb works on. A positional URI or --store, exactly one of them.

Local paths are shown as absolute ones, so that the echo of a write leaves no doubt.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.errors import NotAGraph, UnsupportedStore, UsageError
from omnigraph.storage.layout import locate

if TYPE_CHECKING:
    from omnigraph.graph import Graph

# A scheme with one slash: as a path it would quietly make a local folder named `s3:`.
_SLASH_MISSING = re.compile(r"(file|s3|https?):/?(?!/)", re.IGNORECASE)


@dataclass(frozen=True)
class Target:
    uri: str
    is_local: bool


def resolve(uri: str | None, store: str | None) -> Target:
    if uri is not None and store is not None:
        raise UsageError(detail=f"the graph is named twice: as the argument {uri} and with --store {store}.")
    address = uri if uri is not None else store
    if address is None:
        raise UsageError(detail="the graph is not named: give its URI as argument or with --store.")
    typo = _SLASH_MISSING.match(address)
    if typo:
        right = f"{typo.group(1).lower()}://"
        raise UnsupportedStore(uri=address, detail=f"a URI of this kind begins with {right}")
    location = locate(address)
    if location.is_local:
        _refuse_file(location.uri)
    return Target(uri=location.uri, is_local=location.is_local)


def _refuse_file(path: str) -> None:
    """A file where a folder should be is a slip of the user, not of the store."""
    at = path
    while not os.path.lexists(at):
        at = os.path.dirname(at)
    if os.path.isfile(at):
        raise NotAGraph(uri=path, detail=f"{at} is a file, and a graph is a folder.")


def resolve_with(words: Sequence[str], store: str | None, *, name: str) -> tuple[Target, str]:
    """For verbs whose arguments are `[URI] NAME`: the target, and what the other word names."""
    if store is None and len(words) == 2:
        return resolve(words[0], None), words[1]
    if store is not None and len(words) == 1:
        return resolve(None, store), words[0]
    if store is not None:
        raise UsageError(detail=f"with --store, exactly one argument is expected: {name}. Given: {' '.join(words)}")
    given = f" Given: {' '.join(words)}" if words else ""
    raise UsageError(detail=f"two arguments are expected: the graph's URI and {name}.{given}")


def open_graph(target: Target, *, actor: str | None = None) -> Graph:
    import omnigraph

    return omnigraph.open(target.uri, actor=actor)


def checked_actor(actor: str | None) -> str | None:
    if actor is None:
        return None
    if not actor.strip():
        raise UsageError(detail="the actor's name is empty.")
    if actor.startswith("omnigraph:"):
        raise UsageError(detail=f"{actor} is not free: names that begin with omnigraph: are the program's own.")
    return actor
