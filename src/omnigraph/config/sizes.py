"""Sizes as text: 500MiB, 20GiB, 4096. The same form on the command line and in files."""

from __future__ import annotations

import re
from functools import partial

from omnigraph.errors import UsageError

SIZE_FORM = "a size like 500MiB or 20GiB"
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([kmgt]i?b?|b)?", re.IGNORECASE)


def parse_size(text: str) -> int | None:
    """Bytes; units are powers of 1024. None if it is no size."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    unit = (found[2] or "b")[0].lower()
    return int(float(found[1]) * 1024 ** "bkmgt".index(unit))


def size_of(text: str, *, option: str) -> int:
    """The same of what a user typed after an option."""
    found = parse_size(text)
    if found is None:
        raise UsageError(detail=f"{option} takes {SIZE_FORM}, not {text!r}.")
    return found


def size_text(size_bytes: float, *, short: bool = False) -> str:
    """Bytes in the largest unit that they fill, with one decimal; `short` leaves the decimal out from 100 on."""
    amount, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} {unit}" if unit == "B" or (short and amount >= 100) else f"{amount:.1f} {unit}"


short_size_text = partial(size_text, short=True)
