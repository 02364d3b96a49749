"""Blobs that are not in the graph: Lance can store the address of a file instead of bytes, and then reads that file.

Omnigraph never writes such a reference. One in a table is hostile: reading it would expose a file of the reader's
machine, or fetch an address with the reader's keys. So the references of rows are checked before their bytes are read,
and an address raises HostileOrDamagedManifest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import HostileOrDamagedManifest
from omnigraph.language.schema.model import EntityType

if TYPE_CHECKING:
    from lance import LanceDataset

INLINE, PACKED, ALONE = 0, 1, 2
"""Where bytes lie: in the data file, or beside it, in a file of many blobs or of one. The next number is an address."""
_KIND = "kind"


def blob_columns(t: EntityType, columns: Sequence[str]) -> list[str]:
    return [c for c in columns if c in t.by_name and t.by_name[c].type.kind == "Blob"]


def require_own_blobs(
    table: LanceDataset, t: EntityType, columns: Sequence[str], *, where: str | None = None, fragments: Any = None
) -> None:
    """Refuse rows with a blob outside of the graph. `columns` may include other columns: only blobs are checked."""
    blobs = blob_columns(t, columns)
    if not blobs:
        return
    scanner = table.scanner(
        columns=blobs,
        filter=where,
        blob_handling="blobs_descriptions",
        **({} if fragments is None else {"fragments": fragments}),
    )
    for batch in scanner.to_batches():
        for column in blobs:
            if is_elsewhere(batch.column(column)):
                detail = f"a value of {column} is an address and not bytes"
                raise HostileOrDamagedManifest(where=f"{t.key} at version {table.version}", detail=detail)


def is_elsewhere(references: pa.Array) -> bool:
    """Whether any of these references is an address. Older ones have no kind: their bytes are in the data file."""
    if not pa.types.is_struct(references.type) or references.type.get_field_index(_KIND) < 0:
        return False
    present = references.filter(references.is_valid())
    return bool(pc.any(pc.greater(pc.struct_field(present, _KIND), ALONE)).as_py())
