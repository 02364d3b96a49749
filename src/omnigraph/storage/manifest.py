"""The authority: the table `__manifest`, its branch heads in config, its records as rows.

* `head:<branch>` in the table's config is the whole state of a branch and the only thing whose change makes anything
  visible. It moves by `swap`: a real compare-and-swap of one key, about a millisecond at any depth of history.
* Rows are what is rarely read: records of decided epochs that have left the head's `recent` list, and accepted schemas.
  They are appended before a head relies on them, so a crash leaves at most rows that nobody refers to; readers drop
  duplicates by `object_id`.
* `refs` is rewritten by everything that creates or deletes a branch, so that these exclude each other.

Never done here: restore, tag, overwrite, or a replacement of the whole config.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from omnigraph.errors import (
    BranchNotFound,
    CommitNotFound,
    GraphNotFound,
    HostileOrDamagedManifest,
    NewerFormat,
    NotAGraph,
    StorageError,
)
from omnigraph.language import identifiers as form
from omnigraph.language.schema.model import Schema
from omnigraph.language.schema.serial import require_types, schema_from_json, schema_to_json
from omnigraph.storage import durable, lancefs, nofollow, remains, torn
from omnigraph.storage.checksums import Packed, merge, read_packed
from omnigraph.storage.conditional import require_conditional
from omnigraph.storage.layout import Location
from omnigraph.storage.recent import RecentRecords
from omnigraph.storage.records import MAIN, Head, Pin, Record, apply_delta
from omnigraph.storage.snapshots import pins_of_many

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

FORMAT = 3
FORMAT_KEY = "omnigraph:internal_schema_version"
HEAD = "head:"
REFS = "refs"
CHECKSUMS = "checksums"
"""The kind of rows that hold checksums of files."""
ROW_IDS_KEY = "omnigraph:row_ids"
PRIMARY_KEY = {"lance-schema:unenforced-primary-key": "true"}
SWAP_RETRIES, SWAP_MOST_S = 2, 60.0
"""How often Lance retries one attempt at a swap, and for how long attempts are made."""
RECENT_MOST = 24
"""How many records ride in a head before they are folded into rows."""
FULL_EVERY = 32
"""How many commits at the most a snapshot of the past looks back through."""
FRAGMENTS_MOST = 24
SNAPSHOTS_MAX = 256
"""How many snapshots of the past are remembered, at least."""
IDS_MAX = 500
"""How many commits one question to the rows names."""
_OPENINGS = 2


class SwapLost(Exception):
    """The head was moved by somebody else, or the store's answer is unknown. Ask, don't infer."""


class Manifest:
    """One graph's authority, read through one warm handle that threads may share."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self._table: LanceDataset | None = None
        self._mended = False
        self._heads: dict[str, tuple[str, Head]] = {}
        self._older: tuple[int, dict[str, Head]] | None = None
        self._schemas: dict[str, Schema] = {}
        self._bodies: dict[str, dict[str, Any]] = {}
        self._pins: dict[str, dict[str, Pin]] = {}
        self._facts: tuple[LanceDataset, int, dict[str, str]] | None = None
        self._all: tuple[LanceDataset, dict[str, Head], RecentRecords] | None = None

    # ---- reading -----------------------------------------------------------------------------------------------------

    def table(self) -> LanceDataset:
        """The newest readable version. Cheap: a warm handle asks only whether there is a newer one.

        A handle that was given out never moves: its config and its version belong together, also when another thread
        asks at the same time. A swap relies on that.
        """
        known = self._table
        if known is None:
            known = self._table = self._open()
            return known
        try:
            with lancefs.reading("looking for versions of the manifest"):
                newest = lancefs.newest_version(self.location, known)
                if newest != known.version:
                    moved = known.checkout_version(newest)
                    known = self._table = lancefs.with_own_bases(self.location, self.location.manifest_uri, moved)
        except (StorageError, ValueError):
            known = self._table = self._open()
        return known

    def _open(self) -> LanceDataset:
        nofollow.require_layout(self.location)
        remains.require_folder(self.location)
        for _ in range(_OPENINGS):
            try:
                return lancefs.open_newest(self.location, self.location.manifest_uri)
            except lancefs.TableMissing as error:
                if not remains.has_versions(self.location):
                    raise (remains.lost_graph(self.location) or GraphNotFound(uri=self.location.uri)) from error
            # Another process may just have created the graph.
        detail = "versions of the manifest are listed and can't be read"
        raise StorageError(doing=f"opening {self.location.manifest_uri}", detail=detail)

    def format(self) -> int:
        """The generation of the manifest's shape; an unstamped one is the oldest."""
        return self.format_of(self.table())

    def format_of(self, table: LanceDataset) -> int:
        """The same of one version of the manifest."""
        return self._facts_of(table)[0]

    def known_format(self) -> int:
        """That of the version that was looked at last."""
        return self.format() if self._facts is None else self._facts[1]

    def _facts_of(self, table: LanceDataset) -> tuple[int, dict[str, str]]:
        """(format, config) of one version. A handle never moves, so what was read from it once stays true."""
        known = self._facts
        if known is None or known[0] is not table:
            known = self._facts = (table, self._read_format(table), dict(table.config()))
        return known[1:]

    def _read_format(self, table: LanceDataset) -> int:
        stamp = (table.schema.metadata or {}).get(FORMAT_KEY.encode(), b"1")
        if not stamp.isdigit():
            raise NotAGraph(uri=self.location.uri, detail=f"its format is {stamp.decode(errors='replace')!r}.")
        return int(stamp)

    def known_refs(self) -> str | None:
        """`refs` of the version that was looked at last: that of a head that was just read, or a newer one."""
        return None if self._facts is None else self._facts[2].get(REFS, "")

    def require_writable(self) -> int:
        """The format of the graph, which is one that this program may write, perhaps after a migration."""
        nofollow.require_layout(self.location)
        found = self.format()
        if found > FORMAT:
            raise NewerFormat(found=found, known=FORMAT)
        if not self._mended:
            require_conditional(self.location)
            torn.put_away(self.location, self.location.manifest_uri, above=self.table().version)
            self._mended = True
        return found

    def stable_row_ids(self) -> bool:
        return bool(self.table().config().get(ROW_IDS_KEY, "stable") == "stable")

    def heads(self) -> dict[str, Head]:
        return dict(self._all_of(self.table())[0])

    def _all_of(self, table: LanceDataset) -> tuple[dict[str, Head], RecentRecords]:
        """All heads of one version, and the records that ride in them. A handle never moves, so this stays true."""
        known = self._all
        if known is None or known[0] is not table:
            heads = self._read_heads(table)
            known = self._all = (table, heads, RecentRecords(heads.values()))
        return known[1:]

    def _read_heads(self, table: LanceDataset) -> dict[str, Head]:
        if self._is_older(table):
            return dict(self.older_heads(table))
        return {
            key.removeprefix(HEAD): self._head(key.removeprefix(HEAD), value, table.version)
            for key, value in sorted(self._facts_of(table)[1].items())
            if key.startswith(HEAD)
        }

    def _recent(self) -> RecentRecords:
        return self._all_of(self.table())[1]

    def head(self, branch: str) -> Head:
        table = self.table()
        if self._is_older(table) and branch in self.older_heads(table):
            return self.older_heads(table)[branch]
        value = self._facts_of(table)[1].get(HEAD + branch)
        if value is None:
            raise BranchNotFound(branch=branch, uri=self.location.uri)
        return self._head(branch, value, table.version)

    def _head(self, branch: str, value: str, version: int) -> Head:
        known = self._heads.get(branch)
        if known is None or known[0] != value:
            known = self._heads[branch] = (value, self._understood(branch, value, version))
        return replace(known[1], version=version)

    def _understood(self, branch: str, value: str, version: int) -> Head:
        try:
            return Head.loads(branch, value, version=version)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            if self.format() > FORMAT:
                raise NewerFormat(found=self.format(), known=FORMAT) from error
            if isinstance(error, form.Malformed):
                where = f"the head of {form.shown(branch)}"
                raise HostileOrDamagedManifest(where=where, detail=str(error)) from error
            raise NotAGraph(uri=self.location.uri, detail=f"the head of {branch} can't be understood.") from error

    def _is_older(self, table: LanceDataset) -> bool:
        """Whether the heads are rows. A newer graph is read as long as its heads are what this program knows."""
        found = self.format_of(table)
        if found > FORMAT and HEAD + MAIN not in table.config():
            raise NewerFormat(found=found, known=FORMAT)
        return found < FORMAT

    def older_heads(self, table: LanceDataset) -> dict[str, Head]:
        """The heads of a graph of an older generation, from its rows."""
        from omnigraph.storage.legacy import read_heads

        if self._older is None or self._older[0] != table.version:
            self._older = (table.version, read_heads(table))
        return self._older[1]

    def head_at(self, branch: str, version: int) -> Head | None:
        """What an older version of the manifest held, as long as it exists."""
        try:
            table = lancefs.open_table(self.location, self.location.manifest_uri, version=version)
        except lancefs.TableMissing:
            return None
        value = table.config().get(HEAD + branch)
        return None if value is None else self._understood(branch, value, version)

    def pins(self, head: Head) -> dict[str, Pin]:
        """All pins of a branch: the difference that its head holds, over the snapshot of its base."""
        below = {} if head.base is None else self.pins_at(head.base)
        return apply_delta(below, head.pins)

    def pins_at(self, commit: str) -> dict[str, Pin]:
        """The pins of any commit, from the nearest full record below it and the differences since."""
        known = self._pins.get(commit)
        if known is not None:
            return known
        chain: list[Record] = []
        nearby: dict[str, Record] = {}
        at: str | None = commit
        while at is not None:
            record = nearby.get(at) or self.record(at)
            if not nearby and record.snapshot is None:
                first = max(0, record.epoch - 2 * FULL_EVERY)
                nearby = {r.commit: r for r in self.records(record.incarnation, first, record.epoch) if r.commit}
            chain.append(record)
            if record.snapshot is not None:
                break
            at = record.parent
            if at not in nearby:
                nearby = {}
        pins: dict[str, Pin] = {}
        for record in reversed(chain):
            pins = dict(record.snapshot) if record.snapshot is not None else apply_delta(pins, record.delta)
        if len(self._pins) > max(SNAPSHOTS_MAX, len(self._all_of(self.table())[0])):
            self._pins.clear()
        self._pins[commit] = pins
        return pins

    def preload(self, heads: Iterable[Head]) -> None:
        """Read what `pins` of all these heads rests on, with a few questions instead of some per branch."""
        commits = {head.base for head in heads if head.base is not None}
        self._pins.update(self.pins_of_commits(commits - self._pins.keys()))

    def pins_of_commits(self, commits: Iterable[str]) -> dict[str, dict[str, Pin]]:
        """The pins of many commits, by commit."""
        return pins_of_many(self, commits, look_back=2 * FULL_EVERY)

    def record(self, commit: str) -> Record:
        known = self._recent().of_commit(commit)
        if known is not None:
            return known
        found = self._records(f"object_id = {quote('commit:' + commit)}")
        if not found:
            raise CommitNotFound(commit=commit)
        return found[0]

    def records(self, incarnation: str, first: int, last: int) -> list[Record]:
        """Records of one branch incarnation, epochs first..last, oldest first, each once."""
        found = self._recent().of_epochs(incarnation, first, last)
        if not all(e in found for e in range(first, last + 1)):
            where = f"inc = {quote(incarnation)} AND epoch >= {first} AND epoch <= {last}"
            found.update({r.epoch: r for r in self._records(where)})
        return [found[e] for e in sorted(found)]

    def records_of(self, commits: Iterable[str]) -> dict[str, Record]:
        """The records of many commits, by commit."""
        recent, found, rest = self._recent(), dict[str, Record](), list[str]()
        for commit in dict.fromkeys(commits):
            known = recent.of_commit(commit)
            if known is None:
                rest.append(commit)
            else:
                found[commit] = known
        for start in range(0, len(rest), IDS_MAX):
            ids = ", ".join(quote(f"commit:{commit}") for commit in rest[start : start + IDS_MAX])
            found.update({r.commit: r for r in self._records(f"object_id IN ({ids})") if r.commit})
        missing = next((commit for commit in rest if commit not in found), None)
        if missing is not None:
            raise CommitNotFound(commit=missing)
        return found

    def outcome(self, incarnation: str, epoch: int) -> Record | None:
        """How one epoch was decided, as far as it is known to be; None means undecided or unknown, never aborted."""
        found = self.records(incarnation, epoch, epoch)
        return found[0] if found else None

    def operation(self, incarnation: str, operation_id: str) -> Record | None:
        """The commit of a client's own operation id on this branch, if there was one."""
        known = self._recent().of_operation(incarnation, operation_id)
        if known is not None:
            return known
        found = self._records(f"name = {quote(operation_id)} AND inc = {quote(incarnation)}")
        return found[0] if found else None

    def checksums(self, record: Record) -> Packed:
        """Those of a record, wherever they are."""
        if record.checksum_row is None:
            return record.checksums
        rows = self._rows(f"object_id = {quote(record.checksum_row)}")
        return merge(record.checksums, read_packed(rows[0].get("h"))) if rows else record.checksums

    def has_schema(self, schema_id: str) -> bool:
        return schema_id in self._schemas or bool(self._rows(f"object_id = {quote('schema:' + schema_id)}"))

    def schema(self, schema_id: str) -> Schema:
        known = self._schemas.get(schema_id)
        if known is None:
            known = self._schemas[schema_id] = schema_from_json(self.schema_body(schema_id))
        return known

    def schema_body(self, schema_id: str) -> dict[str, Any]:
        """An accepted schema as it is stored: enough for a listing, and much cheaper than the whole model."""
        known = self._bodies.get(schema_id)
        if known is None:
            rows = self._rows(f"object_id = {quote('schema:' + schema_id)}")
            if not rows:
                raise NotAGraph(uri=self.location.uri, detail=f"the accepted schema {schema_id} is missing.")
            with form.reading(f"the schema {schema_id}"):
                known = self._bodies[schema_id] = require_types(rows[0])
        return known

    def _records(self, where: str) -> list[Record]:
        with form.reading("a commit record"):
            return [Record.from_json(body) for body in self._rows(where)]

    def _rows(self, where: str) -> list[dict[str, Any]]:
        """The bodies of these rows, each object once."""
        with lancefs.reading("reading the manifest", decodes=True):
            found = self.table().to_table(columns=["object_id", "body"], filter=where)
        by_id = dict(zip(found["object_id"].to_pylist(), found["body"].to_pylist(), strict=True))
        with form.reading("a row of the manifest"):
            return [dict(form.mapping(orjson.loads(form.text(body)))) for body in by_id.values()]

    # ---- writing -----------------------------------------------------------------------------------------------------

    def swap(self, old: Head, new: Head | None, *, more: Mapping[str, str | None] | None = None) -> Head | None:
        """Move one head from exactly what was read to `new` (None deletes the branch); SwapLost if that can't be known.

        By URI, not through the warm handle: a handle would go on from a version that has been collected.
        """
        value = None if new is None else new.dumps()
        version = self.update({HEAD + old.branch: value, **(more or {})}, read_version=old.version)
        if new is None or value is None:
            self._heads.pop(old.branch, None)
            return None
        self._heads[old.branch] = (value, new)
        return replace(new, version=version)

    def update(self, updates: Mapping[str, str | None], *, read_version: int) -> int:
        """One compare-and-swap of config keys against `read_version`; the version that holds them.

        Writers of other branches move other keys of the same table all the time. Lance's own pause between retries
        grows until whoever lost a few races waits for longer than a lease, so the retries are ours: while the keys
        still are what they were, the newest version is as good a base as the one that was read.
        """
        op = lancefs.operations()
        base, deadline = read_version, time.monotonic() + SWAP_MOST_S
        while True:
            tx = lancefs.transaction(op.UpdateConfig(config_updates=op.UpdateMap(dict(updates))), read_version=base)
            try:
                return int(lancefs.commit(self.location, self.location.manifest_uri, tx, retries=SWAP_RETRIES).version)
            except lancefs.conflicts() as error:
                if time.monotonic() > deadline:
                    raise SwapLost(str(error)) from error
                newest = self._unchanged_since(read_version, updates)
                if newest is None:
                    raise SwapLost(str(error)) from error
                base = newest
            except (OSError, ValueError, RuntimeError) as error:
                raise StorageError(doing="publishing", detail=str(error)) from error
            time.sleep(random.uniform(0.001, 0.01))

    def _unchanged_since(self, version: int, keys: Iterable[str]) -> int | None:
        """The newest version, if these config keys are there what they were at `version`."""
        with lancefs.reading("reading the manifest", decodes=True):
            newest = lancefs.open_newest(self.location, self.location.manifest_uri)
            try:
                before = lancefs.open_table(self.location, self.location.manifest_uri, version=version).config()
            except lancefs.TableMissing:
                return None  # collected: whoever was stopped for that long must look again
            now = newest.config()
        return int(newest.version) if all(before.get(k) == now.get(k) for k in keys) else None

    def append_records(self, records: Iterable[Record]) -> None:
        rows = [record_row(r) for r in records]
        if rows:
            self._append(manifest_rows(rows))

    def append_checksums(self, packed: Packed) -> str:
        """Checksums of many files, as a row, because they would make heads large. The id of the row."""
        row = checksums_row(packed)
        self._append(manifest_rows([row]))
        return str(row[0])

    def append_schema(self, schema_id: str, schema: Schema) -> None:
        self._append(manifest_rows([schema_row(schema_id, schema)]))
        self._schemas[schema_id] = schema

    def _append(self, rows: pa.Table) -> None:
        from lance.fragment import write_fragments

        table = self.table()
        uri = self.location.manifest_uri
        with lancefs.reading("appending records to the manifest"):
            fragments = write_fragments(rows, table, mode="append", storage_options=self.location.lance_options)
            if self.location.is_local:
                durable.secure_files(uri, [f.to_json() for f in fragments])
            tx = lancefs.transaction(lancefs.operations().Append(fragments), read_version=table.version)
            lancefs.commit(self.location, uri, tx)

    def fold(self, *, more_than: int = FRAGMENTS_MOST) -> tuple[int, int]:
        """Merge the small fragments that appended records leave behind, once there are many. Rows stay what they
        are. How many fragments went, and how many came.
        """
        from omnigraph.storage.fold import fold_work

        table = self.table()
        before = len(table.get_fragments())
        work = fold_work(self.location, table) if before > more_than else None
        if work is None:
            return 0, 0
        try:
            done = lancefs.commit(self.location, self.location.manifest_uri, work.commit_on(table))
        except (OSError, ValueError, RuntimeError, StorageError):
            return 0, 0  # a writer of another branch folds at the same moment: its result is as good
        kept = {f.fragment_id for f in table.get_fragments()} & {f.fragment_id for f in done.get_fragments()}
        return before - len(kept), len(done.get_fragments()) - len(kept)

    def unset(self, keys: Iterable[str]) -> None:
        """Remove settings from the manifest's config that are none of ours."""
        table = self.table()
        self.update(dict.fromkeys(keys), read_version=table.version)


