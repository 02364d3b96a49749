"""What a table folder holds, and which version of which line refers to what.

A table folder holds lines: the root's own versions, and those of every fork below `tree/`. Files of one line may be
needed by another: forks write their data files into the root's `data/`, and read the root's files, and those of the
forks that they were made from, through base paths. So references are always read of all lines of a folder together.

Paths are relative to the table folder. A file is named by its key: large blobs lie beside their data file, in a folder
of its name, and go with it; an index is the folder of its uuid. Both are not named one by one by any version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from omnigraph.storage import lancefs
from omnigraph.storage.layout import Location

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["version", "transaction", "data", "deletion", "index", "torn", "detached", "half_written", "other"]

ROWS_AT_ONCE = 200_000
TREE = "tree"
_BRANCH_REFS, _TAG_REFS = "_refs/branches/", "_refs/tags/"
_FOLDERS: dict[str, Kind] = {
    "_versions": "version",
    "_transactions": "transaction",
    "data": "data",
    "_deletions": "deletion",
    "_indices": "index",
}
_IN_A_LINE = re.compile(rf"/(?={'|'.join(_FOLDERS)}/)")
_VERSION = re.compile(r"_versions/(\d{20})\.manifest")
_HINT = "_versions/latest_version_hint.json"
_HALF_WRITTEN = re.compile(r"#\d+$|/\.tmp[^/]*$")


@dataclass(frozen=True)
class File:
    """One file of a table folder. `line` is empty for the root, `tree/<fork>` for a fork."""

    path: str
    size: int
    modified_s: float
    line: str
    kind: Kind
    key: str
    version: int | None = None
    """The number, if it is the file of a version."""


@dataclass(frozen=True)
class Line:
    """One line of versions: the root's, or a fork's."""

    path: str
    versions: Mapping[int, File] = field(default_factory=dict)

    @property
    def fork(self) -> str | None:
        return self.path.removeprefix(f"{TREE}/") or None

    @property
    def head(self) -> int:
        return max(self.versions)


@dataclass(frozen=True)
class Folder:
    """A table folder as it was listed: files of known kinds, lines, and what refers to lines by name.

    `other` are files whose place is not known here: nobody touches them as long as the folder is in use.
    """

    path: str
    files: tuple[File, ...]
    lines: Mapping[str, Line]
    refs: Mapping[str, File]
    """Lance's own notes of forks, by fork."""
    tags: tuple[str, ...]
    other: tuple[File, ...]


def folder_of(path: str, listed: Iterable[tuple[str, int, float]]) -> Folder:
    """Make sense of a listing: (path below the folder, size, time of the last change)."""
    files: list[File] = []
    other: list[File] = []
    refs: dict[str, File] = {}
    tags: list[str] = []
    lines: dict[str, dict[int, File]] = {"": {}}
    for name, size, modified_s in listed:
        line, rest = _line_of(name)
        file = _file(name, size, modified_s, line, rest)
        if file.kind == "other":
            other.append(file)
            if name.startswith(_BRANCH_REFS) and name.endswith(".json"):
                fork = unquote(name[len(_BRANCH_REFS) : -len(".json")])
                refs[fork] = file
                lines.setdefault(f"{TREE}/{fork}", {})
            elif name.startswith(_TAG_REFS) and name.endswith(".json"):
                tags.append(name)
            continue
        files.append(file)
        found = lines.setdefault(line, {})
        if file.version is not None:
            found[file.version] = file
    made = {line: Line(line, dict(sorted(versions.items()))) for line, versions in lines.items()}
    return Folder(path, tuple(files), made, refs, tuple(tags), tuple(other))


def _line_of(name: str) -> tuple[str, str]:
    if not name.startswith(f"{TREE}/"):
        return "", name
    cut = _IN_A_LINE.search(name)
    return (name[: cut.start()], name[cut.end() :]) if cut else ("", name)


def _file(name: str, size: int, modified_s: float, line: str, rest: str) -> File:
    kind = _FOLDERS.get(rest.partition("/")[0], "other")
    version: int | None = None
    if kind == "version":
        found = _VERSION.fullmatch(rest)
        if found:
            version = 2**64 - 1 - int(found[1])
        else:
            kind = _odd_version(rest)
    elif _HALF_WRITTEN.search(name):
        kind = "half_written"
    prefix = name[: len(name) - len(rest)]
    return File(name, size, modified_s, line, kind, prefix + _key(rest, kind), version)


