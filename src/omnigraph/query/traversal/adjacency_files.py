"""Adjacency arrays on disk, in the folder of the graph: a new process maps them into memory instead of building them.

    <graph>/__cache/adjacency/<digest of the versions>/{out,into}.{offsets,nodes,edges}.npy, meta.json

Only where OMNIGRAPH_QUERY_DISK is `on`, on a local disk, for arrays by row id, and for tables of some size. A folder is
renamed to its name when it is complete; writing it removes that of an older version of the same table, and cleanup
removes those of removed versions. All files are derived and may be removed at any time. A full or read-only disk is no
error of a query, and neither is a folder that is a symbolic link: it is left alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from contextlib import suppress

import numpy as np

from omnigraph.config import environment
from omnigraph.errors import SymlinkInGraph
from omnigraph.query.tables.tables import StoredTable
from omnigraph.query.traversal.adjacency import Adjacency, Half, Index
from omnigraph.storage.layout import CACHE, CACHE_META, Location
from omnigraph.storage.objects import nofollow

VARIABLE = "OMNIGRAPH_QUERY_DISK"
EDGES_MIN = 50_000
_FORMAT = 1
_PARTS = ("offsets", "nodes", "edges")


def folder_of(graph: str | None) -> str | None:
    """The folder for the arrays of a graph; None if they are not stored."""
    if graph is None or not environment.switch(VARIABLE, default=False):
        return None
    return os.path.join(graph, CACHE)


def loaded(edges: StoredTable, sources: StoredTable, targets: StoredTable) -> Adjacency | None:
    root = folder_of(edges.graph)
    if root is None:
        return None
    folder = os.path.join(root, _digest(edges, sources, targets))
    try:
        if nofollow.children(_graph(edges), _inside(folder)).links:
            return None
        meta = json.loads(nofollow.read(_graph(edges), f"{_inside(folder)}/{CACHE_META}"))
        halves = [_half(folder, name, meta[name]) for name in ("out", "into")]
    except (OSError, ValueError, KeyError, TypeError, EOFError, SymlinkInGraph):
        return None
    adjacency = Adjacency(Index(meta["sources"], None), Index(meta["targets"], None), *halves)
    is_complete = (
        len(adjacency.out.offsets) == adjacency.sources.size + 1
        and len(adjacency.into.offsets) == adjacency.targets.size + 1
        and adjacency.edges
        == edges.rows
        == len(adjacency.into.nodes)
        == len(adjacency.out.edges)
        == len(adjacency.into.edges)
    )
    return adjacency if meta.get("format") == _FORMAT and is_complete else None


def is_kept(edges: StoredTable, sources: StoredTable, targets: StoredTable) -> bool:
    root = folder_of(edges.graph)
    return root is not None and os.path.isdir(os.path.join(root, _digest(edges, sources, targets)))


def _half(folder: str, name: str, simple: bool) -> Half:
    offsets, nodes, edges = (np.load(os.path.join(folder, f"{name}.{part}.npy"), mmap_mode="r") for part in _PARTS)
    return Half(offsets, nodes, edges, bool(simple))


def keep(arrays: Adjacency, edges: StoredTable, sources: StoredTable, targets: StoredTable) -> None:
    """Write the arrays if that is enabled and possible."""
    root = folder_of(edges.graph)
    if root is None or arrays.edges < EDGES_MIN:
        return
    if arrays.sources.numbering is not None or arrays.targets.numbering is not None:
        return
    name = _digest(edges, sources, targets)
    partial = os.path.join(root, f"{name}.{secrets.token_hex(6)}.part")
    try:
        nofollow.require_path(_graph(edges), _inside(partial))
        os.makedirs(partial)
        for side, half in (("out", arrays.out), ("into", arrays.into)):
            for part in _PARTS:
                np.save(os.path.join(partial, f"{side}.{part}.npy"), getattr(half, part))
        meta = {
            "format": _FORMAT,
            "edges": list(edges.key),
            "sources": arrays.sources.size,
            "targets": arrays.targets.size,
            "out": arrays.out.is_simple,
            "into": arrays.into.is_simple,
        }
        with open(os.path.join(partial, CACHE_META), "w") as file:
            json.dump(meta, file)
        os.rename(partial, os.path.join(root, name))
    except (OSError, SymlinkInGraph):
        # Another process has written them, or the disk is full or read-only.
        nofollow.remove_tree(_graph(edges), _inside(partial))
        return
    _drop_older(_graph(edges), edges, name)


def _graph(edges: StoredTable) -> Location:
    assert edges.graph is not None
    return Location(edges.graph, is_local=True, options={})


def _inside(folder: str) -> str:
    """The path of a folder of CACHE, relative to the graph."""
    return f"{CACHE}/{os.path.basename(folder)}"


def _drop_older(graph: Location, edges: StoredTable, keep_name: str) -> None:
    for name in nofollow.children(graph, CACHE).folders:
        with suppress(OSError, ValueError, KeyError, IndexError, TypeError, SymlinkInGraph):
            path, version = json.loads(nofollow.read(graph, f"{CACHE}/{name}/{CACHE_META}"))["edges"]
            if name != keep_name and path == edges.key[0] and version <= edges.key[1]:
                nofollow.remove_tree(graph, f"{CACHE}/{name}")


def _digest(*tables: StoredTable) -> str:
    text = json.dumps([list(t.key) for t in tables])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
