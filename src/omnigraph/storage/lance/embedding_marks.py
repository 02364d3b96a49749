"""Marks: what each vector of an `@embed` property was made from, in a hidden column beside the vector.

The column `__embedded_<property id>` of the type's own table holds 16 bytes per row, or null:

| mark                       | means                                                             | `embed`   |
|----------------------------|-------------------------------------------------------------------|-----------|
| null, the vector is null   | never embedded                                                    | embeds    |
| null, the vector is there  | the vector was given with the row                                 | leaves it |
| model (8 bytes) + text (8) | made from this text by this model; digests                        | compares  |
| all zero (STALE)           | the vector was given with the row, and the text has changed since | embeds    |

A column of the row itself, and not a table of its own, because then the mark lives and dies with the row: forks of
tables, folding, compaction, deletion, time travel and renames need to know nothing of it. It is no property: it is in
no `arrow_schema`, and so in no export, snapshot, comparison or answer. Rows written without it read null there, so
appends, and every writer that never heard of it, are right by themselves. Only who replaces a row must carry its mark:

* the vector changed or is null   null: what the writer gave counts as given
* both are unchanged              the old mark
* only the text changed           the old mark, which no longer fits the text; STALE if there was none

Tables get the column when they are created, or with the property; older ones when they are first embedded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from omnigraph.language.schema.model import EntityType, Property

MARK_TYPE = pa.binary(16)
STALE = bytes(16)


def mark_column(p: Property) -> str:
    """The hidden column of an `@embed` property; its name follows the property's id, so renames do not touch it."""
    return f"__embedded_{p.id}"


def source_of(p: Property) -> str | None:
    """The property that this one is embedded from; None if it is none of that kind."""
    annotation = p.annotation("embed")
    return None if annotation is None else str(annotation.argument)


def marked_properties(t: EntityType) -> tuple[Property, ...]:
    return tuple(p for p in t.properties if p.id and source_of(p) is not None)


def mark_fields(t: EntityType) -> list[pa.Field]:
    return [pa.field(mark_column(p), MARK_TYPE) for p in marked_properties(t)]


def model_digest(model: str) -> bytes:
    return hashlib.blake2b(model.encode(), digest_size=8, person=b"og-model").digest()


def text_digests(texts: Sequence[str | None]) -> np.ndarray:
    """Eight bytes per text, as uint64; zero for null. The function is part of the format: it must not change."""
    of = hashlib.blake2b
    raw = b"".join(
        bytes(8) if t is None else of(t.encode("utf-8", "surrogatepass"), digest_size=8).digest() for t in texts
    )
    return np.frombuffer(raw, dtype="<u8")


def to_marks(model: str, digests: np.ndarray) -> pa.Array:
    """The marks of vectors that `model` made from texts with these digests."""
    pairs = np.empty((len(digests), 2), dtype="<u8")
    pairs[:, 0] = np.frombuffer(model_digest(model), dtype="<u8")
    pairs[:, 1] = digests
    return pa.Array.from_buffers(MARK_TYPE, len(digests), [None, pa.py_buffer(pairs.tobytes())])


def pairs_of(marks: pa.Array) -> np.ndarray:
    """The two halves of each mark, shape (n, 2): the model's digest and the text's; zeros where it is null or STALE."""
    filled = marks.fill_null(STALE) if marks.null_count else marks
    raw = np.frombuffer(filled.buffers()[1], dtype=np.uint8) if len(filled) else np.empty(0, np.uint8)
    whole = raw[filled.offset * 16 : (filled.offset + len(filled)) * 16]
    return np.frombuffer(whole.tobytes(), dtype="<u8").reshape(-1, 2)
