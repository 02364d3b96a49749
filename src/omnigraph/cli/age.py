"""Ages as people write them: 7d, 12h, 30m, 90s, 2w."""

from __future__ import annotations

import re

from omnigraph.errors import UsageError

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}


def seconds_of(text: str, *, option: str) -> float:
    """The age in seconds; `option` is what the user typed it after."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip().lower())
    if match is None:
        raise UsageError(detail=f"{option} takes an age like 7d, 12h, 30m or 90s, not {text!r}.")
    return float(match.group(1)) * _UNITS_S[match.group(2)]
