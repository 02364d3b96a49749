"""Which segments of an index stay, go and are built, so that it covers every fragment again at the least cost.

1. moved    where row ids are stable a segment goes on to be right if its fragments are merged among themselves and lose
            no row: its entries name rows, not places (but those of a BTREE always name places). So fragments are merged
            within segments that are worth keeping
2. broken   a segment whose fragments are rewritten otherwise, or whose entries may speak of rows that have moved
            elsewhere, is built again over what is left of its fragments
3. missing  fragments that no segment covers get one
4. absorb   kept segments that are no larger than what is built anyway are built with it: the number of segments stays
            logarithmic in the number of runs
5. cut      what is built is cut into segments of limited size, each a task of its own

When may a segment stay beside new ones? It holds entries of every row that it was built over. With row ids that survive
an update, a row that has moved to another fragment is alive there, and full-text, bitmap and list indices would go on
answering with its old value: Lance masks what is dead, per index, not what has moved, per segment. So for these kinds a
segment stays only if no row of its fragments lives elsewhere now. BTREE and IVF check what they find; but a vector that
was exchanged in place, in a fragment that has left the segment since, is the same trap for IVF. Where addresses are row
ids a moved row has a new one, and only that last case is left.
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
"""Rows of one segment, as long as an index has no more than SEGMENTS_MAX of them: those of one large fragment. What
building takes grows with it, above all for vectors.
"""
SEGMENTS_MAX = 16
"""A look-up in so many takes hardly longer than in one; in four times as many it takes three times as long."""
ABSORB_ROWS = 50_000
"""A segment this small is always built again together with what is new."""
BY_VALUE = ("INVERTED", "BITMAP", "LABEL_LIST")

Action = Literal["build", "extend", "merge", "rebuild", "drop"]


@dataclass(frozen=True)
class Layout:
    """The fragments that there will be: rows by id. `members` says which old ones a new one is made of."""

    rows: Mapping[int, int]
    members: Mapping[int, tuple[int, ...]]
    worn: frozenset[int]
    """New fragments that hold fewer rows than their members: deleted ones are left out."""
    live: frozenset[int]
    """The fragments that there are."""
    stable: bool
    row_ids: Callable[[int], np.ndarray]
    """Row ids of a fragment that there is, also of rows that are deleted in it."""
    span: Callable[[int], Span | None]
    """The lowest and the highest of these; None if there are none."""
    created: Callable[[int], int]
    """The lowest version in which a row of a fragment was created."""


@dataclass(frozen=True)
class IndexPlan:
    """`build` are the fragments of each segment to be built, by the ids that they will have."""

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
    """The index has files that can't be used: what there is of it goes, also if it can't be built anew."""

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "build": [list(b) for b in self.build], "options": dict(self.options)}

    @staticmethod
    def of(body: Mapping[str, Any]) -> IndexPlan:
        """Malformed, or another ValueError, KeyError or TypeError, for something that is no plan."""
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
        build=cut(todo, layout.rows),
        rows=_rows(todo, layout),
    )


def plan_index(
    built: BuiltIndex, layout: Layout, *, property: str, whole: str | None = None, absorb: bool = True
) -> IndexPlan | None:
    """What an index needs; None if it covers everything. `whole` is a reason to build all of it again."""
    over = {s.uuid: _after(s, layout) for s in built.segments}
    todo = set(layout.rows) - set().union(*over.values())
    broken: dict[str, str] = {}
    for segment in built.segments:
        why = whole or _broken(segment, built.kind, layout, todo)
        if why:
            broken[segment.uuid] = why
    kept: dict[str, Set[int]] = {uuid: fragments for uuid, fragments in over.items() if uuid not in broken}
    uncovered = len(todo)
    todo = set(layout.rows) - set().union(*kept.values())
    merged = _absorb(kept, todo, layout) if absorb else ()
    if not todo and not broken:
        return None
    reason, action = _told(broken, merged, uncovered, bool(kept))
    return IndexPlan(
        column=built.column,
        property=property,
        name=built.name,
        kind=built.kind,
        action=action,
        reason=reason,
        build=cut(sorted(todo), layout.rows),
        remove=(*broken, *merged),
        known=tuple(sorted(s.uuid for s in built.segments)),
        rows=_rows(todo, layout),
        options={"made_with": made} if (made := made_with(built.kind, built.details)) else {},
    )


def _after(segment: Segment, layout: Layout) -> Set[int]:
    """The fragments that a segment will cover, if it stays as it is."""
    moved = {new for new, members in layout.members.items() if set(members) <= segment.fragments}
    return (segment.fragments | moved) & set(layout.rows)


def _broken(segment: Segment, kind: str, layout: Layout, todo: Set[int]) -> str | None:
    """Why a segment has to go or be built again; None if it may stay."""
    if not segment.fragments & layout.live:
        return "nothing that it covers is left"
    if not _goes_along(segment, kind, layout):
        return "its fragments are rewritten"
    left_it = {n for n in todo if n in layout.live and n < max(segment.fragments)}
    if kind.startswith("IVF") and any(not layout.stable or layout.created(n) <= segment.version for n in left_it):
        return "values were exchanged in place"
    return "rows that it covers were updated" if todo and has_strays(segment, kind, layout) else None


def _goes_along(segment: Segment, kind: str, layout: Layout) -> bool:
    """Whether the rewrites leave the segment right: each is of fragments of it only, and loses no row.

    Lance then moves its coverage to the new fragments by itself.
    """
    touching = [new for new, members in layout.members.items() if segment.fragments & set(members)]
    if _by_address(kind, layout):
        return not touching
    return all(set(layout.members[new]) <= segment.fragments and new not in layout.worn for new in touching)


def _by_address(kind: str, layout: Layout) -> bool:
    """Whether entries name the places of rows. Those of a BTREE do, whatever the table's row ids are."""
    return not layout.stable or kind == "BTREE"


