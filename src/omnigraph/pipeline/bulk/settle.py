"""Which rows of a load count: refuse at the first broken rule, or put rows aside until the rest is valid.

Strict, in this order, as the in-memory load: lines that are no records; ids twice; ids that exist, in `append`; then
all other rules together.

Tolerant: ids twice go, then ids that exist; rows that change nothing are dropped; rows that break a rule of their own
go; then, as often as something is found: edges without a node, or else values that are not unique, or else
cardinality. A violation that is told of no row can't be settled, and refuses the load.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from omnigraph.commit.stage import View
from omnigraph.errors import ConstraintViolation, KeyConflict, RecordError, Violation
from omnigraph.pipeline.bulk.context import ROW_BITS, context_of
from omnigraph.pipeline.bulk.existing import pin_json
from omnigraph.pipeline.bulk.explain import Explainer
from omnigraph.pipeline.bulk.index import Gone
from omnigraph.pipeline.bulk.job import Job, State
from omnigraph.pipeline.bulk.read import LINE
from omnigraph.pipeline.bulk.told import FIRST_MOST, NONE, WIDTH, Phase, in_order
from omnigraph.write.envelope import RejectedLine
from omnigraph.write.problems import SHOWN_MAX, shown

IMAGE = ("endpoints", "unique", "cardinality")
ROUND = 10
"""Rows that go in round i of settling carry the phase ROUND + i."""


def settle(job: Job, view: View, *, tolerant: bool) -> State:
    """The state in which the rest of the input is valid; raises what refuses the load."""
    if not tolerant:
        _refuse_lines(job)
    existing = job.read_existing(view)
    return _tolerant(job, view, existing) if tolerant else _strict(job, view, existing)


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


def _strict(job: Job, view: View, existing: Sequence[Mapping[str, Any]]) -> State:
    state = State()
    asks = _asks(job)
    if job.mode == "merge":
        _matched(job, view, existing, state, refuse_repeated=True)
        found = job.check(existing, state, asks, blames=False) if asks and live_types(job, state) else []
    else:
        ids = {"ids"} if job.own_ids else set()
        found = job.check(existing, state, asks | ids, blames=False) if asks | ids else []
        _refuse_repeated(job, view, found)
        _refuse_existing(job, view, found)
    _refuse_rest(job, view, found, state)
    return state


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


def _matched(
    job: Job, view: View, existing: Sequence[Mapping[str, Any]], state: State, *, refuse_repeated: bool
) -> None:
    """Of a merge: rows that replace others, without those that change nothing or that a later row replaces."""
    found = job.check(existing, state, {"ids"}, blames=False) if job.own_ids else []
    if refuse_repeated:
        _refuse_repeated(job, view, found)
    for one in found:
        state.drop(one["dropped"])
        for key, about in one["matches"].items():
            state.matches.setdefault(key, []).append(about)
    if not refuse_repeated:
        _take_out(job, state, found, Phase.REPEATED, Phase.REPEATED)
    if state.matches:
        job.compare(view, state)


def _refuse_lines(job: Job) -> None:
    total, counts = job.rejected_lines()
    if total:
        _raise(RecordError, _first_lines(job), total, counts)


def _first_lines(job: Job) -> list[Violation]:
    found: list[Violation] = []
    for one in job.read:
        if one["rejected"] is None or len(found) >= FIRST_MOST:
            continue
        for row in job.staging.get_table(one["rejected"]["file"]).slice(0, FIRST_MOST).to_pylist():
            source, line = job.places.place(one["piece"], row["line"])
            rejected = RejectedLine(
                line, row["rule"], row["reason"], b"", row["table_key"], row["entity_id"], row["property"]
            )
            many = job.places.source_count > 1
            found.append(replace(rejected.violation(), source=source if many else None))
    return found[:FIRST_MOST]


def _refuse_repeated(job: Job, view: View, found: Sequence[Mapping[str, Any]]) -> None:
    counts = _counts(job, found, [Phase.REPEATED])
    if counts:
        first = _first(found, [Phase.REPEATED])
        _raise(ConstraintViolation, _explainer(job, view).violations(first), sum(counts.values()), counts)


def _refuse_existing(job: Job, view: View, found: Sequence[Mapping[str, Any]]) -> None:
    by_type: Counter[int] = Counter()
    for one in found:
        for phase, number, count in one["told"]["counts"] if one["told"] else ():
            if phase == Phase.EXISTS:
                by_type[number] += count
    if by_type:
        number = min(by_type)
        first = [row for row in _first(found, [Phase.EXISTS], most=None) if row[1] == number]
        violation = _explainer(job, view).violations(np.array(first[:1], dtype=np.uint64))[0]
        raise KeyConflict(table_key=violation.table_key, entity_id=violation.entity_id, count=by_type[number])


def _refuse_rest(job: Job, view: View, found: Sequence[Mapping[str, Any]], state: State) -> None:
    """Rules of single rows and of the final image, told together."""
    phases = [Phase.ENDPOINTS, Phase.UNIQUE, Phase.CARDINALITY]
    counts = _counts(job, found, phases)
    fields, by_rule = _broken_rows(job, state)
    counts.update(by_rule)
    if counts:
        told = fields + _explainer(job, view).violations(_first(found, phases))
        _raise(ConstraintViolation, told[:FIRST_MOST], sum(counts.values()), counts)


def _broken_rows(job: Job, state: State) -> tuple[list[Violation], Counter[str]]:
    """The first rows that break a rule of their own, and how many do, without those that do not count."""
    gone = Gone(job.staging, state.gone)
    counts: Counter[str] = Counter()
    found: list[Violation] = []
    for key in job.row_counts:
        for one in job.read:
            about = one["types"].get(key)
            if about is None or about["broken"] is None:
                continue
            if key not in state.gone and len(found) >= FIRST_MOST:
                counts.update(about["broken"]["by_rule"])
                continue
            told = job.staging.get_table(about["broken"]["file"]).to_pylist()
            base = one["piece"] << ROW_BITS
            live = gone.live(key, np.array([base + row["row"] for row in told], dtype=np.uint64))
            told = [row for row, counts_still in zip(told, live, strict=True) if counts_still]
            counts.update(row["rule"] for row in told)
            found += _field_violations(job, key, one["piece"], about["table"], told[: FIRST_MOST - len(found)])
    return found, counts


def _field_violations(job: Job, key: str, piece: int, table: str, told: Sequence[Mapping[str, Any]]) -> list[Violation]:
    if not told:
        return []
    rows = job.staging.get_table(table, ["id", LINE])
    found = []
    for one in told:
        source, line = job.places.place(piece, rows.column(LINE)[one["row"]].as_py())
        found.append(
            Violation(
                rule=one["rule"],
                table_key=key,
                message=one["message"],
                entity_id=rows.column("id")[one["row"]].as_py(),
                property=one["property"],
                line=line,
                source=source if job.places.source_count > 1 else None,
            )
        )
    return found


# ---- tolerant --------------------------------------------------------------------------------------------------------


def _tolerant(job: Job, view: View, existing: Sequence[Mapping[str, Any]]) -> State:
    state = State()
    if job.mode == "merge":
        _matched(job, view, existing, state, refuse_repeated=False)
    elif job.own_ids:
        found = job.check(existing, state, {"ids"}, blames=False)
        _take_out(job, state, found, Phase.REPEATED, Phase.REPEATED)
        _take_out(job, state, found, Phase.EXISTS, Phase.EXISTS)
    _take_out_broken(job, state)
    asks = _asks(job)
    turn = 0
    while asks:
        found = job.check(existing, state, asks, blames=True)
        phase = next((p for p in (Phase.ENDPOINTS, Phase.UNIQUE, Phase.CARDINALITY) if _counts(job, found, [p])), None)
        if phase is None:
            break
        _refuse_unsettled(job, view, found, phase)
        _take_out(job, state, found, phase, ROUND + turn)
        turn += 1
    return state


def _refuse_unsettled(job: Job, view: View, found: Sequence[Mapping[str, Any]], phase: Phase) -> None:
    nowhere = sum(one["told"]["nowhere"].get(str(int(phase)), 0) for one in found if one["told"])
    if nowhere:
        told = np.concatenate([job.staging.get_array(one["told"]["file"], width=WIDTH) for one in found if one["told"]])
        told = in_order(told[(told[:, 0] == phase) & (told[:, 4] == NONE)])[:FIRST_MOST]
        violations = _explainer(job, view).violations(told)
        rule = violations[0].rule
        _raise(ConstraintViolation, violations, nowhere, Counter({rule: nowhere}))


def _take_out(job: Job, state: State, found: Sequence[Mapping[str, Any]], phase: Phase, verdict: int) -> None:
    """The rows that violations of this phase name do not count any more."""
    keys = list(job.types)
    for one in found:
        if not one["told"] or not any(p == phase for p, _, _ in one["told"]["counts"]):
            continue
        state.told.append((verdict, one["told"]["file"]))
        told = job.staging.get_array(one["told"]["file"], width=WIDTH)
        told = told[told[:, 0] == phase]
        for number in np.unique(told[:, 1]).tolist():
            rows = np.unique(told[told[:, 1] == number, 4])
            gone = np.column_stack([rows, np.full(len(rows), verdict, dtype=np.uint64)])
            state.take_out(keys[number], job.staging.put_array("gone", gone), len(gone))


def _take_out_broken(job: Job, state: State) -> None:
    for one in job.read:
        for key, about in one["types"].items():
            if about["broken"] is not None:
                told = job.staging.get_table(about["broken"]["file"], ["row"]).column("row")
                rows = np.unique(np.asarray(told.combine_chunks())).astype(np.uint64)
                names = rows + np.uint64(one["piece"] << ROW_BITS)
                gone = np.column_stack([names, np.full(len(names), int(Phase.FIELDS), dtype=np.uint64)])
                state.take_out(key, job.staging.put_array("gone", gone), len(gone))


# ---- telling ---------------------------------------------------------------------------------------------------------


def _counts(job: Job, found: Sequence[Mapping[str, Any]], phases: Sequence[Phase]) -> Counter[str]:
    """Violations per rule."""
    types = list(job.types.values())
    counts: Counter[str] = Counter()
    for one in found:
        for phase, number, count in one["told"]["counts"] if one["told"] else ():
            if phase in phases:
                counts[_rule(phase, bool(types[number].key_properties))] += count
    return counts


def _rule(phase: int, has_key: bool) -> str:
    if phase in (Phase.REPEATED, Phase.EXISTS):
        return "key" if has_key else "id"
    return {Phase.ENDPOINTS: "endpoint", Phase.UNIQUE: "unique", Phase.CARDINALITY: "cardinality"}[Phase(phase)]


def _first(found: Sequence[Mapping[str, Any]], phases: Sequence[Phase], *, most: int | None = FIRST_MOST) -> np.ndarray:
    rows = [row for one in found if one["told"] for row in one["told"]["first"] if row[0] in phases]
    whole = np.array(rows, dtype=np.uint64).reshape(-1, WIDTH)
    return in_order(whole)[:most]


def _explainer(job: Job, view: View) -> Explainer:
    pins = {t.key: pin_json(view.pins[t.id]) for t in job.types.values()}
    return Explainer(context_of({"context": job.context}), job.places, job.tables(), pins)


def _raise(
    kind: type[RecordError] | type[ConstraintViolation], first: Sequence[Violation], total: int, counts: Counter[str]
) -> NoReturn:
    told = list(first[:SHOWN_MAX])
    more = total - len(told)
    text = shown(told) + (f"\n… and {more} more" if more > 0 else "")
    raise kind(count=total, shown=text, violations=[v.to_json() for v in told], by_rule=dict(counts))
