"""What a cleanup would remove, as a value: every version and every file, with its size and the reason.

For each table folder, from one listing of it and the references of every version of every line in it:

1. forks      lines that can never be read again are removed as a whole (`orphans`)
2. versions   per line: what the policy releases and is not retained
3. files      a file of a version that is kept is kept. A file that only removed published versions refer to is removed
              with them. A file that no version refers to, or only versions that were rolled back, may be a prepared
              file of a live operation: it is removed when it is older than `--orphans-older-than` and no operation
              writes to the table (`in_flight`), or at once if the announcement of a crashed cleanup names it as only
              needed by versions that it removed

Reasons of versions and whole folders: policy, dropped_type, abandoned; of forks: see `orphans`; of files:
only_in_removed_versions, unreferenced, left_by_a_cleanup, and as their fork or folder.

Nothing is written. Files are listed before references are read, so a file that is committed meanwhile has a reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

from omnigraph.commit.committer import Committer
from omnigraph.maintenance.cleanup.in_flight import InFlight
from omnigraph.maintenance.cleanup.orphans import (
    NEVER_PUBLISHED,
    Staged,
    drops_of,
    folder_removal_reason,
    fork_removal_reason,
    key_before_drop,
    table_of,
)
from omnigraph.maintenance.cleanup.policy import Policy, Rule
from omnigraph.maintenance.cleanup.retained_versions import LineVersion, RetainedVersions
from omnigraph.storage.files.references import File, Folder, Line, References, folder_of, read_references, read_tags
from omnigraph.storage.layout import MANIFEST
from omnigraph.storage.manifest.records import MAIN
from omnigraph.storage.objects.store import ObjectStore

MANIFEST_ORPHANS_MIN_S = 30 * 86_400.0
"""Rows are appended to the manifest, and folded, in single calls that no advisory lock covers to their end: a process
that was stopped inside of one for less than this loses nothing.
"""


@dataclass(frozen=True)
class RemovableVersion:
    """`line` is the path of the version's line, `path` that of its file: both relative to the graph, to the folder."""

    line: str
    version: int
    path: str
    size: int
    reason: str
    branch: str | None = None


@dataclass(frozen=True)
class RemovableFile:
    path: str
    size: int
    kind: str
    reason: str
    last_version: int | None = None
    """The newest version that referred to it, if one did."""


@dataclass(frozen=True)
class RemovableFork:
    table_key: str
    fork: str
    path: str
    reason: str
    files: tuple[RemovableFile, ...] = ()

    @property
    def size(self) -> int:
        return sum(f.size for f in self.files)


@dataclass(frozen=True)
class Kept:
    """A version that the policy releases, and why it is retained."""

    line: str
    version: int
    because: tuple[str, ...]


@dataclass(frozen=True)
class TablePlan:
    """One table folder. `whole` is the reason if all of it is removed. `error`: planning failed; it is kept."""

    table_key: str
    path: str
    versions: tuple[RemovableVersion, ...] = ()
    files: tuple[RemovableFile, ...] = ()
    forks: tuple[RemovableFork, ...] = ()
    kept: tuple[Kept, ...] = ()
    whole: str | None = None
    error: str | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.versions or self.files or self.forks)

    @property
    def size(self) -> int:
        """Without the forks, which are counted on their own."""
        return sum(v.size for v in self.versions) + sum(f.size for f in self.files)

    @property
    def may_be_in_flight(self) -> bool:
        """Whether it names something that no published version ever needed."""
        return (
            self.whole in NEVER_PUBLISHED
            or any(f.reason == "unreferenced" for f in self.files)
            or any(f.reason in NEVER_PUBLISHED for f in self.forks)
        )

    def by_line(self) -> dict[str, frozenset[int]]:
        numbers: dict[str, set[int]] = {}
        for version in self.versions:
            numbers.setdefault(version.line, set()).add(version.version)
        return {line: frozenset(versions) for line, versions in numbers.items()}


@dataclass(frozen=True)
class CleanupPlan:
    graph: str
    policy: Policy
    made_at_s: float
    """The store's time."""
    tables: tuple[TablePlan, ...]
    staging: tuple[Staged, ...] = ()
    caches: tuple[Staged, ...] = ()
    warnings: tuple[str, ...] = ()
    leases: tuple[str, ...] = field(default=())