def has_strays(segment: Segment, kind: str, layout: Layout) -> bool:
    """Whether rows that the segment was built over may live in fragments that it does not cover."""
    if not layout.stable or kind not in BY_VALUE:
        return False
    if segment.fragments - layout.live:
        return True  # rows of a fragment that is gone: where they are can't be told
    others = {n for n in layout.live if n not in segment.fragments}
    return _overlaps(segment.fragments & layout.live, others, layout)


def homes(built: Sequence[BuiltIndex]) -> Callable[[int], tuple[str | None, ...]]:
    """The segment of each index that a fragment belongs to."""
    found = [{n: s.uuid for s in index.segments for n in s.fragments} for index in built]
    return lambda number: tuple(home.get(number) for home in found)


def with_planned(built: Sequence[BuiltIndex], plans: Sequence[IndexPlan]) -> list[BuiltIndex]:
    """The indices as they will be once these plans are carried out, on the fragments that there are."""
    todo = {plan.name: plan for plan in plans}
    found = [
        replace(b, segments=tuple(s for s in b.segments if s.uuid not in todo[b.name].remove)) if b.name in todo else b
        for b in built
    ]
    known = {b.name for b in built}
    found += [BuiltIndex(p.name, p.kind, (), p.column, ()) for p in plans if p.name not in known]
    return [replace(b, segments=(*b.segments, *_planned(todo[b.name]))) if b.name in todo else b for b in found]


def _planned(plan: IndexPlan) -> tuple[Segment, ...]:
    return tuple(Segment(f"planned {n}", frozenset(over), 0, 0, 0) for n, over in enumerate(plan.build))


def crossings(built: Sequence[BuiltIndex], layout: Layout, doomed: Set[str]) -> Callable[[int], tuple[str | None, ...]]:
    """What fragments have to have in common to be merged: the segments that are worth keeping.

    `doomed` are segments that will be built again anyway.
    """
    kept = [
        replace(index, segments=tuple(s for s in index.segments if s.uuid not in doomed))
        for index in built
        if not _by_address(index.kind, layout)
    ]
    return homes(kept)


def not_worth_keeping(built: Sequence[BuiltIndex], layout: Layout) -> set[str]:
    """Segments that are small, or that have to be built again whatever is merged."""
    found: set[str] = set()
    for index in built:
        for segment in index.segments:
            live = segment.fragments & set(layout.rows)
            if (
                _by_address(index.kind, layout)
                or _rows(live, layout) <= ABSORB_ROWS
                or has_strays(segment, index.kind, layout)
            ):
                found.add(segment.uuid)
    return found


def broken_by(built: Sequence[BuiltIndex], layout: Layout) -> set[str]:
    """Segments that these rewrites break."""
    return {s.uuid for index in built for s in index.segments if not _goes_along(s, index.kind, layout)}


def _overlaps(mine: Collection[int], others: Collection[int], layout: Layout) -> bool:
    """Whether a row id of `mine` is also one of `others`, deleted rows included."""
    spans = [(number, span) for number in mine if (span := layout.span(number)) is not None]
    for other in others:
        theirs = layout.span(other)
        near = [(n, s) for n, s in spans if theirs is not None and s.low <= theirs.high and theirs.low <= s.high]
        ids = layout.row_ids(other) if near else None
        for number, span in near:
            assert ids is not None
            inside = ids[(ids >= span.low) & (ids <= span.high)]
            if len(inside) and (span.is_dense or len(np.intersect1d(inside, layout.row_ids(number)))):
                return True
    return False


def _absorb(kept: dict[str, Set[int]], todo: set[int], layout: Layout) -> tuple[str, ...]:
    """Move small kept segments into what is built; their uuids."""
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


def _told(broken: Mapping[str, str], merged: Sequence[str], uncovered: int, keeps: bool) -> tuple[str, Action]:
    said = [f"{uncovered} fragments are not covered"] if uncovered else []
    said += sorted(set(broken.values()))
    said += [f"{len(merged)} small segments are merged"] if merged else []
    action: Action = "rebuild" if not keeps and broken else "merge" if broken or merged else "extend"
    return "; ".join(said), action


def segment_rows(rows: int) -> int:
    return max(SEGMENT_ROWS, -(-rows // SEGMENTS_MAX))


def cut(fragments: Sequence[int], rows: Mapping[int, int]) -> tuple[tuple[int, ...], ...]:
    """Neighbouring fragments together, up to the size of a segment."""
    limit = segment_rows(sum(rows.values()))
    found: list[list[int]] = []
    size = 0
    for number in fragments:
        if not found or size + rows[number] > limit:
            found.append([])
            size = 0
        found[-1].append(number)
        size += rows[number]
    return tuple(tuple(group) for group in found)


def _rows(fragments: Collection[int], layout: Layout) -> int:
    return sum(layout.rows[n] for n in fragments)
