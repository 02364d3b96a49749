"""The files of a table folder, and which version of which version line refers to which file.

A table folder holds version lines: the root's own, and that of every fork below `tree/`. Files of one line may be
needed by another: forks write their data files into the root's `data/`, and read the root's files, and those of the
forks that they were made from, through base paths. So references are always read for all lines of a folder together.

Paths are relative to the table folder. A file is named by its key: large blobs lie beside their data file, in a folder
of its name, and go with it; an index is the folder of its uuid. Both are not named one by one by any version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import unquote

from omnigraph.storage.files.base_paths import TREE, below_table, require_own_bases
from omnigraph.storage.files.version_file import NotUnderstood, fragment_references, index_reference, parse_version
from omnigraph.storage.lance import lance_api
from omnigraph.storage.layout import Location
from omnigraph.storage.objects.store import ObjectStore, StoredFile

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["version", "transaction", "data", "deletion", "index", "torn", "detached", "half_written", "other"]

ROWS_AT_ONCE = 200_000
READS_AT_ONCE = 16
_BRANCH_REFS, _TAG_REFS = "_refs/branches/", "_refs/tags/"
_FOLDERS: dict[str, Kind] = {
    "_versions": "version",
    "_transactions": "transaction",
    "data": "data",
    "_deletions": "deletion",
    "_indices": "index",
}
_IN_A_LINE = re.compile(rf"/(?={'|'.join(_FOLDERS)}/)")
_VERSION = re.compile(r"(?:^|/)_versions/(\d{20})\.manifest$")
_HINT = "_versions/latest_version_hint.json"
_HALF_WRITTEN = re.compile(r"#\d+$|/\.tmp[^/]*$")


class File(NamedTuple):
    """One file of a table folder. `line` is empty for the root, `tree/<fork>` for a fork.

    `version` is the number, if it is the file of a version.
    """

    path: str
    size: int
    modified_s: float
    line: str
    kind: Kind
    key: str
    version: int | None = None


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

    `other` are files of unknown kind: they stay as long as the folder is in use.
    """

    path: str
    files: tuple[File, ...]
    lines: Mapping[str, Line]
    refs: Mapping[str, File]
    """Lance's own notes of forks, by fork."""
    tags: tuple[str, ...]
    other: tuple[File, ...]

    @cached_property
    def by_line(self) -> dict[str, list[File]]:
        """All files below each line."""
        files_by_line: dict[str, list[File]] = {}
        for file in (*self.files, *self.other):
            files_by_line.setdefault(file.line, []).append(file)
        return files_by_line


def folder_of(path: str, listed: Iterable[StoredFile]) -> Folder:
    """Classify a listing of the table folder at `path`."""
    files: list[File] = []
    other: list[File] = []
    refs: dict[str, File] = {}
    tags: list[str] = []
    entries = list(listed)
    forks = {fork for entry in entries if (fork := _named_fork(entry.path)) is not None}
    lines: dict[str, dict[int, File]] = {"": {}, **{f"{TREE}/{fork}": {} for fork in forks}}
    for entry in entries:
        name = entry.path
        line, rest = _line_of(name, forks)
        file = _file(name, entry.size, entry.modified_s, line, rest)
        if file.kind == "other":
            other.append(file)
            fork = _named_fork(name)
            if fork is not None:
                refs[fork] = file
            elif name.startswith(_TAG_REFS) and name.endswith(".json"):
                tags.append(name)
            continue
        files.append(file)
        line_versions = lines.setdefault(line, {})
        if file.version is not None:
            line_versions[file.version] = file
    lines_by_path = {line: Line(line, dict(sorted(versions.items()))) for line, versions in lines.items()}
    return Folder(path, tuple(files), lines_by_path, refs, tuple(tags), tuple(other))


def _named_fork(name: str) -> str | None:
    """The fork that a file is Lance's note of."""
    if not name.startswith(_BRANCH_REFS) or not name.endswith(".json"):
        return None
    return unquote(name[len(_BRANCH_REFS) : -len(".json")])


def _line_of(name: str, named: Set[str]) -> tuple[str, str]:
    """The line that a file lies in, and its path there. A fork may lie below another, and be called like a folder of a
    line: the longest name of a known fork counts, and of unknown ones the first folder that only lines have.
    """
    if not name.startswith(f"{TREE}/"):
        return "", name
    parts = name.split("/")
    for length in range(len(parts) - 1, 1, -1):
        if "/".join(parts[1:length]) in named:
            return "/".join(parts[:length]), "/".join(parts[length:])
    cut = _IN_A_LINE.search(name, len(TREE) + 1)
    return (name[: cut.start()], name[cut.end() :]) if cut else ("", name)


