"""Every verb declares every file that it has prepared: only what is declared is looked for before it is published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph.commit import attempt, effects
from omnigraph.commit.operation import Prepared, TableWork
from omnigraph.storage import durability
from omnigraph.storage.files.references import References, folder_of, read_references
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin
from omnigraph.storage.objects.store import ObjectStore
from tests.faults.scenes import Place
from tests.faults.verbs import by_name

VERBS = [
    *("upsert_types", "upsert_old", "delete_cascade", "load_overwrite", "bulk_append", "bulk_merge", "bulk_overwrite"),
    *("schema_add_type", "schema_add_property", "branch_fork", "branch_write", "fold_table"),
    *("optimize", "optimize_branch", "optimize_deferred", "optimize_drain", "embed"),
]
KINDS = ("data", "deletion", "index")


def needed(location: Location, pin: Pin) -> set[str]:
    """The files that one version of a line refers to, relative to the graph."""
    folder = folder_of(pin.root, ObjectStore(location, pin.root).iter_files())
    line = folder.lines[pin.path.removeprefix(pin.root).lstrip("/")]
    found = References()
    read_references(location, folder, line, going=set(line.versions) - {pin.version}, into=found)
    return {f"{pin.root}/{f.path}" for f in folder.files if f.kind in KINDS and found.needs(f)}


@pytest.mark.parametrize("name", VERBS)
def test_what_a_commit_adds_was_declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "off")
    verb, place = by_name(name), Place(str(tmp_path / "graph"))
    verb.start(place)
    added: dict[str, int] = {}
    run_effects = effects.run_effects

    def run(prepared: Prepared, *args: Any, **options: Any) -> None:
        location = prepared.view.tables.location
        before = {t: needed(location, work.pin) for t, work in prepared.tables.items()}
        declared = {t: set(work.files) for t, work in prepared.tables.items()}
        for t, work in prepared.tables.items():
            assert durability.manifest_path(work.pin.path, work.pin.version) in declared[t]
            assert all((tmp_path / "graph" / file).exists() for file in declared[t])
        run_effects(prepared, *args, **options)
        for t, work in prepared.tables.items():
            missing = needed(location, work.result) - before[t] - declared[t]
            assert not [f for f in missing if not _is_lances_own(work, f)], t
            added[t] = len(declared[t])

    monkeypatch.setattr(attempt.effects, "run_effects", run)
    verb.run(place)
    assert added


def _is_lances_own(work: TableWork, file: str) -> bool:
    """The fragment-reuse index that Lance writes while it commits: it is part of the effect, not of the preparation."""
    return work.last is not None and "/_indices/" in file
