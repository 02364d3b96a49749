"""How a long job looks while it runs: bars on a terminal, one line per stage elsewhere, nothing with --quiet.

    with watching(quiet=quiet) as watcher:
        omnigraph.open(uri, watcher=watcher).load(…)

On a terminal every stage has a bar with its tasks, rows, bytes, time so far and time left. The bars are there while the
block runs and are wiped when it ends, however it ends. Without a terminal each stage leaves one line when it is over:

    reading: 12 tasks, 2,000,000 rows, 180.0 MiB, 3.2 s

Which engine runs, and why, is said on a line that stays. All of it goes to stderr: stdout holds the answer only.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO

from omnigraph.cli.logs import logs_are_shown
from omnigraph.cli.output import count, write_text
from omnigraph.config.sizes import size_text
from omnigraph.errors.redact import redact
from omnigraph.language.controls import escaped
from omnigraph.tasks.progress import SilentWatcher, Watcher

REFRESH_PER_S = 8
OTHER_COLUMNS = 70
"""What a line of the display takes beside its bar: it fits a terminal of 80 columns."""


@contextmanager
def watching(*, quiet: bool, stream: TextIO | None = None) -> Iterator[Watcher]:
    """A watcher that draws on stderr until the block ends."""
    to = stream or sys.stderr
    if quiet:
        yield SilentWatcher()
        return
    view: _Bars | _Lines = _Bars(to) if _can_draw(to) else _Lines(to)
    try:
        yield view
        view.finish()
    finally:
        view.close()


def _can_draw(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown") and not logs_are_shown()


@dataclass
class _Stage:
    """What is known of the stage that runs."""

    name: str
    tasks: int
    began: float = field(default_factory=time.monotonic)
    done: int = 0
    rows: int = 0
    size_bytes: int = 0

    def line(self) -> str:
        """What a finished stage leaves; what it did not count is left out."""
        amounts = [count(self.tasks, "task", "tasks")]
        amounts += [count(self.rows, "row", "rows")] if self.rows else []
        amounts += [size_text(self.size_bytes)] if self.size_bytes else []
        return f"{self.name}: {', '.join(amounts)}, {time.monotonic() - self.began:.1f} s"


class _View:
    """The part that both ways of showing share: which stage runs, and that an engine is named once."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._stage: _Stage | None = None
        self._engine = ""

    def engine(self, name: str, reason: str) -> None:
        text = f"→ engine {name}: {reason}"
        if text != self._engine:
            self._engine = text
            self._say(text)

    def stage(self, name: str, *, tasks: int) -> None:
        self.finish()
        if tasks:  # a stage without tasks is none
            self._stage = _Stage(name, tasks)
            self._begin(self._stage)

    def advance(self, *, tasks: int, rows: int, size_bytes: int) -> None:
        if self._stage is not None:
            self._stage.done, self._stage.rows, self._stage.size_bytes = tasks, rows, size_bytes
            self._draw(self._stage)

    def finish(self) -> None:
        """The stage that runs, if one does, is over and went well."""
        if self._stage is not None:
            self._stage.done = self._stage.tasks
            self._end(self._stage)
            self._stage = None

    def close(self) -> None:
        return

    def _say(self, text: str) -> None:
        write_text(self._stream, redact(f"{text}\n"))

    def _begin(self, stage: _Stage) -> None:
        return

    def _draw(self, stage: _Stage) -> None:
        return

    def _end(self, stage: _Stage) -> None:
        return


class _Lines(_View):
    def _end(self, stage: _Stage) -> None:
        self._say(stage.line())


class _Bars(_View):
    """rich draws, from a thread of its own; it is started with the first stage."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._drawn: Any = None
        self._bar: Any = None

    def _begin(self, stage: _Stage) -> None:
        if self._drawn is None:
            self._drawn = _rich_progress(self._stream)
            self._drawn.start()
        self._bar = self._drawn.add_task(escaped(stage.name, lines=False), total=stage.tasks, amounts="tasks")

    def _draw(self, stage: _Stage) -> None:
        rows = f"{stage.rows:,} rows" if stage.rows else ""
        size = size_text(stage.size_bytes) if stage.size_bytes else ""
        amounts = "  ".join(text for text in (rows, size) if text) or "tasks"
        self._drawn.update(self._bar, completed=stage.done, amounts=amounts)

    def _end(self, stage: _Stage) -> None:
        self._draw(stage)

    def _say(self, text: str) -> None:
        if self._drawn is None:
            super()._say(text)
        else:
            # Above the bars, which are drawn again below it.
            self._drawn.console.print(escaped(text), markup=False, highlight=False)

    def close(self) -> None:
        if self._drawn is not None:
            self._drawn.stop()


def _rich_progress(stream: TextIO) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.text import Text

    class Times(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(
                _times(task.finished_time or task.elapsed or 0.0, None if task.finished else task.time_remaining)
            )

    console = Console(file=stream, highlight=False)
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=min(24, max(6, console.width - OTHER_COLUMNS))),
        MofNCompleteColumn(),
        TextColumn("{task.fields[amounts]}", markup=False),
        Times(),
        console=console,
        transient=True,
        refresh_per_second=REFRESH_PER_S,
        # What others print on stdout is the answer, and not to be drawn above bars on stderr.
        redirect_stdout=False,
        redirect_stderr=False,
    )


def _times(elapsed_s: float, left_s: float | None) -> str:
    return _clock(elapsed_s) + (f", {_clock(left_s)} left" if left_s is not None else "")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}" if minutes else f"{rest} s"
