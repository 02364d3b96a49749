"""What a clone consists of: which files of which versions go where.

Whole history: for every line of versions (a root table, a fork) that a commit or a head in one version of the manifest
pins, all versions up to the highest pin. Versions above belong to running writers, lines that nothing pins to
crashed writers: both are left out, and so are control objects. Files keep their paths.

One state: of every table the one version that the state pins, as the only version of a root table
(`storage/lance/flatten`). Files of forks get the path that they would have in the root table.

A plan names only files that were listed. What a version needs and was not listed is `missing`: the graph is damaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.errors import StorageError
from omnigraph.storage.files.references import File, Folder, Line, folder_of, needed_keys, read_tags
from omnigraph.storage.files.version_file import NotUnderstood
from omnigraph.storage.layout import MANIFEST, Location
from omnigraph.storage.manifest.records import Pin, Record
from omnigraph.storage.objects.store import ObjectStore

if TYPE_CHECKING:
    from omnigraph.storage.manifest.table import Manifest

_INDEX = "_indices/"


@dataclass(frozen=True)
class CopiedFile:
    """A file that is copied byte by byte, by its paths relative to the graphs. `is_immutable`: it may be linked."""

    source: str
    target: str
    size: int
    is_immutable: bool = True


@dataclass(frozen=True)
class CopiedVersion:
    """The file of a version, which is rewritten for its new place."""

    source: str
    target: str
    table: str
    is_flattened: bool = False


@dataclass(frozen=True)
class TablePlan:
    """One table folder: `versions` are by line, relative to the folder."""

    table: str
    versions: Mapping[str, Set[int]]
    folder: Folder


@dataclass(frozen=True)
class CopyPlan:
    files: tuple[CopiedFile, ...]
    versions: tuple[CopiedVersion, ...]
    missing: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.size for file in self.files)


# ---- which versions --------------------------------------------------------------------------------------------------


def highest_pins(manifest: Manifest) -> dict[str, Pin]:
    """By the path of its line, the highest version of it that a head or a commit pins, in one version of the manifest.

    `manifest` is fixed at one version.
    """
    highest: dict[str, Pin] = {}
    for pin in _pins(manifest):
        previous = highest.get(pin.path)
        if previous is None or previous.version < pin.version:
            highest[pin.path] = pin
    return highest


def _pins(manifest: Manifest) -> Iterator[Pin]:
    for head in manifest.heads().values():
        yield from (pin for pin in head.pins.values() if pin is not None)
        for record in head.recent:
            yield from _of_record(record)
    for batch in manifest.table().to_batches(columns=["body"], filter="kind = 'commit'"):
        for body in batch.column("body").to_pylist():
            yield from _of_record(Record.loads(body))


def _of_record(record: Record) -> Iterator[Pin]:
    pins = (*record.delta.values(), *(record.snapshot or {}).values())
    return (pin for pin in pins if pin is not None)


def whole_tables(location: Location, highest: Mapping[str, Pin]) -> Iterator[TablePlan]:
    """Every existing version of the pinned lines, up to the highest pin."""
    for root in sorted({pin.root for pin in highest.values()}):
        folder = _listed(location, root)
        versions: dict[str, Set[int]] = {}
        for line in folder.lines.values():
            pin = highest.get(f"{root}/{line.path}".rstrip("/"))
            if pin is not None:
                versions[line.path] = frozenset(v for v in line.versions if v <= pin.version)
        yield TablePlan(root, versions, folder)


def state_tables(location: Location, pins: Iterable[Pin]) -> Iterator[TablePlan]:
    """Exactly what one state pins."""
    for pin in sorted(pins, key=lambda pin: pin.root):
        line = pin.path.removeprefix(pin.root).lstrip("/")
        yield TablePlan(pin.root, {line: frozenset((pin.version,))}, _listed(location, pin.root))


def pins_of(tables: Iterable[TablePlan], highest: Mapping[str, Pin]) -> Iterator[Pin]:
    """The versions of a plan as pins, for a lease on them."""
    for table in tables:
        for line, versions in table.versions.items():
            pin = highest[f"{table.table}/{line}".rstrip("/")]
            yield from (pin.at(version) for version in versions)


def _listed(location: Location, path: str) -> Folder:
    return folder_of(path, ObjectStore(location, path).iter_files())


# ---- which files -----------------------------------------------------------------------------------------------------


def copy_plan(location: Location, tables: Iterable[TablePlan], *, is_flattened: bool) -> CopyPlan:
    files: list[CopiedFile] = []
    versions: list[CopiedVersion] = []
    missing: list[str] = []
    for table in tables:
        needed = _needed(location, table)
        here = [file for file in table.folder.files if file.key in needed and file.version is None]
        keys = {file.key for file in here}
        missing += [f"{table.table}/{key}" for key in sorted(needed - keys) if not _may_be_missing(key)]
        if is_flattened:
            files += (_flat_file(table.table, file) for file in here if file.kind != "transaction")
        else:
            files += (_same_place(table.table, file) for file in here)
            files += (_same_place(table.table, file, False) for file in _notes(location, table))
        for line in table.versions:
            files_of = table.folder.lines[line].versions
            for version in sorted(table.versions[line]):
                if version not in files_of:
                    missing.append(f"{table.table}/{line}".rstrip("/") + f" version {version}")
                    continue
                versions.append(_version(table.table, files_of[version], is_flattened=is_flattened))
    return CopyPlan(tuple(files), tuple(versions), tuple(missing))


def manifest_plan(location: Location, version: int) -> CopyPlan:
    """The files of one version of the manifest, without the version's own file, which is published last."""
    folder = _listed(location, MANIFEST)
    table = TablePlan(MANIFEST, {"": frozenset((version,))}, folder)
    plan = copy_plan(location, [table], is_flattened=False)
    return CopyPlan(plan.files, (), plan.missing)


