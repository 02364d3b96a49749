"""Whatever happens to one of its file system calls, a verb leaves the graph old or new, as the oracle says.

A sample, drawn by a fixed seed, of every fourth verb; `make torture` runs every call with every fault. On a machine
that does not let a process hand its system calls over, only kills at the door's phases and at random times are run; the
end of the test session then says so.
"""

from __future__ import annotations

import re

import pytest

from tests.faults.diskbench import DiskBench
from tests.faults.runner import Case, Report, disk_bench, run_cases, run_sample
from tests.faults.verbs import TABLE_VERSION, TICKET, VERBS, by_name

pytestmark = pytest.mark.slow

SEED = 1
RUNS_PER_VERB = 1
SAMPLED = VERBS[2::4]


@pytest.fixture(scope="module")
def reports(disk: DiskBench, ledger: list[Report]) -> dict[str, Report]:
    possible = [verb for verb in SAMPLED if disk.can_stage(verb)]
    found = run_sample(disk, possible, seed=SEED, count=RUNS_PER_VERB)
    ledger.extend(found.values())
    return found


@pytest.mark.parametrize("verb", [verb.name for verb in SAMPLED])
def test_a_struck_verb_leaves_old_or_new_and_a_writable_graph(
    disk: DiskBench, reports: dict[str, Report], verb: str
) -> None:
    assert verb in reports or not disk.can_stage(by_name(verb))
    report = reports.get(verb, Report())
    assert not report.violations, report.text()


def test_what_is_acknowledged_survives_the_loss_of_everything_that_was_not_synced(
    disk: DiskBench, ledger: list[Report]
) -> None:
    cases = [
        Case("disk", verb.name, kind, k, SEED)
        for verb in SAMPLED
        if disk.can_stage(verb)
        for kind, k, _ in disk.stage(verb).points
        if kind == "power_acknowledged"
    ]
    report = run_cases(disk, cases)
    ledger.append(report)
    assert not report.violations, report.text()


def test_the_loss_of_power_is_noticed_where_nothing_is_synced() -> None:
    """The sentinel of the test above: with syncing switched off, the same runs must fail."""
    with disk_bench(slots=1, environment={"OMNIGRAPH_FSYNC": "off"}) as bench:
        if not bench.unsupervisable:
            report = run_cases(bench, [Case("disk", "insert", "power_acknowledged", 0, SEED)])
            assert report.violations


def test_a_full_disk_or_an_input_output_error_never_acknowledges_what_can_not_be_read(
    disk: DiskBench, ledger: list[Report]
) -> None:
    """Lance itself reports success when the last write of a data or deletion file fails."""
    writes = [
        call.n
        for call in disk.stage(by_name("upsert_old")).requests
        if call.kind == "write" and ("/data/" in call.path or "/_deletions/" in call.path)
    ]
    report = run_cases(disk, [Case("disk", "upsert_old", kind, k, SEED) for k in writes for kind in ("enospc", "eio")])
    ledger.append(report)
    assert not report.violations, report.text()


def test_a_full_disk_never_publishes_an_index_that_can_not_be_read(disk: DiskBench, ledger: list[Report]) -> None:
    """Lance builds a full-text index in a folder of its own and copies what it finds there, also what is cut short."""
    stage = disk.stage(by_name("optimize"))
    staged = [call.n for call in stage.requests if call.kind == "write" and "/staging/" in call.path]
    report = run_cases(disk, [Case("disk", "optimize", "enospc", k, SEED) for k in staged[1:6:2]])
    ledger.append(report)
    assert staged or disk.unsupervisable
    assert not report.violations, report.text()


@pytest.mark.parametrize("name", ["optimize", "embed", "insert"])
def test_a_stopped_verb_that_others_have_cleaned_up_after_publishes_nothing_that_is_gone(
    disk: DiskBench, ledger: list[Report], name: str
) -> None:
    """Before the ticket, and before the last effect: all files are prepared, nothing is published."""
    calls = [call for call in disk.stage(by_name(name)).requests if call.kind in ("link", "rename", "create")]
    locks = [call.n for call in calls if re.search(TICKET, "/" + call.path)]
    effects = [call.n for call in calls if re.search(TABLE_VERSION, "/" + call.path)]
    cases = [Case("disk", name, "stopped", k, SEED) for k in (*locks[:1], *effects[-1:])]
    report = run_cases(disk, cases)
    ledger.append(report)
    assert len(cases) == 2 or disk.unsupervisable
    assert not report.violations, report.text()
