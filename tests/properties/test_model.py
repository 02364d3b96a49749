"""Random histories of writes, branches, schema changes, crashes and reopenings, against a plain dictionary.

A failure prints its steps and a `@reproduce_failure(…)` line that replays it. Shrinking takes minutes and is left out
unless OMNIGRAPH_SHRINK is set; OMNIGRAPH_MODEL_EXAMPLES runs more histories than the few of the suite.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
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
        try:
            expected = after(self.branches, operation)
        except Refused as refused:
            with pytest.raises(OmnigraphError) as error:
                perform(self.graph, operation)
            assert error.value.condition == refused.condition, error.value
            expected = self.branches
        else:
            perform(self.graph, operation)
        self.branches = expected
        if operation.get("branch") in self.branches:
            self.learn(operation["branch"])

    def do_and_die(self, operation: Operation, phase: str, occurrence: int) -> None:
        """Another process does it and is killed on the way: afterwards it is all there, or not at all."""
        branch = operation["branch"]
        old = self.branches
        try:
            new = after(old, operation)
        except Refused:
            new = old
        arguments = {"uri": str(self.path), "operation": operation, "phase": phase, "occurrence": occurrence}
        ended = self.processes.run("perform_operation", arguments)
        note(f"status {ended.status} {ended.result}")
        self.graph.close()
        self.graph = omnigraph.open(self.path)
        if ended.status == 0:
            assert ended.acknowledged or new is old, ended
            self.branches = new
            self.learn(branch)
            return
        seen = logical(read(self.graph.snapshot(branch)))
        assert seen in (old[branch].logical(), new[branch].logical()), "a third state"
        probe = {"do": "upsert", "type": old[branch].nodes[0].name, "rows": [{"name": "probe"}]}
        if probe["type"] not in new[branch].types:
            probe["type"] = new[branch].nodes[0].name
        self.settle(branch, seen, old, new)

    def settle(self, branch: str, seen: dict[str, list[str]], old: dict[str, State], new: dict[str, State]) -> None:
        """One write settles what the dead process left: by then it is decided, and what had been seen has stayed."""
        if seen == new[branch].logical() != old[branch].logical():
            old = new
        state = (old if self.graph.schema(branch).types() is None else old)[branch]
        probe = next(t.name for t in state.nodes if t.name in self.graph.schema(branch).node)
        write = {"op": "write", "branch": branch, "statements": [_probe(probe)]}
        try:
            perform(self.graph, write)
        except OmnigraphError as error:
            # A rename of the type was rolled forward under our feet: the new name is the right one then.
            assert error.condition == "unknown_type", error
            old, probe = new, next(t.name for t in new[branch].nodes)
            write = {**write, "statements": [_probe(probe)]}
            perform(self.graph, write)
        found = logical(read(self.graph.snapshot(branch)))
        for outcome in (old, new):
            if probe in outcome[branch].types:
                settled = after(outcome, write)
                if settled[branch].logical() == found:
                    self.branches = settled
                    self.learn(branch)
                    return
        raise AssertionError(f"a third state after recovery: {found}")

    def learn(self, branch: str) -> None:
        """Compare the branch with the model, and take over the ids that the product has given to edges."""
        snapshot = self.graph.snapshot(branch)
        rows = read(snapshot)
        state = self.branches[branch]
        assert logical(rows) == state.logical()
        for edge in state.edges:
            edge.rows = rows[edge.name]
        self.past[snapshot.commit] = (branch, state.logical())


def _probe(type_name: str) -> dict[str, Any]:
    return {"do": "upsert", "type": type_name, "rows": [{"name": "probe"}]}


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as running:
        yield running


def test_a_graph_is_what_a_dictionary_would_be(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "off")
    run_state_machine_as_test(lambda: GraphMachine(processes), settings=HISTORY)