# ---- one table folder ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Facts:
    """The input of planning, beside the folder itself."""

    committer: Committer
    retained: RetainedVersions
    policy: Policy
    now_s: float
    keys: Mapping[str, str]
    handles: Mapping[LineVersion, Any]
    announced_files: Mapping[str, Set[str]]
    """Files by folder that the announcements of crashed cleanups name."""
    in_flight: InFlight


def plan_folder(facts: Facts, path: str) -> TablePlan:
    location = facts.committer.manifest.location
    folder = folder_of(path, ObjectStore(location, path).iter_files())
    key = facts.keys.get(table_of(path), path)
    if path == MANIFEST:
        return _plan_manifest(facts, folder)
    if not facts.retained.is_read(path):
        return _plan_unread(facts, folder)
    tags = read_tags(location, folder)
    leaving = {
        line.path: why
        for line in folder.lines.values()
        if line.fork is not None
        and (why := _fork_removal_reason(facts, folder, line, is_tagged=any(tagged[0] == line.path for tagged in tags)))
    }
    versions: list[RemovableVersion] = []
    kept: list[Kept] = []
    for line in folder.lines.values():
        if line.path not in leaving and line.versions:
            rule, branch = _rule_of(facts, line)
            for entry in _of_line(facts, folder, line, rule, branch, tags):
                versions.append(entry) if isinstance(entry, RemovableVersion) else kept.append(entry)
    plan = TablePlan(key, path, versions=tuple(versions), kept=tuple(kept))
    references = _references(facts, folder, plan, leaving)
    forks = tuple(_fork(folder, folder.lines[line], why, key, references) for line, why in sorted(leaving.items()))
    files = tuple(_files(facts, folder, references, leaving))
    return replace(plan, files=files, forks=forks)


def _fork_removal_reason(facts: Facts, folder: Folder, line: Line, *, is_tagged: bool) -> str | None:
    why = fork_removal_reason(
        facts.committer, folder, line, facts.retained, facts.policy, now_s=facts.now_s, is_tagged=is_tagged
    )
    return None if why in NEVER_PUBLISHED and facts.in_flight.writes(table_of(folder.path)) else why


def _rule_of(facts: Facts, line: Line) -> tuple[Rule, str | None]:
    """The rule for a line and its branch. A kept line of no live branch keeps everything."""
    if line.fork is None:
        return facts.policy.rule(MAIN), MAIN
    branch = facts.retained.incarnations.get(line.fork.partition("-")[0])
    return (Rule(), None) if branch is None else (facts.policy.rule(branch), branch)


def _of_line(
    facts: Facts,
    folder: Folder,
    line: Line,
    rule: Rule,
    branch: str | None,
    tags: Mapping[tuple[str, int], tuple[str, ...]],
) -> Iterator[RemovableVersion | Kept]:
    where = f"{folder.path}/{line.path}".rstrip("/")
    superseded_s: float | None = None
    for rank, version in enumerate(sorted(line.versions, reverse=True)):
        file = line.versions[version]
        ago_s = None if superseded_s is None else facts.now_s - superseded_s
        superseded_s = file.modified_s
        if not rule.releases(rank=rank, superseded_s_ago=ago_s):
            continue
        because = (*facts.retained.why(where, version), *(f"lance_tag:{t}" for t in tags.get((line.path, version), ())))
        if because:
            yield Kept(where, version, because)
        else:
            yield RemovableVersion(where, version, file.path, file.size, "policy", branch)


def _references(facts: Facts, folder: Folder, plan: TablePlan, leaving: Mapping[str, str]) -> References:
    references = References()
    going = plan.by_line()
    for line in folder.lines.values():
        if not line.versions:
            continue
        where = f"{folder.path}/{line.path}".rstrip("/")
        leaves = frozenset(line.versions) if line.path in leaving else going.get(where, frozenset())
        read_references(
            facts.committer.manifest.location,
            folder,
            line,
            going=leaves,
            into=references,
            handle=facts.handles.get((where, line.head)),
            was_published=leaving.get(line.path) not in NEVER_PUBLISHED,
        )
    return references


def _fork(folder: Folder, line: Line, why: str, key: str, references: References) -> RemovableFork:
    """A fork with all files below it, except those that another line still reads; its ref comes first."""
    assert line.fork is not None
    ref = folder.refs.get(line.fork)
    order = sorted(folder.by_line.get(line.path, ()), key=lambda f: (f.version is None, f.version or 0, f.path))
    files = [*([ref] if ref else []), *(f for f in order if not references.needs(f))]
    removable = tuple(RemovableFile(f.path, f.size, f.kind, why) for f in files)
    return RemovableFork(key, line.fork, f"{folder.path}/{line.path}", why, removable)


