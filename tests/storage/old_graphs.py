"""Graphs as programs of generations 1 and 2 left them, made by plain Lance calls and nothing of today's storage.

The shapes are those of docs/formats.md. `build_old_graph` makes one with everything in it that a migration must keep:

    main    init – people – (Note dropped) – (Note added again) – notes – more
                     └ gone: one commit, deleted             │       └ idle: no commit of its own
                                                             └ review: one commit, on a fork of Person

Both lifetimes of Note hold rows, the first one's tombstone is followed by a late version row of that same lifetime,
and the type that was added again must be seen all the same.
"""

from __future__ import annotations

import copy
import json
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import lance
import obstore
import pyarrow as pa

from omnigraph.language.schema import accept, parse_schema, plan_changes, schema_to_json
from omnigraph.language.schema.ids import fresh_ids
from omnigraph.language.schema.model import EntityType, Schema
from omnigraph.storage.layout import locate
from omnigraph.storage.objects.client import open_store
from omnigraph.storage.ulids import new_ulid

State = dict[str, Any]
Rows = list[dict[str, Any]]
WITHOUT_NOTE = """
node Person { name: String @key  age: I32? }
node Company { name: String @key  city: String? }
edge Knows: Person -> Person { since: I32? }
edge WorksAt: Person -> Company
"""
SCHEMA = WITHOUT_NOTE + "node Note { title: String @key  text: String? }\n"
STAMP = "omnigraph:internal_schema_version"
KEY = {"lance-schema:unenforced-primary-key": "true"}
COLUMNS: dict[str, list[tuple[str, pa.DataType]]] = {
    "Person": [("id", pa.string()), ("name", pa.string()), ("age", pa.int32())],
    "Company": [("id", pa.string()), ("name", pa.string()), ("city", pa.string())],
    "Note": [("id", pa.string()), ("title", pa.string()), ("text", pa.string())],
    "Knows": [("id", pa.string()), ("src", pa.string()), ("dst", pa.string()), ("since", pa.int32())],
    "WorksAt": [("id", pa.string()), ("src", pa.string()), ("dst", pa.string())],
}
PEOPLE = [{"name": "anna", "age": 30}, {"name": "ben", "age": 40}, {"name": "cleo", "age": None}]
COMPANIES = [{"name": "acme", "city": "Bern"}, {"name": "bolt", "city": None}]
KNOWS = [{"src": "anna", "dst": "ben", "since": 2001}, {"src": "ben", "dst": "cleo", "since": None}]
WORKS = [{"src": "anna", "dst": "acme"}]
PENDING = {"Person": [{"name": "eve", "age": 50}], "Knows": [{"src": "eve", "dst": "anna", "since": 2020}]}
"""What the interrupted operation was about to insert on main."""


def build_old_graph(
    uri: str,
    *,
    generation: int,
    storage_options: dict[str, str] | None = None,
    intent: Literal["forward", "back"] | None = None,
) -> State:
    """Make an old graph, with `intent` a pending operation in it. What a reader must see, as `read_state` gives it."""
    return OldGraph(uri, generation=generation, options=storage_options).build(intent=intent).state


def settled(state: State, intent: Literal["forward", "back"] | None) -> State:
    """What a reader must see once the first writer has settled the pending operation."""
    after = copy.deepcopy(state)
    if intent == "forward":
        for kind, rows in PENDING.items():
            _add(after["main"]["rows"], kind, rows)
        after["main"]["commits"] += 1
    return after


@dataclass
class Line:
    """One line of one table lifetime: the folder, the fork if it is one, and the newest published version."""

    type: EntityType
    incarnation: str
    version: int
    fork: str | None = None

    @property
    def path(self) -> str:
        return f"{self.type.kind}s/{self.type.id}-{self.incarnation}"

    @property
    def folder(self) -> str:
        return self.path if self.fork is None else f"{self.path}/tree/{self.fork}"

    def body(self) -> dict[str, Any]:
        return {"table": self.type.id, "path": self.path, "fork": self.fork}


