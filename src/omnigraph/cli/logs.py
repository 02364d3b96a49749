"""Log lines of the library on stderr: `-v` shows information, `-vv` details; OMNIGRAPH_LOG sets a level for all runs.

    2026-01-31T12:00:00.123Z INFO omnigraph.commit.recovery rolled back graph=/data/people branch=main epoch=17

Without either, nothing is shown. The option comes before the variable. While log lines are shown, progress is shown as
lines too, because bars and log lines would overwrite each other.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import Any

from omnigraph.errors import UsageError

VARIABLE = "OMNIGRAPH_LOG"
_LEVELS = {
    "off": None,
    "error": logging.ERROR,
    "warning": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
}
_ROOT = logging.getLogger("omnigraph")


class _Stderr(logging.Handler):
    """Writes to the stderr of the moment, without secrets and without control characters."""

    def emit(self, record: logging.LogRecord) -> None:
        from omnigraph.cli.output import write_text
        from omnigraph.errors.redact import redact

        try:
            write_text(sys.stderr, redact(f"{self.format(record)}\n"))
        except Exception:  # noqa: BLE001  logging reports its own failures, and the command goes on
            self.handleError(record)


def level_of(verbose: int) -> int | None:
    """The level to show; None for none. `verbose` is how often -v was given."""
    text = os.environ.get(VARIABLE, "").strip().lower()
    if text and text not in _LEVELS:
        raise UsageError(detail=f"{VARIABLE} is one of {', '.join(_LEVELS)}, not {text!r}.")
    if verbose:
        return logging.INFO if verbose == 1 else logging.DEBUG
    return _LEVELS[text] if text else None


def show_logs(level: int | None) -> None:
    """Write the library's log lines of this level and above to stderr, until `hide_logs`."""
    hide_logs()
    if level is not None:
        formatter = logging.Formatter(
            "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S"
        )
        formatter.converter = time.gmtime
        handler = _Stderr()
        handler.setFormatter(formatter)
        _ROOT.addHandler(handler)
        _ROOT.setLevel(level)


def hide_logs() -> None:
    handlers = [handler for handler in _ROOT.handlers if isinstance(handler, _Stderr)]
    for handler in handlers:
        _ROOT.removeHandler(handler)
    if handlers:
        _ROOT.setLevel(logging.NOTSET)


def logs_are_shown() -> bool:
    return any(isinstance(handler, _Stderr) for handler in _ROOT.handlers)


def set_verbosity(_context: Any, _option: Any, verbose: int) -> None:
    """What the option -v does."""
    show_logs(level_of(verbose))
