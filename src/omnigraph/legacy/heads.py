"""Read-only access to graphs of generations 1 and 2: derives the current form of their heads from their rows.

The manifest of every generation has the same columns (object_id, kind, inc, epoch, name, body). In generations 1 and 2
`inc` is null, `epoch` is the number of the publish that wrote the row, `name` is the branch, and `body` is JSON:

    graph_head:<branch>               {commit, schema, from}: the newest commit, and the branch it was created from;
                                      `commit` is null once the branch is deleted
    graph_commit:<commit>             {commit, parent, merged_parent, actor, kind, created_at_us, schema,
                                      manifest_version}
    table_version:<branch>:<path>[/tree/<fork>]:<version>
                                      {commit, table, path, fork, version}: the commit published this version
    table_tombstone:<branch>:<path>   {commit, table, path}: from this commit on the lifetime of the table at this path
                                      is over
    schema:<id>                       an accepted schema, as today

The kind of a row is its id up to the colon. Generation 1 has no stamp and no primary key on `object_id`; generation 2
has the stamp "2" and the key. Rows are appended or replaced, so of several rows of one head the newest (the highest
number, then the last one) wins.

1. index    rows by the commit that they belong to
2. replay   parents before children: what each commit changed. A tombstone hides its own lifetime for good, also from
            rows that come later, and no other: a type that is added again has another path
3. number   the commits of a live branch from the oldest to its head, as epochs of one incarnation. The incarnation is
            derived from the branch's name, so that every migration of the graph derives the same numbers
4. heads    in the current form, except that `recent` has every record: readers of a head need no rows in current form

A migration (legacy/formats.py) writes exactly these values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import orjson

from omnigraph.errors import HostileOrDamagedManifest, NotAGraph
from omnigraph.language import identifiers as form
from omnigraph.storage.lance import lance_api
from omnigraph.storage.layout import table_folder
from omnigraph.storage.manifest.records import MAIN, Delta, Head, Pin, Record, apply_delta
from omnigraph.storage.manifest.table import FULL_EVERY

if TYPE_CHECKING:
    from lance import LanceDataset

_COLUMNS = ["kind", "epoch", "name", "body"]
_OLD_ROWS = "kind IN ('graph_head', 'graph_commit', 'table_version', 'table_tombstone')"


@dataclass
class _Commit:
    """One old commit and the rows that it published, in order."""

    id: str
    branch: str
    parent: str | None
    body: Mapping[str, Any]
    versions: list[Pin] = field(default_factory=list)
    ended: list[Pin] = field(default_factory=list)


@dataclass(frozen=True)
class _State:
    """The state of the graph after one commit. `ended` are the paths of all dropped table incarnations."""

    pins: Mapping[str, Pin]
    ended: frozenset[str]
    delta: Delta
    depth: int


def read_heads(table: LanceDataset) -> dict[str, Head]:
    """The heads of all branches of an older graph, at the open version of `table`."""
    if not set(_COLUMNS) <= set(table.schema.names):
        raise NotAGraph(uri=table.uri, detail="its manifest has other columns than a graph's.")
    with lance_api.reading("reading the manifest", decodes=True):
        rows = table.to_table(columns=_COLUMNS, filter=_OLD_ROWS).to_pylist()
    try:
        heads, commits = _index(rows)
        return _heads(heads, commits, version=table.version)
    except form.Malformed as error:
        raise HostileOrDamagedManifest(where="the manifest of an older generation", detail=str(error)) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotAGraph(uri=table.uri, detail=f"its manifest can't be understood: {error}.") from error


def pin_of(body: Mapping[str, Any], *, version: int) -> Pin:
    """The pin that an old row or intent names by table, path and fork. Raises Malformed for a path of another form."""
    table, path, fork = form.type_id(body["table"]), body["path"], form.optional(form.fork, body.get("fork"))
    incarnation = form.incarnation(str(path).rpartition("-")[2])
    pin = Pin(table=table, incarnation=incarnation, fork=fork, version=form.count(version))
    if path != table_folder(table, incarnation):
        raise form.Malformed(f"{form.shown(path)} is not the path of the table {table}")
    return pin


def incarnation_of(branch: str, *, is_live: bool) -> str:
    """The incarnation of an old branch, derived from its name, so that every process computes the same. Later
    incarnations of the name are random.
    """
    return hashlib.sha256(f"{'live' if is_live else 'gone'}:{branch}".encode()).hexdigest()[:12]


def _index(unsorted_rows: list[dict[str, Any]]) -> tuple[dict[str, dict[str, Any]], dict[str, _Commit]]:
    rows = sorted(unsorted_rows, key=lambda row: row["epoch"])
    heads: dict[str, dict[str, Any]] = {}
    commits: dict[str, _Commit] = {}
    for row in rows:
        row["body"] = orjson.loads(row["body"])
        if row["kind"] == "graph_head":
            heads[form.branch(row["name"])] = row["body"]
        elif row["kind"] == "graph_commit":
            body = row["body"]
            name, parent = form.token(body["commit"]), form.optional(form.token, body["parent"])
            commits[name] = _Commit(name, form.branch(row["name"]), parent, body)
    for commit in commits.values():
        commit.parent = commit.parent if commit.parent in commits else None
    for row in rows:
        body = row["body"]
        if row["kind"] == "table_version":
            commits[body["commit"]].versions.append(pin_of(body, version=body["version"]))
        elif row["kind"] == "table_tombstone":
            commits[body["commit"]].ended.append(pin_of(body, version=0))
    return {branch: body for branch, body in heads.items() if body["commit"] is not None}, commits


def _replay(commits: Mapping[str, _Commit]) -> dict[str, _State]:
    states: dict[str, _State] = {}
    empty = _State({}, frozenset(), {}, -1)
    for commit in _parents_first(commits):
        parent = empty if commit.parent is None else states[commit.parent]
        delta: dict[str, Pin | None] = {}
        for pin in commit.ended:
            if pin.table in parent.pins and parent.pins[pin.table].root == pin.root:
                delta[pin.table] = None
        ended = parent.ended.union(pin.root for pin in commit.ended)
        delta.update({pin.table: pin for pin in commit.versions if pin.root not in ended})
        is_full = parent is empty or parent.depth + 1 >= FULL_EVERY
        states[commit.id] = _State(
            pins=apply_delta(parent.pins, delta), ended=ended, delta=delta, depth=0 if is_full else parent.depth + 1
        )
    return states


def _parents_first(commits: Mapping[str, _Commit]) -> Iterator[_Commit]:
    visited: set[str] = set()
    for start in commits:
        chain: list[_Commit] = []
        commit_id: str | None = start
        while commit_id is not None and commit_id not in visited:
            visited.add(commit_id)
            chain.append(commits[commit_id])
            commit_id = commits[commit_id].parent
        yield from reversed(chain)


def _heads(heads: Mapping[str, Mapping[str, Any]], commits: Mapping[str, _Commit], *, version: int) -> dict[str, Head]:
    states = _replay(commits)
    heads_by_branch: dict[str, Head] = {}
    reached: set[str] = set()
    for branch, body in sorted(heads.items()):
        own_commits, base = _own_commits(branch, body["commit"], commits)
        reached.update(c.id for c in own_commits)
        first_epoch = 0 if base is None else 1
        incarnation = incarnation_of(branch, is_live=True)
        records = tuple(
            _record(c, states[c.id], incarnation, epoch) for epoch, c in enumerate(own_commits, first_epoch)
        )
        source = body.get("from")
        pins: dict[str, Pin | None] = {t: p for r in records for t, p in r.delta.items()}
        heads_by_branch[branch] = Head(
            branch=branch,
            commit=body["commit"],
            parent=commits[body["commit"]].parent,
            epoch=max(0, first_epoch + len(own_commits) - 1),
            incarnation=incarnation,
            schema=form.token(body["schema"]),
            pins=dict(apply_delta({}, pins)) if base is None else pins,
            base=base,
            depth=states[body["commit"]].depth,
            made_from=(source, incarnation_of(source, is_live=True))
            if source is not None and source in heads
            else None,
            recent=records,
            version=version,
        )
    if MAIN not in heads_by_branch:
        raise ValueError("there is no row graph_head:main")
    unreachable = _unreachable([c for c in commits.values() if c.id not in reached], states)
    heads_by_branch[MAIN] = replace(heads_by_branch[MAIN], recent=(*heads_by_branch[MAIN].recent, *unreachable))
    return heads_by_branch


def _own_commits(branch: str, head: str, commits: Mapping[str, _Commit]) -> tuple[list[_Commit], str | None]:
    """The commits made on the branch itself, oldest first, and the commit of another branch from which it started."""
    own: list[_Commit] = []
    commit_id: str | None = head
    while commit_id is not None and commits[commit_id].branch == branch:
        own.append(commits[commit_id])
        commit_id = commits[commit_id].parent
        if len(own) > len(commits):
            raise ValueError(f"the commits of {branch} go round in a circle")
    return own[::-1], commit_id


def _unreachable(commits: list[_Commit], states: Mapping[str, _State]) -> tuple[Record, ...]:
    """Records of deleted branches: they can still be read."""
    epochs: dict[str, int] = {}
    records = []
    for commit in sorted(commits, key=lambda c: c.id):
        epochs[commit.branch] = epochs.get(commit.branch, 0) + 1
        incarnation = incarnation_of(commit.branch, is_live=False)
        records.append(_record(commit, states[commit.id], incarnation, epochs[commit.branch]))
    return tuple(records)


def _record(commit: _Commit, state: _State, incarnation: str, epoch: int) -> Record:
    body = commit.body
    return Record(
        branch=commit.branch,
        incarnation=incarnation,
        epoch=epoch,
        commit=commit.id,
        parent=commit.parent,
        merged_parent=form.optional(form.token, body.get("merged_parent")),
        kind=form.token(body["kind"]),
        actor=form.optional(form.text, body.get("actor")),
        created_at_us=form.time_us(body["created_at_us"]),
        schema=form.token(body["schema"]),
        delta=state.delta,
        snapshot=state.pins if state.depth == 0 else None,
        depth=state.depth,
        based_on=form.count(body["manifest_version"]),
    )
