"""Random histories of writes, branches, schema changes, crashes and reopenings, against a plain dictionary.

A failure prints its steps and a `@reproduce_failure(…)` line that replays it. Shrinking takes minutes and is left out
unless OMNIGRAPH_SHRINK is set; OMNIGRAPH_MODEL_EXAMPLES runs more histories than the few of the suite.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import omnigraph
from omnigraph.errors import OmnigraphError
from tests.contention.audit import objects_left, wrong_epochs
from tests.contention.processes import Processes
from tests.properties import operations
from tests.properties.model import Operation, Refused, State, after, initial
from tests.properties.perform import logical, perform, read

EXAMPLES = int(os.environ.get("OMNIGRAPH_MODEL_EXAMPLES", "10"))
STEPS = 25
DYING = ["check", "plan", "effect", "publish", "acknowledge", "release"]
HISTORY = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
    phases=[p for p in Phase if p is not Phase.shrink or os.environ.get("OMNIGRAPH_SHRINK")],
)


class GraphMachine(RuleBasedStateMachine):
    """`branches` is what the graph must hold. Edge ids are the product's; the model learns them after every step."""

    def __init__(self, processes: Processes) -> None:
        super().__init__()
        self.processes = processes
        self.folder = Path(tempfile.mkdtemp(prefix="omnigraph-model-"))
        self.path = self.folder / "graph"
        self.branches: dict[str, State] = {}
        self.past: dict[str, tuple[str, dict[str, list[str]]]] = {}
        """Commits of the past, with their branch and what they held."""
        self.probes = 0

    @initialize(row_ids=st.sampled_from(["stable", "address"]))
    def start(self, row_ids: Any) -> None:
        self.branches = {"main": initial()}
        self.graph = omnigraph.init(self.path, self.branches["main"].text(), row_ids=row_ids)

    def teardown(self) -> None:
        try:
            for branch in self.branches:
                self.learn(branch)
                assert not wrong_epochs(self.graph, branch)
            if self.branches:
                assert not objects_left(self.path)
        finally:
            shutil.rmtree(self.folder)

    # ---- steps -------------------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def write(self, data: Any) -> None:
        self.do(data.draw(operations.writes(self.branches), label="write"))

    @rule(data=st.data())
    def write_again(self, data: Any) -> None:
        """Twice as likely: most of what happens to a graph is this."""
        self.do(data.draw(operations.writes(self.branches), label="write"))

    @rule(data=st.data())
    def change_schema(self, data: Any) -> None:
        self.do(data.draw(operations.schema_changes(self.branches), label="schema"))

    @rule(name=st.sampled_from(operations.BRANCHES), data=st.data())
    def create_branch(self, name: str, data: Any) -> None:
        source = data.draw(st.sampled_from(sorted(self.branches)))
        self.do({"op": "create_branch", "name": name, "from": source})

    @rule(name=st.sampled_from([*operations.BRANCHES, "main"]))
    def delete_branch(self, name: str) -> None:
        self.do({"op": "delete_branch", "name": name})

    @rule(phase=st.sampled_from(DYING), occurrence=st.integers(1, 3), schema=st.booleans(), data=st.data())
    def crash(self, phase: str, occurrence: int, schema: bool, data: Any) -> None:
        kind = operations.schema_changes if schema else operations.writes
        operation = data.draw(kind(self.branches), label="crashed")
        self.do_and_die(operation, phase, occurrence)

    @rule()
    def reopen(self) -> None:
        self.graph.close()
        self.graph = omnigraph.open(self.path)
        assert {b.name for b in self.graph.branches()} == self.branches.keys()
        for branch in self.branches:
            self.learn(branch)

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def look_back(self, data: Any) -> None:
        commit = data.draw(st.sampled_from(sorted(self.past)))
        branch, held = self.past[commit]
        if branch in self.branches:
            assert logical(read(self.graph.snapshot(branch, commit=commit))) == held

    # ---- doing and comparing -----------------------------------------------------------------------------------------

    def do(self, operation: Operation) -> None:
        """The graph does what the model says, or refuses for the model's reason."""
        expected, refused = self.expected(operation)
        if refused is None:
            perform(self.graph, operation)
        else:
            with pytest.raises(OmnigraphError) as error:
                perform(self.graph, operation)
            assert error.value.condition == refused, error.value
        self.branches = expected
        if operation.get("branch") in self.branches:
            self.learn(operation["branch"])

    def expected(self, operation: Operation) -> tuple[dict[str, State], str | None]:
        """What there is afterwards, and the condition of the refusal if it is to be refused."""
        try:
            return after(self.branches, operation), None
        except Refused as refused:
            return self.branches, refused.condition

    def do_and_die(self, operation: Operation, phase: str, occurrence: int) -> None:
        """Another process does it and is killed on the way: afterwards it is all there, or not at all."""
        branch = operation["branch"]
        old = self.branches
        new, refused = self.expected(operation)
        arguments = {"uri": str(self.path), "operation": operation, "phase": phase, "occurrence": occurrence}
        ended = self.processes.run("perform_operation", arguments)
        note(f"status {ended.status} {ended.result}")
        self.graph.close()
        self.graph = omnigraph.open(self.path)
        if ended.status == 0:
            assert ended.acknowledged == (refused is None), ended
            self.branches = new
            self.learn(branch)
            return
        seen = logical(read(self.graph.snapshot(branch)))
        assert seen in (old[branch].logical(), new[branch].logical()), "a third state"
        is_new = seen == new[branch].logical() != old[branch].logical()
        self.settle(branch, [new] if is_new else [old, new])

    def settle(self, branch: str, outcomes: list[dict[str, State]]) -> None:
        """One write settles what the dead process left: after it the outcome is decided, and one of these."""
        self.probes += 1
        common = next(t.name for t in outcomes[0][branch].nodes if t.name in outcomes[-1][branch].types)
        probe = {"do": "insert", "type": common, "rows": [{"name": f"probe-{self.probes}"}]}
        write = {"op": "write", "branch": branch, "statements": [probe]}
        perform(self.graph, write)
        found = logical(read(self.graph.snapshot(branch)))
        declared = self.declared(branch)
        settled = [
            s
            for s in (after(o, write) for o in outcomes)
            if s[branch].logical() == found and _names(s[branch]) == declared
        ]
        assert settled, f"a third state after recovery: {found}, {declared}"
        self.branches = settled[0]
        self.learn(branch)

    def declared(self, branch: str) -> dict[str, set[str]]:
        """The properties of each type: of an empty type the rows do not tell whether one was dropped."""
        return {t.name: {p.name for p in t.properties if p.name != "name"} for t in self.graph.schema(branch).types()}

    def learn(self, branch: str) -> None:
        """Compare the branch with the model, and take over the ids that the product has given to edges."""
        snapshot = self.graph.snapshot(branch)
        rows = read(snapshot)
        state = self.branches[branch]
        assert logical(rows) == state.logical()
        for edge in state.edges:
            edge.rows = rows[edge.name]
        self.past[snapshot.commit] = (branch, state.logical())


def _names(state: State) -> dict[str, set[str]]:
    return {name: {p.name for p in t.properties if p.name != "name"} for name, t in state.types.items()}


def test_a_graph_is_what_a_dictionary_would_be(processes: Processes) -> None:
    run_state_machine_as_test(lambda: GraphMachine(processes), settings=HISTORY)
