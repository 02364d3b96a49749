"""Violations as a check returns them: eight 64-bit words each, sorted in the order in which they are reported.

    phase  type  sub  part  row  kind  other  extra

`row` names the input row that breaks the rule, NONE if no input row does. `other` is another input row or the row id of
a row of the graph, depending on `kind`. `sub` is the end of an edge, the number of a constraint, or the number of an
edge type.
"""

from __future__ import annotations

from collections import Counter
from enum import IntEnum
from typing import Any

import numpy as np

from omnigraph.language.schema.model import EntityType
from omnigraph.pipeline.bulk.context import Context
from omnigraph.rules.identity import id_rule

NONE = np.uint64(2**64 - 1)
WIDTH = 8
FIRST_MAX = 20


class Phase(IntEnum):
    """The order in which rules are checked. FIELDS are checked while reading."""

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
    NODE_REMOVED = 10


def rule_of(phase: int, t: EntityType) -> str:
    """The rule under which a violation of a phase is counted; FIELDS violations carry their own rule."""
    if phase in (Phase.REPEATED, Phase.EXISTS):
        return id_rule(t)
    return {Phase.ENDPOINTS: "endpoint", Phase.UNIQUE: "unique", Phase.CARDINALITY: "cardinality"}[Phase(phase)]


class ViolationLog:
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
        codes = np.zeros((len(rows), WIDTH), dtype=np.uint64)
        codes[:, 0], codes[:, 1], codes[:, 2], codes[:, 3] = phase, self._context.type_index(t.key), sub, part
        codes[:, 4], codes[:, 5] = rows, kind
        codes[:, 6] = NONE if other is None else other
        codes[:, 7] = 0 if extra is None else extra
        self._rows.append(codes)

    def stage(self) -> dict[str, Any] | None:
        """The staged violations, how many there are per phase and type, and the first of each phase; None if none."""
        if not self._rows:
            return None
        codes = in_order(np.concatenate(self._rows))
        counts = Counter(zip(codes[:, 0].tolist(), codes[:, 1].tolist(), strict=True))
        first = [row for phase in np.unique(codes[:, 0]) for row in codes[codes[:, 0] == phase][:FIRST_MAX].tolist()]
        without_row = Counter(codes[codes[:, 4] == NONE][:, 0].tolist())
        return {
            "file": self._context.staging.put_array("told", codes),
            "counts": [[phase, t, n] for (phase, t), n in counts.items()],
            "nowhere": {str(phase): n for phase, n in without_row.items()},
            "first": first,
        }


def in_order(rows: np.ndarray) -> np.ndarray:
    return rows[np.lexsort((rows[:, 4], rows[:, 3], rows[:, 2], rows[:, 1], rows[:, 0]))]
