"""One S3 bench and one disk bench for the whole folder: staging a verb and importing Lance cost more than most runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.diskbench import DiskBench
from tests.faults.forkserver import ForkServer
from tests.faults.runner import Report, disk_bench, s3_bench
from tests.faults.s3bench import S3Bench
from tests.faults.s3server import S3Server

LEDGER = pytest.StashKey[list[Report]]()
NOT_RUN = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def ledger(pytestconfig: pytest.Config) -> list[Report]:
    """Every report of this session, for the line at its end."""
    return pytestconfig.stash.setdefault(LEDGER, [])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of a parallel run hands its counts over; `tests/conftest.py` adds them up."""
    reports = session.config.stash.get(LEDGER, [])
    if reports and hasattr(session.config, "workeroutput"):
        session.config.workeroutput["faults"] = {
            "runs": sum(len(report.results) for report in reports),
            "violations": sum(len(report.violations) for report in reports),
            "not_run": session.config.stash.get(NOT_RUN, ""),
        }


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reports = config.stash.get(LEDGER, [])
    if reports:
        runs = sum(len(report.results) for report in reports)
        violations = sum(len(report.violations) for report in reports)
        terminalreporter.write_line(f"fault injection: {runs} runs, {violations} violations (all of it: make torture)")
    if reason := config.stash.get(NOT_RUN, ""):
        terminalreporter.write_line(f"NOT RUN: faults at file system calls and loss of power, because of {reason}")


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Bench]:
    with s3_bench() as bench:
        yield bench


@pytest.fixture(scope="session")
def disk(pytestconfig: pytest.Config) -> Iterator[DiskBench]:
    with disk_bench() as bench:
        pytestconfig.stash[NOT_RUN] = bench.unsupervisable
        yield bench


@pytest.fixture(scope="session")
def forks() -> Iterator[ForkServer]:
    with ForkServer() as server:
        yield server


@pytest.fixture(scope="session")
def server() -> Iterator[S3Server]:
    with S3Server() as running:
        yield running