@dataclass
class Branch:
    commit: str
    schema: tuple[str, Schema]
    lines: dict[str, Line]
    made_from: str | None = None


@dataclass
class Past:
    """What one commit held: rows by type, for time travel."""

    branch: str
    rows: dict[str, Rows]


@dataclass
class OldGraph:
    """A writer of the old formats. `state` is what readers must see, `past` what they must see at each commit."""

    address: str
    generation: int
    options: dict[str, str] | None = None
    state: State = field(default_factory=dict)
    past: dict[str, Past] = field(default_factory=dict)
    branches: dict[str, Branch] = field(default_factory=dict)
    publishes: int = 0

    def __post_init__(self) -> None:
        self.location = locate(self.address, options=self.options)
        self.uri = self.location.uri
        self.lance_options = self.location.lance_options
        self.new_id = fresh_ids()

    def build(self, *, intent: Literal["forward", "back"] | None = None) -> OldGraph:
        self.init(SCHEMA)
        people = {"Person": PEOPLE, "Company": COMPANIES, "Knows": KNOWS, "WorksAt": WORKS, "Note": [_note("old")]}
        self.insert("main", people, actor="anna")
        self.branch("gone", "main")
        self.insert("gone", {"Company": [{"name": "lost", "city": None}]})
        first_note = self.branches["main"].lines["Note"]
        later_note = Line(first_note.type, first_note.incarnation, first_note.version + 1)
        self.apply_schema("main", WITHOUT_NOTE)
        self.apply_schema("main", SCHEMA)
        self.branch("review", "main")
        self.insert("review", {"Person": [{"name": "rita", "age": 20}]}, actor="rita")
        self.insert("main", {"Note": [_note("new")]})
        self.delete_branch("gone")
        self.insert("main", {"Company": [{"name": "core", "city": "Chur"}]}, late=[later_note])
        self.branch("idle", "main")
        if intent is not None:
            landed = ("Person", "Knows") if intent == "forward" else ("Person",)
            self.leave_pending("main", PENDING, landed=landed, actor="eve")
        return self

    # ---- what old programs did ---------------------------------------------------------------------------------------

    def init(self, text: str) -> None:
        schema = (f"s{_hex()}", accept(parse_schema(text), new_id=self.new_id))
        lines = {t.name: self._create(t) for t in schema[1].types()}
        self.branches["main"] = Branch("", schema, {})
        self.state["main"] = {"schema": {}, "rows": {name: [] for name in lines}, "commits": 0}
        self._commit("main", "init", lines, schema=schema)

    def insert(self, branch: str, rows: dict[str, Rows], *, actor: str | None = None, late: Iterable[Line] = ()) -> str:
        """Append rows and publish them. `late` are lines whose version row is written as well, though they are over."""
        lines = {kind: self._append(branch, kind, given) for kind, given in rows.items()}
        for kind, given in rows.items():
            _add(self.state[branch]["rows"], kind, given)
        return self._commit(branch, "insert", lines, actor=actor, late=late)

    def apply_schema(self, branch: str, text: str) -> str:
        """Drop and add types; nothing else is needed here."""
        at = self.branches[branch]
        plan = plan_changes(at.schema[1], parse_schema(text), new_id=self.new_id, allow_data_loss=False)
        schema = (f"s{_hex()}", plan.result)
        names = {t.name for t in plan.result.types()}
        ended = [line for name, line in at.lines.items() if name not in names]
        added = {t.name: self._create(t) for t in plan.result.types() if t.name not in at.lines}
        for line in ended:
            del at.lines[line.type.name], self.state[branch]["rows"][line.type.name]
        self.state[branch]["rows"].update({name: [] for name in added})
        return self._commit(branch, "schema_apply", added, schema=schema, ended=ended)

    def branch(self, name: str, source: str) -> None:
        at = self.branches[source]
        self.branches[name] = Branch(at.commit, at.schema, copy.deepcopy(at.lines), source)
        self.state[name] = copy.deepcopy(self.state[source])
        self._write([self._head_row(name)])

    def delete_branch(self, name: str) -> None:
        del self.state[name]
        self.branches.pop(name)
        self._write([self._row(f"graph_head:{name}", name, {"commit": None, "schema": None, "from": None})])

    def leave_pending(
        self,
        branch: str,
        rows: dict[str, Rows],
        *,
        landed: Iterable[str],
        actor: str | None = None,
        kind: str = "insert",
        changes: dict[str, Any] | None = None,
    ) -> str:
        """Die between the intent and the publish, after the effects on the tables `landed`. The intent's name."""
        tables = []
        for name in rows:
            line = self._writable(branch, name)
            tables.append({**line.body(), "base": line.version, "target": line.version + 1})
        for name in landed:
            self._append(branch, name, rows[name])
        body = {"kind": kind, "branch": branch, "actor": actor, "started_at_us": _now_us(), "tables": tables}
        return self.put_intent({**body, **(changes or {})})

    def put_intent(self, body: dict[str, Any]) -> str:
        operation = new_ulid()
        whole = {"format": self.generation, "operation": operation, **body}
        self.put_object(f"{operation}.json", json.dumps(whole).encode())
        time.sleep(0.002)  # so that names sort by the order in which they were written
        return f"{operation}.json"

    def put_object(self, name: str, raw: bytes) -> None:
        obstore.put(open_store(self.location, "__recovery"), name, raw)

    # ---- tables ------------------------------------------------------------------------------------------------------

    def _create(self, t: EntityType) -> Line:
        line = Line(t, _hex(), 1)
        self._lance(arrow_rows(t.name, []), line.folder, mode="create")
        return line

    def _append(self, branch: str, name: str, rows: Rows) -> Line:
        """One more version of the line on which the branch writes the table."""
        line = self._writable(branch, name)
        self._lance(arrow_rows(name, rows), line.folder, mode="append")
        return Line(line.type, line.incarnation, line.version + 1, line.fork)

    def _writable(self, branch: str, name: str) -> Line:
        line = self.branches[branch].lines[name]
        if branch == "main" or line.fork == branch:
            return line
        source = lance.dataset(f"{self.uri}/{line.folder}", version=line.version, storage_options=self.lance_options)
        if branch not in source.branches.list():
            source.create_branch(branch, line.version)
        return Line(line.type, line.incarnation, line.version, branch)

    def _lance(self, rows: pa.Table, folder: str, *, mode: str) -> None:
        lance.write_dataset(
            rows, f"{self.uri}/{folder}", mode=mode, storage_options=self.lance_options, enable_stable_row_ids=True
        )

    # ---- the manifest ------------------------------------------------------------------------------------------------

    def _commit(
        self,
        branch: str,
        kind: str,
        lines: dict[str, Line],
        *,
        schema: tuple[str, Schema] | None = None,
        ended: Iterable[Line] = (),
        late: Iterable[Line] = (),
        actor: str | None = None,
    ) -> str:
        """One publish: commit, versions, tombstones, schema and head, in one write."""
        commit, at = new_ulid(), self.branches[branch]
        parent, at.commit, at.schema = at.commit, commit, schema or at.schema
        at.lines.update(lines)
        body = {"parent": parent or None, "merged_parent": None, "actor": actor, "kind": kind}
        body |= {
            "commit": commit,
            "schema": at.schema[0],
            "created_at_us": _now_us(),
            "manifest_version": self.publishes,
        }
        rows = [self._row(f"graph_commit:{commit}", branch, body)]
        for line in ended:
            body = {"commit": commit, "table": line.type.id, "path": line.path}
            rows.append(self._row(f"table_tombstone:{branch}:{line.path}", branch, body))
        for line in (*lines.values(), *late):
            key = f"table_version:{branch}:{line.folder}:{line.version}"
            rows.append(self._row(key, branch, {"commit": commit, "version": line.version, **line.body()}))
        if schema is not None:
            rows.append(self._row(f"schema:{schema[0]}", None, schema_to_json(schema[1])))
            types = schema[1].types()
            self.state[branch]["schema"] = {t.name: [str_of(p) for p in t.properties] for t in types}
        self._write([*rows, self._head_row(branch)])
        self.state[branch]["commits"] += 1
        self.past[commit] = Past(branch, copy.deepcopy(self.state[branch]["rows"]))
        return commit

    def _head_row(self, branch: str) -> tuple[Any, ...]:
        at = self.branches[branch]
        return self._row(
            f"graph_head:{branch}", branch, {"commit": at.commit, "schema": at.schema[0], "from": at.made_from}
        )

    def _row(self, object_id: str, branch: str | None, body: Any) -> tuple[Any, ...]:
        return (object_id, object_id.partition(":")[0], None, self.publishes + 1, branch, json.dumps(body))

    def _write(self, rows: list[tuple[Any, ...]]) -> None:
        """Generation 1 appends every row; generation 2 replaces those whose id is there already."""
        self.publishes += 1
        shape = manifest_shape(self.generation)
        table = pa.table(
            [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), shape, strict=True)], schema=shape
        )
        uri = f"{self.uri}/__manifest"
        if self.generation == 1 or self.publishes == 1:
            mode = "create" if self.publishes == 1 else "append"
            lance.write_dataset(table, uri, mode=mode, storage_options=self.lance_options)
            return
        found = lance.dataset(uri, storage_options=self.lance_options)
        found.merge_insert("object_id").when_matched_update_all().when_not_matched_insert_all().execute(table)


