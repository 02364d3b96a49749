"""The check task: the rules that compare rows with other rows, for one bucket of digests.

    ids          an id twice; an id that the graph has (refused in `append`, matched in `merge`)
    endpoints    both nodes of every edge exist; no kept edge loses one
    unique       no unique tuple twice, in the input or against the graph's rows that stay
    cardinality  edges per source node

Equal texts have equal digests, so they are in the same bucket. A violation is eight words (`ViolationLog`); its message
is built later, and only if it is reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from omnigraph.language.schema.model import EdgeType, EntityType, NodeType
from omnigraph.pipeline.bulk.context import ROW_BITS, Context, context_of
from omnigraph.pipeline.bulk.degrees import check_degrees
from omnigraph.pipeline.bulk.input.read import unique_tuples
from omnigraph.pipeline.bulk.rejects.violation_codes import NONE, Kind, Phase, ViolationLog
from omnigraph.rules.buckets import repeats, without_node
from omnigraph.rules.cardinality import is_bounded
from omnigraph.tasks.digest_index import DROPPED, Index, RemovedRows
from omnigraph.tasks.exchange import Received, receive

ENDS = (("src", 0), ("dst", 1))


class Bucket:
    """The digests of one bucket, and the state of the rows that they belong to."""

    def __init__(self, task: Mapping[str, Any]) -> None:
        self.context: Context = context_of(task)
        staging = self.context.staging
        self.input_digests: Received = receive(staging, task["inputs"])
        self.graph_digests: Received = receive(staging, task["existing"])
        self.removed = RemovedRows(staging, task["gone"])
        self.overwritten = frozenset(task["overwritten"])
        self.own_ids = frozenset(task["own_ids"])
        self.blames = bool(task["blames"])
        self.violations = ViolationLog(self.context)
        self._matches: Mapping[str, list[str]] = task["matches"]
        self._replaced: dict[str, np.ndarray] = {}

    @property
    def types(self) -> list[EntityType]:
        return list(self.context.types.values())

    def rows(self, name: str, t: EntityType) -> np.ndarray:
        """Rows of the input that count, as (digest, digest, name)."""
        rows = self.input_digests.of(name, t.key, width=3)
        live = self.removed.live(t.key, rows[:, 2])
        return rows if live.all() else rows[live]

    def existing(self, name: str, t: EntityType) -> np.ndarray:
        return self.graph_digests.of(name, t.key, width=4)

    def replaced(self, t: EntityType) -> np.ndarray:
        """(row id, name) of the graph's rows that rows of the input replace, by row id."""
        replaced = self._replaced.get(t.key)
        if replaced is None:
            files = self._matches.get(t.key, [])
            parts = [self.context.staging.get_array(name, width=3) for name in files]
            matches = np.concatenate(parts) if parts else np.empty((0, 3), dtype=np.uint64)
            matches = matches[self.removed.live(t.key, matches[:, 0])]
            replaced = self._replaced[t.key] = matches[np.argsort(matches[:, 1])][:, [1, 0]]
        return replaced

    def kept(self, name: str, t: EntityType) -> np.ndarray:
        """Rows of the graph that this load leaves as they are, as (digest, digest, row id, address)."""
        if t.key in self.overwritten:
            return self.existing(name, t)[:0]
        rows = self.existing(name, t)
        replaced = self.replaced(t)[:, 0]
        if len(replaced) == 0 or len(rows) == 0:
            return rows
        positions = np.minimum(np.searchsorted(replaced, rows[:, 2]), len(replaced) - 1)
        kept: np.ndarray = rows[replaced[positions] != rows[:, 2]]
        return kept

    def final_nodes(self, n: NodeType) -> tuple[Index, Index]:
        """Ids that the graph will have: those of the input, and those that it has already."""
        # A dropped row is not counted here: the graph has it, or a later row replaces it, if that row counts.
        existing = self.existing("id", n)
        return Index(self.rows("id", n)), Index(existing[:0] if n.key in self.overwritten else existing)


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
            if is_bounded(e):
                check_degrees(bucket, e)
    return {**result, "told": bucket.violations.stage()}


# ---- ids -------------------------------------------------------------------------------------------------------------