def _file(name: str, size: int, modified_s: float, line: str, rest: str) -> File:
    kind = _FOLDERS.get(rest.partition("/")[0], "other")
    version: int | None = None
    if kind == "version":
        version = version_number(rest)
        if version is None:
            kind = _odd_version(rest)
    elif ("#" in name or "/.tmp" in name) and _HALF_WRITTEN.search(name):
        kind = "half_written"
    key = name if kind not in ("data", "index") else _key(rest, kind, name[: len(name) - len(rest)])
    return File(name, size, modified_s, line, kind, key, version)


def version_number(path: str) -> int | None:
    """The number of the version whose file this is; None if it is another file."""
    found = _VERSION.search(path)
    return 2**64 - 1 - int(found[1]) if found else None


def _odd_version(rest: str) -> Kind:
    if rest == _HINT:
        return "other"
    if rest.endswith(".torn"):
        return "torn"
    if re.fullmatch(r"_versions/d\d+\.manifest", rest):
        return "detached"
    return "half_written" if _HALF_WRITTEN.search(rest) else "other"


def _key(rest: str, kind: Kind, prefix: str) -> str:
    """The key of a file `rest` of the line below `prefix`. Names of indices are unique, whichever line they lie in."""
    parts = rest.split("/")
    if kind == "data" and len(parts) > 2:
        return f"{prefix}data/{parts[1]}.lance"
    if kind == "index" and len(parts) > 2:
        return f"_indices/{parts[1]}/"
    return prefix + rest


# ---- references ------------------------------------------------------------------------------------------------------


@dataclass
class References:
    """The keys that kept versions refer to, and those that removed versions refer to, with the newest of these as
    (line, version).

    A removed version that a Restore had undone, because its operation was rolled back, counts as referring to nothing:
    its files may be prepared files of an operation that is still running and tries again. `every_index`: it is unknown
    which indices are needed, so all of them are kept.
    """

    kept: set[str] = field(default_factory=set)
    removed: dict[str, tuple[str, int]] = field(default_factory=dict)
    every_index: bool = False

    def needs(self, file: File) -> bool:
        return file.key in self.kept or (self.every_index and file.kind == "index")


def read_references(
    location: Location,
    folder: Folder,
    line: Line,
    *,
    going: Set[int],
    into: References,
    handle: Any = None,
    was_published: bool = True,
) -> None:
    """Add the references of every version of one line. Versions that are not in `going` are kept, also ones made since.
    `was_published` False: none of its versions was ever published, so all of them count as undone.

    All versions are read from their files, and the newest ones, above all in `going`, with Lance as well: a file that
    either of them names is kept. If a file can't be parsed, Lance reads all versions, and every index is kept, because
    Lance does not name the indices that a fork inherited; and all versions in `going` count as undone, because Lance
    does not say which were. In a line that is removed as a whole, files that can't be parsed are ignored: then its
    files count as unreferenced, and are removed when they are old.
    """
    if going >= set(line.versions):
        if not was_published:
            return
        with suppress(NotUnderstood):
            _read_files(location, folder, line, set(line.versions), going, into)
        return
    table = handle or lance_api.open_newest(location, location.join(folder.path, line.path).rstrip("/"))
    above = max(going) + 1 if going else line.head
    try:
        _read_files(location, folder, line, set(line.versions), going, into)
    except NotUnderstood:
        above = 0
        into.every_index = True
    by_lance = References()
    with lance_api.reading(f"reading the versions of {folder.path}/{line.path}"):
        for rows in _runs(table.tracked_files(min_version=above)):
            _add(rows, folder, line, going, by_lance)
    into.kept |= by_lance.kept


def needed_keys(location: Location, folder: Folder, line: Line, versions: Set[int]) -> set[str]:
    """The keys of all files that these versions of a line refer to. Raises NotUnderstood if that is unknown."""
    references = References()
    _read_files(location, folder, line, versions, frozenset(), references)
    return references.kept