def manifest_shape(generation: int) -> pa.Schema:
    return pa.schema(
        [
            pa.field("object_id", pa.string(), nullable=False, metadata=None if generation == 1 else KEY),
            pa.field("kind", pa.string()),
            pa.field("inc", pa.string()),
            pa.field("epoch", pa.int64()),
            pa.field("name", pa.string()),
            pa.field("body", pa.large_string()),
        ],
        metadata=None if generation == 1 else {STAMP: str(generation)},
    )


def arrow_rows(name: str, rows: Rows) -> pa.Table:
    """Rows as an old table stores them: a node's id is its key, an edge's a number of its own."""
    nodes = ("name", "title")
    whole = [{"id": next((r[k] for k in nodes if k in r), None) or new_ulid(), **r} for r in rows]
    fields = [pa.field(n, t, nullable=n not in ("id", "src", "dst")) for n, t in COLUMNS[name]]
    return pa.Table.from_pylist(whole, schema=pa.schema(fields))


def read_state(graph: Any) -> State:
    """The logical state of an open graph: per branch the schema, the rows of every type, the number of commits."""
    return {found.name: _read_branch(graph, found.name) for found in graph.branches()}


def read_rows(snapshot: Any) -> dict[str, Rows]:
    return {t.name: _read_type(snapshot, t) for t in snapshot.schema.types()}


