"""The layout of a graph: one address, turned into the URIs and options that Lance and the object store need.

    <graph>/__manifest/                       the manifest
    <graph>/nodes|edges/<type id>-<incarnation>/   one table per lifetime of a type; forks under its `tree/`
    <graph>/__recovery/<branch incarnation>/  advisory locks, plans and heartbeats of running or crashed writers
    <graph>/__cache/adjacency/<digest>/       arrays for traversals, derived
    <graph>/__reserve                         on a local disk: space for cleanup on a full disk

A local address becomes an absolute path without symbolic links, because Lance writes absolute paths into the forks of
tables: two spellings of one graph must not look like two graphs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from omnigraph.errors import UnsupportedStore

MANIFEST = "__manifest"
RECOVERY = "__recovery"
CACHE = "__cache/adjacency"
CACHE_META = "meta.json"
"""The file in a folder of CACHE whose `edges` names the version line and version of the arrays' edge table."""
TABLE_FOLDERS = {"n": "nodes", "e": "edges"}
STAGING = "__staging"
"""Files that the tasks of running loads hand to each other."""
CLEANUP = "__cleanup"
"""Announcements of running cleanups; probes of the store's clock."""
LEASES = "__leases"
"""Leases of long readers."""
CLONE = "__clone"
"""The mark of an unfinished clone; does not exist in a graph."""
RESERVE = "__reserve"
"""A file of a local graph: space for cleanup on a full disk (`storage/objects/reserve.py`)."""
LAYOUT_FOLDERS = (MANIFEST, *TABLE_FOLDERS.values(), RECOVERY, CACHE.partition("/")[0], STAGING, LEASES, CLEANUP, CLONE)
LAYOUT_NAMES = (*LAYOUT_FOLDERS, RESERVE)
"""All that omnigraph puts directly into a graph's folder."""
TABLE_NAME = re.compile(r"[a-z][0-9a-z]+-[0-9a-f]+")
"""The name of a table's folder; other names beside it are foreign."""

# Names of the environment on the left, of Lance's and obstore's S3 options on the right.
_AWS_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "aws_access_key_id",
    "AWS_SECRET_ACCESS_KEY": "aws_secret_access_key",
    "AWS_SESSION_TOKEN": "aws_session_token",
    "AWS_DEFAULT_REGION": "region",
    "AWS_REGION": "region",
    "AWS_ENDPOINT": "endpoint",
    "AWS_ENDPOINT_URL": "endpoint",
    "AWS_ENDPOINT_URL_S3": "endpoint",
    "AWS_ALLOW_HTTP": "allow_http",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "virtual_hosted_style_request",
}


@dataclass(frozen=True)
class Location:
    """The address of one graph. `options` are storage options as Lance spells them; empty on a local disk."""

    uri: str
    is_local: bool
    options: Mapping[str, str]

    @property
    def manifest_uri(self) -> str:
        return f"{self.uri}/{MANIFEST}"

    @property
    def recovery_path(self) -> str:
        return f"{self.uri}/{RECOVERY}"

    @property
    def lance_options(self) -> dict[str, str] | None:
        return dict(self.options) or None

    def join(self, *parts: str) -> str:
        return "/".join((self.uri, *parts))


def graph_of(table_uri: str, options: Mapping[str, str] | None) -> tuple[Location, str]:
    """The graph that a table, or a fork of one, belongs to, and the table's path there."""
    graph, folder, name = re.split(rf"/({'|'.join(TABLE_FOLDERS.values())})/(?={TABLE_NAME.pattern})", table_uri)
    is_local = "://" not in graph
    return Location(graph, is_local, {} if is_local else dict(options or {})), f"{folder}/{name}"


_TABLE_FILE = re.compile(
    rf"(.+)/((?:{'|'.join(TABLE_FOLDERS.values())})/([a-z][0-9a-z]+)-[0-9a-f]+/.+|{MANIFEST}/(?:data|_deletions)/.+)"
)


def table_file(file: str) -> tuple[str, str, str] | None:
    """(graph, table id, path in the graph) of the full path of a file: of a table, or of the manifest's rows."""
    match = _TABLE_FILE.fullmatch(file)
    return None if match is None else (match[1], match[3] or MANIFEST, match[2])


def table_folder(type_id: str, incarnation: str) -> str:
    """The table's folder relative to the graph."""
    return f"{TABLE_FOLDERS[type_id[0]]}/{type_id}-{incarnation}"


def locate(address: str | os.PathLike[str], *, options: Mapping[str, str] | None = None) -> Location:
    """Turn a user's address into a Location, without access to the store."""
    text = os.fspath(address)
    if not text.strip():
        raise UnsupportedStore(uri=text, detail="the address is empty.")
    if "://" not in text:
        return Location(uri=_real(text), is_local=True, options={})
    parts = urlsplit(text)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise UnsupportedStore(uri=text, detail="a file:// URI names a path on this machine, as file:///path.")
        return Location(uri=_real(unquote(parts.path)), is_local=True, options={})
    if parts.scheme == "s3":
        key = parts.path.strip("/")
        if not parts.netloc or not key:
            raise UnsupportedStore(uri=text, detail="an s3:// URI needs a bucket and a prefix, as s3://bucket/graph.")
        return Location(uri=f"s3://{parts.netloc}/{key}", is_local=False, options=_s3_options(options))
    if parts.scheme in ("http", "https"):
        raise UnsupportedStore(uri=text, detail="this command works on storage, not on a server's address.")
    raise UnsupportedStore(uri=text, detail=f"the scheme {parts.scheme}:// is not supported.")


def _real(path: str) -> str:
    return str(Path(path).expanduser().resolve())


def _s3_options(options: Mapping[str, str] | None) -> dict[str, str]:
    if options is not None:
        return dict(options)
    from_environment: dict[str, str] = {}
    for variable, option in _AWS_ENVIRONMENT.items():
        value = os.environ.get(variable)
        if value:
            from_environment[option] = value
    endpoint = from_environment.get("endpoint", "")
    if endpoint.startswith("http://"):
        # A plain-HTTP endpoint is deliberate: do not require a second variable to allow it.
        from_environment.setdefault("allow_http", "true")
    return from_environment