def _read_files(
    location: Location, folder: Folder, line: Line, versions: Set[int], going: Set[int], into: References
) -> None:
    """Add the references from the files of some versions. Each fragment is parsed once for all versions with it."""
    stay: set[bytes] = set()
    leave: dict[bytes, int] = {}
    indices_stay: set[bytes] = set()
    indices_leave: dict[bytes, int] = {}
    bases: dict[int | None, str] = {None: f"{line.path}/" if line.path else ""}
    kept, removed = into.kept, into.removed
    undone_above = max(versions, default=0)
    for version, raw in _bodies(location, folder, line, versions):
        parsed = parse_version(raw)
        is_undone = version > undone_above
        undone_above = undone_above if parsed.restores is None else min(undone_above, parsed.restores)
        require_own_bases(location, folder.path, parsed.bases.values())
        for base, uri in parsed.bases.items():
            prefix = below_table(uri, folder.path)
            if bases.setdefault(base, prefix or "") != (prefix or "") or prefix is None:
                raise NotUnderstood(f"base path {base} lies elsewhere")
        transaction = None if parsed.transaction is None else f"{bases[None]}_transactions/{parsed.transaction}"
        if version in going:
            # Versions come newest first, so the newest version is recorded.
            for fragment in () if is_undone else parsed.fragments:
                leave.setdefault(fragment, version)
            for index in () if is_undone else parsed.indices:
                indices_leave.setdefault(index, version)
            if transaction is not None:
                removed[transaction] = (line.path, version)
        else:
            stay.update(parsed.fragments)
            indices_stay.update(parsed.indices)
            if transaction is not None:
                kept.add(transaction)
    try:
        for raw in stay:
            kept.update(bases[base_id] + path for base_id, path in fragment_references(raw))
        kept.update(path for _, path in map(index_reference, indices_stay))
        for raw, version in reversed(leave.items()):
            for base_id, path in fragment_references(raw):
                removed[bases[base_id] + path] = (line.path, version)
        for raw, version in reversed(indices_leave.items()):
            _, path = index_reference(raw)
            removed[path] = (line.path, version)
    except KeyError as error:
        raise NotUnderstood(f"base path {error} is not named") from error


def _bodies(location: Location, folder: Folder, line: Line, versions: Set[int]) -> Iterator[tuple[int, bytes]]:
    """The files of these versions, newest first. A version that was removed meanwhile refers to nothing."""
    order = sorted(versions, reverse=True)
    store = ObjectStore(location, folder.path)

    def read(version: int) -> bytes | None:
        try:
            return store.get(line.versions[version].path, doing=f"reading a version of {folder.path}")
        except FileNotFoundError:
            return None

    with ExitStack() as stack:
        bodies: Iterator[bytes | None] = map(read, order)
        if not location.is_local:
            pool = ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="omnigraph-versions")
            bodies = stack.enter_context(pool).map(read, order)
        for version, raw in zip(order, bodies, strict=True):
            if raw is not None:
                yield version, raw


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
        prefix = below_table(uri, folder.path)
        if prefix is None:
            continue  # a foreign folder: nothing there may be removed
        in_base = pc.equal(bases.indices, number)
        for path in pc.unique(rows["path"].filter(pc.and_(in_base, pc.invert(leaves)))).to_pylist():
            into.kept.add(_key_of(path, prefix))
        removed_rows = rows.filter(pc.and_(in_base, leaves)).select(["path", "version"])
        newest = removed_rows.group_by("path").aggregate([("version", "max")])
        for path, version in zip(newest["path"].to_pylist(), newest["version_max"].to_pylist(), strict=True):
            into.removed[_key_of(path, prefix)] = (line.path, version)


def _key_of(path: str, prefix: str) -> str:
    return _key(path, _FOLDERS.get(path.partition("/")[0], "other"), prefix)


# ---- tags ------------------------------------------------------------------------------------------------------------


def read_tags(location: Location, folder: Folder) -> dict[tuple[str, int], tuple[str, ...]]:
    """The versions that tags of Lance name: (line, version) to the tags. A tag that can't be read is StorageError."""
    tags_by_version: dict[tuple[str, int], tuple[str, ...]] = {}
    if not folder.tags:
        return tags_by_version
    table = lance_api.open_newest(location, location.join(folder.path))
    with lance_api.reading(f"reading the tags of {folder.path}"):
        for name, tag in table.tags.list().items():
            fork = tag.get("branch")
            line_and_version = (f"{TREE}/{fork}" if fork else "", int(tag["version"]))
            tags_by_version[line_and_version] = (*tags_by_version.get(line_and_version, ()), str(name))
    return tags_by_version
