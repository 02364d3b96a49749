"""One line on stderr that says how far a long command is. Only on a terminal, only after two seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

from omnigraph.cli.logs import logs_are_shown
from omnigraph.language.controls import escaped

SILENT_S = 2.0
INTERVAL_S = 0.25


class Progress:
    """Context manager. `detail` is called from another thread and must only look."""

    def __init__(self, label: str, detail: Callable[[], str] | None = None, *, quiet: bool) -> None:
        self._label = label
        self._detail = detail
        self._enabled = not quiet and sys.stderr.isatty() and not logs_are_shown()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Progress:
        if self._enabled:
            self._thread = threading.Thread(target=self._run, name="omnigraph-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """Wipe the line, because something else is shown from now on."""
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        started = time.monotonic()
        if self._done.wait(SILENT_S):
            return
        while True:
            seconds = time.monotonic() - started
            detail = f"{self._detail()}, " if self._detail is not None else ""
            line = escaped(f"{self._label}: {detail}{seconds:.0f} s", lines=False)
            sys.stderr.write(f"\r\x1b[2K  {line}")
            sys.stderr.flush()
            if self._done.wait(INTERVAL_S):
                break
        sys.stderr.write("\r\x1b[2K")
        sys.stderr.flush()
