"""The files task: one table with all its forks, by one listing of its folder. No data is read.

1. open      every published version whose own file is undamaged; what can't be opened is reported and not checked
             further
2. shape     its columns are those of the schema, its counts those that the head records
3. needs     every data file with its recorded size, every deletion file, every segment of every index with its
             recorded bytes
4. coverage  live fragments that an index does not cover, and indices of missing columns
5. strays    orphan files that are older than work in flight can be, and forks that no branch has; older versions are
             read only if unexplained files remain

The result has what later tasks are planned from: fragments, indices, bytes.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from omnigraph.errors import GraphMoved, StorageError, SymlinkInGraph
from omnigraph.maintenance.verify.checksums import BLOB, DATA, DELETION, damage, version_file
from omnigraph.maintenance.verify.findings import DROPPED, FOREIGN, INDEX, Finding, make_finding
from omnigraph.maintenance.verify.reading import read, reading, reason
from omnigraph.maintenance.verify.scope import Line, line_of, location_of
from omnigraph.maintenance.verify.tables import finding_json, line_finding, live_rows, opened
from omnigraph.storage import durability
from omnigraph.storage.files.references import folder_of
from omnigraph.storage.lance import lance_api
from omnigraph.storage.lance.indices import FRAGMENT_REUSE, BuiltIndex, built_indices
from omnigraph.storage.lance.tables import storage_schema
from omnigraph.storage.layout import Location
from omnigraph.storage.objects.store import ObjectStore, StoredFile

HISTORY_TRIES = 3
INDEX_OF = "index "
# Lance's own bookkeeping: every commit replaces it or leaves it behind, and no version names it.
BOOKKEEPING = re.compile(r"(^|/)(_versions/|_transactions/|_refs/|_latest)|\.(tmp|torn)|#\d+$|(^|/)\.tmp")


@dataclass(frozen=True)
class Needed:
    """A file, or with `is_folder` all files of a folder together, that a version needs; `size` None if not recorded."""

    path: str
    size: int | None
    what: str
    is_folder: bool = False


class Folder:
    """One listing of a table's folder."""

    def __init__(self, files: list[StoredFile]) -> None:
        self.files = files

    @cached_property
    def by_path(self) -> dict[str, StoredFile]:
        return {f.path: f for f in self.files}

    def size_of(self, path: str) -> int:
        return self.by_path[path].size if path in self.by_path else 0

    @cached_property
    def inside(self) -> dict[str, list[StoredFile]]:
        """The files directly in each folder."""
        by_folder: dict[str, list[StoredFile]] = {}
        for file in self.files:
            by_folder.setdefault(posixpath.dirname(file.path), []).append(file)
        return by_folder

    @cached_property
    def folders(self) -> dict[str, tuple[int, int]]:
        """Files and bytes directly in each folder."""
        totals: dict[str, tuple[int, int]] = {}
        for file in self.files:
            folder = posixpath.dirname(file.path)
            count, size = totals.get(folder, (0, 0))
            totals[folder] = (count + 1, size + file.size)
        return totals


def _listed(location: Location, root: str) -> tuple[Folder, list[str]]:
    """The table's files, and the symbolic links among them."""
    links: list[str] = []
    try:
        return Folder(ObjectStore(location, root).list_files(links=links)), sorted(links)
    except SymlinkInGraph:
        return Folder([]), []  # its versions can't be opened either, which is reported for each of them


def check_table(task: Mapping[str, Any]) -> dict[str, Any]:
    """The task: `lines` of one table, `forks` that some branch of the graph has, `old_s` before which a file is old.

    If not all `forks` are known they are None, and nothing is reported as a stray.
    """
    location = location_of(task["place"])
    lines = [line_of(body) for body in task["lines"]]
    folder, links = _listed(location, task["root"])
    findings: list[Finding] = []
    if links:
        text = f"symbolic links lie in {task['root']}, and cleanup refuses the table as long as they do"
        findings.append(make_finding("symlink", text, table=lines[0].type.key, count=len(links), examples=links))
    facts: dict[str, Any] = {}
    needed: set[str] = set()
    for line in lines:
        damaged = _check_version_file(location, line, task["version_crcs"].get(line.version_id, ()))
        if damaged is not None:
            findings.append(damaged)
            continue
        try:
            findings_read, fact, needs = read(
                location,
                f"looking at {line.pin.path}",
                partial(_check_line, location, line, folder),
            )
        except lance_api.TableMissing:
            text = f"version {line.pin.version} of {line.pin.path}, which {line.branch} pins, is not there"
            findings.append(line_finding("version_missing", line, text))
            continue
        except GraphMoved as error:
            text = f"{line.pin.path} refers to data at another address than the graph's"
            findings.append(line_finding("graph_moved", line, text, examples=[error.fields["recorded_root"]]))
            continue
        except StorageError as error:
            text = f"version {line.pin.version} of {line.pin.path}, which {line.branch} pins, can't be opened"
            findings.append(line_finding("version_unreadable", line, text, examples=[reason(error)]))
            continue
        findings += findings_read
        needed |= needs
        facts[line.version_id] = fact
    unopened = len(facts) < len(lines)
    if not unopened and task["forks"] is not None:
        findings += _strays(location, task, lines[0], folder, needed)
    return {
        "findings": [finding_json(f) for f in findings],
        "facts": facts,
        "files": len(folder.files),
        "bytes": sum(f.size for f in folder.files),
    }


