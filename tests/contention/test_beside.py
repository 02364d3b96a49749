"""Writers beside schema changes and beside branches that come and go: nobody is refused, nobody notices."""

from __future__ import annotations

from collections.abc import Callable

import omnigraph
from tests.contention.audit import violations
from tests.contention.clients import read_log
from tests.contention.conftest import NOISE_S
from tests.contention.crowd import Crowd

LEASE_S = 20.0
MakeCrowd = Callable[[float], Crowd]


def test_writers_beside_schema_apply(crowd_of: MakeCrowd) -> None:
    crowd = crowd_of(LEASE_S)
    crowd.start("watch")
    changer = crowd.start("change_schema", rounds=4)
    for seed in range(4):
        crowd.start("write_keys", count=8, kinds=["own", "shared", "counted"], seed=seed)
    for ended in crowd.finish():
        assert ended.acknowledged, ended
        assert not (isinstance(ended.value, dict) and ended.value.get("broken")), ended
    assert not violations(crowd.path, crowd.log, wait_max_s=NOISE_S)
    graph = omnigraph.open(crowd.path)
    assert changer.job.wait().value == 4
    assert "Round3" in graph.schema().node
    assert "Round2" not in graph.schema().node
    assert set(graph.snapshot().read("Left")["extra3"].to_pylist()) == {3}


def test_writers_beside_branches_that_come_and_go(crowd_of: MakeCrowd) -> None:
    crowd = crowd_of(LEASE_S)
    crowd.start("watch")
    for _ in range(2):
        crowd.start("change_branches", rounds=5)
    for seed in range(4):
        crowd.start("write_keys", count=8, kinds=["own", "shared", "counted"], seed=seed)
    for ended in crowd.finish():
        assert ended.acknowledged, ended
        assert not (isinstance(ended.value, dict) and ended.value.get("broken")), ended
    assert not violations(crowd.path, crowd.log, wait_max_s=NOISE_S)
    assert [b.name for b in omnigraph.open(crowd.path).branches()] == ["main"]


def test_a_writer_of_a_branch_that_is_deleted_under_it_is_told_so(crowd_of: MakeCrowd) -> None:
    crowd = crowd_of(LEASE_S)
    graph = omnigraph.open(crowd.path)
    graph.create_branch("short")
    writers = [crowd.start("write_keys", count=400, branch="short", kinds=["own"], seed=seed) for seed in range(2)]
    while len(graph.commits("short")) < 8:
        assert not any(writer.job.is_over for writer in writers)
    graph.delete_branch("short")
    for ended in crowd.finish():
        assert ended.acknowledged, ended
        assert ended.value["done"] < 400
    told = {line["condition"] for line in read_log(crowd.log) if line["did"] == "refused"}
    assert told == {"branch_not_found"}
    assert not violations(crowd.path, crowd.log, wait_max_s=NOISE_S)
