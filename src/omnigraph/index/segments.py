"""Which segments of an index are kept, removed and built, so that it covers every fragment again at the lowest cost.

1. moved    with stable row ids a segment stays valid if its fragments are merged among themselves and lose no row: its
            entries have row ids, not addresses (but those of a BTREE always have addresses). So fragments are merged
            within segments that are worth keeping
2. broken   a segment whose fragments are rewritten otherwise, or whose entries may refer to rows that have moved to
            other fragments, is built again over the rest of its fragments
3. missing  fragments that no segment covers get one
4. absorb   kept segments that are no larger than what is built anyway are built with it: the number of segments stays
            logarithmic in the number of runs
5. split    what is built is split into segments of limited size, each a task of its own

When may a segment be kept beside new ones? It has entries of every row that it was built over. With row ids that
survive an update, a row that has moved to another fragment is live there, and full-text, bitmap and list indices would
still return it for its old value: Lance masks deleted rows per index, but not moved rows per segment. So for these
kinds a segment is kept only if no row of its fragments is live in another fragment. BTREE and IVF check their results;
but a vector that was exchanged in place, in a fragment that has left the segment since, causes the same error for IVF.
If addresses are row ids, a moved row has a new one, and only that last case remains.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from omnigraph.index.build import made_with
from omnigraph.language import identifiers as form
from omnigraph.storage.lance.fragment_stats import Span
from omnigraph.storage.lance.indices import BuiltIndex, Segment

SEGMENT_ROWS = 1_048_576
"""Rows of one segment, as long as an index has no more than SEGMENTS_MAX of them: those of one large fragment. The cost
of building grows with it, above all for vectors.
"""
SEGMENTS_MAX = 16
"""A look-up in this many segments is about as fast as in one; in four times as many it takes three times as long."""
ABSORB_ROWS = 50_000
"""A segment up to this size is always built again together with new fragments."""
BY_VALUE = ("INVERTED", "BITMAP", "LABEL_LIST")

Action = Literal["build", "extend", "merge", "rebuild", "drop"]


@dataclass(frozen=True)
class Layout:
    """The fragments after the rewrites: rows by id. `members` has the old fragments of each new one."""

    rows: Mapping[int, int]
    members: Mapping[int, tuple[int, ...]]
    worn: frozenset[int]
    """New fragments that have fewer rows than their members: deleted ones are left out."""
    live: frozenset[int]
    """The fragments that exist now."""
    stable: bool
    row_ids: Callable[[int], np.ndarray]
    """Row ids of an existing fragment, including those of rows that are deleted in it."""
    span: Callable[[int], Span | None]
    """The lowest and the highest of these; None if there are none."""
    created: Callable[[int], int]
    """The lowest version in which a row of a fragment was created."""


@dataclass(frozen=True)
class IndexPlan:
    """`build` has the fragments of each segment to be built, by their ids after the rewrites."""

    column: str
    property: str
    name: str
    kind: str
    action: Action
    reason: str
    build: tuple[tuple[int, ...], ...]
    remove: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    """The segments that the index had when this was planned."""
    rows: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    unusable: bool = False
    """The index has files that can't be used: it is removed, also if it can't be built again."""

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "build": [list(b) for b in self.build], "options": dict(self.options)}

    @staticmethod
    def of(body: Mapping[str, Any]) -> IndexPlan:
        """The plan. Malformed, or another ValueError, KeyError or TypeError, for something that is no plan."""
        if body["action"] not in get_args(Action):
            raise form.Malformed(f"{form.shown(body['action'])} is not what a plan does with an index")
        return IndexPlan(
            column=form.text(body["column"]),
            property=form.text(body["property"]),
            name=form.text(body["name"]),
            kind=form.word(body["kind"]),
            action=body["action"],
            reason=form.text(body["reason"]),
            build=tuple(tuple(map(form.fragment, form.sequence(group))) for group in form.sequence(body["build"])),
            remove=tuple(map(form.text, form.sequence(body["remove"]))),
            known=tuple(map(form.text, form.sequence(body["known"]))),
            rows=form.count(body["rows"]),
            options=form.mapping(body["options"]),
            unusable=form.flag(body["unusable"]),
        )


def plan_new(layout: Layout, *, property: str, column: str, name: str, kind: str) -> IndexPlan:
    """An index that is declared and missing."""
    todo = sorted(layout.rows)
    return IndexPlan(
        column=column,
        property=property,
        name=name,
        kind=kind,
        action="build",
        reason="it is declared and missing",
        build=segment_groups(todo, layout.rows),
        rows=_rows(todo, layout),
    )


def plan_index(
    built: BuiltIndex, layout: Layout, *, property: str, whole: str | None = None, absorb: bool = True
) -> IndexPlan | None:
    """The plan of an existing index; None if it covers everything. `whole` is a reason to build all of it again."""
    over = {s.uuid: _after(s, layout) for s in built.segments}
    todo = set(layout.rows) - set().union(*over.values())
    broken: dict[str, str] = {}
    for segment in built.segments:
        cause = whole or _broken(segment, built.kind, layout, todo)
        if cause:
            broken[segment.uuid] = cause
    kept: dict[str, Set[int]] = {uuid: fragments for uuid, fragments in over.items() if uuid not in broken}
    uncovered = len(todo)
    todo = set(layout.rows) - set().union(*kept.values())
    merged = _absorb(kept, todo, layout) if absorb else ()
    if not todo and not broken:
        return None
    reason, action = _reason_and_action(broken, merged, uncovered, bool(kept))
    return IndexPlan(
        column=built.column,
        property=property,
        name=built.name,
        kind=built.kind,
        action=action,
        reason=reason,
        build=segment_groups(sorted(todo), layout.rows),
        remove=(*broken, *merged),
        known=tuple(sorted(s.uuid for s in built.segments)),
        rows=_rows(todo, layout),
        options={"made_with": index_options} if (index_options := made_with(built.kind, built.details)) else {},
    )


def _after(segment: Segment, layout: Layout) -> Set[int]:
    """The fragments that a segment will cover if it is kept."""
    moved = {new for new, members in layout.members.items() if set(members) <= segment.fragments}
    return (segment.fragments | moved) & set(layout.rows)


def _broken(segment: Segment, kind: str, layout: Layout, todo: Set[int]) -> str | None:
    """Why a segment has to be removed or built again; None if it may be kept."""
    if not segment.fragments & layout.live:
        return "nothing that it covers is left"
    if not _goes_along(segment, kind, layout):
        return "its fragments are rewritten"
    departed = {n for n in todo if n in layout.live and n < max(segment.fragments)}
    if kind.startswith("IVF") and any(not layout.stable or layout.created(n) <= segment.version for n in departed):
        return "values were exchanged in place"
    return "rows that it covers were updated" if todo and has_moved_rows(segment, kind, layout) else None


def _goes_along(segment: Segment, kind: str, layout: Layout) -> bool:
    """Whether the rewrites keep the segment valid: each is of fragments of it only, and loses no row.

    Lance then moves its coverage to the new fragments by itself.
    """
    touching = [new for new, members in layout.members.items() if segment.fragments & set(members)]
    if _by_address(kind, layout):
        return not touching
    return all(set(layout.members[new]) <= segment.fragments and new not in layout.worn for new in touching)


def _by_address(kind: str, layout: Layout) -> bool:
    """Whether entries have the addresses of rows. Those of a BTREE do, whatever the table's row ids are."""
    return not layout.stable or kind == "BTREE"


