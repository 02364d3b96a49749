"""The check task: everything that one bucket of digests shows about rows that must agree with others.

    ids          an id twice; an id that the graph has (refused in `append`, matched in `merge`)
    endpoints    both nodes of every edge are there; no kept edge loses one
    unique       no unique tuple twice, in the input or against the graph's rows that stay
    cardinality  edges per source node

Equal texts have equal digests and so meet in one bucket. A violation is eight words, see `Told`: what to say about it
is found out later, and only where somebody reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from omnigraph.language.schema.model import EdgeType, EntityType, NodeType
from omnigraph.pipeline.bulk.context import ROW_BITS, Context, context_of
from omnigraph.pipeline.bulk.degrees import check_degrees
from omnigraph.pipeline.bulk.read import unique_tuples
from omnigraph.pipeline.bulk.violation_codes import NONE, Kind, Phase, Told
from omnigraph.tasks.digest_index import DROPPED, Gone, Index
from omnigraph.tasks.exchange import Received, receive

ENDS = (("src", 0), ("dst", 1))


class Bucket:
    """The digests of one bucket, and what is known of the rows behind them."""

    def __init__(self, task: Mapping[str, Any]) -> None:
        self.context: Context = context_of(task)
        staging = self.context.staging
        self.given: Received = receive(staging, task["inputs"])
        self.held: Received = receive(staging, task["existing"])
        self.gone = Gone(staging, task["gone"])
        self.overwritten = frozenset(task["overwritten"])
        self.own_ids = frozenset(task["own_ids"])
        self.blames = bool(task["blames"])
        self.told = Told(self.context)
        self._matches: Mapping[str, list[str]] = task["matches"]
        self._replaced: dict[str, np.ndarray] = {}

    @property
    def types(self) -> list[EntityType]:
        return list(self.context.types.values())

    def rows(self, name: str, t: EntityType) -> np.ndarray:
        """Rows of the input that count, as (digest, digest, name)."""
        found = self.given.of(name, t.key, width=3)
        live = self.gone.live(t.key, found[:, 2])
        return found if live.all() else found[live]

    def existing(self, name: str, t: EntityType) -> np.ndarray:
        return self.held.of(name, t.key, width=4)

    def replaced(self, t: EntityType) -> np.ndarray:
        """(row id, name) of the graph's rows that rows of the input replace, by row id."""
        known = self._replaced.get(t.key)
        if known is None:
            files = self._matches.get(t.key, [])
            parts = [self.context.staging.get_array(name, width=3) for name in files]
            found = np.concatenate(parts) if parts else np.empty((0, 3), dtype=np.uint64)
            found = found[self.gone.live(t.key, found[:, 0])]
            known = self._replaced[t.key] = found[np.argsort(found[:, 1])][:, [1, 0]]
        return known

    def kept(self, name: str, t: EntityType) -> np.ndarray:
        """Rows of the graph that this load leaves as they are, as (digest, digest, row id, address)."""
        if t.key in self.overwritten:
            return self.existing(name, t)[:0]
        rows = self.existing(name, t)
        replaced = self.replaced(t)[:, 0]
        if len(replaced) == 0 or len(rows) == 0:
            return rows
        at = np.minimum(np.searchsorted(replaced, rows[:, 2]), len(replaced) - 1)
        found: np.ndarray = rows[replaced[at] != rows[:, 2]]
        return found

    def final_nodes(self, n: NodeType) -> tuple[Index, Index]:
        """Ids that the graph will have: those of the input, and those it has by now."""
        # A row that was dropped proves nothing: the graph has it, or a later row stands for it, if that one counts.
        held = self.existing("id", n)
        return Index(self.rows("id", n)), Index(held[:0] if n.key in self.overwritten else held)


def check_bucket(task: Mapping[str, Any]) -> dict[str, Any]:
    bucket = Bucket(task)
    asks = task["asks"]
    result: dict[str, Any] = {"dropped": {}, "matches": {}}
    if "ids" in asks:
        for t in bucket.types:
            if t.key in bucket.own_ids:
                _check_ids(bucket, t, result)
    if "endpoints" in asks:
        _check_endpoints(bucket)
        _check_kept_edges(bucket)
    if "unique" in asks:
        for t in bucket.types:
            for number, _ in unique_tuples(t):
                _check_unique(bucket, t, number)
    if "cardinality" in asks:
        for e in bucket.context.schema.edges:
            if e.card_min > 0 or e.card_max is not None:
                check_degrees(bucket, e)
    return {**result, "told": bucket.told.stage()}


# ---- ids -------------------------------------------------------------------------------------------------------------


