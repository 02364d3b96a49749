"""Consistency of the manifest. Only its own rows and heads are read.

1. rows      every row can be parsed, its id is that of its body; rows with one id have one content
2. epochs    every decided epoch of a live branch has a record, each once
3. chain     from every head through its parents to the first commit: every record exists, epochs descend, and the
             pins that the records add up to are the head's
4. schemas   those of heads and of reachable commits exist
5. branches  every branch but main was made from an existing commit, of a live branch
6. tags      every tag names an existing commit
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import orjson

from omnigraph.errors import HostileOrDamagedManifest, StorageError
from omnigraph.maintenance.verify.checksums import NO_CHECKSUMS, Checksums
from omnigraph.maintenance.verify.findings import Finding, make_finding
from omnigraph.maintenance.verify.reading import read, reason
from omnigraph.maintenance.verify.scope import FrozenManifest
from omnigraph.storage.files.checksums import Packed, read_packed
from omnigraph.storage.manifest.head_packs import load_entries
from omnigraph.storage.manifest.records import Head, Pin, Record, apply_delta
from omnigraph.storage.manifest.rows import CHECKSUMS, FORMAT, HEADS
from omnigraph.storage.manifest.tags import Tag

_MANIFEST = "__manifest"


@dataclass(frozen=True)
class Rows:
    """The manifest's rows, parsed: records by commit and by epoch, ids of schemas."""

    commits: Mapping[str, Record]
    epochs: Mapping[tuple[str, int], Record]
    schemas: frozenset[str]
    findings: tuple[Finding, ...]
    checksums: Checksums


@dataclass(frozen=True)
class History:
    """What is wrong, how many commits were checked, the folders of all tables that any commit ever had, and the forks
    of tables that commits of live branches have. Not `is_known`: the rows can't be read; there may be more of these.
    """

    findings: tuple[Finding, ...]
    commits: int
    pins: frozenset[Pin]
    live_pins: frozenset[Pin]
    is_known: bool = True
    checksums: Checksums = NO_CHECKSUMS
    """The recorded checksums of files."""

    @property
    def roots(self) -> set[str]:
        return {pin.root for pin in self.pins}

    def forks(self, root: str) -> set[str]:
        return {pin.fork for pin in self.live_pins if pin.fork is not None and pin.root == root}


def check_manifest(manifest: FrozenManifest, heads: list[Head], tags: Iterable[Tag] = ()) -> History:
    all_heads = manifest.heads()
    if manifest.format() < FORMAT:
        # Heads of older formats are derived from rows of another shape, and carry every record.
        records = [record for head in all_heads.values() for record in head.recent]
        return _history((), len(records), all_heads.values(), records)
    try:
        rows = read(manifest.location, "reading the manifest", lambda: _read(manifest))
    except StorageError as error:
        text = "the rows of the manifest can't be read"
        unreadable = make_finding("manifest_unreadable", text, table=_MANIFEST, examples=[reason(error)])
        records = [record for head in all_heads.values() for record in head.recent]
        return replace(_history([unreadable], len(records), all_heads.values(), records), is_known=False)
    findings = list(rows.findings)
    seen: set[str] = set()
    states = _States({head.base for head in all_heads.values() if head.base is not None})
    for head in heads:
        findings += _check_epochs(head, rows)
        findings += _check_chain(head, rows, seen, states)
        findings += _check_origin(head, rows, all_heads)
    broken = [f"{tag.name} ({tag.commit})" for tag in tags if tag.commit not in rows.commits]
    if broken:
        text = "tags name commits that have no record"
        findings.append(make_finding("tag_broken", text, table=_MANIFEST, count=len(broken), examples=broken))
    history = _history(findings, len(seen), all_heads.values(), rows.epochs.values())
    return replace(history, checksums=rows.checksums)


def _history(findings: Iterable[Finding], commits: int, heads: Iterable[Head], records: Iterable[Record]) -> History:
    heads = list(heads)
    incarnations = {head.incarnation for head in heads}
    live = {_line(pin) for head in heads for pin in head.pins.values() if pin is not None}
    missing: set[Pin] = set()
    for record in records:
        pins = (*record.delta.values(), *(record.snapshot or {}).values())
        kept = live if record.incarnation in incarnations else missing
        kept.update(_line(pin) for pin in pins if pin is not None)
    return History(tuple(findings), commits, frozenset(live | missing), frozenset(live))


