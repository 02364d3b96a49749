"""What no live state refers to: forks of tables, whole table folders, staged files of loads.

A fork belongs to the branch whose incarnation its name begins with.

* branch_gone      there is no such branch any more: what is written there can never be published. What a live branch
                   has left by a reset goes as long after it as the policy keeps things of that branch
* never_published  the branch has a fork of its own for this table, and it is another one: a first write that lost
* dropped_type     the branch has dropped the type, as long ago as the policy keeps things
* abandoned        anything else that nobody refers to may belong to a first write that is still being prepared. It
                   goes when nothing of it has changed for as long as unreferenced files are kept

A table folder goes whole when no live branch stands on any of its lines: a dropped type when every live branch that
has dropped it did so as long ago as the policy keeps things of that branch, one that no commit ever named when it is
abandoned. Staged files go when the process that wrote them is gone, or when they are abandoned. A folder whose name is
not that of a table's is somebody else's, and stays. So does a symbolic link, with the staged files it lies among.
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
from omnigraph.maintenance.cleanup.retained_versions import Floors
from omnigraph.storage.files.references import Folder, Line
from omnigraph.storage.lance import lance_api
from omnigraph.storage.layout import STAGING, TABLE_FOLDERS, TABLE_NAME, Location
from omnigraph.storage.manifest.incarnations import resets
from omnigraph.storage.manifest.records import Record
from omnigraph.storage.manifest.table import Manifest, quote
from omnigraph.storage.objects import listing, nofollow
from omnigraph.storage.objects.listing import StoredFile, folders, listed

_OWNER = "owner.json"
NEVER_PUBLISHED = frozenset({"never_published", "abandoned"})
"""Why forks and folders go that no commit ever named: an operation that is at work may have just made one."""


_RESETS = "resets"
"""Where `Floors.drops`, which is by type id, holds the records of resets by the incarnation that they replaced."""


@dataclass(frozen=True)
class Drop:
    """The commit that ended a type's table, or an incarnation of a branch."""

    record: Record
    commits_since: int | None
    """Epochs of its branch since then; None if that branch is gone."""


def table_of(folder: str) -> str:
    """The type id of a table folder."""
    return folder.rpartition("/")[2].rpartition("-")[0]


def fork_goes(
    committer: Committer, folder: Folder, line: Line, floors: Floors, policy: Policy, *, now_s: float, is_tagged: bool
) -> str | None:
    """Why a fork may go; None if it stays."""
    fork = line.fork
    if fork is None or is_tagged or floors.is_read(f"{folder.path}/{line.path}"):
        return None
    branch = floors.incarnations.get(fork.partition("-")[0])
    if branch is None:
        return (
            None
            if _is_kept_after_reset(committer.manifest, fork.partition("-")[0], floors, policy, now_s)
            else "branch_gone"
        )
    head, table = floors.heads[branch], table_of(folder.path)
    pin = floors.pins[branch].get(table)
    if pin is not None and pin.owned_by(head.incarnation, is_main=head.is_main) and pin.fork is not None:
        return "never_published"
    if pin is None:
        own = [d for d in drops_of(committer.manifest, table, floors) if d.record.incarnation == head.incarnation]
        return "dropped_type" if own and _long_enough(own[0], policy, now_s) else None
    changed_s = max((f.modified_s for f in _of_line(folder, line)), default=None)
    return "abandoned" if changed_s is None or now_s - changed_s >= policy.orphans_older_than_s else None


def _is_kept_after_reset(manifest: Manifest, incarnation: str, floors: Floors, policy: Policy, now_s: float) -> bool:
    """Whether a live branch has left this incarnation by a reset, and not long enough ago."""
    replaced = floors.drops.get(_RESETS)
    if replaced is None:
        records = resets(manifest)
        replaced = floors.drops[_RESETS] = {str((r.summary or {}).get("replaced")): r for r in records}
    record = replaced.get(incarnation)
    if record is None or record.branch not in floors.heads:
        return False
    return not _long_enough(Drop(record, _commits_since(record, floors)), policy, now_s)