def _needed(location: Location, table: TablePlan) -> set[str]:
    keys: set[str] = set()
    try:
        for path, versions in table.versions.items():
            line: Line = table.folder.lines[path]
            keys |= needed_keys(location, table.folder, line, frozenset(versions) & frozenset(line.versions))
    except NotUnderstood as error:
        detail = f"this omnigraph does not know what is in a version of it: {error}"
        raise StorageError(doing=f"reading {table.table}", detail=detail) from error
    return keys


def _may_be_missing(key: str) -> bool:
    """Lance keeps small indices in the version's file, and removes transactions before the versions that they made."""
    return key.startswith(_INDEX) or "_transactions/" in key


def _notes(location: Location, table: TablePlan) -> Iterator[File]:
    """Lance's notes of the forks that are copied, and of tags that name copied versions."""
    for fork, note in table.folder.refs.items():
        if any(table.folder.lines[line].fork == fork for line in table.versions):
            yield note
    names = {
        name
        for (line, version), tags in read_tags(location, table.folder).items()
        if version in table.versions.get(line, ())
        for name in tags
    }
    for file in table.folder.other:
        if file.path in {f"_refs/tags/{name}.json" for name in names}:
            yield file


def _same_place(table: str, file: File, is_immutable: bool = True) -> CopiedFile:
    path = f"{table}/{file.path}"
    return CopiedFile(path, path, file.size, is_immutable)


def _flat_file(table: str, file: File) -> CopiedFile:
    below = file.path.removeprefix(file.line).lstrip("/")
    return CopiedFile(f"{table}/{file.path}", f"{table}/{below}", file.size)


def _version(table: str, file: File, *, is_flattened: bool) -> CopiedVersion:
    below = file.path.removeprefix(file.line).lstrip("/") if is_flattened else file.path
    return CopiedVersion(f"{table}/{file.path}", f"{table}/{below}", table, is_flattened)
