"""Random histories of up to four branches, held against the written oracle after every step.

    python -m tests.branch.merge.random_histories --seed S --count N --store disk|s3 [--steps N] [--minutes M]

Each history has a seed of its own, and prints it if it fails. Limits of the product (when to fold, to adopt, to look up
instead of to scan) are set at random, so that small histories take the ways of large ones.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.branch.merge.model import Conflict as MergeConflict
from tests.branch.merge import random_writes
from tests.branch.merge.oracle import Expected, History, Options, State, expected_merge
from tests.branch.merge.random_settings import patched, random_limits, stores
from tests.branch.merge.random_writes import Write

BRANCHES_MAX = 4
PROGRESS_EVERY = 20


@dataclass(frozen=True)
class Settings:
    steps: int = 12
    bulk_rows: int = 1_500
    verify: bool = True


class RandomHistory:
    """One graph, its model, and the steps between them. `uri` is an empty place."""

    def __init__(self, uri: str, seed: int, settings: Settings, folder: Path, counts: Counter[str]) -> None:
        self.rng = random.Random(seed)
        self.settings = settings
        self.folder = folder
        self.counts = counts
        self.log: list[str] = []
        self.writes = random_writes.Writes(self.rng, folder, bulk_rows=settings.bulk_rows)
        row_ids = self.rng.choice(["stable", "stable", "address"])
        self.log.append(f"init, {row_ids} row ids")
        self.graph = og.init(uri, self.writes.first_schema_text(), row_ids=row_ids)
        head = self.graph.snapshot().commit
        self.history = History()
        self.history.add(head, self.writes.first_state())
        self.heads = {"main": head}

    def run(self, limits: dict[str, Any]) -> None:
        self.exact = bool(limits["branch.merge.rows.type_merge.COMPARED_BYTES_MAX"])
        self.log.append(", ".join(f"{name.rpartition('.')[2]} {value}" for name, value in limits.items()))
        self._apply("main", self.writes.upsert_nodes(self.state("main"), self.state("main").schema["Person"]))
        self._apply("main", self.writes.insert_knows(self.state("main")))
        self.create_branch("main", "b")
        for branch in ("main", "b"):
            self.write(branch)
        for _ in range(self.settings.steps):
            self.step()
        for branch in self.heads:
            self.compare(branch, og.open(self.graph.uri))
        if self.settings.verify:
            result = self.graph.verify(full=True, engine="local")
            assert result.ok, result.to_json()
        self.graph.close()

    def step(self) -> None:
        branch = self.rng.choice(sorted(self.heads))
        others = [b for b in sorted(self.heads) if b != branch]
        weighted: list[tuple[float, Callable[[], None]]] = [
            (10, lambda: self.write(branch)),
            (1.5, lambda: self.change_schema(branch)),
            (1.5 if len(self.heads) < BRANCHES_MAX else 0, lambda: self.create_branch(branch, f"b{len(self.log)}")),
            (7 if others else 0, lambda: self.merge(self.rng.choice(others), branch)),
            (3 if others else 0, lambda: self.criss_cross(self.rng.choice(others), branch)),
            (3 if others else 0, lambda: self.contend(self.rng.choice(others), branch)),
            (1.5, lambda: self.pick(branch)),
            (1, lambda: self.optimize(branch)),
            (1, self.cleanup),
            (0.7 if branch != "main" else 0, lambda: self.delete_branch(branch)),
        ]
        weights = [weight for weight, _ in weighted]
        self.rng.choices([step for _, step in weighted], weights)[0]()
        if self.rng.random() < 0.1:
            for name in self.heads:
                self.compare(name)

    # ---- steps -------------------------------------------------------------------------------------------------------

    def state(self, branch: str) -> State:
        return self.history.states[self.heads[branch]]

    def commit(self, branch: str, commit: str, state: State, *merged: str) -> None:
        self.history.add(commit, state, self.heads[branch], *merged)
        self.heads[branch] = commit
        self.compare(branch)

    def write(self, branch: str) -> None:
        self._apply(branch, self.writes.choose(self.state(branch)))

    def change_schema(self, branch: str) -> None:
        self._apply(branch, self.writes.choose_schema_change(self.state(branch)))
        self.counts["schema changes"] += 1

    def _apply(self, branch: str, write: Write) -> None:
        self.log.append(f"{branch}: {write.text}")
        commit, state = write.run(self.graph, branch)
        self.counts["writes"] += 1
        if commit is None:
            assert state == self.state(branch), "a change without a commit"
        else:
            self.commit(branch, commit, state)

    def create_branch(self, source: str, name: str) -> None:
        self.log.append(f"create {name} from {source}")
        self.graph.create_branch(name, from_branch=source)
        self.heads[name] = self.heads[source]

    def delete_branch(self, branch: str) -> None:
        self.log.append(f"delete {branch}")
        try:
            self.graph.delete_branch(branch)
        except og.errors.BranchInUse:
            return
        del self.heads[branch]

    def optimize(self, branch: str) -> None:
        self.log.append(f"optimize {branch}")
        self.graph.optimize(branch=branch, engine="local")
        commit = next(b.commit for b in self.graph.branches() if b.name == branch)
        if commit != self.heads[branch]:
            self.commit(branch, commit, self.state(branch))
        self.counts["optimize"] += 1

    def cleanup(self) -> None:
        self.log.append("cleanup")
        self.graph.cleanup(keep=1, older_than="0s", confirm=True)
        self.counts["cleanup"] += 1

    def criss_cross(self, source: str, target: str) -> None:
        """Both directions, each with what the other side had before; then what both changed again."""
        if self.rng.random() < 0.7:
            self.contend(source, target)
        before = self.heads[target]
        self.merge(source, target)
        if self.heads[target] == before:
            return
        self.merge(before, source)
        if self.rng.random() < 0.7:
            self.contend(source, target)
            self.merge(source, target)

    def contend(self, source: str, target: str) -> None:
        """Both sides change the same entity."""
        name = self.rng.choice(["Knows", "Knows", "Person"])
        shared = sorted(self.state(source).rows[name].keys() & self.state(target).rows[name].keys())
        if not shared:
            return
        entity_id = self.rng.choice(shared)
        for branch in (source, target):
            self._apply(branch, self.writes.change(self.state(branch), name, entity_id))

    def merge(self, source: str, target: str) -> None:
        """`source` is a branch or a commit."""
        options = Options(
            grain=self.rng.choice(["properties", "properties", "rows"]),
            favour=self.rng.choice([None, None, None, "ours", "theirs"]),
        )
        if self.rng.random() < 0.1:
            options = replace(options, resolutions=self._unasked(self.state(target)))
        commit = self.heads.get(source, source)

        def run(options: Options) -> Any:
            arguments: dict[str, Any] = {
                "strategy": options.favour or "fail",
                "grain": options.grain,
                "engine": "local",
            }
            return self.graph.merge(source, into=target, resolutions=dict(options.resolutions), **arguments)

        if self.rng.random() < 0.2 and source in self.heads:
            self._check_plan(source, target, options)
        try:
            self._attempt(f"merge {source} into {target}", commit, target, options, run, base=None)
        except og.errors.VersionReclaimed:
            assert source not in self.heads, "the merge of two branches needs a version that cleanup removed"
            self.counts["reclaimed"] += 1

    def _check_plan(self, source: str, target: str, options: Options) -> None:
        expected = expected_merge(self.history, self.heads[source], self.heads[target], options)
        plans = []
        for tasks_bytes_min in (0, 1 << 60):
            with patched({"pipeline.merge_tasks.TASKS_BYTES_MIN": tasks_bytes_min}):
                plans.append(self.graph.plan_merge(source, into=target, **_arguments(options)).to_json())
        assert plans[0]["outcome"] == expected.outcome, ("plan", plans[0])
        assert plans[0] == plans[1], ("by tasks, in one piece", plans)
        self.counts["plans both ways"] += 1

    def pick(self, branch: str) -> None:
        commits = sorted(c for c, parents in self.history.parents.items() if parents)
        commit = self.rng.choice(commits)
        is_revert = self.rng.random() < 0.5
        parent = self.history.parents[commit][0]
        options = Options(favour=self.rng.choice([None, None, "theirs"]))

        def run(options: Options) -> Any:
            arguments: dict[str, Any] = {"strategy": options.favour or "fail", "engine": "local"}
            arguments["resolutions"] = dict(options.resolutions)
            if is_revert:
                return self.graph.revert(commit, branch=branch, **arguments)
            return self.graph.cherry_pick(commit, onto=branch, **arguments)

        source, base = (parent, commit) if is_revert else (commit, parent)
        text = f"{'revert' if is_revert else 'cherry-pick'} {commit} on {branch}"
        try:
            self._attempt(text, source, branch, options, run, base=base)
        except og.errors.VersionReclaimed:
            self.counts["reclaimed"] += 1

    # ---- merges ------------------------------------------------------------------------------------------------------

    def _attempt(
        self, text: str, source: str, target: str, options: Options, run: Callable[[Options], Any], *, base: str | None
    ) -> None:
        """Merge; if there are conflicts, once more with random resolutions."""
        for is_last in (False, False, True):
            expected = expected_merge(self.history, source, self.heads[target], options, base=base)
            resolved = f", {len(options.resolutions)} resolutions" if options.resolutions else ""
            found = f"{expected.outcome}, {len(expected.bases)} bases, {len(expected.conflicts)} conflicts"
            self.log.append(f"{text}: {options.grain}, {options.favour}{resolved}: {found}")
            try:
                result = run(options)
            except og.errors.MergeConflicts as error:
                self._check_conflicts(error.plan.conflicts, expected, options)
                self.counts["refused"] += 1
                self.counts.update({c.kind for c in error.plan.conflicts})
                if is_last or any(kind.startswith("schema") for kind, *_ in expected.conflicts):
                    return
                options = self._resolve(expected, error.plan.conflicts, options)
                continue
            self._check_merged(result, source, target, expected, base=base)
            self.counts["resolved" if options.resolutions else expected.outcome] += 1
            if base is None and expected.outcome != "already_up_to_date" and self.rng.random() < 0.3:
                assert run(options).outcome == "already_up_to_date", "merged twice"
            return

    def _check_conflicts(self, conflicts: list[MergeConflict], expected: Expected, options: Options) -> None:
        assert expected.outcome == "conflicts", ("unexpected conflicts", [c.to_json() for c in conflicts][:5])
        kinds = {crowd.kind for crowd in expected.crowds}
        told = {(c.kind, c.table_key, c.id, frozenset(c.properties)) for c in conflicts if c.kind not in kinds}
        assert told == set(expected.conflicts), {
            "only product": sorted(map(str, told - expected.conflicts))[:5],
            "only oracle": sorted(map(str, expected.conflicts - told))[:5],
        }
        is_exact = self.exact and not options.favour and not options.resolutions
        contended = [c for c in conflicts if c.kind in kinds]
        for crowd in expected.crowds:
            ids = {c.id for c in contended if (c.kind, c.table_key) == (crowd.kind, crowd.table_key)} & crowd.members
            assert ids, ("a rule that was not checked", crowd)
            if is_exact:
                assert ids <= crowd.changed, (crowd, ids)
                assert len(ids) == crowd.count, (crowd, ids)
        members = {(crowd.kind, i) for crowd in expected.crowds for i in crowd.members}
        assert {(c.kind, c.id) for c in contended} <= members

    def _check_merged(self, result: Any, source: str, target: str, expected: Expected, *, base: str | None) -> None:
        assert result.outcome == expected.outcome or base is not None, (result.outcome, expected)
        assert expected.outcome != "conflicts", ("expected conflicts", expected.conflicts, expected.crowds)
        if base is None:
            assert result.bases == expected.bases
            self.counts["several bases"] += len(expected.bases) > 1
            self.counts["unknown bases"] += bool(expected.unknown)
        self.counts["adopted fragments"] += sum(table.adopted_fragments for table in result.tables)
        if result.commit is None:
            assert expected.state == self.state(target), "a change without a commit"
            return
        if base is None and not result.commit.tables and expected.state.schema == self.state(target).schema:
            self.history.lineage_only.add(result.commit.id)
        self.commit(target, result.commit.id, expected.state, *([source] if base is None else []))

    def _resolve(self, expected: Expected, conflicts: list[MergeConflict], options: Options) -> Options:
        if self.rng.random() < 0.2:
            return replace(options, favour=self.rng.choice(["ours", "theirs"]))
        resolutions = dict(options.resolutions)
        for conflict in conflicts:
            if conflict.id is None:
                continue
            key = (conflict.table_key, conflict.id)
            sides = ["ours", "theirs"] if key in expected.unknown else ["ours", "theirs", "base"]
            t = next(t for t in expected.state.schema.values() if t.table_key == conflict.table_key)
            has_image = any((conflict.ours, conflict.theirs, conflict.base))
            if has_image and self.rng.random() < 0.3:
                resolutions[key] = self.writes.some_values(t)
            else:
                resolutions[key] = self.rng.choice(sides)
        return replace(options, resolutions=resolutions)

    def _unasked(self, state: State) -> dict[tuple[str, str], Any]:
        """A resolution of an entity that need not be in conflict."""
        people = sorted(state.rows["Person"])
        return {("node:Person", self.rng.choice(people)): self.rng.choice(["ours", "theirs"])} if people else {}

    # ---- comparing ---------------------------------------------------------------------------------------------------

    def compare(self, branch: str, graph: og.Graph | None = None) -> None:
        expected = self.state(branch)
        snapshot = (graph or self.graph).snapshot(branch)
        assert snapshot.commit == self.heads[branch], ("head", branch)
        names = {t.name for t in snapshot.schema.types()}
        assert names == set(expected.schema), ("types", names ^ set(expected.schema))
        for name, t in expected.schema.items():
            rows = {row.pop("id"): row for row in snapshot.read(name).to_pylist()}
            model = expected.rows[name]
            if rows != model:
                columns = [c for group in t.groups for c in group]
                different = {i: (rows.get(i), model.get(i)) for i in {*rows, *model} if rows.get(i) != model.get(i)}
                raise AssertionError((f"{branch} {name} {columns}: product, oracle", dict(list(different.items())[:4])))


def _arguments(options: Options) -> dict[str, Any]:
    resolutions = dict(options.resolutions)
    return {"strategy": options.favour or "fail", "grain": options.grain, "resolutions": resolutions, "engine": "local"}


def run_history(uri: str, seed: int, settings: Settings, folder: Path, counts: Counter[str]) -> None:
    with random_limits(random.Random(f"limits {seed}")) as limits:
        history = RandomHistory(uri, seed, settings, folder, counts)
        try:
            history.run(limits)
        except BaseException as error:
            error.add_note("\n".join([f"seed {seed}", *history.log]))
            raise
    counts["histories"] += 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.branch.merge.random_histories")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--store", choices=["disk", "s3"], default="disk")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--failures", type=int, default=3, help="stop after so many")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no history after so many")
    options = parser.parse_args()
    os.environ.setdefault("OMNIGRAPH_FSYNC", "off")
    counts: Counter[str] = Counter()
    failed: list[int] = []
    started_s = time.monotonic()
    with stores(options.store) as place:
        for seed in range(options.seed, options.seed + options.count):
            folder = Path(tempfile.mkdtemp(prefix="omnigraph-history-"))
            try:
                run_history(place(seed, folder), seed, Settings(steps=options.steps), folder, counts)
            except Exception:  # noqa: BLE001 - every failure is reported with its seed
                print(traceback.format_exc(), flush=True)
                failed.append(seed)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            elapsed_s = time.monotonic() - started_s
            is_last = len(failed) >= options.failures or elapsed_s > 60 * options.minutes
            if is_last or (seed + 1 - options.seed) in (options.count, *range(0, options.count, PROGRESS_EVERY)):
                print(f"to seed {seed}: {json.dumps(counts)}, {elapsed_s:.0f} s, failed: {failed}", flush=True)
            if is_last:
                break
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