def _check_version_file(location: Location, line: Line, expected: Sequence[int]) -> Finding | None:
    """A version whose own file is damaged is not opened: damaged bytes make Lance fail in any way."""
    detail = damage(location, version_file(line), expected) if expected else None
    if detail is None:
        return None
    text = f"version {line.pin.version} of {line.pin.path}, which {line.branch} pins, does not hold what was written"
    return line_finding("checksum_mismatch", line, text, examples=[detail])


# ---- one version -----------------------------------------------------------------------------------------------------


def _check_line(location: Location, line: Line, folder: Folder) -> tuple[list[Finding], dict[str, Any], set[str]]:
    table = opened(location, line, reads_rows=False)
    fragments = [f.metadata.to_json() for f in table.get_fragments()]
    roots = _roots(location, line, table)
    if None in roots.values():
        text = f"{line.pin.path} refers to data at another address than the graph's"
        moved = [line_finding("graph_moved", line, text, examples=[b.path for b in table.base_paths().values()])]
        return moved, {}, set()
    needs = list(_needed(line, table, fragments, roots))
    findings = [*_check_shape(line, table, fragments), *_check_needed(line, needs, folder)]
    built = built_indices(table)
    fields = _field_ids(table.lance_schema.fields())
    orphaned = [index for index in built if not fields.issuperset(index.fields)]
    live = {f["id"]: live_rows(f) for f in fragments}
    indices = [_index(index, live) for index in built if index not in orphaned]
    if not line.is_base:
        findings += [*_check_coverage(line, indices), *_check_fields(line, orphaned)]
    broken = {need.what for need in needs if _problem(need, folder) is not None}
    whole = all(what.startswith(INDEX_OF) for what in broken)
    fact = {
        "fragments": [[f["id"], live_rows(f)] for f in fragments],
        # One index of a missing column makes Lance refuse every filter, so that no other can be queried either.
        "indices": [i for i in indices if whole and not orphaned and f"{INDEX_OF}{i['name']}" not in broken],
        "filters": not orphaned,
        "bytes": sum(n.size or 0 for n in needs if n.what == DATA),
        "version_bytes": folder.size_of(posixpath.relpath(version_file(line), line.pin.root)),
        "stable": bool(table.has_stable_row_ids),
        "whole": whole,
        "files": [[*f] for need in needs if _problem(need, folder) is None for f in _stored(need, folder)],
    }
    return findings, fact, {n.path for n in needs}


def _field_ids(fields: Iterable[Any]) -> set[int]:
    return {i for field in fields for i in (field.id(), *_field_ids(field.children()))}


def _index(built: BuiltIndex, live: Mapping[int, int]) -> dict[str, Any]:
    return {
        "name": built.name,
        "kind": built.kind,
        "column": built.column,
        "uncovered_fragments": sum(i not in built.covered for i in live),
        "uncovered_rows": sum(rows for i, rows in live.items() if i not in built.covered),
    }


def _check_coverage(line: Line, indices: list[dict[str, Any]]) -> Iterator[Finding]:
    """One finding for the table: what a write leaves uncovered is uncovered in all its indices."""
    behind = [index for index in indices if index["uncovered_rows"]]
    if behind:
        rows, fragments = (max(i[f"uncovered_{of}"] for i in behind) for of in ("rows", "fragments"))
        names = ", ".join(f"{i['name']} ({i['kind']})" for i in behind)
        text = f"rows in {_many(fragments, 'fragment')} are not covered by {_many(len(behind), 'index')}: {names}"
        yield line_finding("index_uncovered", line, text, count=rows)


def _check_fields(line: Line, orphaned: list[BuiltIndex]) -> Iterator[Finding]:
    for index in orphaned:
        text = (
            f"the index {index.name} ({index.kind}) is of a property that the table does not have: every filter fails"
        )
        yield line_finding("index_unreadable", line, text, cause=DROPPED)


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {'indices' if what == 'index' else what + 's'}"


