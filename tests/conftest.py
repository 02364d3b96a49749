"""What holds for every test."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import s3
from tests.support.graphs import Templates

if TYPE_CHECKING:
    from tests.contention.processes import Processes

COUNTS = pytest.StashKey[list[dict[str, Any]]]()
"""What the workers of a parallel run say of their fault injection, for the line at its end."""

OWN_SPARK = frozenset(f"tests/spark/test_{name}.py" for name in ("killed", "cluster", "submitted", "interrupted"))
"""They start Spark in processes of their own."""
LONGEST = ("tests/spark/", "tests/faults/", "tests/contention/", "tests/demo/")


@pytest.fixture(autouse=True)
def _no_session_of_other_tests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that is not about Spark is a program of its own: the session of the tests before it is not there."""
    if "spark" not in request.fixturenames and request.node.path.parent.name != "spark":
        monkeypatch.setattr("omnigraph.tasks.engine.active_session", lambda: None)


@pytest.fixture(scope="session")
def graph_templates(tmp_path_factory: pytest.TempPathFactory) -> Templates:
    """Copies of graphs that are built once."""
    return Templates(tmp_path_factory.mktemp("templates"))


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    """A fork server whose processes are started, stopped and killed."""
    from tests.contention.processes import Processes

    with Processes() as running:
        yield running


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of an S3 server on loopback."""
    with s3.serving() as endpoint:
        yield endpoint


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    counts = getattr(node, "workeroutput", {}).get("faults")
    if counts:
        node.config.stash.setdefault(COUNTS, []).append(counts)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    found = config.stash.get(COUNTS, [])
    if not found:
        return
    runs, violations = (sum(counts[name] for counts in found) for name in ("runs", "violations"))
    terminalreporter.write_line(f"fault injection: {runs} runs, {violations} violations (all of it: make torture)")
    for counts in found:
        if counts["not_run"]:
            terminalreporter.write_line(f"NOT RUN: faults at file system calls, because of {counts['not_run']}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """File by file, but all that shares the Spark session goes to one worker: each session is a JVM."""
    from xdist.scheduler import LoadScopeScheduling

    class FileByFile(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            shares = file.startswith("tests/spark/") and file not in OWN_SPARK
            return "tests/spark" if shares else file

    return FileByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest goes first, so that no worker is left with it at the end."""
    items.sort(
        key=lambda item: next((i for i, part in enumerate(LONGEST) if item.nodeid.startswith(part)), len(LONGEST))
    )


def pytest_configure() -> None:
    # Only the tests of a power loss need what was written to be on the disk: they switch it on for their processes.
    os.environ.setdefault("OMNIGRAPH_FSYNC", "off")
    # Started in the background a shell ignores Ctrl-C for us, and every process we start would inherit that.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
