"""Base paths: the absolute addresses that Lance writes into versions of forks.

A version of a fork names the folders of its table that it reads from, each by its whole address: the root table, and
every fork that it was made from. All of them lie in the fork's own table folder:

    <graph>/nodes/<table>                  the root table
    <graph>/nodes/<table>/tree/<fork>      another fork of the same table

A version of a root table names none. So a graph without forks may be moved; in a copied or moved graph with forks,
opening a fork raises GraphMoved before anything is read from or written to the old address. `omnigraph relocate`
rewrites the paths. A base path that is not a version line of the table at any address was not written by omnigraph, and
is refused as well.

Addresses are compared as texts. A Location has no symbolic links, and the same folder at another mount point is another
address: what one process writes there the other could not read.
"""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.errors import GraphMoved, HostileOrDamagedManifest
from omnigraph.language.identifiers import is_branch_path, shown
from omnigraph.storage.layout import Location

TREE = "tree"
_FILE = "file://"


def require_own_bases(location: Location, table: str, bases: Iterable[str]) -> None:
    """Refuse base paths of a table, in the folder `table` of the graph, that lie in another graph folder, with
    GraphMoved, and those that are no lines of this table anywhere, with HostileOrDamagedManifest.
    """
    for base in bases:
        split = _split(base, table)
        if split is None or not _is_line(split[1]):
            detail = f"its files are to be read from {shown(base)}, which is no part of this table"
            raise HostileOrDamagedManifest(where=f"a version of {table}", detail=detail)
        if split[0] != location.uri:
            raise GraphMoved(uri=location.uri, recorded_root=split[0], table=table)


def _is_line(path_below_table: str) -> bool:
    """Whether what follows a table's folder in a base path is nothing, or one of its forks."""
    folder, _, fork = path_below_table.rstrip("/").partition("/")
    return not folder or (folder == TREE and is_branch_path(fork))


def table_of(location: Location, uri: str) -> str:
    """The table folder, relative to the graph, of the address of a table or of a fork of it."""
    return uri.removeprefix(f"{location.uri}/").partition(f"/{TREE}/")[0]


def recorded_root(base: str, table: str) -> str | None:
    """The address of the graph that a base path of this table was written for; None if it is no path of this table."""
    split = _split(base, table)
    return None if split is None else split[0]


def below_table(base: str, table: str) -> str | None:
    """Where a base path lies below its table's folder, empty or with a slash at its end; None if it lies elsewhere.

    By the folder's own name, which is unique, and not by the whole address.
    """
    split = _split(base, table)
    return None if split is None else split[1]


def _split(base: str, table: str) -> tuple[str, str] | None:
    root, name, below = base.removeprefix(_FILE).rstrip("/").rpartition(table)
    if not name or (root and not root.endswith("/")):
        return None
    if not below:
        return root.rstrip("/"), ""
    return (root.rstrip("/"), f"{below.lstrip('/')}/") if below.startswith("/") else None