def _check_shape(line: Line, table: Any, fragments: list[dict[str, Any]]) -> Iterator[Finding]:
    expected = {f.name: f.type for f in storage_schema(line.type)}
    stored = {f.name: f.type for f in table.schema}
    wrong = [f"{name} is missing" for name in expected if name not in stored]
    # Blobs are compared by name only: how Lance shows their type depends on the version of their files.
    wrong += [
        f"{name} is {stored[name]}, not {kind}"
        for name, kind in expected.items()
        if name in stored and _plain(kind) and _plain(stored[name]) and stored[name] != kind
    ]
    wrong += [f"{name} is not declared" for name in stored if name not in expected]
    if wrong and not line.is_base and not line.is_bare:
        text = f"the columns of {line.pin.path} at version {line.pin.version} are not those of the schema"
        yield line_finding("schema_mismatch", line, text, count=len(wrong), examples=wrong)
    rows = sum(live_rows(f) for f in fragments)
    noted = (line.pin.rows, line.pin.fragments)
    if noted[0] is not None and noted != (rows, len(fragments)):
        text = f"the head notes {noted[0]} rows in {noted[1]} fragments, there are {rows} in {len(fragments)}"
        yield line_finding("wrong_count", line, text)


def _plain(kind: Any) -> bool:
    import pyarrow as pa

    return not (isinstance(kind, pa.BaseExtensionType) or pa.types.is_struct(kind) or pa.types.is_large_binary(kind))


def _roots(location: Location, line: Line, table: Any) -> dict[int | None, str | None]:
    """Where files of each base lie, relative to the table's folder; None for one that is not in this graph."""
    own = "" if line.pin.fork is None else f"tree/{line.pin.fork}"
    roots: dict[int | None, str | None] = {None: own}
    for base in table.base_paths().values():
        path = base.path.rstrip("/")
        _, here, below = path.rpartition(line.pin.root)
        is_here = bool(here) and (not location.is_local or path.startswith(location.join(line.pin.root)))
        roots[base.id] = below.strip("/") if is_here else None
    return roots


def _needed(
    line: Line, table: Any, fragments: list[dict[str, Any]], roots: Mapping[int | None, str | None]
) -> Iterator[Needed]:
    def path_of(base: int | None, *parts: str) -> str:
        return posixpath.join(roots.get(base) or "", *parts)

    for fragment in fragments:
        for file in fragment["files"]:
            yield Needed(path_of(file.get("base_id"), "data", file["path"]), file.get("file_size_bytes"), DATA)
        deletion = fragment.get("deletion_file")
        if deletion:
            name = posixpath.basename(durability.deletion_path("", fragment["id"], deletion))
            yield Needed(path_of(deletion.get("base_id"), "_deletions", name), None, DELETION)
    for described in table.describe_indices():
        for segment in described.segments:
            if described.name == FRAGMENT_REUSE or segment.size_bytes == 0:
                continue  # it is in the table's manifest
            path = path_of(segment.base_id, "_indices", str(segment.uuid))
            yield Needed(path, segment.size_bytes, f"{INDEX_OF}{described.name}", is_folder=True)


def _stored(need: Needed, folder: Folder) -> Iterator[tuple[str, int, str]]:
    """The files, with their sizes, of a need: all of an index, the blobs beside a data file as well."""
    for file in folder.inside.get(need.path, ()) if need.is_folder else ():
        yield file.path, file.size, need.what
    if not need.is_folder and need.path in folder.by_path:
        yield need.path, folder.by_path[need.path].size, need.what
        for file in folder.inside.get(posixpath.splitext(need.path)[0], ()):
            yield file.path, file.size, BLOB


def _check_needed(line: Line, needs: list[Needed], folder: Folder) -> Iterator[Finding]:
    paths_by_problem: dict[tuple[str, str], list[str]] = {}
    for need in needs:
        problem = _problem(need, folder)
        if problem is not None:
            paths_by_problem.setdefault((problem[0], need.what), []).append(problem[1])
    words = {"missing_file": "are not there", "wrong_size": "have another size"}
    for (code, what), paths in paths_by_problem.items():
        text = f"version {line.pin.version} of {line.pin.path} needs files that {words[code]} ({what})"
        # A base of a branch is never written again: there an index is as lost as data.
        cause = INDEX if what.startswith(INDEX_OF) and not line.is_base else None
        yield line_finding(code, line, text, count=len(paths), examples=paths, cause=cause)


def _problem(need: Needed, folder: Folder) -> tuple[str, str] | None:
    """What is wrong with a file: a code, and a text that names the file."""
    size_bytes = _stored_size(need, folder)
    if size_bytes is None:
        return "missing_file", need.path
    if need.size is not None and size_bytes != need.size:
        return "wrong_size", f"{need.path}: {size_bytes} bytes, not {need.size}"
    return ("wrong_size", f"{need.path}: empty") if size_bytes == 0 else None


