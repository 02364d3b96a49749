"""The stored form of packed heads, and their reader. `storage/manifest/packed_heads.py` packs them.

    config key `packed`      {"packs": [[<row id>, <entries>], …], "crc": …}, oldest pack first
    row of kind `heads`      {"heads": {<branch>: <head> | null, …}, "crc": …}; null: the branch was deleted
    value of `head:<branch>` {"deleted": <incarnation>, "crc": …} instead of a head: the branch was deleted

The newest pack that names a branch decides. A row never changes, so its entries are cached by its id.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from omnigraph.errors import HostileOrDamagedManifest
from omnigraph.language import identifiers as form
from omnigraph.storage.manifest.config import PACKED
from omnigraph.storage.manifest.records import MAIN, require_sum, with_sum
from omnigraph.storage.manifest.rows import HEADS, bodies_of, quote

if TYPE_CHECKING:
    from lance import LanceDataset

Body = Mapping[str, Any]
"""A head as a JSON object."""
Entries = Mapping[str, Body | None]
"""Heads of one pack by branch; None where the branch was deleted."""
_DELETED = '{"deleted":'


@dataclass(frozen=True)
class Pack:
    """A row of packed heads: its id, and how many entries it has."""

    row_id: str
    entries: int


def dump_packs(packs: Sequence[Pack]) -> str:
    return with_sum({"packs": [[pack.row_id, pack.entries] for pack in packs]})


def load_packs(text: str | None) -> tuple[Pack, ...]:
    """The packs that a version of the manifest refers to, oldest first."""
    if text is None:
        return ()
    with form.reading("the list of packed heads"):
        require_sum(text, is_optional=False)
        pairs = form.sequence(orjson.loads(text)["packs"])
        return tuple(Pack(form.token(row_id), form.count(entries)) for row_id, entries in pairs)


def pack_row(entries: Entries) -> tuple[Any, ...]:
    """A row of the manifest (`manifest_rows.manifest_rows`) that holds these entries."""
    body = {"heads": entries, "crc": zlib.crc32(orjson.dumps(entries))}
    return (f"{HEADS}:{secrets.token_hex(8)}", HEADS, None, None, None, body)


def load_entries(row_id: str, body: Mapping[str, Any]) -> Entries:
    """The entries of a row; HostileOrDamagedManifest if it is not one of packed heads."""
    with form.reading(f"packed heads of the row {row_id}"):
        entries = form.mapping(body["heads"])
        if zlib.crc32(orjson.dumps(entries)) != body["crc"]:
            raise form.Malformed("its checksum is not that of what it holds")
        for branch, head in entries.items():
            if form.branch(branch) == MAIN:
                raise form.Malformed("it holds the head of main, which is never packed")
            form.optional(form.mapping, head)
        return entries


def tombstone(incarnation: str) -> str:
    """The value of `head:<branch>` of a deleted branch."""
    return with_sum({"deleted": incarnation})


def is_tombstone(branch: str, value: str) -> bool:
    if not value.startswith(_DELETED):
        return False
    with form.reading(f"the tombstone of {form.shown(branch)}"):
        require_sum(value, is_optional=False)
        form.incarnation(orjson.loads(value)["deleted"])
    return True


class HeadPacks:
    """Reads packs of versions of one graph's manifest. Threads may share it."""

    def __init__(self) -> None:
        self._entries: dict[str, Entries] = {}
        self._merged: tuple[str, dict[str, Body]] | None = None

    def entries_of(self, table: LanceDataset, packs: Sequence[Pack]) -> list[Entries]:
        """The entries of each of these packs, which a version of the manifest refers to."""
        cached = self._entries
        missing = [pack.row_id for pack in packs if pack.row_id not in cached]
        if missing:
            ids = ", ".join(map(quote, missing))
            bodies = bodies_of(table, f"kind = '{HEADS}' AND object_id IN ({ids})")
            read = {row_id: load_entries(row_id, body) for row_id, body in bodies.items()}
            cached = self._entries = {**{p.row_id: cached[p.row_id] for p in packs if p.row_id in cached}, **read}
        lost = next((p.row_id for p in packs if p.row_id not in cached or len(cached[p.row_id]) != p.entries), None)
        if lost is not None:
            detail = f"the row {form.shown(lost)} is missing, or has another number of entries"
            raise HostileOrDamagedManifest(where="packed heads", detail=detail)
        return [cached[pack.row_id] for pack in packs]

    def merged(self, table: LanceDataset, config: Mapping[str, str]) -> dict[str, Body]:
        """All packed heads of one version by branch. Keys `head:` of its config hide them."""
        text = config.get(PACKED)
        if text is None:
            return {}
        cached = self._merged
        if cached is None or cached[0] != text:
            cached = self._merged = (text, live(merge(self.entries_of(table, load_packs(text)))))
        return cached[1]


def merge(packs: Sequence[Entries]) -> dict[str, Body | None]:
    """One pack of several, oldest first."""
    merged: dict[str, Body | None] = {}
    for entries in packs:
        merged.update(entries)
    return merged


def live(entries: Entries) -> dict[str, Body]:
    return {branch: body for branch, body in entries.items() if body is not None}
