"""The quarantine of a bulk load: every refused line with source, line, rule and reason, as JSON lines or Parquet.

The lines are explained by tasks and staged; the file is put together from the staged parts, one at a time.
"""

from __future__ import annotations

from collections import Counter

from omnigraph.commit.stage import View
from omnigraph.pipeline.aside import write_aside
from omnigraph.pipeline.bulk.existing import pin_json
from omnigraph.pipeline.bulk.job import PACKAGE, Job, State


def write_quarantine(job: Job, state: State, view: View, path: str | None) -> Counter[str]:
    """How many lines were refused, by rule. Nothing is written if there are none."""
    about = {
        "pieces": list(job.pieces),
        "segments": [one["segments"] for one in job.read],
        "gone": state.gone,
        "told": state.told,
        "tables": job.tables(),
        "pins": {t.key: pin_json(view.pins[t.id]) for t in job.types.values() if t.id in view.pins},
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
        return Counter()
    name = job.staging.put_json("about", about)
    done = job.runner.run(
        f"{PACKAGE}.rejects:reject_piece", [{**task, "about": name} for task in tasks], stage="explaining rejects"
    )
    by_rule: Counter[str] = Counter()
    for one in done:
        by_rule.update(one["by_rule"])
    if by_rule and path is not None:
        parts = [one["table"] for one in done if one["table"] is not None]
        write_aside(path, (job.staging.get_table(part) for part in parts))
    return by_rule
