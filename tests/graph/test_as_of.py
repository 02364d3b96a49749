"""Time travel by time: the newest commit of a branch that was made not after it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.commit import owner
from omnigraph.commit.publication import abort_record, publish
from omnigraph.graph.snapshot import moment_us
from omnigraph.storage.manifest.table import Manifest
from tests.commit import plant

TICK = timedelta(microseconds=1)


def filled(graph: og.Graph, count: int) -> list[og.CommitInfo]:
    """Commits oldest first, the one of init included."""
    for i in range(count):
        graph.insert({"Person": [{"name": f"p{i:03}"}]})
    return graph.commits()[::-1]


def test_a_moment_gives_the_newest_commit_that_was_made_not_after_it(graph: og.Graph) -> None:
    commits = filled(graph, 5)
    for older, commit in pairwise(commits):
        assert graph.snapshot(as_of=commit.created_at).commit == commit.id
        assert graph.snapshot(as_of=commit.created_at - TICK).commit == older.id
    assert graph.snapshot(as_of=commits[3].created_at).count("Person") == 3
    assert graph.snapshot(as_of=datetime.now(UTC) + timedelta(days=9)).commit == commits[-1].id


def test_zones_texts_and_values_without_a_zone_mean_the_same_moment(graph: og.Graph) -> None:
    commit = filled(graph, 3)[2]
    at = commit.created_at
    elsewhere = at.astimezone(timezone(timedelta(hours=5, minutes=30)))
    for same in (at, at.replace(tzinfo=None), elsewhere, at.isoformat(), elsewhere.isoformat(sep=" ")):
        assert graph.snapshot(as_of=same).commit == commit.id


def test_a_date_means_its_end_and_a_second_means_its_end(graph: og.Graph) -> None:
    assert moment_us("2026-01-31") == moment_us(date(2026, 1, 31)) == moment_us("2026-01-31T23:59:59.999999")
    assert moment_us("2026-01-31T12:00:05Z") == moment_us("2026-01-31T12:00:05.999999+00:00")
    assert moment_us("2026-01-31T12:00:05.000Z") == moment_us(datetime(2026, 1, 31, 12, 0, 5))
    newest = filled(graph, 2)[-1]
    assert graph.snapshot(as_of=newest.created_at.date()).commit == newest.id
    listed = f"{newest.created_at:%Y-%m-%d %H:%M:%S}Z"
    assert graph.snapshot(as_of=listed).commit == newest.id


def test_before_the_first_commit_there_was_nothing_and_the_error_says_when_it_began(graph: og.Graph) -> None:
    first = filled(graph, 40)[0]
    with pytest.raises(errors.NoCommitAtThatTime) as refused:
        graph.snapshot(as_of=first.created_at - TICK)
    assert refused.value.fields["first"] == first.to_json()["created_at"]
    assert isinstance(refused.value, errors.LookupFailed)
    with pytest.raises(errors.BranchNotFound):
        graph.snapshot("nowhere", as_of=first.created_at)


@pytest.mark.parametrize("wrong", ["", "yesterday", "2026-13-01", "2026-01-31T25:00", "12:00"])
def test_what_is_no_time_is_wrong_usage(graph: og.Graph, wrong: str) -> None:
    with pytest.raises(errors.UsageError, match="is no time"):
        graph.snapshot(as_of=wrong)


def test_a_commit_and_a_time_together_are_wrong_usage(graph: og.Graph) -> None:
    with pytest.raises(errors.UsageError, match="not by both"):
        graph.snapshot(commit=graph.snapshot().commit, as_of="2026-01-31")


def test_a_branch_has_the_history_of_what_it_was_made_from(graph: og.Graph) -> None:
    shared = filled(graph, 2)
    graph.create_branch("trial")
    later = graph.insert({"Person": [{"name": "main only"}]}).commit
    own = graph.insert({"Person": [{"name": "trial only"}]}, branch="trial").commit
    assert later is not None
    assert own is not None
    assert graph.snapshot("trial", as_of=later.created_at).commit == shared[-1].id
    assert graph.snapshot("trial", as_of=own.created_at).commit == own.id
    assert graph.snapshot(as_of=own.created_at).commit == later.id
    assert graph.snapshot("trial", as_of=shared[1].created_at).count("Person") == 1


def test_a_recent_time_reads_no_rows_of_the_manifest_and_an_old_one_few(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = filled(graph, 60)
    reads: list[str] = []
    real = Manifest._rows

    def counted(self: Manifest, where: str) -> Any:
        reads.append(where)
        return real(self, where)

    monkeypatch.setattr(Manifest, "_rows", counted)
    from omnigraph.graph.commits import newest_at

    manifest = Manifest(graph._location)
    for commit, most in ((commits[-1], 0), (commits[-5], 0), (commits[1], 2)):
        reads.clear()
        found = newest_at(manifest, "main", moment_us=moment_us(commit.created_at), told="then")
        assert found == commit.id
        assert len(reads) <= most


def test_an_epoch_that_was_given_up_is_no_state(graph: og.Graph) -> None:
    newest = filled(graph, 1)[-1]
    committer, head = graph._committer, graph._manifest.head("main")
    lock = committer.locks.take(head.incarnation, head.epoch + 1, tables=(), kind="write")
    assert lock is not None
    abort = abort_record(head, lock, pins={}, restored={}, reason="it was refused")
    publish(graph._manifest, committer.tables, head, abort)
    committer.locks.stop_renewing(lock)
    assert graph._manifest.head("main").recent[-1].commit is None
    assert graph.snapshot(as_of=abort.created_at).commit == newest.id


def test_a_recovery_that_restored_tables_is_a_state_like_others(graph: og.Graph) -> None:
    before = filled(graph, 1)[-1]
    gone = {**owner.myself(), "start": "1"}
    plant.lock(Path(graph.uri), {"nonce": "planted", "owner": gone, "tables": [], "kind": "write"})
    graph.insert({"Person": [{"name": "next"}]})
    recovery = graph.commits(limit=2)[1]
    assert recovery.kind == "recovery"
    assert graph.snapshot(as_of=recovery.created_at).commit == recovery.id
    assert graph.snapshot(as_of=recovery.created_at).count("Person") == 1
    assert graph.snapshot(as_of=recovery.created_at - TICK).commit == before.id