def _check_ids(bucket: Bucket, t: EntityType, result: dict[str, Any]) -> None:
    rows = bucket.rows("id", t)
    if len(rows) == 0:
        return
    mode, names = bucket.context.mode, rows[:, 2]
    staging = bucket.context.staging
    if mode != "merge" or t.key_properties:
        repeated = repeats(rows)
        again = repeated.again
        bucket.violations.add(t, Phase.REPEATED, Kind.REPEATED, names[again], other=names[repeated.firsts[again]])
    else:
        lasts = len(rows) - 1 - Index(rows[::-1]).groups()[::-1]
        again = lasts != np.arange(len(rows))
        if again.any():
            dropped = np.column_stack([names[again], np.full(int(again.sum()), DROPPED, dtype=np.uint64)])
            result["dropped"][t.key] = [staging.put_array("dropped", dropped), len(dropped)]
    if mode == "overwrite":
        return
    rows = rows[~again]
    existing = bucket.existing("id", t)
    positions = Index(existing).find(rows)
    hit = positions >= 0
    if mode == "append":
        bucket.violations.add(t, Phase.EXISTS, Kind.EXISTS, rows[hit, 2])
    elif hit.any():
        matches = np.column_stack([rows[hit, 2], existing[positions[hit], 2], existing[positions[hit], 3]])
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
            input_ids, graph_ids = bucket.final_nodes(n)
            missing = without_node(rows, input_ids, graph_ids)
            if len(missing):
                _add_missing(bucket, e, n, missing, sub)


def _add_missing(bucket: Bucket, e: EdgeType, n: NodeType, rows: np.ndarray, sub: int) -> None:
    other = np.full(len(rows), NONE, dtype=np.uint64)
    extra = np.zeros(len(rows), dtype=np.uint64)
    if bucket.blames:
        blamed, kinds = _blamed(bucket, n)
        positions = Index(blamed).find(rows)
        hit = positions >= 0
        other[hit], extra[hit] = blamed[positions[hit], 2], kinds[positions[hit]]
    bucket.violations.add(e, Phase.ENDPOINTS, Kind.NO_NODE, rows[:, 2], sub=sub, other=other, extra=extra)


def _blamed(bucket: Bucket, n: NodeType) -> tuple[np.ndarray, np.ndarray]:
    """Refused nodes, the last phase first, and the kind of each: 1 a row, 2 a record that could not be read."""
    ids = bucket.input_digests.of("id", n.key, width=3)
    phases = bucket.removed.phases(n.key, ids[:, 2])
    refused = phases > DROPPED
    rows, phases = ids[refused], phases[refused]
    rows = rows[np.lexsort((rows[:, 2], phases))[::-1]]
    bad = bucket.input_digests.of("bad", n.key, width=3)
    bad = bad[np.argsort(bad[:, 2])[::-1]]
    kinds = np.concatenate([np.full(len(rows), 1), np.full(len(bad), 2)]).astype(np.uint64)
    return np.concatenate([rows, bad]), kinds


def _check_kept_edges(bucket: Bucket) -> None:
    """An overwrite of nodes may not remove a node that a kept edge refers to."""
    for n in bucket.context.schema.nodes:
        if n.key not in bucket.overwritten:
            continue
        existing = bucket.existing("id", n)
        if len(existing) == 0:
            continue
        removed = Index(existing[Index(bucket.rows("id", n)).find(existing) < 0])
        for e in bucket.context.schema.incident_edges(n.name):
            for column, sub in ENDS:
                if e.key in bucket.overwritten or (e.source if column == "src" else e.target) != n.name:
                    continue
                edges = bucket.existing(column, e)
                lost = edges[removed.find(edges) >= 0]
                nowhere = np.full(len(lost), NONE, dtype=np.uint64)
                bucket.violations.add(e, Phase.ENDPOINTS, Kind.NODE_REMOVED, nowhere, sub=sub, part=1, other=lost[:, 2])


# ---- unique ----------------------------------------------------------------------------------------------------------


def _check_unique(bucket: Bucket, t: EntityType, number: int) -> None:
    rows = bucket.rows(f"u{number}", t)
    if len(rows) == 0:
        return
    repeated = repeats(rows)
    firsts, again = repeated.firsts, repeated.again
    names = rows[:, 2]
    bucket.violations.add(t, Phase.UNIQUE, Kind.UNIQUE_INPUT, names[again], sub=number, other=names[firsts[again]])
    kept = bucket.kept(f"u{number}", t)
    distinct = rows[~again]
    positions = Index(kept).find(distinct)
    hit = positions >= 0
    bucket.violations.add(
        t, Phase.UNIQUE, Kind.UNIQUE_GRAPH, distinct[hit, 2], sub=number, part=1, other=kept[positions[hit], 2]
    )