def has_moved_rows(segment: Segment, kind: str, layout: Layout) -> bool:
    """Whether rows that the segment was built over may be live in fragments that it does not cover."""
    if not layout.stable or kind not in BY_VALUE:
        return False
    if segment.fragments - layout.live:
        return True  # the rows of a removed fragment may be anywhere
    others = {n for n in layout.live if n not in segment.fragments}
    return _overlaps(segment.fragments & layout.live, others, layout)


def segments_by_fragment(built: Sequence[BuiltIndex]) -> Callable[[int], tuple[str | None, ...]]:
    """The segment of each index that a fragment belongs to."""
    segment_maps = [{n: s.uuid for s in index.segments for n in s.fragments} for index in built]
    return lambda number: tuple(home.get(number) for home in segment_maps)


def with_planned(built: Sequence[BuiltIndex], plans: Sequence[IndexPlan]) -> list[BuiltIndex]:
    """The indices after these plans, on the fragments that exist now."""
    todo = {plan.name: plan for plan in plans}
    indices = [
        replace(b, segments=tuple(s for s in b.segments if s.uuid not in todo[b.name].remove)) if b.name in todo else b
        for b in built
    ]
    names = {b.name for b in built}
    indices += [BuiltIndex(p.name, p.kind, (), p.column, ()) for p in plans if p.name not in names]
    return [replace(b, segments=(*b.segments, *_planned(todo[b.name]))) if b.name in todo else b for b in indices]


