"""Whatever happens to one of its requests on S3, a verb leaves the graph old or new, as the oracle says, and writable.

A sample, drawn by a fixed seed, of every fourth verb; another fourth is struck on a local disk. `make torture` runs
every request with every fault, of all verbs on both.
"""

from __future__ import annotations

import pytest

from tests.faults.runner import Report, run_sample
from tests.faults.s3bench import S3Bench
from tests.faults.verbs import VERBS, by_name

pytestmark = pytest.mark.slow

SEED = 1
RUNS_PER_VERB = 1
SAMPLED = VERBS[::4]


@pytest.fixture(scope="module")
def reports(s3: S3Bench, ledger: list[Report]) -> dict[str, Report]:
    found = run_sample(s3, SAMPLED, seed=SEED, count=RUNS_PER_VERB)
    ledger.extend(found.values())
    return found


@pytest.mark.parametrize("verb", [verb.name for verb in SAMPLED])
def test_a_struck_verb_leaves_old_or_new_and_a_writable_graph(reports: dict[str, Report], verb: str) -> None:
    report = reports[verb]
    assert len(report.results) == RUNS_PER_VERB
    assert not report.violations, report.text()


def test_the_verbs_that_are_to_fold_do_fold(s3: S3Bench) -> None:
    def writes(verb: str, part: str) -> int:
        return sum(1 for entry in s3.stage(by_name(verb)).requests if entry.mutates and part in entry.key)

    assert writes("fold_table", "/_versions/") > writes("insert", "/_versions/")
    assert writes("fold_table", "g/__manifest/data/") > writes("insert", "g/__manifest/data/")
    assert writes("fold_manifest", "g/__manifest/data/") > writes("fold_table", "g/__manifest/data/")
