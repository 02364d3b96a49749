"""Rules that a merge can break although both sides keep them, checked on the merged image of what changes.

| conflict              | example                                                                            |
|-----------------------|------------------------------------------------------------------------------------|
| orphan_edge           | one side inserted an edge to a node that the other deleted                         |
| unique_violation      | both sides gave different entities the same unique value                           |
| cardinality_violation | both sides added edges to one node, together more than allowed                     |
| value_violation       | a row combined from both sides breaks a rule on its values                         |

A fast-forward is not checked: its result is a state that was valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from omnigraph.branch.merge.model import Conflict, EntityKey
from omnigraph.branch.merge.row_changes import RowChanges
from omnigraph.errors import Violation
from omnigraph.language.schema.model import Schema
from omnigraph.storage.lance.columns import arrow_schema
from omnigraph.write.delta import delta
from omnigraph.write.pending_view import Image
from omnigraph.write.reader import Reader
from omnigraph.write.validate.cardinality import check_cardinality
from omnigraph.write.validate.endpoints import check_endpoints
from omnigraph.write.validate.fields import check_fields
from omnigraph.write.validate.unique import check_unique

_KINDS = {"endpoint": "orphan_edge", "unique": "unique_violation", "cardinality": "cardinality_violation"}


def rule_conflicts(schema: Schema, changes: Iterable[RowChanges], reader: Reader) -> list[Conflict]:
    changed = [c for c in changes if not c.is_empty]
    image = Image(schema, {c.type.name: c.rule_delta for c in changed}, reader)
    violations = [*check_endpoints(image), *check_unique(image), *check_cardinality(image)]
    decided = {c.type.name: replace(delta(c.type), rows=_decided_rows(c)) for c in changed if _is_decided(c)}
    violations += check_fields(Image(schema, decided, reader)) if decided else []
    return [_conflict(v) for v in violations]


def _is_decided(changes: RowChanges) -> bool:
    return changes.replaced is not None or changes.copied is not None


def _decided_rows(changes: RowChanges) -> pa.Table:
    """Images that may be made from both sides: the others were valid on their own side."""
    names = arrow_schema(changes.type).names
    parts = [rows.select(names) for rows in (changes.replaced, changes.copied) if rows is not None]
    return pa.concat_tables(parts).combine_chunks()


def _conflict(violation: Violation) -> Conflict:
    return Conflict(
        kind=_KINDS.get(violation.rule, "value_violation"),
        table_key=violation.table_key,
        id=violation.entity_id,
        properties=() if violation.property is None else (violation.property,),
        message=violation.message,
    )


def entities(conflicts: Iterable[Conflict]) -> set[EntityKey]:
    return {(c.table_key, c.id) for c in conflicts if c.id is not None}


def with_images(conflict: Conflict, images: Mapping[EntityKey, Conflict]) -> Conflict:
    """The conflict with the images and the digest of its entity."""
    known = images.get((conflict.table_key, conflict.id or ""))
    if known is None:
        return conflict
    return replace(conflict, base=known.base, ours=known.ours, theirs=known.theirs, digest=known.digest)
