"""The version of the manifest that acknowledged a commit is gone: tables know more than the head does."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.commit.advisory_lock import AdvisoryLock, AdvisoryLocks
from omnigraph.commit.operation import View
from omnigraph.commit.stamp import Stamp
from omnigraph.maintenance.verify import stray_checks
from omnigraph.storage.durability import manifest_path
from omnigraph.storage.manifest.records import Pin
from tests.commit import plant
from tests.maintenance.verify import damage


def newest_manifest(graph: og.Graph) -> Path:
    return Path(manifest_path(f"{graph.uri}/__manifest", graph._manifest.table().version))


@pytest.mark.parametrize("how", ["gone", "cut short"])
@pytest.mark.parametrize("branch", ["main", "side"])
def test_a_commit_whose_version_of_the_manifest_is_lost(plain: og.Graph, how: str, branch: str) -> None:
    damage.branch_out(plain)
    plain.upsert({"City": [{"name": "Trier"}]}, branch=branch)
    head, file = plain._manifest.head(branch), newest_manifest(plain)
    if how == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:500])
    finding = damage.only(
        og.open(plain.uri, engine="local").verify(quick=True), "commit_lost", severity="error", branch=branch
    )
    assert f"epoch {head.epoch} of {branch}" in finding.message
    assert finding.examples == ("node:City",)
    assert finding.remedy.startswith("Before the next write")


def test_an_operation_that_somebody_is_at_is_no_lost_commit(plain: og.Graph) -> None:
    plain.upsert({"City": [{"name": "Trier"}]})
    newest_manifest(plain).unlink()
    plant.lock(Path(plain.uri))
    result = og.open(plain.uri, engine="local").verify(quick=True)
    assert "commit_lost" not in {f.code for f in result.findings}


def test_a_commit_made_after_the_head_was_read_is_no_lost_commit(
    plain: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, real = og.open(plain.uri), stray_checks._stamps_above
    seen: list[int] = []

    def meanwhile(view: View, pin: Pin) -> list[Stamp]:
        if not seen:
            other.upsert({"City": [{"name": "Trier"}], "Person": [{"name": "new"}]})
        found = real(view, pin)
        seen.extend(stamp.epoch for stamp in found)
        return found

    monkeypatch.setattr(stray_checks, "_stamps_above", meanwhile)
    assert {f.code for f in plain.verify(quick=True).findings} <= {"index_uncovered"}
    assert other._manifest.head("main").epoch in seen, "its versions were looked at, and its ticket is gone"


def test_a_head_that_moves_after_the_ticket_was_looked_for_is_no_lost_commit(
    plain: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The effect is there and the head is not moved yet; whoever looks for the ticket finds it gone, the head moved."""
    plain.upsert({"City": [{"name": "Trier"}]})
    file = newest_manifest(plain)
    body = file.read_bytes()
    file.unlink()
    mine, real = og.open(plain.uri, engine="local"), AdvisoryLocks.holder

    def released(locks: AdvisoryLocks, incarnation: str, epoch: int) -> tuple[AdvisoryLock, bool] | None:
        found = real(locks, incarnation, epoch)
        file.write_bytes(body)
        return found

    monkeypatch.setattr(AdvisoryLocks, "holder", released)
    assert {f.code for f in mine.verify(quick=True).findings} <= {"index_uncovered"}
    assert file.exists(), "the ticket was looked for"
