"""A table cut into groups of fragments: what one task reads. The same version is always cut the same way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lance import LanceDataset


@dataclass(frozen=True)
class Part:
    """Some fragments, in the table's order: how many rows they hold, and the bytes of their data files."""

    fragments: tuple[int, ...]
    rows: int
    size_bytes: int


def fragment_groups(table: LanceDataset, *, rows_max: int, bytes_max: int) -> list[Part]:
    """Groups of neighbours, each within both limits unless a single fragment is larger. At least one, perhaps empty."""
    groups: list[Part] = []
    for fragment in table.get_fragments():
        about = fragment.metadata
        size = sum(file.file_size_bytes or 0 for file in about.files)
        part = Part((fragment.fragment_id,), int(about.num_rows), int(size))
        last = groups[-1] if groups else None
        if last is None or last.rows + part.rows > rows_max or last.size_bytes + part.size_bytes > bytes_max:
            groups.append(part)
        else:
            groups[-1] = Part(last.fragments + part.fragments, last.rows + part.rows, last.size_bytes + part.size_bytes)
    return groups or [Part((), 0, 0)]
