"""Copy everything that a plan names, and compare the target with the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from omnigraph.errors import StorageError
from omnigraph.maintenance.clone.plan import CopiedFile, CopyPlan
from omnigraph.maintenance.clone.transfer import Transfer
from omnigraph.maintenance.concurrency import map_threads
from omnigraph.storage import durability
from omnigraph.storage.layout import MANIFEST, TABLE_FOLDERS, Location
from omnigraph.storage.objects import nofollow
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.tasks.progress import Watcher

_FOLDERS = (*TABLE_FOLDERS.values(), MANIFEST)


@dataclass(frozen=True)
class Copied:
    """All files of the clone with their bytes; how many are hard links, how many copies, how many existed before."""

    files: int = 0
    bytes: int = 0
    linked: int = 0
    copied: int = 0
    present: int = 0
    crcs: Mapping[str, int] = field(default_factory=dict)
    """Checksums of the files that are not the same as in the source."""

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "crcs"}


def copy_all(transfer: Transfer, *plans: CopyPlan, watcher: Watcher) -> Copied:
    """Steps 3 and 4 of a clone: the plans one after the other."""
    present = _sizes(transfer.target)
    files = [file for plan in plans for file in plan.files]
    todo = [file for file in files if present.get(file.target) != file.size]
    copied = _copy_files(transfer, todo, watcher)
    versions = [version for plan in plans for version in plan.versions]
    watcher.stage("writing versions", tasks=len(versions))
    written = list(map_threads(_remote(transfer), transfer.version, versions))
    expected = {file.target: file.size for file in files} | {version.path: version.size for version in written}
    _require_whole(transfer.target, expected)
    if transfer.target.is_local:
        for folder in _FOLDERS:
            durability.sync_tree(transfer.target.join(folder))
    return Copied(
        files=len(expected),
        bytes=sum(expected.values()),
        linked=copied["linked"],
        copied=copied["copied"] + len(versions),
        present=len(files) - len(todo),
        crcs={version.path: version.crc for version in written if version.crc is not None},
    )


def _copy_files(transfer: Transfer, files: list[CopiedFile], watcher: Watcher) -> Mapping[str, int]:
    counts = {"linked": 0, "copied": 0}
    size_bytes = 0
    watcher.stage("copying", tasks=len(files))
    for number, (file, how) in enumerate(
        zip(files, map_threads(_remote(transfer), transfer.file, files), strict=True), start=1
    ):
        counts[how] += 1
        size_bytes += file.size
        watcher.advance(tasks=number, rows=0, size_bytes=size_bytes)
    return counts


def _remote(transfer: Transfer) -> Location:
    """The location whose requests wait for a network, if one does."""
    return transfer.target if transfer.source.is_local else transfer.source


def _require_whole(target: Location, expected: Mapping[str, int]) -> None:
    """Require that every file exists with its size. Remove other files, which a stopped clone left."""
    sizes = _sizes(target)
    wrong = sorted(path for path, size in expected.items() if sizes.get(path) != size)
    if wrong:
        detail = f"{sizes.get(wrong[0], 0):,} of {expected[wrong[0]]:,} bytes are there"
        raise StorageError(doing=f"copying {wrong[0]} to {target.uri}", detail=detail)
    extra = [path for path in sizes if path not in expected]
    if extra:
        ObjectStore(target).delete_many(extra)
        nofollow.remove_empty_folders(target, _FOLDERS)


def _sizes(target: Location) -> dict[str, int]:
    return {
        f"{folder}/{file.path}": file.size for folder in _FOLDERS for file in ObjectStore(target, folder).list_files()
    }