def _read_branch(graph: Any, branch: str) -> dict[str, Any]:
    snapshot = graph.snapshot(branch)
    commits = [c for c in graph.commits(branch) if c.actor != "omnigraph:recovery"]
    types = snapshot.schema.types()
    return {
        "schema": {t.name: [str_of(p) for p in t.properties] for t in types},
        "rows": read_rows(snapshot),
        "commits": len(commits),
    }


def _read_type(snapshot: Any, t: EntityType) -> Rows:
    rows = snapshot.read(t.name).to_pylist()
    if t.kind == "edge":
        rows = [{k: v for k, v in row.items() if k != "id"} for row in rows]
    return sorted(rows, key=_order)


def str_of(p: Any) -> str:
    return f"{p.name}: {p.type}{'?' if p.nullable else ''}"


def _add(rows: dict[str, Rows], kind: str, given: Rows) -> None:
    key = {"Person": "name", "Company": "name", "Note": "title"}.get(kind)
    whole = [row if key is None else {"id": row[key], **row} for row in given]
    rows[kind] = sorted([*rows[kind], *whole], key=_order)


def _order(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True)


def _note(title: str) -> dict[str, Any]:
    return {"title": title, "text": f"the {title} one"}


def _hex() -> str:
    return secrets.token_hex(6)


def _now_us() -> int:
    return time.time_ns() // 1000
