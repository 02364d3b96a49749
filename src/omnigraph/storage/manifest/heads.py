"""Branch heads, loose and packed, read from versions of the manifest.

A version never changes, so the values of a handle are cached until another handle is read. A value is parsed once
while it stays the same. Every value is validated when it is read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.errors import HostileOrDamagedManifest, NewerFormat, NotAGraph
from omnigraph.language import identifiers as form
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.config import HEAD
from omnigraph.storage.manifest.head_packs import Body, HeadPacks, is_tombstone
from omnigraph.storage.manifest.recent_records import RecentRecords
from omnigraph.storage.manifest.records import MAIN, Head
from omnigraph.storage.manifest.rows import FORMAT, FORMAT_KEY, FORMAT_MAX

if TYPE_CHECKING:
    from lance import LanceDataset


class Heads:
    """The heads of one graph. Threads may share it."""

    def __init__(self, location: Location, packs: HeadPacks | None = None) -> None:
        self._location = location
        self.packs = packs or HeadPacks()
        self._last_read: tuple[LanceDataset, int, dict[str, str]] | None = None
        self._parsed: dict[str, tuple[str | Body, Head]] = {}
        self._older: tuple[int, dict[str, Head]] | None = None
        self._loose: tuple[LanceDataset, dict[str, Head], frozenset[str], RecentRecords] | None = None
        self._all: tuple[LanceDataset, dict[str, Head]] | None = None

    def apart(self) -> Heads:
        """A reader for other versions: `last_read` of this one stays."""
        return Heads(self._location, self.packs)

    # ---- one version -------------------------------------------------------------------------------------------------

    def format_of(self, table: LanceDataset) -> int:
        return self._read_once(table)[0]

    def config_of(self, table: LanceDataset) -> dict[str, str]:
        return self._read_once(table)[1]

    @property
    def last_read(self) -> tuple[int, dict[str, str]] | None:
        """(format, config) of the version that was read last."""
        cached = self._last_read
        return None if cached is None else cached[1:]

    def _read_once(self, table: LanceDataset) -> tuple[int, dict[str, str]]:
        cached = self._last_read
        if cached is None or cached[0] is not table:
            cached = self._last_read = (table, self._read_format(table), dict(table.config()))
        return cached[1:]

    def _read_format(self, table: LanceDataset) -> int:
        stamp = (table.schema.metadata or {}).get(FORMAT_KEY.encode(), b"1")
        if not stamp.isdigit():
            raise NotAGraph(uri=self._location.uri, detail=f"its format is {stamp.decode(errors='replace')!r}.")
        return int(stamp)

    # ---- heads -------------------------------------------------------------------------------------------------------

    def loose_of(self, table: LanceDataset) -> tuple[dict[str, Head], frozenset[str]]:
        """The heads that are keys of the config, and the branches whose key says that they were deleted."""
        return self._loose_and_recent(table)[:2]

    def recent_of(self, table: LanceDataset) -> RecentRecords:
        """The records in loose heads; those of packed heads are rows."""
        return self._loose_and_recent(table)[2]

    def _loose_and_recent(self, table: LanceDataset) -> tuple[dict[str, Head], frozenset[str], RecentRecords]:
        cached = self._loose
        if cached is None or cached[0] is not table:
            loose, deleted = self._read_loose(table)
            cached = self._loose = (table, loose, deleted, RecentRecords(loose.values()))
        return cached[1:]

    def _read_loose(self, table: LanceDataset) -> tuple[dict[str, Head], frozenset[str]]:
        if self._is_older(table):
            return dict(self.older(table)), frozenset()
        values = {k.removeprefix(HEAD): v for k, v in sorted(self.config_of(table).items()) if k.startswith(HEAD)}
        deleted = frozenset(branch for branch, value in values.items() if is_tombstone(branch, value))
        loose = {branch: self._head(table, branch, value) for branch, value in values.items() if branch not in deleted}
        return loose, deleted

    def all_of(self, table: LanceDataset) -> dict[str, Head]:
        """The heads of all branches, by name."""
        cached = self._all
        if cached is None or cached[0] is not table:
            loose, deleted = self.loose_of(table)
            packed = self.packs.merged(table, self.config_of(table)).items()
            hidden = loose.keys() | deleted
            heads = {branch: self._head(table, branch, body) for branch, body in packed if branch not in hidden}
            cached = self._all = (table, dict(sorted({**heads, **loose}.items())))
        return cached[1]

    def names_of(self, table: LanceDataset) -> set[str]:
        """The names of all branches: much cheaper than their heads."""
        loose, deleted = self.loose_of(table)
        return (self.packs.merged(table, self.config_of(table)).keys() - deleted) | loose.keys()

    def find(self, table: LanceDataset, branch: str) -> Head | None:
        """The head of a branch; None if there is no such branch."""
        if self._is_older(table) and branch in self.older(table):
            return self.older(table)[branch]
        config = self.config_of(table)
        value: str | Body | None = config.get(HEAD + branch)
        if isinstance(value, str) and is_tombstone(branch, value):
            return None
        if value is None and branch != MAIN:
            value = self.packs.merged(table, config).get(branch)
        return None if value is None else self._head(table, branch, value)

    def meaning(self, table: LanceDataset, key: str) -> object:
        """The value of a config key for comparisons. For a head: (incarnation, epoch), loose or packed."""
        if not key.startswith(HEAD):
            return self.config_of(table).get(key)
        head = self.find(table, key.removeprefix(HEAD))
        return None if head is None else (head.incarnation, head.epoch)

    def note(self, value: str, head: Head) -> None:
        """Cache the parsed value of a head that was just published."""
        self._parsed[head.branch] = (value, head)

    def forget(self, branch: str) -> None:
        self._parsed.pop(branch, None)

    def _head(self, table: LanceDataset, branch: str, value: str | Body) -> Head:
        cached = self._parsed.get(branch)
        if cached is None or (cached[0] is not value and cached[0] != value):
            cached = self._parsed[branch] = (value, self._parse(table, branch, value))
        return replace(cached[1], version=table.version)

    def _parse(self, table: LanceDataset, branch: str, value: str | Body) -> Head:
        try:
            if isinstance(value, str):
                return Head.loads(branch, value, version=table.version)
            return Head.from_json(branch, value, version=table.version)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            generation = self.format_of(table)
            if generation > FORMAT_MAX:
                raise NewerFormat(found=generation, known=FORMAT_MAX) from error
            if isinstance(error, form.Malformed):
                where = f"the head of {form.shown(branch)}"
                raise HostileOrDamagedManifest(where=where, detail=str(error)) from error
            raise NotAGraph(uri=self._location.uri, detail=f"the head of {branch} can't be understood.") from error

    # ---- older generations -------------------------------------------------------------------------------------------

    def _is_older(self, table: LanceDataset) -> bool:
        """Whether the heads are rows. A graph of a newer format is read as long as its heads have the known form."""
        generation = self.format_of(table)
        if generation > FORMAT_MAX and HEAD + MAIN not in self.config_of(table):
            raise NewerFormat(found=generation, known=FORMAT_MAX)
        return generation < FORMAT

    def older(self, table: LanceDataset) -> dict[str, Head]:
        """The heads of a graph of an older generation, from its rows."""
        from omnigraph.legacy.heads import read_heads

        if self._older is None or self._older[0] != table.version:
            self._older = (table.version, read_heads(table))
        return self._older[1]
