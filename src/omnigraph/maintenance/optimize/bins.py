"""Which fragments are compacted: runs of neighbouring small fragments, and single ones with too many deleted rows.

A merged fragment is never small again, and a remaining small one has no small neighbour, so a second run finds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from omnigraph.maintenance.optimize.model import Bin
from omnigraph.storage.lance.fragment_stats import DELETED_SHARE, Fragment

FULL_BYTES = 256 << 20
"""A fragment of this many bytes is not merged with others, however few rows it has."""


def plan_bins(
    fragments: Sequence[Fragment],
    target: int,
    *,
    first_id: int,
    common: Callable[[int], tuple[str | None, ...]] = lambda _: (),
) -> tuple[Bin, ...]:
    """Which fragments become one, in the table's order. Neighbours are merged if they have `common` in common."""
    bins: list[Bin] = []
    run: list[Fragment] = []

    def close() -> None:
        if len(run) > 1 or (run and _has_many_deleted(run[0])):
            bins.append(bin_of(run, first_id + len(bins)))
        run.clear()

    for fragment in fragments:
        if fragment.rows * 2 >= target or fragment.size_bytes >= FULL_BYTES:
            close()
            run.append(fragment)
            close()
            continue
        if run and common(run[-1].id) != common(fragment.id):
            close()
        run.append(fragment)
        if sum(f.rows for f in run) * 2 >= target or sum(f.size_bytes for f in run) >= FULL_BYTES:
            close()
    close()
    return tuple(bins)


def _has_many_deleted(fragment: Fragment) -> bool:
    return fragment.deleted > DELETED_SHARE * (fragment.rows + fragment.deleted)


def bin_of(run: Sequence[Fragment], new_id: int) -> Bin:
    rows, deleted = sum(f.rows for f in run), sum(f.deleted for f in run)
    if len(run) == 1:
        reason = f"{100 * deleted / (rows + deleted):.0f} % of its rows are deleted"
    else:
        reason = f"{len(run)} small fragments"
    return Bin(tuple(f.id for f in run), new_id, rows, deleted, sum(f.size_bytes for f in run), reason)
