"""What is looked at: one version of the manifest, the heads in it, and every table version that they rest on.

A line is one table version, whichever branches pin it: it is checked once, and told of the first of them. What a branch
was made from (its base) is a line too, as long as the branch lives, and so is what a tag names. Where the rows of the
manifest can't be read, and with them the schemas, the tables that a head pins are bare lines: their files can be
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
from omnigraph.maintenance.verify.findings import Finding, found
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
    """The authority at one version: whatever is asked of it is answered from that version, while others write on."""

    def table(self) -> LanceDataset:
        if self._table is None:
            self._table = self._open()
        return self._table


@dataclass(frozen=True)
class Line:
    """One published version of one table, and the first branch that has it.

    `is_base`: only as the base of a branch. `is_bare`: its type is not known, and stands here by its id alone.
    """

    pin: Pin
    type: EntityType
    branch: str
    is_base: bool = False
    is_bare: bool = False

    @property
    def at(self) -> str:
        """What is stored: the same for all branches that pin it."""
        return f"{self.pin.path}@{self.pin.version}"

    @cached_property
    def id(self) -> str:
        """What is stored, under the rules of one schema: branches may declare other rules over the same rows."""
        rules = hashlib.blake2b(orjson.dumps(_lone(self.type)), digest_size=6).hexdigest()
        return f"{self.at}#{rules}"


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
            kept.setdefault(line.at, line)
        return tuple(kept.values())

    def only(self, wanted: Callable[[Line], bool]) -> Scope:
        """The same without the lines that are not wanted."""
        images = tuple(
            replace(image, lines={t: line for t, line in image.lines.items() if wanted(line)}) for image in self.images
        )
        bases, bare = (tuple(filter(wanted, lines)) for lines in (self.bases, self.bare))
        return replace(self, images=images, bases=bases, bare=bare)


def ordered(heads: Mapping[str, Head]) -> list[Head]:
    """Main first, so that what branches share is told of main."""
    return sorted(heads.values(), key=lambda head: (not head.is_main, head.branch))


def scope_of(manifest: FrozenManifest, heads: Sequence[Head], tags: Iterable[Tag] = ()) -> Scope:
    """What the heads rest on, as far as it can be found out; what can't be is told by the check of the manifest."""
    images: list[Image] = []
    known: dict[str, Line] = {}
    bases: list[Line] = []
    bare: list[Line] = []
    findings: list[Finding] = []
    with suppress(CommitNotFound, NotAGraph, StorageError), reading("reading the states of branches"):
        manifest.preload(heads)  # what fails is told of each branch that it is in the way of
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
            findings.append(found("manifest_unreadable", text, branch=head.branch, examples=[reason(error)]))
            continue
        lines = {}
        for table, line in _lines(pins, schema, head.branch, is_base=False):
            lines[table] = known.setdefault(line.id, line)
        images.append(Image(head, schema, lines))
        bases += [line for _, line in _lines(below, schema, head.branch, is_base=True)]
    bases += _of_tags(manifest, tags)
    by_branch = {h.branch: h for h in heads}
    return Scope(manifest, by_branch, tuple(images), tuple(bases), tuple(bare), tuple(findings))


def _of_tags(manifest: FrozenManifest, tags: Iterable[Tag]) -> Iterator[Line]:
    """What tags name, told of the branch that the commit was made on, or of main if that is gone."""
    branches = manifest.heads().keys()
    for tag in tags:
        with suppress(CommitNotFound, NotAGraph, StorageError), reading(f"reading the state of the tag {tag.name}"):
            record = manifest.record(tag.commit)
            branch = record.branch if record.branch in branches else MAIN
            found = _lines(manifest.pins_at(tag.commit), manifest.schema(record.schema), branch, is_base=True)
            yield from (line for _, line in found)


def _nameless(pin: Pin) -> EntityType:
    """What can be said of a type whose schema is not known: whether it is nodes or edges, and its id."""
    if pin.root.startswith(f"{TABLE_FOLDERS['e']}/"):
        return EdgeType(name=pin.table, source="", target="", id=pin.table)
    return NodeType(name=pin.table, id=pin.table)


def _lines(pins: Mapping[str, Pin], schema: Schema, branch: str, *, is_base: bool) -> Iterator[tuple[str, Line]]:
    for table, pin in pins.items():
        t = schema.by_id.get(table)
        if t is not None:  # a base may hold tables that the branch has dropped since: nobody reads them by it
            yield table, Line(pin, t, branch, is_base)


# ---- in tasks --------------------------------------------------------------------------------------------------------


def place_json(location: Location) -> dict[str, Any]:
    return {"uri": location.uri, "local": location.is_local, "options": dict(location.options)}


def place_of(body: Mapping[str, Any]) -> Location:
    return Location(body["uri"], body["local"], body["options"])


def line_json(line: Line) -> dict[str, Any]:
    """A line as part of a task; its type travels as a schema of one type."""
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
