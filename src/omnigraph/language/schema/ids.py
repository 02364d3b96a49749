"""Stable ids for types and properties: a prefix letter and 11 lower-case Crockford base32 characters.

The 55 bits are 41 bits of milliseconds since 2020 (good until 2089) and 14 bits that start at random. Within one call
of `fresh_ids` every id is larger than the one before, by a random step, so ids sort in the order in which they were
made and two processes in the same millisecond are unlikely to meet.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
EPOCH_MS = 1_577_836_800_000
DIGITS = 11
TAIL_BITS = 14
STEP_MAX = 1 << 10


def fresh_ids() -> Callable[[str], str]:
    """A source of ids, to be called with the prefix letter (`n` node, `e` edge, `p` property)."""
    last = 0

    def new_id(prefix: str) -> str:
        nonlocal last
        chance = int.from_bytes(os.urandom(4))
        now = (time.time_ns() // 1_000_000 - EPOCH_MS) << TAIL_BITS | chance % (1 << TAIL_BITS)
        last = max(now, last + 1 + chance % STEP_MAX)
        return prefix + _base32(last)

    return new_id


def _base32(number: int) -> str:
    assert 0 <= number < 1 << (5 * DIGITS), "the clock is outside of 2020 to 2089"
    return "".join(ALPHABET[number >> shift & 31] for shift in range(5 * (DIGITS - 1), -1, -5))
