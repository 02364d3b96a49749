"""Stable ids for types and properties: a prefix letter and 11 lower-case Crockford base32 characters.

The 55 bits are 31 bits of seconds since 2020 (good until 2088) and 24 bits that start at random and count upwards
within one call of `fresh_ids`. Ids of one call therefore sort in the order in which they were made, ids of different
calls by the second. Finer time would leave fewer random bits and more collisions of writers that add types at the same
time: two writers that generate 20 ids each in the same second collide with a probability of 1 in 400,000.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
EPOCH_S = 1_577_836_800
DIGITS = 11
RANDOM_BITS = 24


def fresh_ids() -> Callable[[str], str]:
    """A source of ids, to be called with the prefix letter (`n` node, `e` edge, `p` property)."""
    last = 0

    def new_id(prefix: str) -> str:
        nonlocal last
        # The random half is drawn again only in a new second; within a second, counting keeps the order.
        second = int(time.time()) - EPOCH_S
        if second > last >> RANDOM_BITS:
            last = second << RANDOM_BITS | int.from_bytes(os.urandom(RANDOM_BITS // 8))
        else:
            last += 1
        return prefix + _base32(last)

    return new_id


def _base32(number: int) -> str:
    assert 0 <= number < 1 << (5 * DIGITS), "the clock is outside of 2020 to 2088"
    return "".join(ALPHABET[number >> shift & 31] for shift in range(5 * (DIGITS - 1), -1, -5))
