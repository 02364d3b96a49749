"""What no live state refers to: forks of tables, whole table folders, staged files of loads.

A fork belongs to the branch whose incarnation its name begins with.

* branch_gone      the branch does not exist any more: what is written there can never be published. What a live
                   branch left by a reset is removed as long after it as the policy keeps versions of that branch
* never_published  the branch has a fork of its own for this table, and it is another one: a first write that lost
* dropped_type     the branch has dropped the type, as long ago as the policy keeps versions
* abandoned        any other fork without references may belong to a first write that is still being prepared. It
                   is removed when nothing in it has changed for as long as orphan files are kept

A whole table folder is removed when no live branch pins any of its lines: that of a dropped type when every live
branch that has dropped it did so as long ago as the policy keeps versions of that branch, one that no commit ever named
when it is abandoned. Staged files are removed when the process that wrote them has ended, or when they are abandoned. A
folder whose name is not that of a table is foreign and is kept. So is a symbolic link, with the staged files beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from omnigraph.commit import owner
from omnigraph.commit.committer import Committer
from omnigraph.errors import SymlinkInGraph
from omnigraph.maintenance.cleanup.policy import Policy
from omnigraph.maintenance.cleanup.retained_versions import RetainedVersions
from omnigraph.storage.files.references import Folder, Line
from omnigraph.storage.lance import lance_api
from omnigraph.storage.layout import STAGING, TABLE_FOLDERS, TABLE_NAME, Location
from omnigraph.storage.manifest.incarnations import resets
from omnigraph.storage.manifest.records import Record
from omnigraph.storage.manifest.table import Manifest, quote
from omnigraph.storage.objects import nofollow
from omnigraph.storage.objects.store import ObjectStore, StoredFile

_OWNER = "owner.json"
NEVER_PUBLISHED = frozenset({"never_published", "abandoned"})
"""Reasons for forks and folders that no commit ever named: a running operation may have just created one."""


_RESETS = "resets"
"""The key in `RetainedVersions.drops`, which is by type id, of the records of resets by replaced incarnation."""


@dataclass(frozen=True)
class Drop:
    """The commit that ended a type's table, or an incarnation of a branch."""

    record: Record
    commits_since: int | None
    """Epochs of its branch since then; None if that branch does not exist."""


def table_of(folder: str) -> str:
    """The type id of a table folder."""
    return folder.rpartition("/")[2].rpartition("-")[0]


def fork_removal_reason(
    committer: Committer,
    folder: Folder,
    line: Line,
    retained: RetainedVersions,
    policy: Policy,
    *,
    now_s: float,
    is_tagged: bool,
) -> str | None:
    """Why a fork may be removed; None if it is kept."""
    fork = line.fork
    if fork is None or is_tagged or retained.is_read(f"{folder.path}/{line.path}"):
        return None
    branch = retained.incarnations.get(fork.partition("-")[0])
    if branch is None:
        return (
            None
            if _is_kept_after_reset(committer.manifest, fork.partition("-")[0], retained, policy, now_s)
            else "branch_gone"
        )
    head, table = retained.heads[branch], table_of(folder.path)
    pin = retained.pins[branch].get(table)
    if pin is not None and pin.owned_by(head.incarnation, is_main=head.is_main) and pin.fork is not None:
        return "never_published"
    if pin is None:
        own = [d for d in drops_of(committer.manifest, table, retained) if d.record.incarnation == head.incarnation]
        return "dropped_type" if own and _long_enough(own[0], policy, now_s) else None
    changed_s = max((f.modified_s for f in _of_line(folder, line)), default=None)
    return "abandoned" if changed_s is None or now_s - changed_s >= policy.orphans_older_than_s else None


def _is_kept_after_reset(
    manifest: Manifest, incarnation: str, retained: RetainedVersions, policy: Policy, now_s: float
) -> bool:
    """Whether a live branch has left this incarnation by a reset, and not long enough ago."""
    replaced = retained.drops.get(_RESETS)
    if replaced is None:
        records = resets(manifest)
        replaced = retained.drops[_RESETS] = {str((r.summary or {}).get("replaced")): r for r in records}
    record = replaced.get(incarnation)
    if record is None or record.branch not in retained.heads:
        return False
    return not _long_enough(Drop(record, _commits_since(record, retained)), policy, now_s)


def _of_line(folder: Folder, line: Line) -> Iterator[Any]:
    yield from (f for f in folder.by_line.get(line.path, ()) if f.kind != "other")
    ref = folder.refs.get(line.fork or "")
    if ref is not None:
        yield ref


def folder_removal_reason(
    committer: Committer, folder: Folder, retained: RetainedVersions, policy: Policy, *, now_s: float
) -> str | None:
    """Why a whole table folder may be removed; None if it is kept. Only for a folder that no live branch pins, and of
    which no version is tagged.
    """
    drops = drops_of(committer.manifest, table_of(folder.path), retained)
    if drops:
        # A drop by a deleted branch does not count, unless only deleted branches had the type.
        of_live = [d for d in drops if d.commits_since is not None]
        return "dropped_type" if all(_long_enough(d, policy, now_s) for d in of_live or drops) else None
    newest = max((f.modified_s for f in (*folder.files, *folder.other)), default=now_s)
    return "abandoned" if now_s - newest >= policy.orphans_older_than_s else None