def _odd_version(rest: str) -> Kind:
    if rest == _HINT:
        return "other"
    if rest.endswith(".torn"):
        return "torn"
    if re.fullmatch(r"_versions/d\d+\.manifest", rest):
        return "detached"
    return "half_written" if _HALF_WRITTEN.search(rest) else "other"


def _key(rest: str, kind: Kind) -> str:
    parts = rest.split("/")
    if kind == "data" and len(parts) > 2:
        return f"data/{parts[1]}.lance"
    if kind == "index" and len(parts) > 2:
        return f"_indices/{parts[1]}/"
    return rest


# ---- references ------------------------------------------------------------------------------------------------------


@dataclass
class References:
    """Which keys the versions that stay need, and which only those that go: with the newest of these."""

    kept: set[str] = field(default_factory=set)
    removed: dict[str, tuple[str, int]] = field(default_factory=dict)

    def only_removed(self, key: str) -> tuple[str, int] | None:
        """(line, version) that needed the key last, if no version that stays does."""
        return None if key in self.kept else self.removed.get(key)


def read_references(
    location: Location, folder: Folder, line: Line, *, going: Set[int], into: References, handle: Any = None
) -> None:
    """Add what every version of one line refers to. Versions that are not in `going` stay, also ones made since."""
    table = handle or lancefs.open_newest(location, location.join(folder.path, line.path).rstrip("/"))
    with lancefs.reading(f"reading the versions of {folder.path}/{line.path}"):
        for rows in _runs(table.tracked_files()):
            _add(rows, folder, line, going, into)


def _runs(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """The rows in runs of a bounded size: there is one per version and file."""
    import pyarrow as pa

    batches: list[pa.RecordBatch] = []
    count = 0
    for batch in reader:
        batches.append(batch)
        count += batch.num_rows
        if count >= ROWS_AT_ONCE:
            yield pa.Table.from_batches(batches)
            batches, count = [], 0
    if batches:
        yield pa.Table.from_batches(batches)


def _add(rows: pa.Table, folder: Folder, line: Line, going: Set[int], into: References) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = rows.unify_dictionaries().combine_chunks()
    bases = rows["base_uri"].combine_chunks()
    leaves = pc.is_in(rows["version"], pa.array(sorted(going), pa.int64()))
    for number, uri in enumerate(bases.dictionary.to_pylist()):
        prefix = _prefix(uri, folder.path)
        if prefix is None:
            continue  # a folder of somebody else: nothing there is ours to remove
        here = pc.equal(bases.indices, number)
        for path in pc.unique(rows["path"].filter(pc.and_(here, pc.invert(leaves)))).to_pylist():
            into.kept.add(prefix + _key_of(path))
        gone = rows.filter(pc.and_(here, leaves)).select(["path", "version"])
        newest = gone.group_by("path").aggregate([("version", "max")])
        for path, version in zip(newest["path"].to_pylist(), newest["version_max"].to_pylist(), strict=True):
            into.removed[prefix + _key_of(path)] = (line.path, version)


def _key_of(path: str) -> str:
    return _key(path, _FOLDERS.get(path.partition("/")[0], "other"))


def _prefix(uri: str, folder: str) -> str | None:
    """Where a base lies below the table folder, with a slash at its end; None if it lies elsewhere.

    By the folder's own name, which is unique, and not by the whole address: a graph that was moved is still itself.
    """
    head, found, below = uri.rstrip("/").rpartition(folder)
    if not found or (head and not head.endswith("/")):
        return None
    return "" if not below else f"{below.lstrip('/')}/" if below.startswith("/") else None


# ---- tags ------------------------------------------------------------------------------------------------------------


def read_tags(location: Location, folder: Folder) -> dict[tuple[str, int], tuple[str, ...]]:
    """The versions that tags of Lance name: (line, version) to the tags. A tag that can't be read is StorageError."""
    found: dict[tuple[str, int], tuple[str, ...]] = {}
    if not folder.tags:
        return found
    table = lancefs.open_newest(location, location.join(folder.path))
    with lancefs.reading(f"reading the tags of {folder.path}"):
        for name, tag in table.tags.list().items():
            fork = tag.get("branch")
            place = (f"{TREE}/{fork}" if fork else "", int(tag["version"]))
            found[place] = (*found.get(place, ()), str(name))
    return found
