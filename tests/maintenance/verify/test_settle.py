"""Damage is told beside living writers, and what they replaced, mended or collected is not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.maintenance.verify import VerifyResult
from omnigraph.maintenance.verify.recheck import ROUNDS_MAX
from tests.maintenance.verify import damage
from tests.support.dead_owners import Meanwhile

BLOBS = "looking at blobs"


def largest_blob(graph: og.Graph) -> Path:
    folder = damage.folder(graph, damage.pin_of(graph, "Person"))
    return max(folder.glob("data/*/*.blob"), key=lambda p: p.stat().st_size)


class Writes:
    """Another writer of Person, who has its turn at each call, at most so often; `collects` what was there before."""

    def __init__(self, graph: og.Graph, *, most: int, collects: bool = False) -> None:
        self._graph, self._left, self._collects = og.open(graph.uri), most, collects
        self.done = 0

    def __call__(self) -> None:
        if self.done < self._left:
            self.done += 1
            self._graph.upsert({"Person": [{"name": f"new{self.done}"}]})
            if self._collects:
                damage.newest(self._graph, "Person").cleanup_old_versions(retain_versions=1)


def verified_beside(graph: og.Graph, stage: str, work: Any, **options: Any) -> VerifyResult:
    return og.open(graph.uri, engine="local", watcher=Meanwhile(stage, work)).verify(**options)


@pytest.mark.parametrize("quick", [True, False], ids=["quick", "sampled"])
@pytest.mark.parametrize("writes", [1, ROUNDS_MAX, 99])
def test_what_the_versions_of_a_writer_need_as_well_stays_an_error(plain: og.Graph, writes: int, quick: bool) -> None:
    lost = largest_blob(plain)
    lost.unlink()
    other = Writes(plain, most=writes)
    result = verified_beside(plain, BLOBS, other, quick=quick)
    finding = damage.only(result, "unreadable_blob", severity="error", table="node:Person", branch="main")
    assert lost.name in finding.examples[0]
    assert other.done == min(writes, ROUNDS_MAX + 1), "the writer has come between"


def test_a_loss_that_outlives_the_collected_version_is_told_with_it(plain: og.Graph) -> None:
    largest_blob(plain).unlink()
    result = verified_beside(plain, BLOBS, Writes(plain, most=1, collects=True), quick=True)
    told = {f.code: f for f in result.findings if f.code != "index_uncovered"}
    assert told.keys() == {"unreadable_blob", "collected_meanwhile"}
    assert not result.ok


def test_a_version_that_is_not_collected_is_never_called_so(plain: og.Graph) -> None:
    largest_blob(plain).unlink()
    result = verified_beside(plain, BLOBS, Writes(plain, most=1), quick=True)
    assert "collected_meanwhile" not in {f.code for f in result.findings}


def test_what_another_has_mended_meanwhile_is_no_finding(plain: og.Graph) -> None:
    shutil.rmtree(next(damage.folder(plain, damage.pin_of(plain, "City")).glob("_indices/*")))
    assert {f.code for f in og.open(plain.uri).verify(quick=True).findings} == {"missing_file"}

    def mend() -> None:
        og.open(plain.uri, engine="local").optimize(tables=["node:City"])

    assert verified_beside(plain, BLOBS, mend, quick=True).findings == ()


def test_only_the_branch_that_was_asked_for_is_looked_at_again(plain: og.Graph) -> None:
    damage.branch_out(plain)
    largest_blob(plain).unlink()
    result = verified_beside(plain, BLOBS, Writes(plain, most=1), quick=True, branch="main")
    assert {(f.code, f.branch) for f in result.findings if f.code != "index_uncovered"} == {("unreadable_blob", "main")}


def test_a_broken_index_that_the_version_of_a_writer_has_as_well_stays_an_error(plain: og.Graph) -> None:
    damage.index(plain, kinds={"Person": [("age", "BTREE")]})
    for file in damage.folder(plain, damage.pin_of(plain, "Person")).glob("_indices/*/*"):
        file.write_bytes(b"\xff" * file.stat().st_size)
    other = Writes(plain, most=1)
    result = verified_beside(plain, "asking indices", other)
    damage.only(result, "checksum_mismatch", severity="error", table="node:Person", branch="main")
    assert other.done
