"""Which rows of a load count: all of them, or those that remain when invalid rows are removed until the rest is valid.

Strict: one round of checks. If it finds a violation, the tolerant algorithm runs to count all of them, and the error
has the counts per rule and the first rows. So `fail` and `quarantine` give the same counts.

Tolerant: rows with a repeated id are removed, then rows whose id exists; rows that change nothing are dropped; rows
that break a rule of their own are removed; then, in rounds until no violation remains: edges without a node, or else
values that are not unique, or else cardinality. A violation that names no row can't be resolved by removing rows, and
refuses the load; when the violations are only counted for an error, it is counted with the rest.
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
from omnigraph.pipeline.bulk.job import Job, State
from omnigraph.pipeline.bulk.rejects.explain import Explainer
from omnigraph.pipeline.bulk.rejects.quarantine import first_rejects
from omnigraph.pipeline.bulk.rejects.violation_codes import FIRST_MAX, NONE, WIDTH, Phase, in_order, rule_of
from omnigraph.tasks.digest_index import RemovedRows
from omnigraph.write.violations import SHOWN_MAX, refusal, unplaced_order
from omnigraph.write.violations import told as violation_fields

IMAGE = (Phase.ENDPOINTS, Phase.UNIQUE, Phase.CARDINALITY)
ROUND = 10
"""Rows that are removed in round i carry the phase ROUND + i."""


def resolve_rejects(job: Job, view: View, *, tolerant: bool) -> State:
    """The state in which the rest of the input is valid. Raises the error that refuses the load."""
    existing = job.read_existing(view)
    if tolerant:
        state, unresolved = _tolerant(job, view, existing, ignores_unresolved=False)
        if unresolved:
            raise ConstraintViolation(**violation_fields(*_explained(job, view, unresolved, first_rule=True)))
        return state
    valid = None if job.has_rejected_lines else _strict(job, view, existing)
    if valid is None:
        raise _refusal(job, view, existing)
    return valid


def _asks(job: Job) -> set[str]:
    """The checks of the final state that this input can fail."""
    row_counts = job.row_counts
    checks = set()
    if any(job.types[key].kind == "edge" for key in row_counts) or job.overwritten:
        checks.add("endpoints")
    if any(c.kind == "unique" for key in row_counts for c in job.types[key].constraints):
        checks.add("unique")
    if any(e.card_min > 0 or e.card_max is not None for e in job.schema.edges):
        checks.add("cardinality")
    return checks


# ---- strict ----------------------------------------------------------------------------------------------------------


def _strict(job: Job, view: View, existing: Sequence[Mapping[str, Any]]) -> State | None:
    """The state of an input without violations; None if there is any."""
    state = State()
    asks = _asks(job)
    if job.mode == "merge":
        _match(job, view, existing, state)
        if state.violation_files:
            return None
        results = job.check(existing, state, asks, blames=False) if asks and live_types(job, state) else []
    else:
        ids = {"ids"} if job.own_ids else set()
        results = job.check(existing, state, asks | ids, blames=False) if asks | ids else []
    return None if any(result["told"] for result in results) or _has_invalid_rows(job, state) else state


def _has_invalid_rows(job: Job, state: State) -> bool:
    """Whether a row that counts breaks a rule of its own."""
    removed = RemovedRows(job.staging, state.removed)
    for result in job.read:
        for key, rows_of_type in result["types"].items():
            if rows_of_type["broken"] is not None and removed.live(key, _invalid_rows(job, result, rows_of_type)).any():
                return True
    return False


def _invalid_rows(job: Job, result: Mapping[str, Any], rows_of_type: Mapping[str, Any]) -> np.ndarray:
    offsets = job.staging.get_table(rows_of_type["broken"]["file"], ["row"]).column("row")
    rows = np.unique(np.asarray(offsets.combine_chunks())).astype(np.uint64)
    names: np.ndarray = rows + np.uint64(result["piece"] << ROW_BITS)
    return names


def live_types(job: Job, state: State) -> list[str]:
    """Types of which at least one row counts."""
    return [key for key in job.row_counts if _has_live(job, state, key)]


def _has_live(job: Job, state: State, key: str) -> bool:
    if state.removed_max[key] < job.row_counts[key]:
        return True
    removed = RemovedRows(job.staging, state.removed)
    for result in job.read:
        rows = result["types"].get(key, {"rows": 0})["rows"]
        base = result["piece"] << ROW_BITS
        if removed.live(key, np.arange(base, base + rows, dtype=np.uint64)).any():
            return True
    return False


def _match(job: Job, view: View, existing: Sequence[Mapping[str, Any]], state: State) -> None:
    """For a merge: rows that replace others, without those that change nothing or that a later row replaces."""
    results = job.check(existing, state, {"ids"}, blames=False) if job.own_ids else []
    for result in results:
        state.drop(result["dropped"])
        for key, about in result["matches"].items():
            state.matches.setdefault(key, []).append(about)
    _remove_rows(job, state, results, Phase.REPEATED, Phase.REPEATED)
    if state.matches:
        job.compare(view, state)


# ---- tolerant --------------------------------------------------------------------------------------------------------


def _tolerant(
    job: Job, view: View, existing: Sequence[Mapping[str, Any]], *, ignores_unresolved: bool
) -> tuple[State, Sequence[Mapping[str, Any]]]:
    """The valid state, and the check results with violations that name no row."""
    state = State()
    if job.mode == "merge":
        _match(job, view, existing, state)
    elif job.own_ids:
        results = job.check(existing, state, {"ids"}, blames=False)
        _remove_rows(job, state, results, Phase.REPEATED, Phase.REPEATED)
        _remove_rows(job, state, results, Phase.EXISTS, Phase.EXISTS)
        state.existing = next(iter(_first(results, Phase.EXISTS)), None)
    _remove_invalid_rows(job, state)
    asks = _asks(job)
    round_number = 0
    while asks:
        results = job.check(existing, state, asks, blames=True)
        phase = _next_phase(results, ignores_unresolved=ignores_unresolved)
        if phase is None:
            return state, [result for result in results if result["told"]]
        _remove_rows(job, state, results, phase, ROUND + round_number)
        round_number += 1
    return state, ()


def _next_phase(results: Sequence[Mapping[str, Any]], *, ignores_unresolved: bool) -> Phase | None:
    """The first rule that rows break. None if there is none, or if a violation that names no row comes first."""
    for phase in IMAGE:
        violations = [summary["told"] for summary in results if summary["told"]]
        without_row = sum(summary["nowhere"].get(str(int(phase)), 0) for summary in violations)
        if without_row and not ignores_unresolved:
            return None
        if sum(count for summary in violations for p, _, count in summary["counts"] if p == phase) > without_row:
            return phase
    return None


def _remove_rows(job: Job, state: State, results: Sequence[Mapping[str, Any]], phase: Phase, verdict: int) -> None:
    """Remove the rows that violations of this phase name."""
    keys = list(job.types)
    for result in results:
        if not result["told"] or not any(p == phase for p, _, _ in result["told"]["counts"]):
            continue
        state.violation_files.append((verdict, result["told"]["file"]))
        codes = job.staging.get_array(result["told"]["file"], width=WIDTH)
        codes = codes[(codes[:, 0] == phase) & (codes[:, 4] != NONE)]
        for number in np.unique(codes[:, 1]).tolist():
            rows = np.unique(codes[codes[:, 1] == number, 4])
            removed = np.column_stack([rows, np.full(len(rows), verdict, dtype=np.uint64)])
            state.remove(keys[number], job.staging.put_array("gone", removed), len(removed))


def _remove_invalid_rows(job: Job, state: State) -> None:
    for result in job.read:
        for key, rows_of_type in result["types"].items():
            if rows_of_type["broken"] is not None:
                names = _invalid_rows(job, result, rows_of_type)
                removed = np.column_stack([names, np.full(len(names), int(Phase.FIELDS), dtype=np.uint64)])
                state.remove(key, job.staging.put_array("gone", removed), len(removed))


# ---- errors ----------------------------------------------------------------------------------------------------------


def _refusal(job: Job, view: View, existing: Sequence[Mapping[str, Any]]) -> RowsRefused:
    """All violations of the input: counts, and the first rows in the order of the input."""
    state, unresolved = _tolerant(job, view, existing, ignores_unresolved=True)
    first, by_rule = first_rejects(job, state, view)
    more, others = _explained(job, view, unresolved)
    existing_codes = None if state.existing is None else np.array([state.existing], dtype=np.uint64)
    return refusal(
        [*first, *more][:SHOWN_MAX],
        by_rule + others,
        no_records=job.has_rejected_lines,
        repeated=any(verdict == Phase.REPEATED for verdict, _ in state.violation_files),
        existing=None if existing_codes is None else _explainer(job, view).violations(existing_codes)[0],
    )


def _explained(
    job: Job, view: View, unresolved: Sequence[Mapping[str, Any]], *, first_rule: bool = False
) -> tuple[list[Violation], Counter[str]]:
    """Violations that name no row, of all rules or of the first rule that has some: the first ones, and all counts."""
    counts: Counter[tuple[int, int]] = Counter()
    first_codes = [np.empty((0, WIDTH), dtype=np.uint64)]
    for result in unresolved:
        codes = job.staging.get_array(result["told"]["file"], width=WIDTH)
        codes = in_order(codes[codes[:, 4] == NONE])
        counts.update((phase, number) for phase, number in codes[:, :2].tolist())
        first_codes.append(codes[:FIRST_MAX])
    first = in_order(np.concatenate(first_codes))
    if first_rule:
        only = min(phase for phase, _ in counts)
        first = first[first[:, 0] == only]
        counts = Counter({key: count for key, count in counts.items() if key[0] == only})
    by_rule: Counter[str] = Counter()
    types = list(job.types.values())
    for (phase, number), count in counts.items():
        by_rule[rule_of(phase, types[number])] += count
    return sorted(_explainer(job, view).violations(first[:FIRST_MAX]), key=unplaced_order), by_rule


def _first(results: Sequence[Mapping[str, Any]], phase: Phase) -> list[list[int]]:
    rows = [row for result in results if result["told"] for row in result["told"]["first"] if row[0] == phase]
    return [[int(word) for word in row] for row in in_order(np.array(rows, dtype=np.uint64).reshape(-1, WIDTH))]


def _explainer(job: Job, view: View) -> Explainer:
    pins = {t.key: pin_json(view.pins[t.id]) for t in job.types.values()}
    return Explainer(context_of({"context": job.context}), job.places, job.tables(), pins)
