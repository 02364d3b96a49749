"""The rejects of a bulk load: every refused row with source, line, rule and reason; or their counts and the first ones.

The rows are explained by tasks. For a quarantine they are staged, and the file is put together from the staged parts,
one at a time; for an error the tasks give back counts and the first rows of their pieces, and nothing else is kept.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from omnigraph.commit.operation import View
from omnigraph.errors import Violation
from omnigraph.pipeline.bulk.existing import pin_json
from omnigraph.pipeline.bulk.job import Job, State
from omnigraph.pipeline.bulk.rejects import reject_piece
from omnigraph.pipeline.bulk.violation_codes import FIRST_MAX
from omnigraph.pipeline.load.quarantine_file import write_aside


def write_quarantine(job: Job, state: State, view: View, path: str | None) -> Counter[str]:
    """How many lines were refused, by rule. Nothing is written if there are none."""
    done = _rejects(job, state, view, first_most=None)
    by_rule = _by_rule(done)
    if by_rule and path is not None:
        parts = [one["table"] for one in done if one["table"] is not None]
        write_aside(path, (job.staging.get_table(part) for part in parts))
    return by_rule


def first_rejects(job: Job, state: State, view: View) -> tuple[list[Violation], Counter[str]]:
    """The first refused rows, in the order of the input, and how many there are, by rule."""
    done = _rejects(job, state, view, first_most=FIRST_MAX)
    first: list[Violation] = []
    for one in done:
        first += [Violation(**body) for body in one["first"][: FIRST_MAX - len(first)]]
    return first, _by_rule(done)


def _by_rule(done: list[Any]) -> Counter[str]:
    by_rule: Counter[str] = Counter()
    for one in done:
        by_rule.update(one["by_rule"])
    return by_rule


def _rejects(job: Job, state: State, view: View, *, first_most: int | None) -> list[Any]:
    about = {
        "pieces": list(job.pieces),
        "segments": [one["segments"] for one in job.read],
        "gone": state.gone,
        "told": state.told,
        "tables": job.tables(),
        "pins": {t.key: pin_json(view.pins[t.id]) for t in job.types.values() if t.id in view.pins},
        "first_most": first_most,
    }
    refused = {key for key, count in state.gone_most.items() if count}
    tasks = []
    for one in job.read:
        types = {
            key: {"rows": t["rows"], "table": t["table"], "broken": t["broken"]["file"] if t["broken"] else None}
            for key, t in one["types"].items()
            if key in refused
        }
        if types or one["rejected"] is not None:
            rejected = one["rejected"]["file"] if one["rejected"] else None
            tasks.append({"context": job.context, "piece": one["piece"], "types": types, "rejected": rejected})
    if not tasks:
        return []
    name = job.staging.put_json("about", about)
    return job.runner.run(reject_piece, [{**task, "about": name} for task in tasks], stage="explaining rejects")
