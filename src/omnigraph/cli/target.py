"""Addressing: which graph a verb works on. A positional URI or --store, exactly one of them; for maintenance also a
cluster and one of its graphs.

    <root>/__cluster/state.json     what the cluster has applied: its graphs are the resources named graph.<id>
    <root>/graphs/<id>.omni         the storage of each

A state of another version than the one known here is refused: what it says may mean something else. A graph of a
cluster that has no storage is refused as well, before anybody offers to create it: that is for the cluster to do.

Local paths are shown as absolute ones, so that the echo of a write leaves no doubt.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omnigraph.commit.actor import checked_actor as checked_actor
from omnigraph.errors import (
    ClusterEmpty,
    ClusterStateInvalid,
    ClusterStateMissing,
    DirectOnly,
    GraphNotChosen,
    GraphNotFound,
    GraphNotInCluster,
    NotAGraph,
    UnsupportedStore,
    UsageError,
)
from omnigraph.language.identifiers import is_branch_path
from omnigraph.storage.layout import MANIFEST, Location, locate

if TYPE_CHECKING:
    from omnigraph.graph.handle import Graph
    from omnigraph.tasks.progress import Watcher

_SERVER = re.compile(r"https?:", re.IGNORECASE)
_STATE = "__cluster/state.json"
_STATE_VERSION = 1
_GRAPH = "graph."
# A scheme with one slash: as a path it would quietly make a local folder named `s3:`.
_SLASH_MISSING = re.compile(r"(file|s3|https?):/?(?!/)", re.IGNORECASE)


class _StateOfAnotherVersion(ClusterStateInvalid):
    remedy_text = "Upgrade omnigraph, or name the graph's own storage, which needs no cluster."


class _StorageLost(GraphNotFound):
    """The state of a cluster names a graph that is not there."""

    text = "there is no graph at {uri}, although the state of the cluster at {root} says that it is applied."
    remedy_text = "Put its folder back from a copy of the store, or let the cluster at {root} make it anew."


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
    folder = f"graphs/{_chosen(root, graph, verb=verb)}.omni"
    _require_storage(root, folder)
    return Target(uri=root.join(folder), is_local=root.is_local)


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
    from omnigraph.storage.objects.folder import Folder

    path = root.join(_STATE)
    raw = None if root.is_local and not os.path.isfile(path) else Folder(root).read(_STATE)
    if raw is None:
        raise ClusterStateMissing(root=root.uri, path=path)
    try:
        resources = _applied(json.loads(raw), root, path)
    except (ValueError, RecursionError) as error:
        raise ClusterStateInvalid(root=root.uri, path=path, detail=f"it is no JSON ({error}).") from error
    names = [name.removeprefix(_GRAPH) for name in resources if name.startswith(_GRAPH)]
    return sorted(name for name in names if is_branch_path(name) and "/" not in name and "." not in name)


def _applied(state: Any, root: Location, path: str) -> Mapping[str, Any]:
    """The applied resources of a state by their names; none if nothing is applied yet."""
    if not isinstance(state, dict):
        raise ClusterStateInvalid(root=root.uri, path=path, detail="it is no mapping.")
    version = state.get("version", _STATE_VERSION)
    if version != _STATE_VERSION:
        detail = f"it is of version {version}, and this omnigraph knows version {_STATE_VERSION}."
        raise _StateOfAnotherVersion(root=root.uri, path=path, detail=detail)
    if "applied_revision" not in state:
        detail = "it does not say which resources are applied."
        raise ClusterStateInvalid(root=root.uri, path=path, detail=detail)
    revision = {} if state["applied_revision"] is None else state["applied_revision"]
    if not isinstance(revision, dict):
        raise ClusterStateInvalid(root=root.uri, path=path, detail="applied_revision is no mapping.")
    resources = {} if revision.get("resources") is None else revision["resources"]
    if not isinstance(resources, dict):
        raise ClusterStateInvalid(root=root.uri, path=path, detail="its applied resources are no mapping.")
    return resources


def _require_storage(root: Location, folder: str) -> None:
    from omnigraph.storage.objects.folder import Folder

    manifest = f"{folder}/{MANIFEST}"
    there = os.path.isdir(root.join(manifest)) if root.is_local else Folder(root).files(manifest)
    if not there:
        raise _StorageLost(uri=root.join(folder), root=root.uri)


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
    target: Target,
    engine: str | None,
    master: str | None,
    conf: Sequence[str] | None,
    watcher: Watcher | None,
    *,
    actor: str | None = None,
) -> Graph:
    """The graph of a command, with the engine that it was asked to run on."""
    import omnigraph
    from omnigraph.tasks.session import SparkSettings

    settings = SparkSettings.of(master=master, conf=None if conf is None else list(conf))
    return omnigraph.open(
        target.uri, actor=actor, engine=engine, master=settings.master, conf=settings.conf, watcher=watcher
    )