def quote(value: str) -> str:
    """A string literal of Lance's SQL."""
    return "'" + value.replace("'", "''") + "'"


def fresh_incarnation() -> str:
    return secrets.token_hex(6)


def record_row(record: Record) -> tuple[Any, ...]:
    r = record
    return (r.object_id, "commit", r.incarnation, r.epoch, r.operation_id, r.to_json())


def schema_row(schema_id: str, schema: Schema) -> tuple[Any, ...]:
    return (f"schema:{schema_id}", "schema", None, None, None, schema_to_json(schema))


def checksums_row(packed: Packed) -> tuple[Any, ...]:
    return (f"{CHECKSUMS}:{secrets.token_hex(8)}", CHECKSUMS, None, None, None, {"h": packed})


def manifest_schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("object_id", pa.string(), nullable=False, metadata=PRIMARY_KEY),
            pa.field("kind", pa.string()),
            pa.field("inc", pa.string()),
            pa.field("epoch", pa.int64()),
            pa.field("name", pa.string()),
            pa.field("body", pa.large_string()),
        ],
        metadata={FORMAT_KEY: str(FORMAT)},
    )


def manifest_rows(rows: list[tuple[Any, ...]]) -> pa.Table:
    """Rows (object_id, kind, inc, epoch, name, body as JSON value) as an Arrow table of the manifest's shape."""
    import pyarrow as pa

    columns = list(zip(*rows, strict=True))
    columns[5] = tuple(orjson.dumps(body).decode() for body in columns[5])
    shape = manifest_schema()
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, shape, strict=True)], schema=shape)
