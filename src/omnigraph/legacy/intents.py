"""Recovery of the intents of generations 1 and 2: unfinished operations of old programs, decided by the migration.

    __recovery/<ulid>.json    {format, operation, kind, branch, actor, started_at_us,
                               tables: [{table, path, fork, base, target}, …]}

An intent was written before the first effect and deleted after publication: each table goes from version `base` to
`target` of its version line (`fork`, or the table itself). Intents are recovered in the order of their names, on heads
that are not published yet, so that each one sees the decisions before it:

* published      every pin is already at its target; only the deletion was missed. A note, no commit
* rolled forward otherwise, if every other pin is at its base and its target exists: the targets become the pins. The
                 commit keeps the intent's kind and actor
* rolled back    otherwise, and always for a change of the schema, which was published last: pins stay. On tables that
                 main writes in place, a stamped Restore covers the versions above the pin and makes Lance refuse late
                 commits; its version becomes the pin. Forks need none: a migrated branch never writes to an old fork.
                 A commit by the recovery actor
* discarded      the branch was deleted. A note on main

A version that no intent explains stays: uncovered drift, which only `repair` may change. A crash leaves the intents
and perhaps Restores whose epoch counts as decided; a second recovery decides the same, because a stamped version never
counts as an effect of an old program.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from omnigraph.commit import effects as commit_effects
from omnigraph.commit.advisory_lock import AdvisoryLock
from omnigraph.commit.operation import View
from omnigraph.commit.phases import Observer
from omnigraph.commit.plan import PlannedTable
from omnigraph.commit.stamp import Stamp
from omnigraph.errors import BadRecoveryRecord, StorageError, UncoveredDrift
from omnigraph.language import identifiers as form
from omnigraph.legacy.heads import pin_of
from omnigraph.storage.files import truncated_versions
from omnigraph.storage.lance import lance_api
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.layout import RECOVERY
from omnigraph.storage.manifest.records import MAIN, RECOVERY_ACTOR, Head, Pin, Record, apply_delta
from omnigraph.storage.manifest.table import Manifest
from omnigraph.storage.objects.control_objects import ControlObjects
from omnigraph.storage.ulids import new_ulid

LAST_FORMAT = 2
"""The newest generation that wrote intents."""
SCHEMA_KIND = "schema_apply"
_NAME = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}\.json")
_HALF_WRITTEN = re.compile(rf"{_NAME.pattern}#\d+")
"""A temporary file that a crash inside the store's own write leaves on a local disk: not an intent."""
Outcome = Literal["published", "rolled_forward", "rolled_back", "discarded"]


@dataclass(frozen=True)
class Target:
    """One table of an intent. `pin` has the version that the operation was to reach."""

    pin: Pin
    base: int


@dataclass(frozen=True)
class Intent:
    name: str
    kind: str
    branch: str
    actor: str | None
    tables: tuple[Target, ...]

    @property
    def operation(self) -> str:
        return self.name.removesuffix(".json")


def read_intents(objects: ControlObjects) -> list[Intent]:
    """Every pending intent, by name. Raises BadRecoveryRecord for an object that can't be parsed, and leaves it."""
    intents = []
    for name in _loose(objects):
        body = None if _HALF_WRITTEN.fullmatch(name) else objects.read(name)
        if body is not None:
            intents.append(_parse(name, body))
    return intents


def delete_recovered(objects: ControlObjects, names: Iterable[str] | None = None) -> None:
    """Delete intents that a migration recovered, in a graph whose format has none. Other objects stay."""
    for name in _loose(objects) if names is None else names:
        with suppress(
            BadRecoveryRecord, StorageError
        ):  # not an intent, or the store failed: the next sweep tries again
            if not _HALF_WRITTEN.fullmatch(name):
                _parse(name, objects.read(name) or {})
            objects.delete([name])


def _loose(objects: ControlObjects) -> list[str]:
    return sorted(e.path for e in objects.entries() if "/" not in e.path)


def _parse(name: str, body: Mapping[str, Any]) -> Intent:
    path = f"{RECOVERY}/{name}"
    if not _NAME.fullmatch(name):
        raise BadRecoveryRecord(path=path, detail="this graph's format keeps only <ulid>.json there.")
    if not body:
        raise BadRecoveryRecord(path=path, detail="it is not a JSON object.")
    if isinstance(body.get("format"), int) and body["format"] > LAST_FORMAT:
        raise BadRecoveryRecord(path=path, detail=f"it has format {body['format']}.")
    try:
        targets = tuple(Target(pin_of(t, version=int(t["target"])), int(t["base"])) for t in body["tables"])
        actor = form.optional(form.text, body.get("actor"))
        intent = Intent(name, form.token(body["kind"]), form.branch(body["branch"]), actor, targets)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadRecoveryRecord(path=path, detail=f"a field is missing or wrong ({error}).") from error
    if not targets or not all(0 <= t.base < t.pin.version for t in targets):
        raise BadRecoveryRecord(path=path, detail="its tables have no versions to go to.")
    return intent


def recover_intents(
    manifest: Manifest, heads: Mapping[str, Head], intents: Iterable[Intent], *, observe: Observer
) -> dict[str, Head]:
    """The heads after the recovery of every intent. Publishes nothing; after EffectMissed, try again."""
    recovered = dict(heads)
    intents = list(intents)
    covered: dict[str, int] = {}
    for target in (t for intent in intents for t in intent.tables):
        covered[target.pin.path] = max(target.pin.version, covered.get(target.pin.path, 0))
    fenced: set[str] = set()
    for intent in intents:
        observe("recover")
        branch = intent.branch if intent.branch in recovered else MAIN
        recovery = _IntentRecovery(manifest, recovered[branch], intent, covered, fenced, observe)
        recovered[branch] = recovery.run(decided_epoch=heads[branch].epoch)
    return recovered


