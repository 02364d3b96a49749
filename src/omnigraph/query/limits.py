"""Limits of one query and what it has used: time, rows, memory. Exceeding a limit ends the query at once.

Time is checked between steps, between batches of a scan, in joins and traversals after every 250,000 rows, in
expressions, sorts and aggregates after at most every million rows. Memory is what the query itself holds: bound rows,
values and results, not the caches, which have their own budget. The number of rows of a join is computed from the sizes
of its groups before they are built: if it exceeds the memory limit, or `max_rows` where no later step drops a row of
the answer, the join does not start. Without a limit, the memory of the machine is the limit.

Functions on plain arrays (`frame`, `sorting`, `ranking`) take no query. They call `checkpoint` between parts of their
work and `reserve` before a large allocation; both check the `Watch` of the query that runs in this thread, if there is
one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from omnigraph.errors import OutOfMemory, QueryTimeout, ResourceLimit, UsageError


@dataclass(frozen=True)
class Options:
    """`traverse` is csr or index to force one method, None to choose for every step."""

    timeout_s: float | None = None
    max_rows: int | None = None
    max_memory_bytes: int | None = None
    traverse: str | None = None
    provider: str | None = None

    def checked(self) -> Options:
        for name in ("timeout_s", "max_rows", "max_memory_bytes"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UsageError(detail=f"{name} is a limit above 0, not {value}.")
        if self.traverse not in (None, "csr", "index"):
            raise UsageError(detail=f"traverse is csr or index, not {self.traverse!r}.")
        return self


@dataclass
class ExecutedStep:
    """One executed step. `estimated` is None where there was no estimate."""

    name: str
    about: object
    """A clause, clauses, expressions, or a text: formatted only when `detail` is read."""
    estimated: int | None = None
    rows: int = 0
    seconds: float = 0.0
    depth: int = 0
    used: list[str] = field(default_factory=list)
    """Indices and caches that were used."""
    look: list[Callable[[], Sequence[str]]] = field(default_factory=list)
    """Computed only when `by` is read: the indices that Lance uses for a scan."""

    @property
    def detail(self) -> str:
        from omnigraph.query.plan.show import show_about

        return show_about(self.about)

    @property
    def by(self) -> list[str]:
        """All indices and caches that were used."""
        return [*self.used, *(name for look in self.look for name in look())]

    def to_json(self) -> dict[str, Any]:
        return {
            "step": self.name,
            "detail": self.detail,
            "depth": self.depth,
            "estimated_rows": self.estimated,
            "rows": self.rows,
            "used": self.by,
            "ms": round(self.seconds * 1000, 3),
        }


@contextmanager
def enough_memory(query: str) -> Iterator[None]:
    """Raise OutOfMemory where numpy or Arrow raise MemoryError."""
    try:
        yield
    except MemoryError as error:
        raise OutOfMemory(query=query) from error


_RUNNING: ContextVar[Watch | None] = ContextVar("omnigraph_query_watch", default=None)


def checkpoint() -> None:
    """Raise QueryTimeout if the time of the query that runs in this thread is over."""
    watch = _RUNNING.get()
    if watch is not None:
        watch.tick()


def reserve(needed_bytes: int) -> None:
    """Raise if the time of the query in this thread is over, or if it may not allocate that many more bytes."""
    watch = _RUNNING.get()
    if watch is not None:
        watch.tick()
        watch.memory(needed_bytes)


@contextmanager
def holding(held_bytes: int) -> Iterator[None]:
    """Count these bytes in the query that runs in this thread, in addition to what is reserved within the block."""
    watch = _RUNNING.get()
    with nullcontext() if watch is None else watch.holding(held_bytes):
        yield


class Watch:
    """The clock and the memory account of one run."""

    def __init__(self, query: str, options: Options) -> None:
        self.query = query
        self.options = options
        self.steps: list[ExecutedStep] = []
        self.began = time.perf_counter()
        self._deadline = None if options.timeout_s is None else self.began + options.timeout_s
        self._open: list[ExecutedStep] = []
        self._held_bytes = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make `checkpoint` and `reserve` of this thread check this watch."""
        token = _RUNNING.set(self)
        try:
            yield
        finally:
            _RUNNING.reset(token)

    @contextmanager
    def holding(self, held_bytes: int) -> Iterator[None]:
        """Count these bytes in addition to what is reserved within the block."""
        self.memory(held_bytes)
        self._held_bytes += held_bytes
        try:
            yield
        finally:
            self._held_bytes -= held_bytes

    def keep(self, kept_bytes: int) -> None:
        """Count these bytes until the query ends."""
        self.memory(kept_bytes)
        self._held_bytes += kept_bytes

    @contextmanager
    def step(self, name: str, about: object, estimated: float | None = None) -> Iterator[ExecutedStep]:
        self.tick()
        step = ExecutedStep(name, about, None if estimated is None else round(estimated), depth=len(self._open))
        self.steps.append(step)
        self._open.append(step)
        started = time.perf_counter()
        try:
            yield step
        finally:
            step.seconds = time.perf_counter() - started
            self._open.pop()

    def use(self, what: str) -> None:
        """Record an index or cache that the current step used."""
        if self._open and what not in self._open[-1].used:
            self._open[-1].used.append(what)

    def tick(self) -> None:
        if self._deadline is not None and time.perf_counter() > self._deadline:
            raise QueryTimeout(query=self.query, timeout_s=self.options.timeout_s)

    def memory(self, needed_bytes: int) -> None:
        """Check bytes about to be allocated in addition to those already counted (`holding`, `keep`)."""
        budget = self.options.max_memory_bytes
        total = self._held_bytes + int(needed_bytes)
        if budget is not None and total > budget:
            raise ResourceLimit(query=self.query, resource="memory_bytes", limit=budget, actual=total)

    def building(self, rows: int, columns: int, *, rows_max: int | None = None) -> None:
        """Check a join that is about to build that many rows. `rows_max`: every row above it is a row of the answer."""
        self.tick()
        if rows_max is not None and rows > rows_max:
            assert self.options.max_rows is not None, "only that limits rows"
            surplus = rows - rows_max
            limit = self.options.max_rows
            raise ResourceLimit(query=self.query, resource="rows", limit=limit, actual=limit + surplus)
        self.memory(rows * 8 * columns)

    def stop(self) -> None:
        """End the time limit: reading the finished result does not count."""
        self._deadline = None

    def answer(self, rows: int) -> None:
        rows_max = self.options.max_rows
        if rows_max is not None and rows > rows_max:
            raise ResourceLimit(query=self.query, resource="rows", limit=rows_max, actual=rows)
