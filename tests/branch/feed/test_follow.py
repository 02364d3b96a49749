"""Waiting for commits of other processes, and what a poll costs."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from tests.branch.feed.support import SCHEMA, changes_of
from tests.faults.s3server import S3Server, World

WRITER = "import sys, omnigraph as og; og.open(sys.argv[1]).insert({'City': [{'name': 'Ulm'}]})"


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "graph", SCHEMA)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


def test_a_follower_sees_the_commit_of_another_process(graph: og.Graph) -> None:
    pages = graph.follow_changes(from_now=True, limit=1)
    with subprocess.Popen([sys.executable, "-c", WRITER, graph.uri]) as writer:
        found = list(pages)
        assert writer.wait() == 0
    assert [c[:3] for page in found for c in changes_of(page)] == [("insert", "node:City", "Ulm")]


def test_a_follower_stops_when_it_is_told(graph: og.Graph) -> None:
    stop = threading.Event()
    pages = list(itertools.islice(graph.follow_changes(stop=stop), 1))
    assert pages[0].commit.kind == "init"
    stop.set()
    assert not list(graph.follow_changes(pages[0].cursor, stop=stop))


def test_a_waiting_follower_looks_about_once_a_second(graph: og.Graph) -> None:
    waits: list[float] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            waits.append(timeout)
            if len(waits) == 30:
                self.set()
            return self.is_set()

    assert not list(graph.follow_changes(from_now=True, stop=Stop()))
    assert waits == sorted(waits)
    assert waits[-1] == 1.0
    assert sum(waits[:14]) < 5


def test_a_caught_up_poll_is_one_list_request(server: S3Server) -> None:
    world = server.add(World("feed"))
    options = {
        "endpoint": server.endpoint,
        "aws_access_key_id": "feed.reader.0",
        "aws_secret_access_key": "x",
        "region": "us-east-1",
        "allow_http": "true",
    }
    graph = og.init("s3://graphs/feed", SCHEMA, storage_options=options)
    graph.insert({"City": [{"name": "Ulm"}]})
    cursor = list(graph.changes())[-1].cursor
    sent = len(world.log)
    assert not list(graph.changes(cursor))
    assert [entry.operation for entry in world.log[sent:]] == ["LIST"]


def test_a_caught_up_poll_opens_no_table_and_reads_no_record(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    cursor = list(graph.changes())[-1].cursor

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a caught-up poll reads nothing but the head")

    monkeypatch.setattr("omnigraph.storage.lance.tables.Tables.open", refuse)
    monkeypatch.setattr("omnigraph.storage.manifest.table.Manifest._rows", refuse)
    assert not list(graph.changes(cursor))


def test_ctrl_c_ends_the_command_with_its_cursor(graph: og.Graph) -> None:
    graph.insert({"City": [{"name": "Ulm"}]})
    command = [sys.executable, "-m", "omnigraph.cli.main", "changes", graph.uri, "--follow", "--format", "jsonl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert '"insert"' in lines[1]
    cursor = err.partition("--after ")[2].strip()
    assert cursor in lines[0] + lines[2], "the cursor behind the last page that was written, or the one before"
    assert process.returncode == 130
    assert "Traceback" not in err
    assert len(list(graph.changes(cursor))) <= 1
