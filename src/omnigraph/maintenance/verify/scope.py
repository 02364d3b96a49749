"""What is checked: one version of the manifest, the heads in it, and every table version that they pin.

A line is one table version, whichever branches pin it: it is checked once, and reported for the first of them. What a
branch was made from (its base) is a line too, as long as the branch exists, and so is what a tag names. If the rows of
the manifest can't be read, and with them the schemas, the tables that a head pins are bare lines: their files can be
checked, their columns can't.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import orjson

from omnigraph.errors import CommitNotFound, NotAGraph, StorageError
from omnigraph.language.schema.model import EdgeType, EntityType, NodeType, Schema
from omnigraph.language.schema.serial import schema_from_json, schema_to_json
from omnigraph.maintenance.verify.findings import Finding, make_finding
from omnigraph.maintenance.verify.reading import reading, reason
from omnigraph.storage.layout import TABLE_FOLDERS, Location
from omnigraph.storage.manifest.records import MAIN, Head, Pin
from omnigraph.storage.manifest.table import Manifest
from omnigraph.storage.manifest.tags import Tag

if TYPE_CHECKING:
    from lance import LanceDataset


Depth = Literal["none", "some", "all"]
"""How much of the data is read: with `quick`, by default, with `full`."""


class FrozenManifest(Manifest):
    """The manifest at one version: every read returns the state of that version, while others write."""

    def table(self) -> LanceDataset:
        if self._table is None:
            self._table = self._open()
        return self._table


@dataclass(frozen=True)
class Line:
    """One published version of one table, and the first branch that has it.

    `is_base`: only as the base of a branch. `is_bare`: its type is not known, only its id.
    """

    pin: Pin
    type: EntityType
    branch: str
    is_base: bool = False
    is_bare: bool = False

    @property
    def version_id(self) -> str:
        """Names the stored version: the same for all branches that pin it."""
        return f"{self.pin.path}@{self.pin.version}"

    @cached_property
    def id(self) -> str:
        """Names the stored version and the rules of one schema: branches may declare other rules over the same rows."""
        rules = hashlib.blake2b(orjson.dumps(_lone(self.type)), digest_size=6).hexdigest()
        return f"{self.version_id}#{rules}"


@dataclass(frozen=True)
class Image:
    """One branch: its schema and, by type id, the lines of its tables."""

    head: Head
    schema: Schema
    lines: Mapping[str, Line]


@dataclass(frozen=True)
class Scope:
    manifest: FrozenManifest
    heads: Mapping[str, Head]
    images: tuple[Image, ...]
    bases: tuple[Line, ...]
    bare: tuple[Line, ...] = ()
    findings: tuple[Finding, ...] = ()

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """Everything stored once: of heads, then of bases."""
        kept: dict[str, Line] = {}
        for line in (*(line for image in self.images for line in image.lines.values()), *self.bare, *self.bases):
            kept.setdefault(line.version_id, line)
        return tuple(kept.values())

    def only(self, is_chosen: Callable[[Line], bool]) -> Scope:
        """The same with only the chosen lines."""
        images = tuple(
            replace(image, lines={t: line for t, line in image.lines.items() if is_chosen(line)})
            for image in self.images
        )
        bases, bare = (tuple(filter(is_chosen, lines)) for lines in (self.bases, self.bare))
        return replace(self, images=images, bases=bases, bare=bare)


def ordered(heads: Mapping[str, Head]) -> list[Head]:
    """Main first, so that what branches share is reported for main."""
    return sorted(heads.values(), key=lambda head: (not head.is_main, head.branch))


def scope_of(manifest: FrozenManifest, heads: Sequence[Head], tags: Iterable[Tag] = ()) -> Scope:
    """What the heads pin, as far as it can be read; the check of the manifest reports the rest."""
    images: list[Image] = []
    lines_by_id: dict[str, Line] = {}
    bases: list[Line] = []
    bare: list[Line] = []
    findings: list[Finding] = []
    with suppress(CommitNotFound, NotAGraph, StorageError), reading("reading the states of branches"):
        manifest.preload(heads)  # a failure is reported for each branch that it affects
    for head in heads:
        try:
            with reading(f"reading the state of {head.branch}"):
                schema, pins = manifest.schema(head.schema), manifest.pins(head)
                below = {} if head.base is None else manifest.pins_at(head.base)
        except (CommitNotFound, NotAGraph):
            continue
        except StorageError as error:
            bare += [Line(p, _nameless(p), head.branch, is_bare=True) for p in head.pins.values() if p is not None]
            text = f"the schema or the tables of {head.branch} can't be read from the manifest"
            findings.append(make_finding("manifest_unreadable", text, branch=head.branch, examples=[reason(error)]))
            continue
        lines = {}
        for table, line in _lines(pins, schema, head.branch, is_base=False):
            lines[table] = lines_by_id.setdefault(line.id, line)
        images.append(Image(head, schema, lines))
        bases += [line for _, line in _lines(below, schema, head.branch, is_base=True)]
    bases += _of_tags(manifest, tags)
    by_branch = {h.branch: h for h in heads}
    return Scope(manifest, by_branch, tuple(images), tuple(bases), tuple(bare), tuple(findings))


def _of_tags(manifest: FrozenManifest, tags: Iterable[Tag]) -> Iterator[Line]:
    """What tags name, reported for the branch of the commit, or for main if that does not exist."""
    branches = manifest.heads().keys()
    for tag in tags:
        with suppress(CommitNotFound, NotAGraph, StorageError), reading(f"reading the state of the tag {tag.name}"):
            record = manifest.record(tag.commit)
            branch = record.branch if record.branch in branches else MAIN
            lines = _lines(manifest.pins_at(tag.commit), manifest.schema(record.schema), branch, is_base=True)
            yield from (line for _, line in lines)


def _nameless(pin: Pin) -> EntityType:
    """A type without its schema: whether it is nodes or edges, and its id."""
    if pin.root.startswith(f"{TABLE_FOLDERS['e']}/"):
        return EdgeType(name=pin.table, source="", target="", id=pin.table)
    return NodeType(name=pin.table, id=pin.table)


def _lines(pins: Mapping[str, Pin], schema: Schema, branch: str, *, is_base: bool) -> Iterator[tuple[str, Line]]:
    for table, pin in pins.items():
        t = schema.by_id.get(table)
        if t is not None:  # a base may have tables that the branch has dropped since: they are not read through it
            yield table, Line(pin, t, branch, is_base)


# ---- in tasks --------------------------------------------------------------------------------------------------------


def location_json(location: Location) -> dict[str, Any]:
    return {"uri": location.uri, "local": location.is_local, "options": dict(location.options)}


def location_of(body: Mapping[str, Any]) -> Location:
    return Location(body["uri"], body["local"], body["options"])


def line_json(line: Line) -> dict[str, Any]:
    """A line as part of a task; its type is sent as a schema of one type."""
    return {
        "pin": [line.pin.table, line.pin.to_json()],
        "type": None if line.is_bare else _lone(line.type),
        "branch": line.branch,
        "is_base": line.is_base,
        "is_bare": line.is_bare,
    }


def _lone(t: EntityType) -> dict[str, Any]:
    return schema_to_json(Schema(edges=(t,)) if isinstance(t, EdgeType) else Schema(nodes=(t,)))


def line_of(body: Mapping[str, Any]) -> Line:
    pin = Pin.from_json(*body["pin"])
    t = _nameless(pin) if body["is_bare"] else next(schema_from_json(body["type"]).types())
    return Line(pin, t, body["branch"], body["is_base"], body["is_bare"])
