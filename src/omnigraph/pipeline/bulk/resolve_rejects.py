"""Which rows of a load count: all of them, or those that are left when rows are put aside until the rest is valid.

Strict: is anything wrong? One turn of checks tells. If so, the load is gone through as if rows were put aside, and the
error tells of all of them: counts per rule, and the first rows. So `fail` and `quarantine` give the same counts.

Tolerant: ids twice go, then ids that exist; rows that change nothing are dropped; rows that break a rule of their own
go; then, as often as something is found: edges without a node, or else values that are not unique, or else
cardinality. A violation that is told of no row can't be settled, and refuses the load; on the way to an error it is
passed over, and told with the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from omnigraph.commit.operation import View
from omnigraph.errors import ConstraintViolation, RowsRefused, Violation
from omnigraph.pipeline.bulk.context import ROW_BITS, context_of
from omnigraph.pipeline.bulk.existing import pin_json
from omnigraph.pipeline.bulk.explain import Explainer
from omnigraph.pipeline.bulk.job import Job, State
from omnigraph.pipeline.bulk.quarantine import first_rejects
from omnigraph.pipeline.bulk.violation_codes import FIRST_MAX, NONE, WIDTH, Phase, in_order, rule_of
from omnigraph.tasks.digest_index import Gone
from omnigraph.write.violations import SHOWN_MAX, refusal, unplaced_order
from omnigraph.write.violations import told as told_fields

IMAGE = (Phase.ENDPOINTS, Phase.UNIQUE, Phase.CARDINALITY)
ROUND = 10
"""Rows that go in round i of settling carry the phase ROUND + i."""


def settle(job: Job, view: View, *, tolerant: bool) -> State:
    """The state in which the rest of the input is valid; raises what refuses the load."""
    existing = job.read_existing(view)
    if tolerant:
        state, unsettled = _tolerant(job, view, existing, passes_over=False)
        if unsettled:
            raise ConstraintViolation(**told_fields(*_explained(job, view, unsettled, first_rule=True)))
        return state
    valid = None if job.has_no_records else _strict(job, view, existing)
    if valid is None:
        raise _refusal(job, view, existing)
    return valid


def _asks(job: Job) -> set[str]:
    """The checks of the final image that this input can fail."""
    given = job.row_counts
    found = set()
    if any(job.types[key].kind == "edge" for key in given) or job.overwritten:
        found.add("endpoints")
    if any(c.kind == "unique" for key in given for c in job.types[key].constraints):
        found.add("unique")
    if any(e.card_min > 0 or e.card_max is not None for e in job.schema.edges):
        found.add("cardinality")
    return found


# ---- strict ----------------------------------------------------------------------------------------------------------


def _strict(job: Job, view: View, existing: Sequence[Mapping[str, Any]]) -> State | None:
    """The state of an input without any fault; None if there is one, wherever."""
    state = State()
    asks = _asks(job)
    if job.mode == "merge":
        _match(job, view, existing, state)
        if state.told:
            return None
        found = job.check(existing, state, asks, blames=False) if asks and live_types(job, state) else []
    else:
        ids = {"ids"} if job.own_ids else set()
        found = job.check(existing, state, asks | ids, blames=False) if asks | ids else []
    return None if any(one["told"] for one in found) or _has_broken(job, state) else state


def _has_broken(job: Job, state: State) -> bool:
    """Whether a row breaks a rule of its own, of those that count."""
    gone = Gone(job.staging, state.gone)
    for one in job.read:
        for key, about in one["types"].items():
            if about["broken"] is not None and gone.live(key, _broken_rows(job, one, about)).any():
                return True
    return False


def _broken_rows(job: Job, one: Mapping[str, Any], about: Mapping[str, Any]) -> np.ndarray:
    told = job.staging.get_table(about["broken"]["file"], ["row"]).column("row")
    rows = np.unique(np.asarray(told.combine_chunks())).astype(np.uint64)
    names: np.ndarray = rows + np.uint64(one["piece"] << ROW_BITS)
    return names


def live_types(job: Job, state: State) -> list[str]:
    """Types of which at least one row counts."""
    return [key for key in job.row_counts if _has_live(job, state, key)]


def _has_live(job: Job, state: State, key: str) -> bool:
    if state.gone_most[key] < job.row_counts[key]:
        return True
    gone = Gone(job.staging, state.gone)
    for one in job.read:
        rows = one["types"].get(key, {"rows": 0})["rows"]
        base = one["piece"] << ROW_BITS
        if gone.live(key, np.arange(base, base + rows, dtype=np.uint64)).any():
            return True
    return False


def _match(job: Job, view: View, existing: Sequence[Mapping[str, Any]], state: State) -> None:
    """Of a merge: rows that replace others, without those that change nothing or that a later row replaces."""
    found = job.check(existing, state, {"ids"}, blames=False) if job.own_ids else []
    for one in found:
        state.drop(one["dropped"])
        for key, about in one["matches"].items():
            state.matches.setdefault(key, []).append(about)
    _take_out(job, state, found, Phase.REPEATED, Phase.REPEATED)
    if state.matches:
        job.compare(view, state)


# ---- tolerant --------------------------------------------------------------------------------------------------------


def _tolerant(
    job: Job, view: View, existing: Sequence[Mapping[str, Any]], *, passes_over: bool
) -> tuple[State, Sequence[Mapping[str, Any]]]:
    """The state that is valid, and the checks that found what no row is to blame for."""
    state = State()
    if job.mode == "merge":
        _match(job, view, existing, state)
    elif job.own_ids:
        found = job.check(existing, state, {"ids"}, blames=False)
        _take_out(job, state, found, Phase.REPEATED, Phase.REPEATED)
        _take_out(job, state, found, Phase.EXISTS, Phase.EXISTS)
        state.existing = next(iter(_first(found, Phase.EXISTS)), None)
    _take_out_broken(job, state)
    asks = _asks(job)
    turn = 0
    while asks:
        found = job.check(existing, state, asks, blames=True)
        phase = _next_phase(found, passes_over=passes_over)
        if phase is None:
            return state, [one for one in found if one["told"]]
        _take_out(job, state, found, phase, ROUND + turn)
        turn += 1
    return state, ()


def _next_phase(found: Sequence[Mapping[str, Any]], *, passes_over: bool) -> Phase | None:
    """The first rule that rows break. None if there is none, or something that no row is to blame for comes first."""
    for phase in IMAGE:
        told = [one["told"] for one in found if one["told"]]
        nowhere = sum(one["nowhere"].get(str(int(phase)), 0) for one in told)
        if nowhere and not passes_over:
            return None
        if sum(count for one in told for p, _, count in one["counts"] if p == phase) > nowhere:
            return phase
    return None


def _take_out(job: Job, state: State, found: Sequence[Mapping[str, Any]], phase: Phase, verdict: int) -> None:
    """The rows that violations of this phase name do not count any more."""
    keys = list(job.types)
    for one in found:
        if not one["told"] or not any(p == phase for p, _, _ in one["told"]["counts"]):
            continue
        state.told.append((verdict, one["told"]["file"]))
        told = job.staging.get_array(one["told"]["file"], width=WIDTH)
        told = told[(told[:, 0] == phase) & (told[:, 4] != NONE)]
        for number in np.unique(told[:, 1]).tolist():
            rows = np.unique(told[told[:, 1] == number, 4])
            gone = np.column_stack([rows, np.full(len(rows), verdict, dtype=np.uint64)])
            state.take_out(keys[number], job.staging.put_array("gone", gone), len(gone))


def _take_out_broken(job: Job, state: State) -> None:
    for one in job.read:
        for key, about in one["types"].items():
            if about["broken"] is not None:
                names = _broken_rows(job, one, about)
                gone = np.column_stack([names, np.full(len(names), int(Phase.FIELDS), dtype=np.uint64)])
                state.take_out(key, job.staging.put_array("gone", gone), len(gone))


# ---- telling ---------------------------------------------------------------------------------------------------------


def _refusal(job: Job, view: View, existing: Sequence[Mapping[str, Any]]) -> RowsRefused:
    """Everything that is wrong with the input: counted, and the first rows in the order of the input."""
    state, unsettled = _tolerant(job, view, existing, passes_over=True)
    first, by_rule = first_rejects(job, state, view)
    more, others = _explained(job, view, unsettled)
    found = None if state.existing is None else np.array([state.existing], dtype=np.uint64)
    return refusal(
        [*first, *more][:SHOWN_MAX],
        by_rule + others,
        no_records=job.has_no_records,
        repeated=any(verdict == Phase.REPEATED for verdict, _ in state.told),
        existing=None if found is None else _explainer(job, view).violations(found)[0],
    )


def _explained(
    job: Job, view: View, unsettled: Sequence[Mapping[str, Any]], *, first_rule: bool = False
) -> tuple[list[Violation], Counter[str]]:
    """Violations that no row is to blame for, of all rules or of the first that has some: the first, and all counts."""
    counts: Counter[tuple[int, int]] = Counter()
    found = [np.empty((0, WIDTH), dtype=np.uint64)]
    for one in unsettled:
        told = job.staging.get_array(one["told"]["file"], width=WIDTH)
        told = in_order(told[told[:, 4] == NONE])
        counts.update((phase, number) for phase, number in told[:, :2].tolist())
        found.append(told[:FIRST_MAX])
    whole = in_order(np.concatenate(found))
    if first_rule:
        only = min(phase for phase, _ in counts)
        whole = whole[whole[:, 0] == only]
        counts = Counter({key: count for key, count in counts.items() if key[0] == only})
    by_rule: Counter[str] = Counter()
    types = list(job.types.values())
    for (phase, number), count in counts.items():
        by_rule[rule_of(phase, types[number])] += count
    return sorted(_explainer(job, view).violations(whole[:FIRST_MAX]), key=unplaced_order), by_rule


def _first(found: Sequence[Mapping[str, Any]], phase: Phase) -> list[list[int]]:
    rows = [row for one in found if one["told"] for row in one["told"]["first"] if row[0] == phase]
    return [[int(word) for word in row] for row in in_order(np.array(rows, dtype=np.uint64).reshape(-1, WIDTH))]


def _explainer(job: Job, view: View) -> Explainer:
    pins = {t.key: pin_json(view.pins[t.id]) for t in job.types.values()}
    return Explainer(context_of({"context": job.context}), job.places, job.tables(), pins)
