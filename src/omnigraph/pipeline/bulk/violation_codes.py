"""Violations as they leave a check: eight words each, sorted as people read them.

    phase  type  sub  part  row  kind  other  extra

`row` names the row of the input that the violation is told of, NONE where it is told of none. `other` is another row of
the input or the row id of a row of the graph, as `kind` says. `sub` is the end of an edge, the number of a constraint,
or the number of an edge type.
"""

from __future__ import annotations

from collections import Counter
from enum import IntEnum
from typing import Any

import numpy as np

from omnigraph.language.schema.model import EntityType
from omnigraph.pipeline.bulk.context import Context

NONE = np.uint64(2**64 - 1)
WIDTH = 8
FIRST_MAX = 20


class Phase(IntEnum):
    """The order in which rules are asked. FIELDS are found while reading."""

    REPEATED = 1
    EXISTS = 2
    FIELDS = 3
    ENDPOINTS = 4
    UNIQUE = 5
    CARDINALITY = 6


class Kind(IntEnum):
    REPEATED = 1
    EXISTS = 2
    NO_NODE = 3
    UNIQUE_INPUT = 4
    UNIQUE_GRAPH = 5
    TOO_MANY = 6
    TOO_FEW_NODE = 7
    TOO_FEW_EDGE = 8
    TOO_FEW = 9
    BEREFT = 10


def rule_of(phase: int, t: EntityType) -> str:
    """The rule that a violation of a phase is counted under; what FIELDS break stands with each."""
    if phase in (Phase.REPEATED, Phase.EXISTS):
        return "key" if t.key_properties else "id"
    return {Phase.ENDPOINTS: "endpoint", Phase.UNIQUE: "unique", Phase.CARDINALITY: "cardinality"}[Phase(phase)]


class Told:
    """The violations of one bucket."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._rows: list[np.ndarray] = []

    def add(
        self,
        t: EntityType,
        phase: Phase,
        kind: Kind,
        rows: np.ndarray,
        *,
        sub: int = 0,
        part: int = 0,
        other: np.ndarray | None = None,
        extra: np.ndarray | None = None,
    ) -> None:
        if len(rows) == 0:
            return
        whole = np.zeros((len(rows), WIDTH), dtype=np.uint64)
        whole[:, 0], whole[:, 1], whole[:, 2], whole[:, 3] = phase, self._context.type_index(t.key), sub, part
        whole[:, 4], whole[:, 5] = rows, kind
        whole[:, 6] = NONE if other is None else other
        whole[:, 7] = 0 if extra is None else extra
        self._rows.append(whole)

    def stage(self) -> dict[str, Any] | None:
        """The staged violations, how many there are per phase and type, and the first of each phase; None if none."""
        if not self._rows:
            return None
        whole = in_order(np.concatenate(self._rows))
        counts = Counter(zip(whole[:, 0].tolist(), whole[:, 1].tolist(), strict=True))
        first = [row for phase in np.unique(whole[:, 0]) for row in whole[whole[:, 0] == phase][:FIRST_MAX].tolist()]
        nowhere = Counter(whole[whole[:, 4] == NONE][:, 0].tolist())
        return {
            "file": self._context.staging.put_array("told", whole),
            "counts": [[phase, t, n] for (phase, t), n in counts.items()],
            "nowhere": {str(phase): n for phase, n in nowhere.items()},
            "first": first,
        }


def in_order(rows: np.ndarray) -> np.ndarray:
    return rows[np.lexsort((rows[:, 4], rows[:, 3], rows[:, 2], rows[:, 1], rows[:, 0]))]