def _planned(plan: IndexPlan) -> tuple[Segment, ...]:
    return tuple(Segment(f"planned {n}", frozenset(over), 0, 0, 0) for n, over in enumerate(plan.build))


def merge_barriers(
    built: Sequence[BuiltIndex], layout: Layout, rebuilt_anyway: Set[str]
) -> Callable[[int], tuple[str | None, ...]]:
    """The segments that fragments must have in common to be merged: those that are worth keeping.

    `rebuilt_anyway` are segments that are rebuilt in any case.
    """
    kept = [
        replace(index, segments=tuple(s for s in index.segments if s.uuid not in rebuilt_anyway))
        for index in built
        if not _by_address(index.kind, layout)
    ]
    return segments_by_fragment(kept)


def not_worth_keeping(built: Sequence[BuiltIndex], layout: Layout) -> set[str]:
    """Segments that are small, or that have to be built again in any case."""
    uuids: set[str] = set()
    for index in built:
        for segment in index.segments:
            live = segment.fragments & set(layout.rows)
            if (
                _by_address(index.kind, layout)
                or _rows(live, layout) <= ABSORB_ROWS
                or has_moved_rows(segment, index.kind, layout)
            ):
                uuids.add(segment.uuid)
    return uuids


def broken_by(built: Sequence[BuiltIndex], layout: Layout) -> set[str]:
    """Segments that these rewrites break."""
    return {s.uuid for index in built for s in index.segments if not _goes_along(s, index.kind, layout)}


def _overlaps(mine: Collection[int], others: Collection[int], layout: Layout) -> bool:
    """Whether a row id of `mine` is also one of `others`, deleted rows included."""
    spans = [(number, span) for number in mine if (span := layout.span(number)) is not None]
    for other in others:
        other_span = layout.span(other)
        overlapping = [
            (n, s) for n, s in spans if other_span is not None and s.low <= other_span.high and other_span.low <= s.high
        ]
        ids = layout.row_ids(other) if overlapping else None
        for number, span in overlapping:
            assert ids is not None
            inside = ids[(ids >= span.low) & (ids <= span.high)]
            if len(inside) and (span.is_dense or len(np.intersect1d(inside, layout.row_ids(number)))):
                return True
    return False


def _absorb(kept: dict[str, Set[int]], todo: set[int], layout: Layout) -> tuple[str, ...]:
    """Move small kept segments into what is built. Returns their uuids."""
    if not todo:
        return ()
    limit = segment_rows(sum(layout.rows.values()))
    merged: list[str] = []
    for uuid, fragments in sorted(kept.items(), key=lambda item: _rows(item[1], layout)):
        size = _rows(fragments, layout)
        if size > max(ABSORB_ROWS, _rows(todo, layout)) or size + _rows(todo, layout) > limit:
            break
        merged.append(uuid)
        todo |= fragments
    for uuid in merged:
        del kept[uuid]
    return tuple(merged)


def _reason_and_action(
    broken: Mapping[str, str], merged: Sequence[str], uncovered: int, keeps: bool
) -> tuple[str, Action]:
    reasons = [f"{uncovered} fragments are not covered"] if uncovered else []
    reasons += sorted(set(broken.values()))
    reasons += [f"{len(merged)} small segments are merged"] if merged else []
    action: Action = "rebuild" if not keeps and broken else "merge" if broken or merged else "extend"
    return "; ".join(reasons), action


def segment_rows(rows: int) -> int:
    return max(SEGMENT_ROWS, -(-rows // SEGMENTS_MAX))


def segment_groups(fragments: Sequence[int], rows: Mapping[int, int]) -> tuple[tuple[int, ...], ...]:
    """Groups of consecutive fragments, up to the size of a segment."""
    limit = segment_rows(sum(rows.values()))
    groups: list[list[int]] = []
    size = 0
    for number in fragments:
        if not groups or size + rows[number] > limit:
            groups.append([])
            size = 0
        groups[-1].append(number)
        size += rows[number]
    return tuple(tuple(group) for group in groups)


def _rows(fragments: Collection[int], layout: Layout) -> int:
    return sum(layout.rows[n] for n in fragments)
