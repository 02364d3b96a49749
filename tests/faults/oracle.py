"""What may be there after a fault: the written oracle, and the judgement of one run.

A run is: the victim performs a verb and is struck once; then fresh processes check the graph (read, write one row on
every branch, read again). The rules, in the order in which they are applied:

1. nobody hangs; whoever fails says so by a typed error; the check always succeeds
2. what a reader sees before anybody writes is exactly the start or exactly the new state, and the new one only if the
   graph's manifest has moved; a verb that says that it failed with some of its tables may have done the others
3. acknowledged means present, once; a transient fault (an error, a drop, a lost answer) must not keep a verb from it
4. what a writer makes of a dead process: if published, it stays; if all planned effects are there, forward, unless
   only its owner may publish it; else back
5. the state then stays what it is, whatever lands late
6. a process that was stopped and goes on: acknowledged and present once, or a typed refusal and absent
7. writable at once if the owner is dead, within a lease if it only might be
8. nothing is left under `__recovery`
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.faults import scenes, verbs
from tests.faults.forkserver import Ended

State = dict[str, Any]

TRANSIENT = frozenset({"error_500", "error_503", "drop", "lost", "applied_500", "delay"})
# The victim's own mutations end with the fault, so that what is in the store decides the outcome.
FINAL = frozenset({"kill_before", "kill_after", "kill_phase", "ghost", "denied", "lost_denied", "torn"})
FREEZES = frozenset({"freeze_before", "freeze_after", "stopped"})
# A ticket that lost its bytes with the power does not say whose it is: then the lease decides.
POWER_LOSSES = frozenset({"power", "power_partly", "power_acknowledged"})
LEASE_S = 0.5
LONG_LEASE_S = 60.0
AT_ONCE_S = 20.0
"""Far below the long lease that the runs without a freeze use, far above what a busy machine needs."""
PATIENCE_S = 15.0


@dataclass(frozen=True)
class Traces:
    """What an operation has left in the store: how many new versions of tables and of the graph, and whether a plan."""

    effects: int
    publishes: int
    planned: bool

    @staticmethod
    def between(before: Iterable[str], after: Iterable[str]) -> Traces:
        came = ["/" + key for key in set(after) - set(before)]
        return Traces(
            effects=sum(1 for key in came if re.search(verbs.TABLE_VERSION, key)),
            publishes=sum(1 for key in came if re.search(verbs.GRAPH_VERSION, key)),
            planned=any(re.search(verbs.PLAN, key) for key in came),
        )


@dataclass(frozen=True)
class Expectation:
    """What is known of a verb before it is struck. Readers see `before` at the start; a writer makes `old` of it."""

    before: State
    old: State
    new: State
    whole: Traces
    """What the undisturbed operation leaves in the store."""
    overtaken: tuple[Callable[[State], None], ...] = ()
    """What an operation may do in addition if it goes on after another writer came by (see `verbs.Verb`)."""
    some: tuple[State, ...] = ()
    """What an operation may have made of it that says that it could not do all of it."""
    by_owner_only: bool = False
    """Whether nobody else publishes it (see `verbs.Verb`)."""
    again: State | None = None
    """The new state, with one table done anew in a commit of its own, because the store refused a commit of it."""
    partly: tuple[Callable[[State], None], ...] = ()
    """The changes that make `some`, for an operation that went on after another writer came by."""


@dataclass(frozen=True)
class Evidence:
    fault: str
    struck: str
    victim: Ended
    traces: Traces
    """What was in the store when the victim was gone, or stopped, and nobody else had come yet."""
    checks: tuple[Ended, ...]
    leftovers: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()


@dataclass
class Judgement:
    outcome: str = ""
    problems: list[str] = field(default_factory=list)

    def require(self, holds: bool, problem: str) -> bool:
        if not holds:
            self.problems.append(problem)
        return holds


def judge(expected: Expectation, evidence: Evidence) -> Judgement:
    found = Judgement(problems=list(evidence.extra))
    victim = evidence.victim
    found.require(not victim.hung, "the victim hung")
    _judge_victim(found, evidence)
    for number, check in enumerate(evidence.checks, 1):
        if not found.require(check.acknowledged and not check.hung, f"check {number} failed: {_said(check)}"):
            found.outcome = "unusable"
            return found
    _judge_states(found, expected, evidence)
    limit_s = LEASE_S + PATIENCE_S if evidence.fault in FREEZES | POWER_LOSSES else AT_ONCE_S
    for number, check in enumerate(evidence.checks, 1):
        waited_s = check.value["waited_s"]
        found.require(waited_s < limit_s, f"check {number} waited {waited_s:.1f} s for the graph to be writable")
    found.require(not evidence.leftovers, f"left under __recovery: {', '.join(evidence.leftovers[:4])}")
    return found


def _judge_victim(found: Judgement, evidence: Evidence) -> None:
    victim, fault = evidence.victim, evidence.fault
    if victim.error is not None:
        found.require(victim.error["condition"] is not None, f"an untyped error: {_said(victim)}")
    if not evidence.struck or fault in TRANSIENT:
        found.require(victim.acknowledged, f"not acknowledged in spite of a passing fault: {_said(victim)}")


def _judge_states(found: Judgement, expected: Expectation, evidence: Evidence) -> None:
    first = evidence.checks[0].value
    if evidence.victim.error is not None and first["before"] in expected.some:
        expected = replace(expected, new=first["before"])
    if evidence.struck and first["before"] == expected.again:
        expected = replace(expected, new=first["before"])
    visible = _name_of(first["before"], expected)
    if not found.require(visible != "", _third("before the check", first["before"], expected.old, expected.new)):
        return
    moved = evidence.traces.publishes
    found.require(moved > 0 or visible != "new", "the new state is visible and the graph's manifest has not moved")
    acknowledged = evidence.victim.acknowledged
    frozen = evidence.fault in FREEZES and bool(evidence.struck)
    if acknowledged and not frozen:
        found.require(visible == "new", "acknowledged, and not there")
    allowed = _settled(expected, evidence, visible)
    reached = next((name for name in allowed if first["after"] in _probed(expected, evidence, name, 1)), "")
    if reached == "":
        olds, news = (_probed(expected, evidence, name, 1) for name in ("old", "new"))
        found.require(False, _third(f"after the check, which allows {allowed}", first["after"], olds[0], news[0]))
        return
    final = "new" if frozen and acknowledged else reached
    if frozen and reached == "new" and expected.old:
        said = _said(evidence.victim)
        found.require(acknowledged, f"published by the recoverer, and its owner was told: {said}")
    for number, check in enumerate(evidence.checks[1:], 2):
        for when, already in (("before", number - 1), ("after", number)):
            wanted = _probed(expected, evidence, final, already)
            for then in expected.overtaken if frozen and final == "new" else ():
                wanted += _probed(expected, evidence, final, already, then=then)
            for part in expected.partly if frozen and final == "old" and evidence.victim.error else ():
                wanted += _probed(expected, evidence, final, already, then=part)
                wanted += _probed(expected, evidence, final, already, first=part)
            seen = check.value[when]
            what = f"settled as {final}, and {when} check {number} wrote: {difference(wanted[0], seen)}"
            found.require(seen in wanted, what)
    found.outcome = ("acknowledged, " if acknowledged else "refused, " if evidence.victim.error else "") + final


def _settled(expected: Expectation, evidence: Evidence, visible: str) -> tuple[str, ...]:
    """The states, by name, that the first writer after the fault may leave: the heart of the oracle."""
    if visible == "new" or not expected.old:
        return ("new",)  # what is published stays; where there was nothing, the check creates the graph
    if evidence.fault in FINAL and evidence.struck:
        complete = evidence.traces.planned and evidence.traces.effects >= expected.whole.effects
        return ("new",) if complete and not expected.by_owner_only else ("old",)
    return ("old", "new")


def _name_of(state: State, expected: Expectation) -> str:
    if state == expected.new:
        return "new"
    return "old" if state in (expected.before, expected.old) else ""


def _named(name: str, expected: Expectation) -> State:
    return expected.new if name == "new" else expected.old


def _probed(
    expected: Expectation,
    evidence: Evidence,
    name: str,
    checks: int,
    *,
    first: Callable[[State], None] | None = None,
    then: Callable[[State], None] | None = None,
) -> tuple[State, ...]:
    """The named state after so many checks have written their rows on the branches that they found.

    `first` is what the verb did on the state before them, `then` what it did after the first of them.
    A branch that the verb made while the first check was at work may have been made of main before or after its row.
    """
    state = copy.deepcopy(_named(name, expected))
    if first is not None:
        first(state)
    for number, check in enumerate(evidence.checks[:checks], 1):
        for branch in check.value["probed"]:
            if branch in state:
                scenes.add_person(state, probe_name(number), branch=branch)
        if then is not None and number == 1:
            then(state)
    inherited = copy.deepcopy(state)
    for branch in set(state) - {*expected.old, *evidence.checks[0].value["probed"]}:
        scenes.add_person(inherited, probe_name(1), branch=branch)
    return scenes.ordered(state), scenes.ordered(inherited)


def probe_name(number: int) -> str:
    return f"probe{number}"


def _said(ended: Ended) -> str:
    if ended.hung:
        return "hung"
    if ended.error:
        return f"{ended.error['condition'] or ended.error['type']}: {ended.error['message']}"
    return f"status {ended.status}"


def _third(when: str, state: State, old: State, new: State) -> str:
    return f"a third state {when}: from old {difference(old, state)}; from new {difference(new, state)}"


def difference(wanted: Any, found: Any, path: str = "") -> str:
    """Where two states differ, short enough for one line."""
    if wanted == found:
        return "none"
    if isinstance(wanted, dict) and isinstance(found, dict):
        parts = [
            difference(wanted.get(key), found.get(key), f"{path}/{key}")
            for key in sorted({*wanted, *found})
            if wanted.get(key) != found.get(key)
        ]
        return "; ".join(parts)
    if isinstance(wanted, list) and isinstance(found, list):
        extra = [row for row in found if found.count(row) > wanted.count(row)]
        missing = [row for row in wanted if wanted.count(row) > found.count(row)]
        return f"{path} +{json.dumps(extra)[:160]} -{json.dumps(missing)[:160]}"
    return f"{path} {str(wanted)[:80]} → {str(found)[:80]}"