def _line(pin: Pin) -> Pin:
    return Pin(pin.table, pin.incarnation, pin.fork, 0)


# ---- rows ------------------------------------------------------------------------------------------------------------


def _read(manifest: FrozenManifest) -> Rows:
    table = manifest.table().to_table(columns=["object_id", "kind", "body"])
    bodies: dict[str, str] = {}
    broken: list[str] = []
    doubled: list[str] = []
    records: list[Record] = [record for head in manifest.heads().values() for record in head.recent]
    schemas: set[str] = set()
    packed: list[Packed] = []
    for object_id, kind, body in zip(*(table.column(c).to_pylist() for c in table.column_names), strict=True):
        first = bodies.setdefault(object_id, body)
        if first is not body:
            if not _is_same_json(first, body):
                doubled.append(object_id)
            continue
        if kind == "schema":
            schemas.add(object_id.removeprefix("schema:"))
        elif kind == "commit":
            record = _record(object_id, body)
            if record is None:
                broken.append(object_id)
            else:
                records.append(record)
        elif kind == HEADS:
            try:
                load_entries(object_id, orjson.loads(body))
            except (HostileOrDamagedManifest, TypeError, ValueError):
                broken.append(object_id)
        elif kind == CHECKSUMS:
            try:
                packed.append(read_packed(orjson.loads(body)["h"]))
            except (KeyError, TypeError, ValueError):
                broken.append(object_id)
    findings = []
    if broken:
        text = "rows of the manifest can't be understood or carry another id than their content has"
        findings.append(make_finding("manifest_row_broken", text, table=_MANIFEST, count=len(broken), examples=broken))
    records, twice = _agreeing(records)
    if doubled or twice:
        names = list(dict.fromkeys((*doubled, *twice)))
        text = "objects of the manifest are there twice, with different contents"
        findings.append(make_finding("manifest_duplicate", text, table=_MANIFEST, count=len(names), examples=names))
    return Rows(
        commits={r.commit: r for r in records if r.commit is not None},
        epochs={(r.incarnation, r.epoch): r for r in records},
        schemas=frozenset(schemas),
        findings=tuple(findings),
        checksums=Checksums.of([*packed, *(record.checksums for record in records)]),
    )


def _is_same_json(first: str, second: str) -> bool:
    try:
        return bool(first == second or orjson.loads(first) == orjson.loads(second))
    except (TypeError, ValueError):
        return False  # at least one of them is no JSON


def _record(object_id: str, body: str) -> Record | None:
    try:
        record = Record.loads(body)
    except HostileOrDamagedManifest:
        return None
    return record if record.object_id == object_id else None


def _agreeing(records: list[Record]) -> tuple[list[Record], list[str]]:
    """Each record once, and the ids of those that differ between a head and a row, or between two heads."""
    kept: dict[str, Record] = {}
    epochs: dict[tuple[str, int], str] = {}
    wrong: list[str] = []
    for record in records:
        previous = kept.setdefault(record.object_id, record)
        first = epochs.setdefault((record.incarnation, record.epoch), record.object_id)
        if previous.to_json() != record.to_json() or first != record.object_id:
            wrong.append(record.object_id)
    return list(kept.values()), wrong


# ---- one branch ------------------------------------------------------------------------------------------------------


def _check_epochs(head: Head, rows: Rows) -> Iterator[Finding]:
    missing = [e for e in range(_first_epoch(head, rows), head.epoch + 1) if (head.incarnation, e) not in rows.epochs]
    if missing:
        text = f"decided operations of {head.branch} have no record"
        yield make_finding("record_missing", text, branch=head.branch, count=len(missing), examples=missing)
    listed = [record.epoch for record in head.recent if record.incarnation == head.incarnation]
    if listed != sorted(set(listed)) or (listed and listed[-1] != head.epoch):
        text = f"the head of {head.branch} is at epoch {head.epoch} and carries records of the epochs {listed[-3:]}"
        yield make_finding("head_mismatch", text, branch=head.branch)


def _first_epoch(head: Head, rows: Rows) -> int:
    """Epochs of an incarnation that began with a reset continue those of the one before."""
    if head.reset_to is None:
        return 1
    starts = (epoch for (inc, epoch), r in rows.epochs.items() if inc == head.incarnation and r.starts_incarnation)
    return min(starts, default=head.epoch)


