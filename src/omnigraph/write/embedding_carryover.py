"""Carry vectors that were embedded, and the marks of what they were made from, over to new images of rows.

* keep    a new image that has no vector keeps the old one as long as its text is the same: whoever loads texts again
          without vectors changes nothing, and nothing has to be embedded again
* carry   the marks of replaced rows (`storage/lance/embedding_marks.py` says what they mean)

A write that replaces rows asks `carried_columns` what to read of the old ones beside what it needs itself. For types
without `@embed` all of this does nothing.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa

from omnigraph.language.schema.model import EntityType, Property
from omnigraph.storage.lance.embedding_marks import MARK_TYPE, STALE, mark_column, marked_properties, source_of
from omnigraph.write.compare import equal_mask
from omnigraph.write.delta import flat


def carried_columns(t: EntityType, stored: Collection[str]) -> list[str]:
    """The columns of old rows that decide what becomes of their marks. `stored` are the columns that the table has."""
    found: dict[str, None] = {}
    for p, source in _kept(t, stored):
        found.update(dict.fromkeys((source, p.name, mark_column(p))))
    return list(found)


def kept_columns(t: EntityType) -> list[str]:
    """The columns of old rows that decide which vectors are kept."""
    found: dict[str, None] = {}
    for p in marked_properties(t):
        found.update(dict.fromkeys((source_of(p) or "", p.name)))
    return list(found)


def keep_vectors(t: EntityType, old: pa.Table, new: pa.Table) -> pa.Table:
    """`new` with the vectors of `old` where it has none and the text is the same. `old[i]` is what `new[i]` replaces,
    with `kept_columns`; all null where it replaces nothing.
    """
    for p in marked_properties(t):
        before, after = flat(old[p.name]), flat(new[p.name])
        missing = np.asarray(after.is_null()) & np.asarray(before.is_valid())
        source = source_of(p) or ""
        kept = missing & equal_mask(flat(old[source]), flat(new[source])) if missing.any() else missing
        if kept.any():
            both = pa.concat_arrays([before.cast(after.type), after])
            places = np.arange(len(after)) + np.where(kept, 0, len(after))
            field = new.schema.field(p.name)
            new = new.set_column(new.schema.get_field_index(p.name), field, both.take(pa.array(places)))
    return new


def carry(t: EntityType, old: pa.Table, new: pa.Table, stored: Collection[str]) -> pa.Table:
    """`new` with the marks that its rows shall have; `old[i]` is what `new[i]` replaces, with `carried_columns`."""
    for p, source in _kept(t, stored):
        before, after = flat(old[p.name]), flat(new[p.name])
        marks = flat(old[mark_column(p)])
        same_vector = equal_mask(before, after) & np.asarray(after.is_valid())
        same_text = equal_mask(flat(old[source]), flat(new[source]))
        stale = same_vector & ~same_text & np.asarray(marks.is_null())
        kept = same_vector & ~stale
        picked = [STALE if s else m if k else None for s, k, m in zip(stale, kept, marks.to_pylist(), strict=True)]
        new = new.append_column(pa.field(mark_column(p), MARK_TYPE), pa.array(picked, MARK_TYPE))
    return new


def _kept(t: EntityType, stored: Collection[str]) -> list[tuple[Property, str]]:
    return [(p, source_of(p) or "") for p in marked_properties(t) if mark_column(p) in stored]