def _of_line(folder: Folder, line: Line) -> Iterator[Any]:
    yield from (f for f in folder.by_line.get(line.path, ()) if f.kind != "other")
    mention = folder.refs.get(line.fork or "")
    if mention is not None:
        yield mention


def folder_goes(committer: Committer, folder: Folder, floors: Floors, policy: Policy, *, now_s: float) -> str | None:
    """Why a whole table folder may go; None if it stays. Only for a folder that no live branch stands on, and of which
    no version is tagged.
    """
    drops = drops_of(committer.manifest, table_of(folder.path), floors)
    if drops:
        # What a branch that is gone has dropped was its own affair, unless nobody else ever had it.
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


def drops_of(manifest: Manifest, table: str, floors: Floors) -> list[Drop]:
    """The newest commit of each branch that ended this type's table, also of branches that are gone; newest first."""
    known: list[Drop] | None = floors.drops.get(table)
    if known is None:
        known = floors.drops[table] = _read_drops(manifest, table, floors)
    return known


def _read_drops(manifest: Manifest, table: str, floors: Floors) -> list[Drop]:
    found = [r for head in floors.heads.values() for r in head.recent if table in r.delta and r.delta[table] is None]
    ended = quote(f'"{table}":null')
    where = f"kind = 'commit' AND contains(body, {ended})"
    with lance_api.reading("looking for the end of a type in the manifest"):
        bodies = manifest.table().to_table(columns=["body"], filter=where)["body"].to_pylist()
    rows = map(Record.loads, bodies)
    found += [r for r in rows if table in r.delta and r.delta[table] is None]
    newest: dict[str, Record] = {}
    for record in sorted(found, key=lambda r: r.epoch):
        newest[record.incarnation] = record
    order = sorted(newest.values(), key=lambda r: r.created_at_us, reverse=True)
    return [Drop(record, _commits_since(record, floors)) for record in order]


def _commits_since(record: Record, floors: Floors) -> int | None:
    branch = floors.incarnations.get(record.incarnation)
    return None if branch is None else floors.heads[branch].epoch - record.epoch + 1


def key_before_drop(manifest: Manifest, table: str, drop: Drop) -> str | None:
    """The key that a dropped type had."""
    if drop.record.parent is None:
        return None
    body = manifest.schema_body(manifest.record(drop.record.parent).schema)
    keys = {t["id"]: f"node:{t['name']}" for t in body["nodes"]}
    return (keys | {t["id"]: f"edge:{t['name']}" for t in body["edges"]}).get(table)


def table_folders(location: Location) -> list[str]:
    """Every table folder of the graph, relative to it, whether anything refers to it or not."""
    found: set[str] = set()
    for letter, kind in TABLE_FOLDERS.items():
        names = (name for name in folders(location, kind) if TABLE_NAME.fullmatch(name) and name[0] == letter)
        found.update(f"{kind}/{name}" for name in names)
    return sorted(found)


# ---- staged files ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Staged:
    """A folder of staged files that may go."""

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
    links += [f"{folder}/{name}" for name in listing.links(location, folder)]
    for name in folders(location, folder):
        path, inner = f"{folder}/{name}", list[str]()
        files = tuple(listed(location, path, links=inner))
        links += [f"{path}/{link}" for link in inner]
        if not inner:
            yield path, files


def staged(location: Location, policy: Policy, *, now_s: float, links: list[str], is_any_at_work: bool) -> list[Staged]:
    """Staged files of loads that are not running any more. While any long work goes on (`is_any_at_work`) only those
    whose owner is gone.
    """
    found = []
    for path, files in folders_of(location, STAGING, links):
        holder = _owner(location, path, files)
        if holder is not None and owner.is_gone(holder):
            found.append(Staged(path, files, "owner_gone"))
        elif holder is None and not is_any_at_work and _unchanged_s(files, now_s) >= policy.orphans_older_than_s:
            found.append(Staged(path, files, "abandoned"))
    return found


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
