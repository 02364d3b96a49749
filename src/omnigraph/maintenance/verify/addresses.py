"""Row addresses: in a graph without stable row ids the entries of an index are row addresses, which change.

A compaction either rewrites the entries or records where rows went (Lance's fragment-reuse index). So an entry must
point into an existing fragment; or to a removed one whose rows were deleted, by the table's history; or to rows that
were moved, while the table has that record. An entry whose row is elsewhere without such a record is a row that queries
lose. If the history was collected, nothing is reported.

Entries are read of BTREEs, whose files hold them as plain columns; other kinds are checked by their answers.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from omnigraph.errors import VersionReclaimed
from omnigraph.index.reuse import HistoryBroken, Reuse, live_rows, reuse_between
from omnigraph.maintenance.verify.findings import Finding
from omnigraph.maintenance.verify.scope import Line, line_json, line_of, location_of
from omnigraph.maintenance.verify.tables import finding_json, line_finding, opened, tried
from omnigraph.storage.files.btree_file import btree_rows
from omnigraph.storage.lance.indices import FRAGMENT_REUSE, Segment, built_indices

_SHIFT, _OFFSET = np.uint64(32), np.uint64(0xFFFFFFFF)


def address_tasks(
    location_body: Mapping[str, Any], lines: Sequence[Line], facts: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """One task per BTREE of tables without stable row ids."""
    return [
        {"place": location_body, "line": line_json(line), "index": index["name"]}
        for line in lines
        if not facts.get(line.version_id, {}).get("stable", True)
        for index in facts[line.version_id]["indices"]
        if index["kind"] == "BTREE"
    ]


def check_addresses(task: Mapping[str, Any]) -> dict[str, Any]:
    location, line = location_of(task["place"]), line_of(task["line"])
    rows_done = 0

    def work() -> list[Finding]:
        nonlocal rows_done
        table = opened(location, line)
        index = next(i for i in built_indices(table) if i.name == task["index"])
        roots = _folders(line, table)
        lost: list[int] = []
        for segment in index.segments:
            check = _Check(table, segment)
            for entries in btree_rows(location, posixpath.join(roots[segment.uuid], "_indices", segment.uuid)):
                rows_done += len(entries)
                lost += check.lost(entries)
        return list(_lost_rows(line, task["index"], lost))

    def as_finding(why: str) -> Finding:
        return line_finding(
            "index_unreadable", line, f"the entries of the index {task['index']} can't be read", examples=[why]
        )

    findings = tried(location, work, as_finding)
    return {"findings": [finding_json(f) for f in findings], "rows_done": rows_done}


def _lost_rows(line: Line, name: str, lost: list[int]) -> Iterator[Finding]:
    if lost:
        examples = [f"fragment {address >> 32}, row {address & 0xFFFFFFFF}" for address in lost[:5]]
        text = f"the index {name} (BTREE) points to rows that have moved, and the table does not record where to"
        yield line_finding("dead_row_address", line, text, count=len(lost), examples=examples)


def _folders(line: Line, table: Any) -> dict[str, str]:
    """The folder, relative to the graph, below which each segment lies."""
    bases = {b.id: line.pin.root + b.path.rstrip("/").rpartition(line.pin.root)[2] for b in table.base_paths().values()}
    return {
        str(s.uuid): line.pin.path if s.base_id is None else bases[s.base_id]
        for described in table.describe_indices()
        for s in described.segments
    }


class _Check:
    """Entries of one segment against the fragments of the version that it belongs to."""

    def __init__(self, table: Any, segment: Segment) -> None:
        self._table = table
        self._segment = segment
        self._rows = {f.fragment_id: int(f.metadata.physical_rows) for f in table.get_fragments()}
        self._has_word = any(d.name == FRAGMENT_REUSE for d in table.describe_indices())
        self._reuse: Reuse | None = None

    def lost(self, entries: np.ndarray) -> list[int]:
        """Addresses of entries that do not lead to their rows."""
        fragments = entries >> _SHIFT
        is_live = np.isin(fragments, np.array(list(self._rows), dtype=np.uint64))
        sizes = {f: self._rows.get(f, 0) for f in np.unique(fragments).tolist()}
        limits = np.array([sizes[f] for f in fragments.tolist()], dtype=np.uint64)
        beyond = entries[is_live & ((entries & _OFFSET) >= limits)]
        away = entries[~is_live]
        return [*beyond.tolist(), *(self._moved(away) if len(away) and not self._has_word else [])]

    def _moved(self, away: np.ndarray) -> list[int]:
        if self._reuse is None:
            try:
                self._reuse = reuse_between(self._table, self._segment.version)
            except (VersionReclaimed, HistoryBroken):
                self._reuse = Reuse()  # translates nothing: an address of a removed fragment is then no row's
        now = self._reuse.translate(away)
        claimed = np.isin(now.addresses >> _SHIFT, np.array(sorted(self._segment.fragments), dtype=np.uint64))
        lives = now.alive & claimed
        lives[lives] = live_rows(self._table, now.addresses[lives])
        lost: list[int] = away[lives].tolist()
        return lost
