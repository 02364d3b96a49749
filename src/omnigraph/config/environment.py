"""Variables of the environment that omnigraph reads: their values, or `wrong_usage` that names the variable."""

from __future__ import annotations

import math
import os

from omnigraph.errors import UsageError

_ON, _OFF = ("on", "1", "true", "yes"), ("off", "0", "false", "no")


def seconds(name: str, default: float, *, minimum: float) -> float:
    """A duration in seconds, `minimum` or more."""
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not minimum <= value < math.inf:
        raise UsageError(detail=f"{name} is a number of seconds from {minimum:g} up, not {text!r}.")
    return value


def integer(name: str, default: int, *, minimum: int, maximum: int = 2**63 - 1) -> int:
    if name not in os.environ:
        return default
    text = os.environ[name].strip()
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not minimum <= value <= maximum:
        up_to = f" to {maximum:,}" if maximum < 2**63 - 1 else " up"
        raise UsageError(detail=f"{name} is a whole number from {minimum}{up_to}, not {text!r}.")
    return value


def switch(name: str, *, default: bool) -> bool:
    text = os.environ.get(name, "").strip().lower()
    if text not in ("", *_ON, *_OFF):
        raise UsageError(detail=f"{name} is on or off, not {text!r}.")
    return default if not text else text in _ON
