"""Durations as people write them: 90s, 15m, 12h, 7d, 2w. The same form on the command line, in files and in results."""

from __future__ import annotations

import re

from omnigraph.errors import UsageError

DURATION_FORM = "a number and a unit, as 90s, 15m, 12h, 7d or 2w"
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_DURATION = re.compile(r"(\d{1,9})(s|m|h|d|w)")


def parse_duration(text: str) -> float | None:
    """Seconds; None if it is no duration."""
    found = _DURATION.fullmatch(text.strip())
    return None if found is None else float(int(found[1]) * _UNITS_S[found[2]])


def seconds_of(text: str, *, option: str) -> float:
    """The same of what a user typed after an option."""
    found = parse_duration(text)
    if found is None:
        raise UsageError(detail=f"{option} is {DURATION_FORM}, not {text!r}.")
    return found


def duration_text(seconds: float) -> str:
    """The shortest exact form, in the units that are read."""
    for unit in ("d", "h", "m"):
        size = _UNITS_S[unit]
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"
