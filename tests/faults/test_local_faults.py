"""Whatever happens to one of its file system calls, a verb leaves the graph old or new, as the oracle says.

A sample, drawn by a fixed seed; `make torture` runs every call with every fault.
"""

from __future__ import annotations

import pytest

from tests.faults.diskbench import DiskBench
from tests.faults.runner import Case, Report, run_cases, run_sample
from tests.faults.verbs import VERBS

SEED = 1
RUNS_PER_VERB = 7


@pytest.fixture(scope="module")
def reports(disk: DiskBench, ledger: list[Report]) -> dict[str, Report]:
    found = run_sample(disk, VERBS, seed=SEED, count=RUNS_PER_VERB)
    ledger.extend(found.values())
    return found


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS])
def test_a_struck_verb_leaves_old_or_new_and_a_writable_graph(reports: dict[str, Report], verb: str) -> None:
    report = reports[verb]
    assert len(report.results) == RUNS_PER_VERB
    assert not report.violations, report.text()


def test_what_is_acknowledged_survives_the_loss_of_everything_that_was_not_synced(
    disk: DiskBench, ledger: list[Report]
) -> None:
    report = run_cases(disk, [Case("disk", verb.name, "power_acknowledged", 0, SEED) for verb in VERBS])
    ledger.append(report)
    assert not report.violations, report.text()
