"""Settle: take out the rows that break a rule, and the rows that this orphans, until the rest is valid.

1. Rules of single rows first: they do not depend on other rows.
2. Endpoints, unique, cardinality: as soon as one finds rows, these go, and the three start again, because a row that
   went may have been another's endpoint, and no longer holds its unique value.
3. A violation without a row (a kept edge loses its node by an overwrite) can't be settled by leaving rows out: the
   whole write is refused; or, to tell of everything at once, it is passed over and told with the rest.

Each round takes out at least one row, so it ends. Of rows that collide, the first stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from omnigraph.errors import Violation
from omnigraph.language.schema.model import Schema
from omnigraph.write.delta import Deltas, TypeDelta
from omnigraph.write.pending_view import Image
from omnigraph.write.reader import Reader
from omnigraph.write.validate.cardinality import check_cardinality
from omnigraph.write.validate.endpoints import Rejected, check_endpoints
from omnigraph.write.validate.fields import check_fields
from omnigraph.write.validate.unique import check_unique
from omnigraph.write.violations import refuse_if_any


def reject(deltas: Deltas, violations: Sequence[Violation]) -> tuple[dict[str, TypeDelta], list[Violation]]:
    """The deltas without the rows that the violations name, and one violation per such row: the first."""
    rows: dict[str, dict[int, Violation]] = {}
    for v in violations:
        assert v.row is not None, v
        rows.setdefault(v.table_key, {}).setdefault(v.row, v)
    kept: dict[str, TypeDelta] = {}
    rejected: list[Violation] = []
    for name, d in deltas.items():
        bad = rows.get(d.type.key)
        if bad is None:
            kept[name] = d
            continue
        mask = np.ones(d.rows.num_rows, dtype=bool)
        mask[list(bad)] = False
        kept[name] = d.kept(pa.array(mask))
        rejected.extend(bad[row] for row in sorted(bad))
    return kept, rejected


def settle(
    schema: Schema, deltas: Deltas, reader: Reader, *, already_rejected: Sequence[Violation] = ()
) -> tuple[dict[str, TypeDelta], list[Violation]]:
    """The valid rest of a write, and why each other row was left out. Raises ConstraintViolation as step 3 says."""
    kept, rejected, unsettled = _settled(schema, deltas, reader, already_rejected, passes_over=False)
    refuse_if_any(unsettled)
    return kept, rejected


def faults(schema: Schema, deltas: Deltas, reader: Reader, *, already_rejected: Sequence[Violation]) -> list[Violation]:
    """All that `settle` would leave out, and what it could not settle."""
    _, rejected, unsettled = _settled(schema, deltas, reader, already_rejected, passes_over=True)
    return rejected + unsettled


def _settled(
    schema: Schema, deltas: Deltas, reader: Reader, already_rejected: Sequence[Violation], *, passes_over: bool
) -> tuple[dict[str, TypeDelta], list[Violation], list[Violation]]:
    kept, rejected = reject(deltas, check_fields(Image(schema, deltas, reader)))
    nodes = {n.key: n.name for n in schema.nodes}
    while True:
        known = {
            (nodes[v.table_key], v.entity_id): v.line
            for v in (*already_rejected, *rejected)
            if v.table_key in nodes and v.entity_id is not None
        }
        found, unsettled = _found(Image(schema, kept, reader), known, passes_over=passes_over)
        if not found:
            return kept, rejected, unsettled
        kept, gone = reject(kept, found)
        rejected.extend(gone)


def _found(image: Image, known: Rejected, *, passes_over: bool) -> tuple[list[Violation], list[Violation]]:
    """The rows that the first of the three rules finds, and what was found that no row is to blame for."""
    unsettled: list[Violation] = []
    for check in (partial(check_endpoints, rejected=known), check_unique, check_cardinality):
        told = check(image)
        unsettled += [v for v in told if v.row is None]
        if unsettled and not passes_over:
            return [], unsettled
        rows = [v for v in told if v.row is not None]
        if rows:
            return rows, []
    return [], unsettled
