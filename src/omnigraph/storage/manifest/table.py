"""The manifest: the table `__manifest`, with branch heads in its config and records as rows.

* `head:<branch>` in the table's config is the whole state of a branch; only a change of it makes anything visible. It
  changes by `swap`: a compare-and-swap of one key, about a millisecond at any depth of history.
* Rows hold what is rarely read: records of decided epochs that have left the head's `recent` list, and accepted
  schemas. They are appended before a head relies on them, so a crash leaves at most rows without a reference; readers
  drop duplicates by `object_id`.
* `refs` is rewritten by every operation that creates or deletes a branch, so that these exclude each other.

This module never restores, tags or overwrites the table, and never replaces the whole config.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from omnigraph.errors import BranchNotFound, CommitNotFound, GraphNotFound, NewerFormat, NotAGraph, StorageError
from omnigraph.language import identifiers as form
from omnigraph.language.schema.model import Schema
from omnigraph.language.schema.serial import require_types, schema_from_json
from omnigraph.storage import durability
from omnigraph.storage.files import truncated_versions
from omnigraph.storage.files.checksums import Packed, merge, read_packed
from omnigraph.storage.lance import lance_api
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.commit_links import CommitLinks, EpochSpan
from omnigraph.storage.manifest.config import HEAD, REFS, ROW_IDS_KEY, SWAP_MAX_S, SwapLost, swap_config
from omnigraph.storage.manifest.head_packs import tombstone
from omnigraph.storage.manifest.heads import Heads
from omnigraph.storage.manifest.pins import pins_of, pins_of_many
from omnigraph.storage.manifest.recent_records import RecentRecords
from omnigraph.storage.manifest.records import Head, Pin, Record, apply_delta
from omnigraph.storage.manifest.rows import (
    FORMAT,
    FORMAT_MAX,
    FORMAT_PACKED,
    bodies_of,
    checksums_row,
    manifest_rows,
    quote,
    record_row,
    schema_row,
)
from omnigraph.storage.objects import nofollow, remains
from omnigraph.storage.objects.conditional_put import require_conditional

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

__all__ = [
    "FORMAT",
    "FORMAT_MAX",
    "HEAD",
    "REFS",
    "Manifest",
    "SwapLost",
    "fresh_incarnation",
    "quote",
]

RECENT_MAX = 24
"""How many records a head holds before they are appended as rows."""
FULL_EVERY = 32
"""How many commits a read of an older snapshot goes back at most."""
FRAGMENTS_MAX = 24
SNAPSHOTS_MAX = 256
"""How many older snapshots are cached, at least."""
IDS_MAX = 500
"""How many commits one query of the rows names."""
SPANS_MAX = 64
"""How many spans of epochs one query of the rows names."""
_OPENINGS = 2


def _where(span: EpochSpan) -> str:
    return f"(inc = {quote(span.incarnation)} AND epoch >= {span.first} AND epoch <= {span.last})"


class Manifest:
    """The manifest of one graph, read through one open handle that threads may share."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self._table: LanceDataset | None = None
        self._is_cleared = False
        self.reader = Heads(location)
        self._schemas: dict[str, Schema] = {}
        self._bodies: dict[str, dict[str, Any]] = {}
        self._pins: dict[str, dict[str, Pin]] = {}
        self.links = CommitLinks(self)

    # ---- reading -----------------------------------------------------------------------------------------------------

    def table(self) -> LanceDataset:
        """The newest readable version. Cheap: an open handle only checks for a newer version.

        A returned handle never changes: its config and its version belong together, also when other threads call this
        at the same time. A swap relies on that.
        """
        handle = self._table
        if handle is None:
            handle = self._table = self._open()
            return handle
        try:
            with lance_api.reading("looking for versions of the manifest"):
                newest = lance_api.newest_version(self.location, handle)
                if newest != handle.version:
                    checked_out = handle.checkout_version(newest)
                    handle = self._table = lance_api.with_own_bases(
                        self.location, self.location.manifest_uri, checked_out
                    )
        except (StorageError, ValueError):
            handle = self._table = self._open()
        return handle

    def _open(self) -> LanceDataset:
        nofollow.require_layout(self.location)
        remains.require_folder(self.location)
        for _ in range(_OPENINGS):
            try:
                return lance_api.open_newest(self.location, self.location.manifest_uri)
            except lance_api.TableMissing as error:
                if not remains.has_versions(self.location):
                    raise (remains.lost_graph(self.location) or GraphNotFound(uri=self.location.uri)) from error
            # Another process may just have created the graph.
        detail = "versions of the manifest are listed and can't be read"
        raise StorageError(doing=f"opening {self.location.manifest_uri}", detail=detail)

    def format(self) -> int:
        """The generation of the manifest's shape; an unstamped one is the oldest."""
        return self.format_of(self.table())

    def format_of(self, table: LanceDataset) -> int:
        """The format of one version of the manifest."""
        return self.reader.format_of(table)

    def known_format(self) -> int:
        """The format of the version that was read last."""
        last_read = self.reader.last_read
        return self.format() if last_read is None else last_read[0]

    def known_refs(self) -> str | None:
        """`refs` of the version that was read last: that of a head that was just read, or a newer one."""
        last_read = self.reader.last_read
        return None if last_read is None else last_read[1].get(REFS, "")

    def known_loose(self) -> int:
        """The number of loose heads in the version that was read last."""
        last_read = self.reader.last_read
        return 0 if last_read is None else sum(key.startswith(HEAD) for key in last_read[1])

    def settings(self) -> tuple[int, Mapping[str, str]]:
        """(version, config) of the newest version."""
        table = self.table()
        return int(table.version), self.reader.config_of(table)

    def require_writable(self) -> int:
        """The format of the graph. Raises NewerFormat unless this program may write it, perhaps after a migration."""
        nofollow.require_layout(self.location)
        generation = self.format()
        if generation > FORMAT_MAX:
            raise NewerFormat(found=generation, known=FORMAT_MAX)
        if not self._is_cleared:
            require_conditional(self.location)
            truncated_versions.move_aside(self.location, self.location.manifest_uri, above=self.table().version)
            self._is_cleared = True
        return generation

    def stable_row_ids(self) -> bool:
        return bool(self.reader.config_of(self.table()).get(ROW_IDS_KEY, "stable") == "stable")

    def heads(self) -> dict[str, Head]:
        return dict(self.reader.all_of(self.table()))

    def live_pins(self) -> set[Pin]:
        """Versions that no cleanup removes while the branches are unchanged: the pins of the newest heads, and those of
        their base commits as far as they are cached.
        """
        heads = self.heads().values()
        pins = {pin for head in heads for pin in head.pins.values() if pin is not None}
        return pins.union(*(self._pins.get(head.base or "", {}).values() for head in heads))

    def _recent(self) -> RecentRecords:
        return self.reader.recent_of(self.table())

    def names(self) -> set[str]:
        """The names of all branches."""
        return self.reader.names_of(self.table())

    def find(self, branch: str) -> Head | None:
        return self.reader.find(self.table(), branch)

    def head(self, branch: str) -> Head:
        head = self.find(branch)
        if head is None:
            raise BranchNotFound(branch=branch, uri=self.location.uri)
        return head

    def older_heads(self, table: LanceDataset) -> dict[str, Head]:
        """The heads of a graph of an older generation, from its rows."""
        return self.reader.older(table)

    def head_at(self, branch: str, version: int) -> Head | None:
        """The head of a branch in an older version of the manifest; None if that version no longer exists."""
        try:
            table = lance_api.open_table(self.location, self.location.manifest_uri, version=version)
        except lance_api.TableMissing:
            return None
        return self.reader.apart().find(table, branch)

    def pins(self, head: Head) -> dict[str, Pin]:
        """All pins of a branch: the pins of its base commit, with the differences of its head applied."""
        base_pins = {} if head.base is None else self.pins_at(head.base)
        return apply_delta(base_pins, head.pins)

    def pins_at(self, commit: str) -> dict[str, Pin]:
        """The pins of any commit, from the nearest older record with a full snapshot and the differences since."""
        cached = self._pins.get(commit)
        if cached is not None:
            return cached
        pins = pins_of(self, commit, look_back=2 * FULL_EVERY)
        if len(self._pins) > SNAPSHOTS_MAX and len(self._pins) > len(self.names()):
            self._pins.clear()
        self._pins[commit] = pins
        return pins

    def preload(self, heads: Iterable[Head]) -> None:
        """Read the base commits of all these heads for `pins`, with a few queries instead of some per branch."""
        commits = {head.base for head in heads if head.base is not None}
        self._pins.update(self.pins_of_commits(commits - self._pins.keys()))

    def pins_of_commits(self, commits: Iterable[str]) -> dict[str, dict[str, Pin]]:
        """The pins of many commits, by commit."""
        return pins_of_many(self, commits, look_back=2 * FULL_EVERY)

    def record(self, commit: str) -> Record:
        recent = self._recent().of_commit(commit)
        if recent is not None:
            return recent
        records = self._records(f"object_id = {quote('commit:' + commit)}")
        if not records:
            raise CommitNotFound(commit=commit)
        return records[0]

    def records(self, incarnation: str, first: int, last: int) -> list[Record]:
        """Records of one branch incarnation, epochs first..last, oldest first, each once."""
        by_epoch = self._recent().of_epochs(incarnation, first, last)
        if not all(e in by_epoch for e in range(first, last + 1)):
            by_epoch.update({r.epoch: r for r in self._records(_where(EpochSpan(incarnation, first, last)))})
        return [by_epoch[e] for e in sorted(by_epoch)]

    def records_of_spans(self, spans: Iterable[EpochSpan]) -> dict[EpochSpan, list[Record]]:
        """`records` of many spans, with a few queries of the rows."""
        recent = self._recent()
        by_epoch = {span: recent.of_epochs(span.incarnation, span.first, span.last) for span in spans}
        rest = [span for span, known in by_epoch.items() if len(known) <= span.last - span.first]
        for start in range(0, len(rest), SPANS_MAX):
            some = rest[start : start + SPANS_MAX]
            rows: dict[tuple[str, int], Record] = {
                (r.incarnation, r.epoch): r for r in self._records(" OR ".join(map(_where, some)))
            }
            for span in some:
                epochs = range(span.first, span.last + 1)
                by_epoch[span].update({e: rows[span.incarnation, e] for e in epochs if (span.incarnation, e) in rows})
        return {span: [known[e] for e in sorted(known)] for span, known in by_epoch.items()}

    def records_of(self, commits: Iterable[str]) -> dict[str, Record]:
        """The records of many commits, by commit."""
        recent, records, row_commits = self._recent(), dict[str, Record](), list[str]()
        for commit in dict.fromkeys(commits):
            record = recent.of_commit(commit)
            if record is None:
                row_commits.append(commit)
            else:
                records[commit] = record
        for start in range(0, len(row_commits), IDS_MAX):
            ids = ", ".join(quote(f"commit:{commit}") for commit in row_commits[start : start + IDS_MAX])
            records.update({r.commit: r for r in self._records(f"object_id IN ({ids})") if r.commit})
        missing = next((commit for commit in row_commits if commit not in records), None)
        if missing is not None:
            raise CommitNotFound(commit=missing)
        return records

    def outcome(self, incarnation: str, epoch: int) -> Record | None:
        """The record of an epoch; None means undecided or unknown, never aborted."""
        records = self.records(incarnation, epoch, epoch)
        return records[0] if records else None

    def operation(self, incarnation: str, operation_id: str) -> Record | None:
        """The commit with a client's operation id on this branch, if there is one."""
        recent = self._recent().of_operation(incarnation, operation_id)
        if recent is not None:
            return recent
        records = self._records(f"name = {quote(operation_id)} AND inc = {quote(incarnation)}")
        return records[0] if records else None

    def checksums(self, record: Record) -> Packed:
        """The checksums of a record, from the record or from its row."""
        if record.checksum_row is None:
            return record.checksums
        rows = self._rows(f"object_id = {quote(record.checksum_row)}")
        return merge(record.checksums, read_packed(rows[0].get("h"))) if rows else record.checksums

    def has_schema(self, schema_id: str) -> bool:
        return schema_id in self._schemas or bool(self._rows(f"object_id = {quote('schema:' + schema_id)}"))

    def schema(self, schema_id: str) -> Schema:
        cached = self._schemas.get(schema_id)
        if cached is None:
            cached = self._schemas[schema_id] = schema_from_json(self.schema_body(schema_id))
        return cached

    def schema_body(self, schema_id: str) -> dict[str, Any]:
        """An accepted schema as it is stored: enough for a listing, and much cheaper than the parsed model."""
        body = self._bodies.get(schema_id)
        if body is None:
            rows = self._rows(f"object_id = {quote('schema:' + schema_id)}")
            if not rows:
                raise NotAGraph(uri=self.location.uri, detail=f"the accepted schema {schema_id} is missing.")
            with form.reading(f"the schema {schema_id}"):
                body = self._bodies[schema_id] = require_types(rows[0])
        return body

    def _records(self, where: str) -> list[Record]:
        with form.reading("a commit record"):
            return [Record.from_json(body) for body in self._rows(where)]

    def _rows(self, where: str) -> list[dict[str, Any]]:
        """The bodies of these rows, each object once."""
        return list(bodies_of(self.table(), where).values())

    # ---- writing -----------------------------------------------------------------------------------------------------

    def swap(self, old: Head, new: Head | None, *, more: Mapping[str, str | None] | None = None) -> Head | None:
        """Compare-and-swap one head from `old` to `new` (None deletes the branch). Raises SwapLost if that fails or if
        the result is unknown.

        Commits by URI, not with the open handle: a handle would accept a base version that was collected.
        """
        value = self._deleted(old) if new is None else new.dumps()
        version = self.update({HEAD + old.branch: value, **(more or {})}, read_version=old.version)
        if new is None or value is None:
            self.reader.forget(old.branch)
            return None
        self.reader.note(value, new)
        return replace(new, version=version)

    def _deleted(self, old: Head) -> str | None:
        """The value that deletes a branch: a tombstone where heads may be packed, else None, which removes the key."""
        return tombstone(old.incarnation) if self.format() >= FORMAT_PACKED else None

    def update(
        self,
        updates: Mapping[str, str | None],
        *,
        read_version: int,
        format_stamp: int | None = None,
        timeout_s: float = SWAP_MAX_S,
    ) -> int:
        """One compare-and-swap of config keys against `read_version`; returns the new version.

        A head counts as unchanged while its branch has the same incarnation and epoch, loose or packed.
        """

        def is_unchanged(before: LanceDataset, now: LanceDataset) -> bool:
            old_reader, new_reader = self.reader.apart(), self.reader.apart()
            return all(old_reader.meaning(before, key) == new_reader.meaning(now, key) for key in updates)

        return swap_config(
            self.location,
            updates,
            read_version=read_version,
            is_unchanged=is_unchanged,
            format_stamp=format_stamp,
            timeout_s=timeout_s,
        )

    def append_rows(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Append rows of any kind (`manifest_rows`), synced before anything refers to them."""
        if rows:
            self._append(manifest_rows(list(rows)))

    def append_records(self, records: Iterable[Record]) -> None:
        self.append_rows([record_row(r) for r in records])

    def append_checksums(self, packed: Packed) -> str:
        """Append the checksums of many files as a row, which keeps heads small; returns the id of the row."""
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
        with lance_api.reading("appending records to the manifest"):
            fragments = write_fragments(rows, table, mode="append", storage_options=self.location.lance_options)
            if self.location.is_local:
                durability.sync_fragments(uri, [f.to_json() for f in fragments])
            tx = lance_api.transaction(lance_api.operations().Append(fragments), read_version=table.version)
            lance_api.commit(self.location, uri, tx)

    def fold(self, *, more_than: int = FRAGMENTS_MAX) -> tuple[int, int]:
        """Compact the small fragments of appended records, once there are many. Rows do not change. Returns how many
        fragments were removed and how many were added.
        """
        from omnigraph.storage.lance.rewrites.fold import fold_work

        table = self.table()
        before = len(table.get_fragments())
        work = fold_work(self.location, table) if before > more_than else None
        if work is None:
            return 0, 0
        try:
            folded = lance_api.commit(self.location, self.location.manifest_uri, work.commit_on(table))
        except (OSError, ValueError, RuntimeError, StorageError):
            return 0, 0  # a writer of another branch compacts at the same time: its result is equivalent
        kept = {f.fragment_id for f in table.get_fragments()} & {f.fragment_id for f in folded.get_fragments()}
        return before - len(kept), len(folded.get_fragments()) - len(kept)

    def unset(self, keys: Iterable[str]) -> None:
        """Remove foreign settings from the manifest's config."""
        table = self.table()
        self.update(dict.fromkeys(keys), read_version=table.version)


def fresh_incarnation() -> str:
    return secrets.token_hex(6)
