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

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from omnigraph.branch.merge.model import Conflict, EntityKey
from omnigraph.branch.merge.rows.changes import RankedViolation, RowChanges
from omnigraph.errors import Violation
from omnigraph.language.schema.model import EntityType, Schema
from omnigraph.storage.lance.columns import arrow_schema
from omnigraph.write.delta import delta
from omnigraph.write.pending_view import Image
from omnigraph.write.reader import Reader
from omnigraph.write.validate.cardinality import check_cardinality
from omnigraph.write.validate.endpoints import check_endpoints
from omnigraph.write.validate.fields import check_type_fields
from omnigraph.write.validate.unique import check_unique

_KINDS = {"endpoint": "orphan_edge", "unique": "unique_violation", "cardinality": "cardinality_violation"}


def rule_conflicts(schema: Schema, changes: Iterable[RowChanges], reader: Reader) -> list[Conflict]:
    changed = [c for c in changes if not c.is_empty]
    image = Image(schema, {c.type.name: c.rule_delta for c in changed}, reader)
    violations = [*check_endpoints(image), *check_unique(image), *check_cardinality(image)]
    violations += [violation for c in changed for violation in _value_violations(c)]
    return [_conflict(v) for v in violations]


def _value_violations(changes: RowChanges) -> list[Violation]:
    """Of images that may be made from both sides: the others were valid on their own side."""
    ranked = value_violations(changes)
    deferred = changes.deferred
    if deferred is None:
        return [violation for _, violation in ranked]
    parts = (deferred.violations, ranked) if deferred.goes_first else (ranked, deferred.violations)
    return [violation for _, violation in sorted(itertools.chain(*parts), key=lambda pair: pair[0])]


def value_violations(changes: RowChanges) -> list[RankedViolation]:
    """Of the images that are held, in the order of checks, then of sorts of images, then of images."""
    if changes.replaced is None and changes.copied is None:
        return []
    t = changes.type
    names = arrow_schema(t).names
    parts = [rows.select(names) for rows in (changes.replaced, changes.copied) if rows is not None]
    rows = pa.concat_tables(parts).combine_chunks()
    ranks = _check_ranks(t)
    copied_taken, replaced_taken = changes.taken_counts
    replaced_count = len(changes.replaced_rows)
    ends = (replaced_taken, replaced_count, replaced_count + copied_taken)
    ranked = []
    for violation in check_type_fields(replace(delta(t), rows=rows)):
        sort_of_image = bisect_right(ends, violation.row or 0)
        ranked.append(((ranks[violation.rule, violation.property], sort_of_image), violation))
    return ranked


def _check_ranks(t: EntityType) -> dict[tuple[str, str | None], int]:
    checks = [(rule, p.name) for p in t.properties for rule in ("null", "enum")]
    checks += [(c.kind, c.properties[0]) for c in t.constraints if c.kind in ("range", "check")]
    return {check: rank for rank, check in reversed(list(enumerate(checks)))}


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
