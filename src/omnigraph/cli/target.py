"""Addressing: which graph a verb works on. A positional URI or --store, exactly one of them; for maintenance also a
cluster and one of its graphs.

    <root>/__cluster/state.json     what the cluster has applied: its graphs are the resources named graph.<id>
    <root>/graphs/<id>.omni         the storage of each

Local paths are shown as absolute ones, so that the echo of a write leaves no doubt.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.commit.actor import checked_actor as checked_actor
from omnigraph.errors import (
    ClusterEmpty,
    ClusterStateInvalid,
    ClusterStateMissing,
    DirectOnly,
    GraphNotChosen,
    GraphNotInCluster,
    NotAGraph,
    UnsupportedStore,
    UsageError,
)
from omnigraph.storage.layout import Location, locate

if TYPE_CHECKING:
    from omnigraph.graph import Graph
    from omnigraph.pipeline.progress import Watcher

_SERVER = re.compile(r"https?:", re.IGNORECASE)
_STATE = "__cluster/state.json"
_GRAPH = "graph."
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
    location = _located(address)
    if location.is_local:
        _refuse_file(location.uri)
    return Target(uri=location.uri, is_local=location.is_local)


def resolve_direct(uri: str | None, store: str | None, cluster: str | None, graph: str | None, *, verb: str) -> Target:
    """The graph of a maintenance command: by its storage, or by its cluster and id. Servers are refused."""
    for given in (uri, store, cluster):
        if given is not None and _SERVER.match(given):
            raise DirectOnly(given=given, verb=verb)
    named = uri if uri is not None else store
    if cluster is None:
        if graph is not None:
            raise UsageError(detail=f"--graph {graph} chooses a graph of a cluster: name that with --cluster.")
        if named is None:
            detail = "the graph is not named: give its URI as argument or with --store, or --cluster and --graph."
            raise UsageError(detail=detail)
        return resolve(uri, store)
    if named is not None:
        raise UsageError(detail=f"the graph is named twice: as {named} and with --cluster {cluster}.")
    root = _located(cluster)
    chosen = _chosen(root, graph, verb=verb)
    return Target(uri=root.join("graphs", f"{chosen}.omni"), is_local=root.is_local)


def _chosen(root: Location, graph: str | None, *, verb: str) -> str:
    found = _graphs_of(root)
    candidates = ", ".join(found)
    if not found:
        raise ClusterEmpty(root=root.uri)
    if graph is None and len(found) > 1:
        raise GraphNotChosen(root=root.uri, verb=verb, count=len(found), candidates=candidates, graphs=found)
    if graph is not None and graph not in found:
        raise GraphNotInCluster(root=root.uri, graph=graph, candidates=candidates, graphs=found)
    return found[0] if graph is None else graph


def _graphs_of(root: Location) -> list[str]:
    """The ids of the graphs that the cluster's state says are applied, sorted."""
    from omnigraph.storage.folder import Folder

    path = root.join(_STATE)
    raw = None if root.is_local and not os.path.isfile(path) else Folder(root).read(_STATE)
    if raw is None:
        raise ClusterStateMissing(root=root.uri, path=path)
    try:
        resources = (json.loads(raw)["applied_revision"] or {}).get("resources") or {}
        names = [name.removeprefix(_GRAPH) for name in dict(resources) if name.startswith(_GRAPH)]
    except ValueError as error:
        raise ClusterStateInvalid(root=root.uri, path=path, detail=f"it is no JSON ({error}).") from error
    except (AttributeError, KeyError, TypeError) as error:
        detail = "it does not say which resources are applied."
        raise ClusterStateInvalid(root=root.uri, path=path, detail=detail) from error
    return sorted(name for name in names if name and "/" not in name and "." not in name)


def _located(address: str) -> Location:
    typo = _SLASH_MISSING.match(address)
    if typo:
        right = f"{typo.group(1).lower()}://"
        raise UnsupportedStore(uri=address, detail=f"a URI of this kind begins with {right}")
    return locate(address)


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


def open_direct(
    target: Target, engine: str | None, master: str | None, conf: Sequence[str] | None, watcher: Watcher
) -> Graph:
    """The graph of a maintenance command, with the engine that it was asked to run on."""
    import omnigraph
    from omnigraph.pipeline.session import SparkSettings

    settings = SparkSettings.of(master=master, conf=None if conf is None else list(conf))
    return omnigraph.open(target.uri, engine=engine, master=settings.master, conf=settings.conf, watcher=watcher)
