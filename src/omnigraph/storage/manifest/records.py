"""The values in the manifest: pins, commit records, branch heads. They are frozen, and compact in JSON.

A head is a value in the manifest's config and is rewritten by every commit of its branch, so its JSON uses one- or
two-letter keys for repeated fields. The `pins` of a head are the difference to the snapshot of the commit `base`; the
head of main has no base and holds all pins.

`from_json` and `loads` validate every value (`language/identifiers.py`), because pins become paths and ids become parts
of filters. They raise Malformed, a ValueError, for an invalid value.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import orjson

from omnigraph.language import identifiers as form
from omnigraph.storage.files.checksums import read_packed
from omnigraph.storage.layout import table_folder

RECOVERY_ACTOR = "omnigraph:recovery"
MAIN = "main"
RESET = "reset"
"""The kind of the record that starts an incarnation at an earlier commit (`branch/reset.py`)."""


@dataclass(frozen=True)
class Pin:
    """The published version of one table: table, incarnation, fork, version."""

    table: str
    incarnation: str
    fork: str | None
    version: int
    rows: int | None = field(default=None, compare=False)
    fragments: int | None = field(default=None, compare=False)
    """The counts of that version, recorded at publication, so that a listing does not open every table."""

    @property
    def path(self) -> str:
        """The folder of the table or fork, relative to the graph."""
        root = self.root
        return root if self.fork is None else f"{root}/tree/{self.fork}"

    @property
    def root(self) -> str:
        return table_folder(self.table, self.incarnation)

    def at(self, version: int) -> Pin:
        return Pin(self.table, self.incarnation, self.fork, version)

    def owned_by(self, incarnation: str, *, is_main: bool) -> bool:
        """Whether a writer of this branch may write the table in place; otherwise it forks the table first."""
        return is_main if self.fork is None else self.fork.startswith(f"{incarnation}-")

    def to_json(self) -> list[Any]:
        return [self.incarnation, self.fork, self.version, self.rows, self.fragments]

    @staticmethod
    def from_json(table: str, body: list[Any]) -> Pin:
        incarnation, fork, version, *measured = form.sequence(body)
        rows, fragments = measured or (None, None)
        return Pin(
            form.type_id(table),
            form.incarnation(incarnation),
            None if fork is None else form.fork(fork),
            form.version(version),
            None if rows is None else form.count(rows),
            None if fragments is None else form.count(fragments),
        )


Delta = Mapping[str, Pin | None]
"""The changes of a commit: a new pin per table, or None for a dropped table (a tombstone)."""


def delta_to_json(delta: Delta) -> dict[str, Any]:
    return {t: None if p is None else p.to_json() for t, p in delta.items()}


def delta_from_json(body: Mapping[str, Any]) -> dict[str, Pin | None]:
    pairs = form.mapping(body).items()
    return {form.type_id(t): None if p is None else Pin.from_json(t, p) for t, p in pairs}


def apply_delta(pins: Mapping[str, Pin], delta: Delta) -> dict[str, Pin]:
    merged: dict[str, Pin | None] = {**pins, **delta}
    return {t: p for t, p in merged.items() if p is not None}


@dataclass(frozen=True)
class Record:
    """The record of one decided epoch of one branch incarnation: a graph commit, or an abort without changes.

    `commit` is None for an abort without effects. `delta` has the changes. `snapshot`, on some records, has every pin,
    so that a read of an older state goes back no further than here; `depth` counts the commits since the last such
    record.
    """

    branch: str
    incarnation: str
    epoch: int
    commit: str | None
    parent: str | None
    kind: str
    actor: str | None
    created_at_us: int
    schema: str
    delta: Delta
    snapshot: Mapping[str, Pin] | None = None
    depth: int = 0
    merged_parent: str | None = None
    operation_id: str | None = None
    nonce: str = ""
    recovery: Mapping[str, Any] | None = None
    summary: Mapping[str, Any] | None = None
    based_on: int = 0
    checksums: str = ""
    """The checksums of its new files (`storage/files/checksums.py`)."""
    checksum_row: str | None = None
    """The row of the manifest with the checksums of many files."""

    @property
    def is_rolled_forward(self) -> bool:
        """Whether another process published it for its writer; that process synced the files."""
        return (self.recovery or {}).get("outcome") == "rolled_forward"

    @property
    def starts_incarnation(self) -> bool:
        """Whether this is the first record of its incarnation: its parent, if any, belongs to another incarnation,
        except for the second record of main. Epochs of a new branch begin with 1; after a reset, epochs continue those
        of the replaced incarnation.
        """
        return self.epoch <= 1 or self.kind == RESET

    @property
    def object_id(self) -> str:
        return f"commit:{self.commit}" if self.commit else f"epoch:{self.incarnation}:{self.epoch}"

    @property
    def created_at(self) -> datetime:
        return datetime.fromtimestamp(self.created_at_us / 1e6, UTC)

    def to_json(self) -> dict[str, Any]:
        return self._json

    @cached_property
    def _json(self) -> dict[str, Any]:
        # Cached: a head is written with every commit of its branch, and its records do not change.
        body: dict[str, Any] = {
            "b": self.branch,
            "i": self.incarnation,
            "e": self.epoch,
            "c": self.commit,
            "p": self.parent,
            "k": self.kind,
            "a": self.actor,
            "t": self.created_at_us,
            "s": self.schema,
            "d": delta_to_json(self.delta),
            "f": None if self.snapshot is None else delta_to_json(self.snapshot),
            "n": self.depth,
            "m": self.merged_parent,
            "o": self.operation_id,
            "x": self.nonce,
            "r": None if self.recovery is None else dict(self.recovery),
            "w": None if self.summary is None else dict(self.summary),
            "v": self.based_on,
            "h": self.checksums,
            "g": self.checksum_row,
        }
        return {k: v for k, v in body.items() if v is not None and v != ""}

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Record:
        optional = form.optional
        return Record(
            branch=form.branch(body["b"]),
            incarnation=form.incarnation(body["i"]),
            epoch=form.count(body["e"]),
            commit=optional(form.token, body.get("c")),
            parent=optional(form.token, body.get("p")),
            kind=form.token(body["k"]),
            actor=optional(form.text, body.get("a")),
            created_at_us=form.time_us(body["t"]),
            schema=form.token(body["s"]),
            delta=delta_from_json(body.get("d") or {}),
            snapshot=None if body.get("f") is None else apply_delta({}, delta_from_json(body["f"])),
            depth=form.count(body.get("n", 0)),
            merged_parent=optional(form.token, body.get("m")),
            operation_id=optional(form.text, body.get("o")),
            nonce=form.token(body["x"]) if "x" in body else "",
            recovery=optional(form.mapping, body.get("r")),
            summary=optional(form.mapping, body.get("w")),
            based_on=form.count(body.get("v", 0)),
            checksums=read_packed(body.get("h", "")),
            checksum_row=optional(form.token, body.get("g")),
        )

    @staticmethod
    def loads(text: str | None) -> Record:
        """The record in a row of the manifest. Raises HostileOrDamagedManifest if it is not one."""
        with form.reading("a commit record"):
            return Record.from_json(orjson.loads(form.text(text)))


@dataclass(frozen=True)
class Head:
    """The state of one branch: the value of the config key `head:<branch>`."""

    branch: str
    commit: str
    epoch: int
    incarnation: str
    schema: str
    pins: Delta
    recent: tuple[Record, ...] = ()
    base: str | None = None
    depth: int = 0
    made_from: tuple[str, str] | None = None
    parent: str | None = None
    reset_to: str | None = None
    """The commit that this incarnation was reset to when it began; None if it did not begin with a reset."""
    version: int = field(default=0, compare=False)
    """The manifest version that this head was read from; not part of the stored value."""

    @property
    def is_main(self) -> bool:
        return self.branch == MAIN

    def to_json(self) -> dict[str, Any]:
        return {
            "commit": self.commit,
            "parent": self.parent,
            "epoch": self.epoch,
            "inc": self.incarnation,
            "schema": self.schema,
            "pins": delta_to_json(self.pins),
            "base": self.base,
            "depth": self.depth,
            "from": self.made_from,
            **({} if self.reset_to is None else {"reset": self.reset_to}),
            "recent": [r.to_json() for r in self.recent],
        }

    @staticmethod
    def from_json(branch: str, body: Mapping[str, Any], *, version: int) -> Head:
        """Parse a head. Raises Malformed, or another ValueError, KeyError or TypeError, for an invalid value."""
        made_from = body.get("from")
        return Head(
            branch=form.branch(branch),
            commit=form.token(body["commit"]),
            parent=form.optional(form.token, body.get("parent")),
            epoch=form.count(body["epoch"]),
            incarnation=form.incarnation(body["inc"]),
            schema=form.token(body["schema"]),
            pins=delta_from_json(body["pins"]),
            base=form.optional(form.token, body.get("base")),
            depth=form.count(body.get("depth", 0)),
            made_from=None if made_from is None else (form.branch(made_from[0]), form.incarnation(made_from[1])),
            reset_to=form.optional(form.token, body.get("reset")),
            recent=tuple(Record.from_json(r) for r in form.sequence(body["recent"])),
            version=version,
        )

    def dumps(self) -> str:
        return with_sum(self.to_json())

    @staticmethod
    def loads(branch: str, text: str, *, version: int) -> Head:
        """Like `from_json`. Heads that an older program wrote have no checksum."""
        require_sum(text)
        return Head.from_json(branch, orjson.loads(text), version=version)


_SUM = ',"crc":'


def with_sum(body: Mapping[str, Any]) -> str:
    """A value of the manifest's config: JSON that ends in the CRC-32 of the text before it. Otherwise a flipped bit on
    a disk would publish another state.
    """
    text = orjson.dumps(body)
    return f"{text[:-1].decode()}{_SUM}{zlib.crc32(text)}}}"


def require_sum(text: str, *, is_optional: bool = True) -> None:
    """Raise Malformed if the value does not end in its checksum. `is_optional`: accept a value without one."""
    before, separator, crc = text.rpartition(_SUM)
    if not (separator and crc.rstrip("}").isdigit()):
        if not is_optional:
            raise form.Malformed("it has no checksum")
    elif zlib.crc32(f"{before}}}".encode()) != int(crc.rstrip("}")):
        raise form.Malformed("its checksum is not that of what it holds")