def _long_enough(drop: Drop, policy: Policy, now_s: float) -> bool:
    rule = policy.rule(drop.record.branch)
    if rule.is_empty:
        return False
    if rule.keep is not None and drop.commits_since is not None and drop.commits_since < rule.keep:
        return False
    return rule.older_than_s is None or now_s - drop.record.created_at_us / 1e6 >= rule.older_than_s


def drops_of(manifest: Manifest, table: str, retained: RetainedVersions) -> list[Drop]:
    """The newest commit of each branch that ended this type's table, also of deleted branches; newest first."""
    drops: list[Drop] | None = retained.drops.get(table)
    if drops is None:
        drops = retained.drops[table] = _read_drops(manifest, table, retained)
    return drops


def _read_drops(manifest: Manifest, table: str, retained: RetainedVersions) -> list[Drop]:
    records = [
        r for head in retained.heads.values() for r in head.recent if table in r.delta and r.delta[table] is None
    ]
    ended = quote(f'"{table}":null')
    where = f"kind = 'commit' AND contains(body, {ended})"
    with lance_api.reading("looking for the end of a type in the manifest"):
        bodies = manifest.table().to_table(columns=["body"], filter=where)["body"].to_pylist()
    rows = map(Record.loads, bodies)
    records += [r for r in rows if table in r.delta and r.delta[table] is None]
    newest: dict[str, Record] = {}
    for record in sorted(records, key=lambda r: r.epoch):
        newest[record.incarnation] = record
    order = sorted(newest.values(), key=lambda r: r.created_at_us, reverse=True)
    return [Drop(record, _commits_since(record, retained)) for record in order]


def _commits_since(record: Record, retained: RetainedVersions) -> int | None:
    branch = retained.incarnations.get(record.incarnation)
    return None if branch is None else retained.heads[branch].epoch - record.epoch + 1


def key_before_drop(manifest: Manifest, table: str, drop: Drop) -> str | None:
    """The key that a dropped type had."""
    if drop.record.parent is None:
        return None
    body = manifest.schema_body(manifest.record(drop.record.parent).schema)
    keys = {t["id"]: f"node:{t['name']}" for t in body["nodes"]}
    return (keys | {t["id"]: f"edge:{t['name']}" for t in body["edges"]}).get(table)


def table_folders(location: Location) -> list[str]:
    """Every table folder of the graph, relative to it, whether anything refers to it or not."""
    paths: set[str] = set()
    for letter, kind in TABLE_FOLDERS.items():
        folders = ObjectStore(location, kind).children().folders
        names = (name for name in folders if TABLE_NAME.fullmatch(name) and name[0] == letter)
        paths.update(f"{kind}/{name}" for name in names)
    return sorted(paths)


# ---- staged files ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Staged:
    """A folder of staged files that may be removed."""

    path: str
    files: tuple[StoredFile, ...]
    reason: str

    @property
    def size(self) -> int:
        return sum(f.size for f in self.files)


def folders_of(location: Location, folder: str, links: list[str]) -> Iterator[tuple[str, tuple[StoredFile, ...]]]:
    """(path, files) of the folders directly below a folder of the graph. One that is a link, or has links in it, is
    left out, and the links are added to `links`.
    """
    children = ObjectStore(location, folder).children()
    links += [f"{folder}/{name}" for name in children.links]
    for name in children.folders:
        path, inner = f"{folder}/{name}", list[str]()
        files = tuple(ObjectStore(location, path).list_files(links=inner))
        links += [f"{path}/{link}" for link in inner]
        if not inner:
            yield path, files


def staged(location: Location, policy: Policy, *, now_s: float, links: list[str], is_any_at_work: bool) -> list[Staged]:
    """Staged files of loads that are not running any more. While any long work goes on (`is_any_at_work`) only those
    whose owner has ended.
    """
    removable = []
    for path, files in folders_of(location, STAGING, links):
        holder = _owner(location, path, files)
        if holder is not None and owner.is_gone(holder):
            removable.append(Staged(path, files, "owner_gone"))
        elif holder is None and not is_any_at_work and _unchanged_s(files, now_s) >= policy.orphans_older_than_s:
            removable.append(Staged(path, files, "abandoned"))
    return removable


def _unchanged_s(files: tuple[StoredFile, ...], now_s: float) -> float:
    return now_s - max((f.modified_s for f in files), default=now_s)


def _owner(location: Location, path: str, files: tuple[StoredFile, ...]) -> dict[str, Any] | None:
    if not location.is_local or not any(f.path == _OWNER for f in files):
        return None
    try:
        body = orjson.loads(nofollow.read(location, f"{path}/{_OWNER}"))
    except (OSError, SymlinkInGraph, orjson.JSONDecodeError):
        return None
    return body if isinstance(body, dict) and body.get("boot") else None