def _check_ids(bucket: Bucket, t: EntityType, result: dict[str, Any]) -> None:
    rows = bucket.rows("id", t)
    if len(rows) == 0:
        return
    mode, names = bucket.context.mode, rows[:, 2]
    staging = bucket.context.staging
    if mode != "merge" or t.key_properties:
        firsts = Index(rows).groups()
        again = firsts != np.arange(len(rows))
        bucket.told.add(t, Phase.REPEATED, Kind.REPEATED, names[again], other=names[firsts[again]])
    else:
        lasts = len(rows) - 1 - Index(rows[::-1]).groups()[::-1]
        again = lasts != np.arange(len(rows))
        if again.any():
            dropped = np.column_stack([names[again], np.full(int(again.sum()), DROPPED, dtype=np.uint64)])
            result["dropped"][t.key] = [staging.put_array("dropped", dropped), len(dropped)]
    if mode == "overwrite":
        return
    rows = rows[~again]
    held = bucket.existing("id", t)
    at = Index(held).find(rows)
    hit = at >= 0
    if mode == "append":
        bucket.told.add(t, Phase.EXISTS, Kind.EXISTS, rows[hit, 2])
    elif hit.any():
        matches = np.column_stack([rows[hit, 2], held[at[hit], 2], held[at[hit], 3]])
        matches = matches[np.argsort(matches[:, 0])]
        pieces, counts = np.unique(matches[:, 0] >> np.uint64(ROW_BITS), return_counts=True)
        name = staging.put_array("matches", matches)
        result["matches"][t.key] = {"file": name, "pieces": pieces.tolist(), "counts": counts.tolist()}


# ---- endpoints -------------------------------------------------------------------------------------------------------


def _check_endpoints(bucket: Bucket) -> None:
    for e in bucket.context.schema.edges:
        for column, sub in ENDS:
            rows = bucket.rows(column, e)
            if len(rows) == 0:
                continue
            n = bucket.context.schema.node[e.source if column == "src" else e.target]
            given, held = bucket.final_nodes(n)
            missing = rows[given.find(rows) < 0]
            missing = missing[held.find(missing) < 0]
            if len(missing):
                _tell_missing(bucket, e, n, missing, sub)


def _tell_missing(bucket: Bucket, e: EdgeType, n: NodeType, rows: np.ndarray, sub: int) -> None:
    other = np.full(len(rows), NONE, dtype=np.uint64)
    extra = np.zeros(len(rows), dtype=np.uint64)
    if bucket.blames:
        blamed, kinds = _blamed(bucket, n)
        at = Index(blamed).find(rows)
        hit = at >= 0
        other[hit], extra[hit] = blamed[at[hit], 2], kinds[at[hit]]
    bucket.told.add(e, Phase.ENDPOINTS, Kind.NO_NODE, rows[:, 2], sub=sub, other=other, extra=extra)


def _blamed(bucket: Bucket, n: NodeType) -> tuple[np.ndarray, np.ndarray]:
    """Refused nodes, the last verdict first, and of what kind each is: 1 a row, 2 a record that could not be read."""
    given = bucket.given.of("id", n.key, width=3)
    phases = bucket.gone.phases(n.key, given[:, 2])
    refused = phases > DROPPED
    rows, phases = given[refused], phases[refused]
    rows = rows[np.lexsort((rows[:, 2], phases))[::-1]]
    bad = bucket.given.of("bad", n.key, width=3)
    bad = bad[np.argsort(bad[:, 2])[::-1]]
    kinds = np.concatenate([np.full(len(rows), 1), np.full(len(bad), 2)]).astype(np.uint64)
    return np.concatenate([rows, bad]), kinds


def _check_kept_edges(bucket: Bucket) -> None:
    """An overwrite of nodes may not take away what an edge that stays points to."""
    for n in bucket.context.schema.nodes:
        if n.key not in bucket.overwritten:
            continue
        held = bucket.existing("id", n)
        if len(held) == 0:
            continue
        removed = Index(held[Index(bucket.rows("id", n)).find(held) < 0])
        for e in bucket.context.schema.incident_edges(n.name):
            for column, sub in ENDS:
                if e.key in bucket.overwritten or (e.source if column == "src" else e.target) != n.name:
                    continue
                edges = bucket.existing(column, e)
                lost = edges[removed.find(edges) >= 0]
                nowhere = np.full(len(lost), NONE, dtype=np.uint64)
                bucket.told.add(e, Phase.ENDPOINTS, Kind.BEREFT, nowhere, sub=sub, part=1, other=lost[:, 2])


# ---- unique ----------------------------------------------------------------------------------------------------------


def _check_unique(bucket: Bucket, t: EntityType, number: int) -> None:
    rows = bucket.rows(f"u{number}", t)
    if len(rows) == 0:
        return
    firsts = Index(rows).groups()
    again = firsts != np.arange(len(rows))
    names = rows[:, 2]
    bucket.told.add(t, Phase.UNIQUE, Kind.UNIQUE_INPUT, names[again], sub=number, other=names[firsts[again]])
    held = bucket.kept(f"u{number}", t)
    alone = rows[~again]
    at = Index(held).find(alone)
    hit = at >= 0
    bucket.told.add(t, Phase.UNIQUE, Kind.UNIQUE_GRAPH, alone[hit, 2], sub=number, part=1, other=held[at[hit], 2])