def _stored_size(need: Needed, folder: Folder) -> int | None:
    if need.is_folder:
        total = folder.folders.get(need.path)
        return None if total is None else total[1]
    file = folder.by_path.get(need.path)
    return None if file is None else file.size


# ---- strays ----------------------------------------------------------------------------------------------------------


def _strays(
    location: Location, task: Mapping[str, Any], line: Line, folder: Folder, needed: set[str]
) -> Iterator[Finding]:
    changed_s: dict[str, float] = {}
    for file in folder.files:
        if file.path.startswith("tree/") and file.path.count("/") > 1:
            fork = file.path.split("/")[1]
            changed_s[fork] = max(changed_s.get(fork, 0.0), file.modified_s)
    forks = set(task["forks"])
    orphans = {fork for fork, at_s in changed_s.items() if fork not in forks and at_s < task["old_s"]}
    if orphans:
        text = f"forks of {line.pin.root} belong to no branch"
        yield make_finding("orphan_fork", text, table=line.type.key, count=len(orphans), examples=sorted(orphans))

    def unexplained(explained: set[str]) -> list[str]:
        return [
            f.path
            for f in folder.files
            if f.modified_s < task["old_s"]
            and not BOOKKEEPING.search(f.path)
            and not _explains(f.path, explained)
            and not (f.path.startswith("tree/") and f.path.split("/")[1] not in forks)
        ]

    unreferenced = unexplained(needed)
    foreign = {f.path for f in folder_of(line.pin.root, (StoredFile(path, 0, 0.0) for path in unreferenced)).other}
    if foreign:
        text = f"files in {line.pin.root} lie where omnigraph puts none"
        names = sorted(foreign)
        yield make_finding(
            "unexplained_file", text, table=line.type.key, count=len(names), examples=names, cause=FOREIGN
        )
    if not foreign.issuperset(unreferenced):
        yield from _unreferred(
            location, line, sorted(forks), lambda explained: unexplained(needed | foreign | explained)
        )


def _unreferred(
    location: Location, line: Line, forks: list[str], unexplained: Callable[[set[str]], list[str]]
) -> Iterator[Finding]:
    try:
        unreferenced = unexplained(_all_referred(location, line, forks))
    except GraphMoved as error:
        text = f"forks of {line.pin.root} refer to data at another address than the graph's"
        yield make_finding("graph_moved", text, table=line.type.key, examples=[error.fields["recorded_root"]])
        return
    except StorageError as error:
        text = f"older versions of {line.pin.root} can't be read"
        yield make_finding(
            "history_unreadable", text, table=line.type.key, branch=line.branch, examples=[reason(error)]
        )
        return
    if unreferenced:
        text = f"files in {line.pin.root} are referred to by no version"
        yield make_finding(
            "unexplained_file", text, table=line.type.key, count=len(unreferenced), examples=sorted(unreferenced)
        )


def _all_referred(location: Location, line: Line, forks: list[str]) -> set[str]:
    """What versions refer to. A version that a cleanup removes meanwhile fails once; a damaged one fails always."""
    for _ in range(HISTORY_TRIES - 1):
        with suppress(StorageError):
            return _referred(location, line, forks)
    return _referred(location, line, forks)


def _explains(path: str, explained: set[str]) -> bool:
    if path in explained or posixpath.dirname(path) in explained:
        return True
    # The large blobs of a data file lie in a folder of its name.
    folder = posixpath.dirname(path)
    return path.endswith(".blob") and f"{folder}.lance" in explained


def _referred(location: Location, line: Line, forks: list[str]) -> set[str]:
    """Everything that any version of the table, or of a fork that a branch has, refers to, in the table's folder."""
    explained: set[str] = set()
    for fork in (None, *forks):
        prefix = "" if fork is None else f"tree/{fork}"
        try:
            table = lance_api.open_newest(location, location.join(line.pin.root, *([prefix] if prefix else [])))
        except lance_api.TableMissing:
            continue
        with reading(f"reading the history of {line.pin.root}"):
            for batch in table.tracked_files():
                for base, path in zip(
                    batch.column("base_uri").to_pylist(), batch.column("path").to_pylist(), strict=True
                ):
                    below = base.rstrip("/").rpartition(line.pin.root)[2].strip("/")
                    explained.add(posixpath.join(below, path))
            if fork is not None:
                explained |= _indices_of(table)
    return explained


def _indices_of(fork: Any) -> set[str]:
    """Index folders of the root table that versions of a fork use: Lance lists only those of the fork itself."""
    folders: set[str] = set()
    for version in fork.versions():
        table = fork.checkout_version(version["version"])
        folders |= {f"_indices/{s.uuid}" for d in table.describe_indices() for s in d.segments if s.base_id is not None}
    return folders
