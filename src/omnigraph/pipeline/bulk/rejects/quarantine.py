"""The rejects of a bulk load: every refused row with source, line, rule and reason; or their counts and the first ones.

Tasks build the messages. For a quarantine they stage the rows, and the file is assembled from the staged parts, one at
a time; for an error the tasks return counts and the first rows of their pieces, and nothing else is kept.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from omnigraph.commit.operation import View
from omnigraph.errors import Violation
from omnigraph.pipeline.bulk.existing import pin_json
from omnigraph.pipeline.bulk.job import Job, State
from omnigraph.pipeline.bulk.rejects.rejected_rows import reject_piece
from omnigraph.pipeline.bulk.rejects.violation_codes import FIRST_MAX
from omnigraph.pipeline.load.quarantine_file import write_quarantine_file


def write_quarantine(job: Job, state: State, view: View, path: str | None) -> Counter[str]:
    """How many lines were refused, by rule. Nothing is written if there are none."""
    results = _rejects(job, state, view, first_max=None)
    by_rule = _by_rule(results)
    if by_rule and path is not None:
        parts = [result["table"] for result in results if result["table"] is not None]
        write_quarantine_file(path, (job.staging.get_table(part) for part in parts))
    return by_rule


def first_rejects(job: Job, state: State, view: View) -> tuple[list[Violation], Counter[str]]:
    """The first refused rows, in the order of the input, and how many there are, by rule."""
    results = _rejects(job, state, view, first_max=FIRST_MAX)
    first: list[Violation] = []
    for result in results:
        first += [Violation(**body) for body in result["first"][: FIRST_MAX - len(first)]]
    return first, _by_rule(results)


def _by_rule(results: list[Any]) -> Counter[str]:
    by_rule: Counter[str] = Counter()
    for result in results:
        by_rule.update(result["by_rule"])
    return by_rule


def _rejects(job: Job, state: State, view: View, *, first_max: int | None) -> list[Any]:
    about = {
        "pieces": list(job.pieces),
        "segments": [result["segments"] for result in job.read],
        "gone": state.removed,
        "told": state.violation_files,
        "tables": job.tables(),
        "pins": {t.key: pin_json(view.pins[t.id]) for t in job.types.values() if t.id in view.pins},
        "first_most": first_max,
    }
    refused = {key for key, count in state.removed_max.items() if count}
    tasks = []
    for result in job.read:
        types = {
            key: {"rows": t["rows"], "table": t["table"], "broken": t["broken"]["file"] if t["broken"] else None}
            for key, t in result["types"].items()
            if key in refused
        }
        if types or result["rejected"] is not None:
            rejected = result["rejected"]["file"] if result["rejected"] else None
            tasks.append({"context": job.context, "piece": result["piece"], "types": types, "rejected": rejected})
    if not tasks:
        return []
    name = job.staging.put_json("about", about)
    return job.runner.run(reject_piece, [{**task, "about": name} for task in tasks], stage="explaining rejects")
