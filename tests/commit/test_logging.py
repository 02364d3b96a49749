"""Recovery, retries and leftovers each log one structured line; without a handler the library writes nothing."""

from __future__ import annotations

import ast
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.config.logs import log_event
from omnigraph.storage.durability import manifest_path
from omnigraph.storage.manifest import packed_heads
from tests.contention.processes import Processes

SOURCE = Path(omnigraph.__file__).parent
PROGRAMS = ("cli", "demo")


def crash(processes: Processes, path: Path, phase: str, occurrence: int = 1) -> None:
    """A writer that is killed before a phase of its write to the tables Left and Right."""
    arguments = {"uri": str(path), "deed": "put", "phase": phase, "occurrence": occurrence}
    assert processes.run("perform_deed", arguments, {}).status == -signal.SIGKILL


def events(caplog: pytest.LogCaptureFixture, event: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.getMessage().startswith(f"{event} ")]


@pytest.mark.parametrize(("phase", "outcome"), [("publish", "rolled forward"), ("effect", "rolled back")])
def test_a_recovery_logs_one_claim_and_one_outcome(
    processes: Processes, path: Path, graph: Any, caplog: pytest.LogCaptureFixture, phase: str, outcome: str
) -> None:
    crash(processes, path, phase)
    view = graph._committer.view("main")
    tables = tuple(sorted(view.type(name).id for name in ("Left", "Right")))
    fields = f" graph={path} branch=main epoch={view.head.epoch + 1} table={','.join(tables)} "
    with caplog.at_level(logging.DEBUG, logger="omnigraph"):
        graph.upsert({"Right": [{"name": "other"}]})

    outcomes = events(caplog, "rolled forward") + events(caplog, "rolled back")
    assert [record.getMessage().partition(" graph=")[0] for record in outcomes] == [outcome]
    (claim,) = events(caplog, "epoch claimed")
    for record in (claim, outcomes[0]):
        assert record.levelno == logging.WARNING
        assert fields in record.getMessage()
        assert record.__dict__["fields"]["table"] == tables
    assert outcomes[0].name == "omnigraph.commit.recovery"


def test_a_write_without_an_incident_logs_no_warning(graph: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="omnigraph"):
        graph.upsert({"Right": [{"name": "other"}]})
    assert [record.getMessage() for record in caplog.records] == []


def test_restored_leftovers_are_logged(path: Path, graph: Any, caplog: pytest.LogCaptureFixture) -> None:
    from omnigraph.commit.stamp import Stamp
    from omnigraph.storage.lance import lance_api
    from omnigraph.storage.lance.edits import restoring

    view = graph._committer.view("main")
    pin = view.pins[view.type("Left").id]
    tx = restoring(pin.version, read_version=pin.version)
    stamp = Stamp(view.head.incarnation, view.head.epoch, 0, pin.table, "0", "crashed")
    tx.transaction_properties = {lance_api.STAMP: str(stamp)}
    leftover = lance_api.commit(view.tables.location, view.tables.location.join(pin.path), tx).version
    with caplog.at_level(logging.INFO, logger="omnigraph"):
        graph.upsert({"Left": [{"name": "other"}]})
    (record,) = events(caplog, "leftover versions restored")
    assert record.levelno == logging.INFO
    epoch = view.head.epoch + 1
    assert f" graph={path} branch=main epoch={epoch} table={pin.table} versions={leftover} " in record.getMessage()


def test_truncated_versions_that_are_moved_aside_are_logged(
    path: Path, graph: Any, caplog: pytest.LogCaptureFixture
) -> None:
    view = graph._committer.view("main")
    pin = view.pins[view.type("Left").id]
    Path(manifest_path(str(path / pin.path), pin.version + 1)).write_bytes(b"cut")
    with caplog.at_level(logging.INFO, logger="omnigraph"):
        omnigraph.open(path).upsert({"Left": [{"name": "other"}]})
    (record,) = events(caplog, "truncated versions moved aside")
    assert record.levelno == logging.WARNING
    assert f" graph={path} table={pin.path} versions={pin.version + 1} above={pin.version}" in record.getMessage()


def test_packed_heads_are_logged(path: Path, graph: Any, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a", "b"):
        graph.create_branch(name)
    with caplog.at_level(logging.DEBUG, logger="omnigraph"):
        assert packed_heads.pack_heads(graph._manifest, keep=0)
    (record,) = events(caplog, "heads packed")
    assert (record.levelno, f" graph={path} heads=2 " in record.getMessage()) == (logging.DEBUG, True)


def test_a_lost_swap_is_logged_and_its_own_recovery_is_no_warning(
    graph: Any, path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The swap of the head is lost once; the writer then resolves its own epoch."""
    from omnigraph.commit import attempt
    from omnigraph.storage.manifest.table import SwapLost

    lost, publish = [SwapLost("decided by another process")], attempt.publish

    def publish_or_lose(*args: Any, **kwargs: Any) -> Any:
        if lost:
            raise lost.pop()
        return publish(*args, **kwargs)

    monkeypatch.setattr(attempt, "publish", publish_or_lose)
    epoch = graph._manifest.head("main").epoch + 1
    with caplog.at_level(logging.DEBUG, logger="omnigraph"):
        graph.upsert({"Left": [{"name": "other"}]})
    (record,) = events(caplog, "compare-and-swap lost")
    assert (record.levelno, record.name) == (logging.INFO, "omnigraph.commit.attempt")
    assert f" graph={path} branch=main epoch={epoch} table=" in record.getMessage()
    (own,) = events(caplog, "rolled forward")
    assert own.levelno == logging.INFO, "an owner that resolves its own epoch is no incident"


def test_one_event_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="omnigraph"):
        log_event(
            logging.getLogger("omnigraph.x"), logging.INFO, "event", graph="a b\nepoch=1", table=("n1", "n2"), x=None
        )
    assert [record.getMessage() for record in caplog.records] == ['event graph="a b\\nepoch=1" table=n1,n2']
    assert caplog.records[0].funcName == "test_one_event_is_one_line"


PROGRAM = """
import sys, omnigraph
omnigraph.open(sys.argv[1]).upsert({"Right": [{"name": "other"}]})
"""


def test_a_recovery_in_a_program_without_logging_prints_nothing(processes: Processes, path: Path, graph: Any) -> None:
    crash(processes, path, "publish")
    command = [sys.executable, "-c", PROGRAM, str(path)]
    result = subprocess.run(command, capture_output=True, check=True, text=True, env=dict(os.environ))
    assert (result.stdout, result.stderr) == ("", "")
    assert graph.commits(limit=2)[1].recovery["outcome"] == "rolled_forward"


def test_no_module_of_the_library_prints() -> None:
    prints = set()
    for file in SOURCE.rglob("*.py"):
        name = file.relative_to(SOURCE).as_posix()
        for node in ast.walk(ast.parse(file.read_text())):
            writes = ("print", "sys.stdout.write", "sys.stderr.write", "sys.stdout.buffer.write")
            if name.split("/")[0] not in PROGRAMS and isinstance(node, ast.Call) and ast.unparse(node.func) in writes:
                prints.add(name)
    assert prints == set()