def _files(facts: Facts, folder: Folder, references: References, leaving: Mapping[str, str]) -> Iterator[RemovableFile]:
    announced = facts.announced_files.get(folder.path, frozenset())
    for file in folder.files:
        if file.version is not None or references.needs(file) or file.line in leaving:
            continue
        last = references.removed.get(file.key)
        if last is not None:
            yield RemovableFile(file.path, file.size, file.kind, "only_in_removed_versions", last[1])
        elif file.path in announced:
            yield RemovableFile(file.path, file.size, file.kind, "left_by_a_cleanup")
        elif _is_removable_orphan(facts, folder, file):
            yield RemovableFile(file.path, file.size, file.kind, "unreferenced")


def _is_removable_orphan(facts: Facts, folder: Folder, file: File) -> bool:
    """Whether a file that no published version ever needed may be removed as one of a crashed writer."""
    age_s = facts.now_s - file.modified_s
    if folder.path == MANIFEST:
        is_written, minimum_s = facts.in_flight.is_any, MANIFEST_ORPHANS_MIN_S
    else:
        is_written, minimum_s = facts.in_flight.writes(table_of(folder.path)), 0.0
    return not is_written and age_s >= max(minimum_s, facts.policy.orphans_older_than_s)


# ---- folders that no live branch pins --------------------------------------------------------------------------------


def _plan_unread(facts: Facts, folder: Folder) -> TablePlan:
    location = facts.committer.manifest.location
    manifest = facts.committer.manifest
    drops = drops_of(manifest, table_of(folder.path), facts.retained)
    key = (key_before_drop(manifest, table_of(folder.path), drops[0]) if drops else None) or folder.path
    # A tag of Lance keeps its version, and a fork of a table needs the table.
    tags = read_tags(location, folder) if folder.lines[""].versions else {}
    why = folder_removal_reason(facts.committer, folder, facts.retained, facts.policy, now_s=facts.now_s)
    if why is None or (why in NEVER_PUBLISHED and facts.in_flight.is_any):
        return TablePlan(key, folder.path)
    if folder.tags:
        kept = tuple(
            Kept(f"{folder.path}/{line}".rstrip("/"), number, tuple(f"lance_tag:{tag}" for tag in named))
            for (line, number), named in sorted(tags.items())
        )
        return TablePlan(key, folder.path, kept=kept)
    versions = [
        RemovableVersion(f"{folder.path}/{line.path}".rstrip("/"), number, file.path, file.size, why)
        for line in folder.lines.values()
        for number, file in line.versions.items()
    ]
    unversioned = [f for f in (*folder.files, *folder.other) if f.version is None]
    files = tuple(RemovableFile(f.path, f.size, f.kind, why) for f in unversioned)
    return TablePlan(key, folder.path, versions=tuple(versions), files=files, whole=why)


# ---- the manifest ----------------------------------------------------------------------------------------------------


def _plan_manifest(facts: Facts, folder: Folder) -> TablePlan:
    """The manifest's own versions are removed only as a prefix: the oldest ones, up to the first that is kept."""
    line = folder.lines[""]
    rule = facts.policy.rule(MAIN)
    minimum_s = facts.policy.manifest_older_than_s
    tags = read_tags(facts.committer.manifest.location, folder)
    removable: dict[int, File] = {}
    superseded_s: float | None = None
    for rank, version in enumerate(sorted(line.versions, reverse=True)):
        ago_s = None if superseded_s is None else facts.now_s - superseded_s
        superseded_s = line.versions[version].modified_s
        old = ago_s is not None and ago_s >= minimum_s and rule.releases(rank=rank, superseded_s_ago=ago_s)
        if old and ("", version) not in tags:
            removable[version] = line.versions[version]
        else:
            removable.clear()
    versions = tuple(
        RemovableVersion(MANIFEST, number, file.path, file.size, "policy") for number, file in sorted(removable.items())
    )
    plan = TablePlan(MANIFEST, MANIFEST, versions=versions)
    references = _references(facts, folder, plan, {})
    return replace(plan, files=tuple(_files(facts, folder, references, {})))
