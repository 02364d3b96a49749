"""The change feed of a branch: what each commit changed, in order, from any position on.

1. head      read once per call; if it is the cursor's commit, nothing else is read
2. records   of the commits after the cursor, along first parents, oldest first (`feed_history`)
3. step      per commit the row changes between the state before and the state after it (`type_changes`), nodes before
             edges, then by type name and entity id, in pages. A commit that changes no row by its record (`optimize`,
             recovery, lineage) advances the cursor and opens no table. A merge is one commit
4. lease     on the table versions that a step reads, while its pages are read

Where cleanup has removed the state after a commit, the step leads to the next commit whose state is there: it has the
net changes of several commits and names them. Where it has removed the state that the step starts from: FeedCollected.

Delivery is at least once. Every page has the cursor behind it; the same cursor gives the same rows again. A cursor
inside of a step whose end was removed since is FeedCollected as well: a longer step would leave out rows that came and
went, and the consumer has read some of them.

Nothing but leases is written. A crash leaves a lease, which runs out.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.branch.diff.type_changes import PAGE_ROWS, TypeChanges
from omnigraph.branch.feed.cursor import Cursor, Position, read_cursor
from omnigraph.branch.feed.history import CONTENT_PRESERVING, Interval, State, records_after
from omnigraph.branch.feed.page import ChangePage
from omnigraph.commit import owner
from omnigraph.commit.committer import Committer
from omnigraph.errors import (
    FeedBranchReplaced,
    FeedCollected,
    StorageError,
    UnknownType,
    UsageError,
    VersionMissing,
    VersionReclaimed,
)
from omnigraph.graph.results import CommitInfo
from omnigraph.language.schema.model import EntityType
from omnigraph.storage import durability
from omnigraph.storage.files.missing_versions import absence
from omnigraph.storage.manifest.records import MAIN, Head, Pin, Record
from omnigraph.storage.objects import leases
from omnigraph.storage.objects.store import all_exist

POLL_MIN_S, POLL_MAX_S = 0.005, 1.0
_POLL_GROWTH = 1.5
_LEASE_TRIES_MAX = 5


class Feed:
    """The feed of one branch, of all types or of some, up to its head or to the commit `until`.

    Types are named as the head names them, or are types of any state.
    """

    def __init__(
        self,
        committer: Committer,
        branch: str = MAIN,
        *,
        types: Sequence[str | EntityType] | None = None,
        page_rows: int | None = None,
        until: str | None = None,
    ) -> None:
        if page_rows is not None and page_rows < 1:
            raise UsageError(detail=f"page_rows is a number of rows, at least 1, not {page_rows}.")
        self.manifest, self.tables, self.branch = committer.manifest, committer.tables, branch
        self._type_names, self._page_rows, self._until = types, page_rows or PAGE_ROWS, until

    def head(self) -> Head:
        return self.manifest.head(self.branch)

    def start(
        self, head: Head, *, after: str | None = None, from_start: bool = False, from_now: bool = False
    ) -> Cursor:
        """The cursor that these options mean; the state before the first commit by default."""
        if (after is not None) + from_start + from_now > 1:
            raise UsageError(detail="a feed begins after a cursor, at the start or now: give one of them.")
        if after is not None:
            return read_cursor(self.manifest, head, after)
        return Cursor(head.incarnation, head.commit if from_now else None)

    def pages(self, head: Head, cursor: Cursor, *, limit: int | None = None) -> Iterator[ChangePage]:
        """What is behind the cursor, up to `head`. `limit` is a number of commits; a step that has several counts as
        many, and is not cut.
        """
        if limit is not None and limit < 1:
            raise UsageError(detail=f"limit is a number of commits, at least 1, not {limit}.")
        types = self._types(head)
        if cursor.incarnation != head.incarnation:
            raise FeedBranchReplaced(commit=cursor.commit, branch=self.branch)
        if cursor.commit == (self._until or head.commit) and cursor.to is None:
            return iter(())
        return self._steps(head, cursor, types, limit)

    def follow(
        self, cursor: Cursor, *, limit: int | None = None, stop: threading.Event | None = None
    ) -> Iterator[ChangePage]:
        """The same, and then what comes, until `stop` is set. Between two looks at the head it waits for up to a
        second.
        """
        stopped = stop or threading.Event()
        pause, remaining = POLL_MIN_S, limit
        while not stopped.is_set() and remaining != 0:
            is_idle = True
            for page in self.pages(self.head(), cursor, limit=remaining):
                cursor, is_idle = Cursor.parse(page.cursor), False
                if remaining is not None and page.completes_commit:
                    remaining = max(0, remaining - len(page.commits))
                yield page
            if is_idle:
                stopped.wait(pause)
                pause = min(pause * _POLL_GROWTH, POLL_MAX_S)
            else:
                pause = POLL_MIN_S

    def _types(self, head: Head) -> tuple[EntityType, ...] | None:
        if self._type_names is None:
            return None
        schema = self.manifest.schema(head.schema)
        types = []
        for name in self._type_names:
            t = (schema.node.get(name) or schema.edge.get(name)) if isinstance(name, str) else name
            if t is None:
                raise UnknownType(kind="node or edge", type_name=name)
            types.append(t)
        return tuple(types)

    # ---- steps -------------------------------------------------------------------------------------------------------

    def _steps(
        self, head: Head, cursor: Cursor, types: tuple[EntityType, ...] | None, limit: int | None
    ) -> Iterator[ChangePage]:
        records = self._records(head, cursor.commit)
        count = 0
        state = None if cursor.commit is None else State.at(self.manifest, cursor.commit)
        if cursor.to is not None:
            step = self._begun_step(head, state, records, cursor, types)
            with self._lease(step.interval):
                yield from self._pages(step, cursor)
            state, count = step.interval.new, len(step.records)
        while limit is None or count < limit:
            record = next(records, None)
            if record is None:
                return
            state = state or State(None, record.schema, {})
            position = Cursor(head.incarnation, state.commit)
            if state.is_same_content(record):
                state, count = state.after(record), count + 1
                yield ChangePage((CommitInfo.of(record),), None, (), str(replace(position, commit=record.commit)), True)
                continue
            interval = Interval(self.manifest, self.tables, head, state, state.after(record), types)
            with ExitStack() as stack:
                step, records = self._leased_step(stack, _Step(interval, (record,)), records)
                yield from self._pages(step, position)
            state, count = step.interval.new, count + len(step.records)

    def _records(self, head: Head, commit: str | None) -> Iterator[Record]:
        for record in records_after(self.manifest, head, commit):
            yield record
            if record.commit == self._until:
                return
        if self._until is not None:
            raise FeedBranchReplaced(commit=self._until, branch=self.branch)

    def _begun_step(
        self,
        head: Head,
        state: State | None,
        records: Iterator[Record],
        cursor: Cursor,
        types: tuple[EntityType, ...] | None,
    ) -> _Step:
        """The step that a cursor is in."""
        covered: list[Record] = []
        for record in records:
            covered.append(record)
            if record.commit == cursor.to:
                break
        else:
            raise FeedBranchReplaced(commit=cursor.to, branch=self.branch)
        old = state or State(None, covered[0].schema, {})
        new = old
        for record in covered:
            new = new.after(record)
        interval = self._from_readable_state(Interval(self.manifest, self.tables, head, old, new, types))
        error = self._reclaimed(interval, interval.pins)
        if error is not None:
            raise self._collected(interval, new, error)
        return _Step(interval, tuple(covered))

    def _leased_step(self, stack: ExitStack, step: _Step, records: Iterator[Record]) -> tuple[_Step, Iterator[Record]]:
        """The step, or a longer one where cleanup has removed its end, under a lease; and the records behind it."""
        for attempt in range(1, _LEASE_TRIES_MAX + 1):
            try:
                stack.enter_context(self._lease(step.interval))
                break
            except VersionReclaimed as error:
                if isinstance(error, VersionMissing) or attempt == _LEASE_TRIES_MAX:
                    raise
                interval = self._from_readable_state(step.interval)
                step, records = self._longer_step(_Step(interval, step.records), records)
        return step, records

    def _from_readable_state(self, interval: Interval) -> Interval:
        """The interval from its own beginning, or from an older state with the same rows if that was removed."""
        start = interval.old
        while (error := self._reclaimed(interval, interval.old_pins)) is not None:
            record = None if interval.old.commit is None else self.manifest.record(interval.old.commit)
            if record is None or record.kind not in CONTENT_PRESERVING or record.parent is None:
                raise self._collected(interval, start, error)
            interval = replace(interval, old=State.at(self.manifest, record.parent))
        return interval

    def _longer_step(self, step: _Step, records: Iterator[Record]) -> tuple[_Step, Iterator[Record]]:
        """The step up to the first state that is there. States go oldest first, so a bisection finds it; where tags or
        leases have kept older ones, it may find a later one.
        """
        interval = step.interval
        if self._reclaimed(interval, interval.pins) is None:
            return step, records
        rest = self._up_to_newest(interval.head, records)
        states = _states(interval.new, rest)

        def is_readable(i: int) -> bool:
            longer = replace(interval, new=states[i])
            return self._reclaimed(longer, longer.pins) is None

        end = bisect_left(range(len(states)), True, lo=1, key=is_readable)
        if end == len(states):
            end -= 1
            longer = replace(interval, new=states[end])
            error = self._reclaimed(longer, longer.pins)
            if error is not None and self._until is not None:
                raise self._collected(longer, states[end], error)
        return _Step(replace(interval, new=states[end]), (*step.records, *rest[:end])), iter(rest[end:])

    def _up_to_newest(self, head: Head, records: Iterator[Record]) -> list[Record]:
        """The rest of the history, up to the head as it is now: the one that was read may be removed already."""
        rest = list(records)
        if self._until is not None:
            return rest
        newest = self.head()
        if newest.incarnation == head.incarnation and newest.commit != head.commit:
            rest += records_after(self.manifest, newest, head.commit)
        return rest

    def _collected(self, interval: Interval, state: State, error: VersionReclaimed) -> FeedCollected:
        rest = list(records_after(self.manifest, self.head(), state.commit))
        states = _states(state, rest)

        def is_readable(i: int) -> bool:
            whole = replace(interval, new=states[i])
            return self._reclaimed(whole, states[i].pins.values()) is None

        first = min(bisect_left(range(len(states)), True, key=is_readable), len(states) - 1)
        return FeedCollected(
            commit=state.commit,
            branch=self.branch,
            table_key=error.fields.get("table_key"),
            version=error.fields.get("version"),
            first_readable=states[first].commit,
        )

    # ---- leases ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _lease(self, interval: Interval, pins: Iterable[Pin] | None = None) -> Iterator[None]:
        """A lease on the versions of both states; VersionReclaimed if one is removed or about to be."""
        pins = tuple(interval.pins if pins is None else pins)
        if not pins:
            yield
            return
        with ExitStack() as stack:
            try:
                stack.enter_context(
                    leases.hold(
                        self.manifest.location,
                        pins,
                        owner=owner.myself(),
                        is_gone=owner.is_gone,
                        branch=self.branch,
                        commit=interval.new.commit or "",
                        live_pins=self.manifest.live_pins,
                        table_keys=interval.table_keys,
                    )
                )
            except StorageError as error:
                if not leases.may_not_write(error):
                    raise
                self._require_versions(interval, pins)  # a reader that may not write reads without a lease
            yield

    def _require_versions(self, interval: Interval, pins: Iterable[Pin]) -> None:
        location = self.manifest.location
        for pin in pins:
            if not all_exist(location, [durability.manifest_path(pin.path, pin.version)]):
                raise absence(location, pin.path, pin.version, table_key=interval.table_keys.get(pin.table, ""))

    def _reclaimed(self, interval: Interval, pins: Iterable[Pin]) -> VersionReclaimed | None:
        """Why these versions can't be read; None if they can. A version that was lost, and not removed, is raised."""
        try:
            with self._lease(interval, pins):
                return None
        except VersionMissing:
            raise
        except VersionReclaimed as error:
            return error

    # ---- rows --------------------------------------------------------------------------------------------------------

    def _pages(self, step: _Step, start: Cursor) -> Iterator[ChangePage]:
        commits = tuple(CommitInfo.of(record) for record in step.records)
        steps = tuple(str(schema_step) for schema_step in step.interval.schema_steps)
        to = commits[-1].id
        page: ChangePage | None = None
        for changes, rows in self._rows(step.interval, start.position):
            if page is not None:
                yield page
            position = Position(changes.type.id, rows["id"][-1].as_py())
            cursor = Cursor(start.incarnation, start.commit, to, position)
            page = ChangePage(commits, rows, steps, str(cursor), False, changes.shape)
        end = str(Cursor(start.incarnation, to))
        if page is None:
            yield ChangePage(commits, None, steps, end, True)
        else:
            yield replace(page, cursor=end, completes_commit=True)

    def _rows(self, interval: Interval, position: Position | None) -> Iterator[tuple[TypeChanges, pa.Table]]:
        """Changes by type, after `position`."""
        type_ids = [type_id for type_id, _, _ in interval.moved]
        if position is not None:
            order = [type_id for type_id, _, _ in replace(interval, types=None).moved]
            read = order[: order.index(position.type_id)] if position.type_id in order else []
            type_ids = [type_id for type_id in type_ids if type_id not in read]
        for type_id in type_ids:
            changes = TypeChanges(*interval.views, type_id)
            ids = None
            if position is not None and type_id == position.type_id:
                candidates = changes.candidates.ids
                ids = candidates.filter(pc.greater(candidates, position.entity_id)).to_pylist()
            for rows in changes.batches(rows_max=self._page_rows, ids=ids):
                if rows.num_rows:
                    yield changes, rows


@dataclass(frozen=True)
class _Step:
    """The changes of one commit, or the net changes of several."""

    interval: Interval
    records: tuple[Record, ...]


def _states(state: State, records: Iterable[Record]) -> list[State]:
    """The state and those after each of the records."""
    states = [state]
    for record in records:
        states.append(states[-1].after(record))
    return states