class _IntentRecovery:
    """The recovery of one intent on one branch. `covered` is the highest version per version line that intents explain,
    `fenced` are the version lines that were restored.
    """

    def __init__(
        self,
        manifest: Manifest,
        head: Head,
        intent: Intent,
        covered: Mapping[str, int],
        fenced: set[str],
        observe: Observer,
    ) -> None:
        self.head = head
        self.intent = intent
        self.covered = covered
        self.fenced = fenced
        self.observe = observe
        tables = Tables(manifest.location)
        self.view = View(head=head, pins=manifest.pins(head), manifest=manifest, tables=tables)

    def run(self, *, decided_epoch: int) -> Head:
        if self.intent.branch != self.head.branch:
            return self._decided("discarded", {})
        missing = [t for t in self.intent.tables if not self._is_published(t)]
        if not missing:
            return self._decided("published", {})
        if self.intent.kind != SCHEMA_KIND and all(self._has_landed(t) for t in missing):
            self._sync(missing)
            return self._decided("rolled_forward", {t.pin.table: t.pin for t in missing})
        return self._decided("rolled_back", self._restored(decided_epoch))

    def _is_published(self, target: Target) -> bool:
        pin = self.view.pins.get(target.pin.table)
        if pin is None or pin.path != target.pin.path or pin.path in self.fenced:
            return False
        return pin.version >= target.pin.version

    def _has_landed(self, target: Target) -> bool:
        """Whether the versions from the pin to the target exist and none of them carries a stamp."""
        pin = self.view.pins.get(target.pin.table)
        if pin is None or pin.root != target.pin.root or pin.version != target.base or pin.path in self.fenced:
            return False
        location, uri = self.view.tables.location, self.view.tables.location.join(target.pin.path)
        truncated_versions.move_aside(location, uri, above=target.base)
        try:
            table = lance_api.open_table(location, uri, version=target.pin.version)
        except lance_api.TableMissing:
            return False
        steps = range(target.base + 1, target.pin.version + 1)
        return all(Stamp.parse(lance_api.stamp_of(table, v)) is None for v in steps)

    def _sync(self, targets: Iterable[Target]) -> None:
        planned = [PlannedTable(t.pin.at(t.base), t.pin.version - t.base) for t in targets]
        commit_effects.sync_effects(self.view.tables, planned, "")

    def _restored(self, decided_epoch: int) -> dict[str, Pin]:
        # The old head's epoch is decided in every outcome of the migration, so versions stamped with it are leftovers.
        names = tuple(t.pin.table for t in self.intent.tables)
        lock = AdvisoryLock(self.head.incarnation, decided_epoch, 0, self.intent.operation, names, self.intent.kind)
        restored: dict[str, Pin] = {}
        for name in names:
            pin = self.view.pins.get(name)
            if pin is None or not self.view.owns(pin) or pin.path not in self.covered or pin.path in self.fenced:
                continue
            with suppress(UncoveredDrift):
                restored[name] = self._fence(pin, lock)
                self.fenced.add(pin.path)
        return restored

    def _fence(self, pin: Pin, lock: AdvisoryLock) -> Pin:
        tables = self.view.tables
        truncated_versions.move_aside(tables.location, tables.location.join(pin.path), above=pin.version)
        newest = tables.newest(pin)
        for version, text in lance_api.stamps_above(newest, pin.version):
            if version > self.covered[pin.path] and Stamp.parse(text) is None:
                raise UncoveredDrift(
                    table_key=pin.table,
                    branch=self.head.branch,
                    manifest_version=pin.version,
                    lance_head_version=version,
                )
        return commit_effects.restore(
            self.view, pin, lock, attempt=0, newest_version=newest.version, observe=self.observe
        )

    def _decided(self, outcome: Outcome, delta: Mapping[str, Pin]) -> Head:
        """The head after the record of this decision."""
        head, intent = self.head, self.intent
        has_commit = outcome in ("rolled_forward", "rolled_back")
        forward = outcome == "rolled_forward"
        note = {"outcome": outcome, "kind": intent.kind, "operation": intent.operation, "branch": intent.branch}
        record = Record(
            branch=head.branch,
            incarnation=head.incarnation,
            epoch=head.epoch + 1,
            commit=new_ulid() if has_commit else None,
            parent=head.commit,
            kind=intent.kind if forward else "recovery",
            actor=intent.actor if forward else RECOVERY_ACTOR,
            created_at_us=time.time_ns() // 1000,
            schema=head.schema,
            delta=dict(delta),
            depth=head.depth + has_commit,
            nonce=intent.operation,
            recovery={**note, "by": RECOVERY_ACTOR, "actor": intent.actor},
            based_on=head.version,
        )
        pins: dict[str, Pin | None] = {**head.pins, **delta}
        return replace(
            head,
            commit=record.commit or head.commit,
            parent=head.commit if has_commit else head.parent,
            epoch=record.epoch,
            pins=pins if head.base is not None else dict(apply_delta({}, pins)),
            recent=(*head.recent, record),
            depth=record.depth,
        )