class _States:
    """The pins at commits that branches were made from, where nothing was wrong up to there: a branch is checked from
    there on, and not from the first commit of the graph.
    """

    def __init__(self, commits: set[str]) -> None:
        self._commits = commits
        self._pins: dict[str, dict[str, Pin]] = {}

    def __contains__(self, commit: str) -> bool:
        return commit in self._pins

    def at(self, commit: str) -> dict[str, Pin]:
        return self._pins[commit]

    def add(self, commit: str | None, pins: Mapping[str, Pin]) -> None:
        if commit in self._commits and commit is not None:
            self._pins[commit] = dict(pins)


def _check_chain(head: Head, rows: Rows, seen: set[str], states: _States) -> Iterator[Finding]:
    chain: list[Record] = []
    commit: str | None = head.commit
    chain_commits: set[str] = set()
    while commit is not None and commit not in states:
        record = rows.commits.get(commit)
        if record is None or commit in chain_commits:
            why = "has no record" if record is None else "is its own ancestor"
            text = f"a commit that {head.branch} is made of {why}"
            yield make_finding("record_missing", text, branch=head.branch, examples=[commit])
            return
        chain_commits.add(commit)
        chain.append(record)
        commit = record.parent
    schemas = {head.schema, *(r.schema for r in chain if r.commit not in seen)}
    missing = sorted(schemas - rows.schemas)
    if missing:
        text = f"schemas that {head.branch} or its commits have are not in the manifest"
        yield make_finding("schema_missing", text, branch=head.branch, count=len(missing), examples=missing)
    seen |= chain_commits
    yield from _check_pins(head, chain[::-1], rows, states, start=commit)


def _check_pins(
    head: Head, chain: list[Record], rows: Rows, states: _States, *, start: str | None
) -> Iterator[Finding]:
    """Replay the records above `start`, oldest first: every full record and the head must match the sum."""
    pins: dict[str, Pin] = {} if start is None else states.at(start)
    # The base may lie below `start`: a branch that was made from this one has been checked before.
    below: dict[str, Pin] = states.at(head.base) if head.base is not None and head.base in states else {}
    is_right = True
    for record in chain:
        pins = apply_delta(pins, record.delta)
        if record.snapshot is not None:
            wrong = _different(pins, record.snapshot)
            # The first record of a migrated or new graph is full and has no delta of its own to add up.
            if wrong and record.parent is not None:
                is_right = False
                text = f"commits of {head.branch} note other versions than the commits below them add up to"
                yield make_finding("head_mismatch", text, branch=head.branch, count=len(wrong), examples=wrong)
            pins = dict(record.snapshot)
        if record.commit == head.base:
            below = pins
        if is_right:
            states.add(record.commit, pins)
    if head.base is not None and head.base not in rows.commits:
        return
    wrong = _different(pins, apply_delta(below, head.pins))
    if wrong:
        text = f"the head of {head.branch} pins other versions than its records add up to"
        yield make_finding("head_mismatch", text, branch=head.branch, count=len(wrong), examples=wrong)
    newest = rows.commits.get(head.commit)
    if newest is not None and newest.schema != head.schema:
        text = f"the head of {head.branch} names another schema than its newest commit"
        yield make_finding("head_mismatch", text, branch=head.branch, examples=[head.schema, newest.schema])


def _different(first: Mapping[str, Pin], second: Mapping[str, Pin]) -> list[str]:
    return [
        f"{table}: {_pin_text(first.get(table))}, not {_pin_text(second.get(table))}"
        for table in sorted({*first, *second})
        if first.get(table) != second.get(table)
    ]


def _pin_text(pin: Pin | None) -> str:
    return "none" if pin is None else f"{pin.path} version {pin.version}"


def _check_origin(head: Head, rows: Rows, heads: Mapping[str, Head]) -> Iterator[Finding]:
    if head.is_main:
        return
    if head.base is not None and head.base not in rows.commits:
        text = f"the commit that {head.branch} was made from has no record"
        yield make_finding("branch_broken", text, branch=head.branch, examples=[head.base])
    if head.made_from is not None:
        name, incarnation = head.made_from
        source = heads.get(name)
        if source is None or source.incarnation != incarnation:
            text = f"{head.branch} was made from {name}, which is not there any more"
            yield make_finding("branch_broken", text, branch=head.branch, examples=[f"{name} ({incarnation})"])
