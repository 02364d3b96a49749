"""A graph with everything in it, and ways to damage it as disks, strangers and bugs do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

import omnigraph as og
from omnigraph.commit.operation import Prepared, TableWork, View, work_on
from omnigraph.commit.request import Request
from omnigraph.maintenance.verify import Finding, VerifyResult
from omnigraph.storage.lance.indices import built_indices, exchange_segments, new_segment_json, sync_segment
from omnigraph.storage.manifest.records import Pin, Record

SCHEMA = """
node Person {
    name: String @key
    email: String? @unique
    age: I32? @index
    born: Date? @index
    seen: DateTime? @index
    weight: F64? @index
    active: Bool? @index
    level: enum(low, high)? @index
    tags: [String]?
    bio: String? @index
    photo: Blob?
    v: Vector(4)? @index
    @range(age, 0..150)
    @check(email, ".+@.+")
}
node City { name: String @key }
edge Knows: Person -> Person @card(0..3) { since: Date? }
edge LivesIn: Person -> City
"""
PEOPLE = 60
KINDS = {
    "Person": [
        *[(c, "BTREE") for c in ("id", "age", "born", "seen", "weight", "email")],
        *[(c, "BITMAP") for c in ("active", "level")],
        *[("tags", "LABEL_LIST"), ("bio", "INVERTED"), ("v", "IVF_FLAT")],
    ],
    "City": [("id", "BTREE")],
    "Knows": [(c, "BTREE") for c in ("id", "src", "dst")],
    "LivesIn": [(c, "BTREE") for c in ("id", "src", "dst")],
}


def person(i: int) -> dict[str, Any]:
    photos = (None, b"", bytes([i]) * 20, bytes([i]) * 90_000, bytes([i]) * 5_000_000)
    return {
        "name": f"p{i:03d}",
        "email": f"p{i}@example.org",
        "age": i % 20 if i % 7 else None,
        "born": f"19{50 + i % 40}-01-01",
        "seen": f"2026-01-{1 + i % 28:02d}T10:00:00Z",
        "weight": 50 + i / 4,
        "active": i % 3 == 0,
        "level": ("low", "high", None)[i % 3],
        "tags": [f"tag{i % 5}", f"tag{i % 3}"] if i % 4 else None,
        "bio": f"walks number{i} and reads chapter{i % 6}",
        "photo": photos[4] if i == 4 else photos[i % 4],
        "v": [float(i), 1.0, float(i % 7), 0.5] if i % 9 else None,
    }


def make(path: Path, *, row_ids: str = "stable", kinds: Mapping[str, list[tuple[str, str]]] = KINDS) -> og.Graph:
    """Rows in several fragments, deletions, updates, every kind of index; no branches, so that it can be copied."""
    graph = og.init(path, SCHEMA, row_ids=row_ids)
    cities = [{"name": name} for name in ("Bonn", "Ulm")]
    half = PEOPLE // 2
    graph.insert({"Person": [person(i) for i in range(half)], "City": cities})
    graph.insert(
        {
            "Person": [person(i) for i in range(half, PEOPLE)],
            "Knows": [{"src": f"p{i:03d}", "dst": f"p{(i + 1) % PEOPLE:03d}"} for i in range(PEOPLE)],
            "LivesIn": [{"src": f"p{i:03d}", "dst": ("Bonn", "Ulm")[i % 2]} for i in range(PEOPLE)],
        }
    )
    graph.upsert({"Person": [{**person(3), "age": 77}, {**person(33), "bio": "swims number33"}]})
    graph.delete({"Person": ["p010", "p040"]})
    index(graph, kinds=kinds)
    return graph


def branch_out(graph: og.Graph) -> None:
    """A branch that is only a name, and one with forks of tables, indexed as well."""
    graph.create_branch("same")
    graph.create_branch("side")
    graph.upsert({"City": [{"name": "Köln"}]}, branch="side")
    graph.delete({"Person": ["p011"]}, branch="side")
    index(graph, "side", {"City": KINDS["City"]})


# ---- the proper way ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BuildIndices:
    """Every index of KINDS, built anew over all rows and published like any write."""

    kinds: Mapping[str, list[tuple[str, str]]]
    kind: str = "index"
    quick: bool = True

    def scope(self, view: View) -> frozenset[str]:
        return frozenset(view.type(name).id for name in self.kinds)

    def prepare(self, view: View) -> Prepared:
        works = {}
        for name, columns in self.kinds.items():
            t = view.type(name)
            pin, handle, _ = work_on(view, t)
            bodies = [segment(handle, column, kind) for column, kind in columns]
            for body in bodies:
                sync_segment(view.tables.location, pin, body)
            steps = tuple(exchange(handle, body) for body in bodies)
            works[t.id] = TableWork(pin, view.pins[t.id], steps, handle)
        return Prepared(view, works)


def built(handle: Any, column: str, kind: str) -> Any:
    """An uncommitted index over all rows, in place of the one that there is."""
    return exchange(handle, segment(handle, column, kind))


def segment(handle: Any, column: str, kind: str) -> dict[str, Any]:
    """The files of an index over all rows, which nobody refers to yet."""
    extra: dict[str, Any] = {"num_partitions": 2} if kind.startswith("IVF") else {}
    fragments = [f.fragment_id for f in handle.get_fragments()]
    name = f"{column}_{kind.lower()}"
    made = handle.create_index_uncommitted(column, kind, name=name, replace=True, fragment_ids=fragments, **extra)
    if kind == "INVERTED":
        made = handle.merge_existing_index_segments([made])
    return new_segment_json(made)


def exchange(handle: Any, body: dict[str, Any], *, covers: list[int] | None = None) -> Any:
    """The commit of a segment; `covers` is what it claims to cover, true or not."""
    removed = [s.uuid for i in built_indices(handle) if i.name == body["name"] for s in i.segments]
    claimed = body if covers is None else {**body, "fragments": covers}
    return exchange_segments(handle, [claimed], removed=removed, version=handle.version)


def index(graph: og.Graph, branch: str = "main", kinds: Mapping[str, list[tuple[str, str]]] = KINDS) -> None:
    graph._committer.run(BuildIndices(kinds), Request(branch=branch, actor=None))


# ---- the other ways ----------------------------------------------------------------------------------------------


def pin_of(graph: og.Graph, type_name: str, branch: str = "main") -> Pin:
    view = graph._committer.view(branch)
    return view.pins[view.type(type_name).id]


def folder(graph: og.Graph, pin: Pin) -> Path:
    return Path(graph.uri, pin.path)


def newest(graph: og.Graph, type_name: str, branch: str = "main") -> Any:
    return lance.dataset(str(folder(graph, pin_of(graph, type_name, branch))))


def publish(graph: og.Graph, type_name: str, branch: str = "main") -> None:
    """Make the newest version of a table the published one, with a record, as if the door had made it."""
    table = newest(graph, type_name, branch)
    pin = pin_of(graph, type_name, branch)
    moved = replace(pin, version=table.version, rows=table.count_rows(), fragments=len(table.get_fragments()))
    commit(graph, {pin.table: moved}, branch=branch)


def commit(graph: og.Graph, delta: Mapping[str, Pin], *, branch: str = "main", **head_fields: Any) -> None:
    manifest = graph._manifest
    head = manifest.head(branch)
    record = Record(
        branch=branch,
        incarnation=head.incarnation,
        epoch=head.epoch + 1,
        commit=f"FORGED{head.epoch:020d}",
        parent=head.commit,
        kind="forged",
        actor=None,
        created_at_us=head.recent[-1].created_at_us if head.recent else 0,
        schema=head.schema,
        delta=delta,
        depth=head.depth + 1,
    )
    new = replace(
        head,
        commit=record.commit or "",
        parent=head.commit,
        epoch=record.epoch,
        pins={**head.pins, **delta},
        recent=(*head.recent, record),
        depth=record.depth,
    )
    manifest.swap(head, replace(new, **head_fields))


def raw_rows(graph: og.Graph, type_name: str, rows: list[dict[str, Any]], branch: str = "main") -> None:
    """Append rows with bare Lance, without any rule, and publish them."""
    table = newest(graph, type_name, branch)
    names = [f.name for f in table.schema if not isinstance(f.type, pa.BaseExtensionType) and f.name != "photo"]
    shape = pa.schema([table.schema.field(n) for n in names])
    lance.write_dataset(pa.Table.from_pylist(rows, shape), table.uri, mode="append")
    publish(graph, type_name, branch)


def without(graph: og.Graph, type_name: str, column: str) -> None:
    """Write a table anew as Lance lets anybody do it, with null in a column of one row that must not have it."""
    table = newest(graph, type_name)
    shape = pa.schema([f.with_nullable(True) for f in table.schema])
    rows = table.to_table().to_pylist()
    rows[-1][column] = None
    lance.write_dataset(pa.Table.from_pylist(rows, shape), table.uri, mode="overwrite")
    publish(graph, type_name)


def age(path: Path, *, days: float = 30) -> None:
    """Make a file, or everything below a folder, that old."""
    for one in (path, *path.rglob("*")):
        stat = one.stat()
        os.utime(one, (stat.st_atime, stat.st_mtime - days * 24 * 3600))


def files(graph: og.Graph) -> Iterator[tuple[str, bytes]]:
    """Every file of the graph with its content."""
    root = Path(graph.uri)
    for one in sorted(root.rglob("*")):
        if one.is_file():
            yield str(one.relative_to(root)), one.read_bytes()


def only(result: VerifyResult, code: str, **wanted: Any) -> Finding:
    """The one finding of the run, which has this code; coverage that lags behind the damage is no news."""
    news = [f for f in result.findings if f.code != "index_uncovered" or code == "index_uncovered"]
    assert [f.code for f in news] == [code], [(f.code, f.table, f.message, f.examples) for f in result.findings]
    for name, value in wanted.items():
        assert getattr(news[0], name) == value, (name, news[0])
    return news[0]


Damage = Callable[[og.Graph], None]
