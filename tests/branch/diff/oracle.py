"""Random histories of a graph, and the differences between their states by plain comparison of full scans."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.branch.diff.type_changes import TypeChanges, changed_types
from omnigraph.commit.operation import View
from omnigraph.language.schema.model import EntityType

SCHEMA = """node Person { name: String @key  age: I64?  nick: String?  tags: [String]?  v: Vector(2)? }
node Note { text: String }
edge Knows: Person -> Person { w: I64? }"""
NAMES = [f"p{i}" for i in range(14)]
Rows = dict[str, dict[str, Any]]


class History:
    """A graph that is changed at random. `commits` are all states it had, with the branch of each."""

    def __init__(self, path: Path, seed: int, *, row_ids: str) -> None:
        self.random = random.Random(seed)
        self.graph = og.init(path, SCHEMA, row_ids=row_ids)
        self.text = SCHEMA
        self.branches = ["main"]
        self.added = 0
        self.commits: list[str] = []
        self._note()

    def run(self, steps: int) -> None:
        moves = [self.upsert] * 5 + [self.update] * 3 + [self.delete] * 3 + [self.connect] * 3 + [self.note] * 2
        moves += [self.overwrite, self.optimize, self.optimize, self.branch, self.merge, self.merge, self.schema]
        for _ in range(steps):
            with suppress(og.errors.MergeConflicts):
                self.random.choice(moves)(self.random.choice(self.branches))
            self._note()

    def _note(self) -> None:
        for branch in self.graph.branches():
            if branch.commit not in self.commits:
                self.commits.append(branch.commit)

    def view(self, commit: str) -> View:
        return self.graph._committer.view_at("main", commit)

    def people(self, branch: str) -> list[str]:
        name = next(t.name for t in self.graph.schema(branch).nodes if t.name != "Note")
        return [name, *self.graph.nodes(name, branch=branch)["id"].to_pylist()]

    # ---- moves -------------------------------------------------------------------------------------------------------

    def image(self, branch: str, name: str) -> dict[str, Any]:
        values: dict[str, Any] = {
            "I64": self.random.choice([None, 0, 1, 2]),
            "String": self.random.choice([None, "", "x"]),
            "[String]": self.random.choice([None, [], ["x"], ["x", ""]]),
            "Vector(2)": self.random.choice([None, [0.0, 1.0], [-0.0, 1.0]]),
        }
        t = next(t for t in self.graph.schema(branch).nodes if t.name != "Note")
        return {"name": name, **{p.name: values[str(p.type)] for p in t.properties if p.name != "name"}}

    def upsert(self, branch: str) -> None:
        type_name, *_ = self.people(branch)
        names = self.random.sample(NAMES, self.random.randint(1, 5))
        self.graph.upsert({type_name: [self.image(branch, n) for n in names]}, branch=branch)

    def update(self, branch: str) -> None:
        type_name, *ids = self.people(branch)
        image = self.image(branch, "")
        name = self.random.choice([n for n in image if n != "name"])
        if ids:
            self.graph.update(type_name, {name: image[name]}, ids=[self.random.choice(ids)], branch=branch)

    def delete(self, branch: str) -> None:
        type_name, *ids = self.people(branch)
        self.graph.delete({type_name: self.random.sample(ids, min(len(ids), 2))}, branch=branch)

    def connect(self, branch: str) -> None:
        _, *ids = self.people(branch)
        if ids:
            src, dst = self.random.choice(ids), self.random.choice(ids)
            edges = self.graph.edges("Knows", branch=branch)["id"].to_pylist()
            if edges and self.random.random() < 0.5:
                self.graph.update("Knows", {"w": self.random.randint(0, 3)}, ids=edges[:2], branch=branch)
            else:
                self.graph.insert({"Knows": [{"from": src, "to": dst, "w": 1}]}, branch=branch)

    def note(self, branch: str) -> None:
        self.graph.insert({"Note": [{"text": str(self.random.randint(0, 3))} for _ in range(2)]}, branch=branch)

    def overwrite(self, branch: str) -> None:
        import pyarrow as pa

        texts = pa.table({"text": [str(i) for i in range(self.random.randint(1, 4))]})
        self.graph.load(nodes={"Note": texts}, mode="overwrite", branch=branch)

    def optimize(self, branch: str) -> None:
        self.graph.optimize(branch=branch, target_rows_per_fragment=self.random.choice([5, 1000]))

    def branch(self, branch: str) -> None:
        if len(self.branches) < 4:
            self.branches.append(f"b{len(self.branches)}")
            self.graph.create_branch(self.branches[-1], from_branch=branch)

    def merge(self, branch: str) -> None:
        target = self.random.choice(self.branches)
        if target != branch and self.graph.schema(target) == self.graph.schema(branch):
            self.graph.merge(branch, into=target, strategy="theirs")

    def schema(self, branch: str) -> None:
        if branch != "main":
            return
        self.added += 1
        fresh = f"q{self.added}"
        step = self.random.randint(0, 4)
        if step == 0:
            text = self.text.replace("  v:", f"  {fresh}: I64? @default({self.added})  v:", 1)
        elif step == 1:
            text = self.text.replace("  v:", f"  {fresh}: String?  v:", 1)
        elif step == 2 and "nick:" in self.text:
            text = self.text.replace("nick: String?", f'{fresh}: String? @rename_from("nick")', 1)
        elif step == 3 and "age:" in self.text:
            text = self.text.replace("age: I64?  ", "", 1)
        elif step == 4 and "Human" not in self.text:
            text = self.text.replace("node Person", 'node Human @rename_from("Person")')
            text = text.replace("Person -> Person", "Human -> Human")
        else:
            return
        self.graph.apply_schema(text)
        self.text = text


# ---- the plain comparison --------------------------------------------------------------------------------------------


def full_scan(history: History, view: View, t: EntityType) -> Rows:
    return {row["id"]: row for row in view.scan(t, [*_physical(t), *t.by_name]).read_all().to_pylist()}


def _physical(t: EntityType) -> list[str]:
    return ["id", "src", "dst"] if t.kind == "edge" else ["id"]


def expected_changes(history: History, old: View, new: View, type_id: str) -> list[dict[str, Any]]:
    before_type, after_type = old.schema.by_id.get(type_id), new.schema.by_id.get(type_id)
    t = after_type or before_type
    assert t is not None
    olds = {} if before_type is None else full_scan(history, old, before_type)
    news = {} if after_type is None else full_scan(history, new, after_type)
    rows = []
    for entity in sorted(olds.keys() | news.keys(), key=str.encode):
        a, b = olds.get(entity), news.get(entity)
        changed: list[str] = []
        if a is not None and b is not None:
            assert before_type is not None
            changed = [c for c in ("src", "dst") if c in b and a[c] != b[c]]
            names = {p.id: p.name for p in before_type.properties}
            for p in t.properties:
                value = a[names[p.id]] if p.id in names else p.default
                if repr(value) != repr(b[p.name]):  # -0.0 is not 0.0
                    changed.append(p.name)
            if not changed:
                continue
        shown = b or a
        assert shown is not None
        operation = "insert" if a is None else "delete" if b is None else "update"
        ends = {"src": shown.get("src"), "dst": shown.get("dst")}
        images = {"before": a, "after": b}
        rows.append({"operation": operation, "table_key": t.key, "id": entity, **ends, "changed": changed, **images})
    return rows


def require_equal(history: History, old_commit: str, new_commit: str, *, rows_max: int) -> int:
    """The changes of every type, compared with the plain ones; how many there are."""
    old, new = history.view(old_commit), history.view(new_commit)
    seen = changed_types(old, new)
    total = 0
    for type_id in sorted({*old.schema.by_id, *new.schema.by_id}):
        expected = expected_changes(history, old, new, type_id)
        changes = TypeChanges(old, new, type_id)
        batches = list(changes.batches(rows_max=rows_max))
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert repr(rows) == repr(expected), (old_commit, new_commit, changes.table_key)
        assert all(batch.num_rows <= rows_max and batch.schema == changes.schema for batch in batches)
        assert type_id in seen or not rows
        counted = changes.counts()
        assert counted == {o: sum(r["operation"] == o for r in rows) for o in ("insert", "update", "delete")}
        total += len(rows)
    return total
