"""What holds for every test."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    # Started in the background a shell ignores Ctrl-C for us, and every process we start would inherit that.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
