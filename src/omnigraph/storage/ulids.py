"""ULIDs: 48 bits of milliseconds, 80 bits of randomness, as 26 characters that sort by time.

One `Ulids` gives ids that increase with the number asked for, so the ids of a batch sort like its rows, whichever
thread asks.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

_CROCKFORD = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"
# Two characters at a time: the spelling of each ten bits, as they lie in memory.
_PAIRS = np.frombuffer(b"".join(bytes((a, b)) for a in _CROCKFORD for b in _CROCKFORD), dtype=np.uint16)
_VARYING_BITS = 40


@dataclass(frozen=True)
class Ulids:
    """A series of ULIDs that share time and randomness and increase with their number."""

    time_ms: int
    randomness: int

    @classmethod
    def fresh(cls) -> Ulids:
        randomness = int.from_bytes(os.urandom(10), "big")
        # One bit cleared leaves room for 2^39 numbers before the varying part would carry over.
        return cls(time_ms=time.time_ns() // 1_000_000, randomness=randomness & ~(1 << (_VARYING_BITS - 1)))

    def ids(self, numbers: np.ndarray) -> pa.Array:
        """The ULIDs with these numbers (each ≥ 0 and < 2^39)."""
        count = len(numbers)
        pairs = np.empty((count, 13), dtype=np.uint16)
        fixed = (self.time_ms << 80 | self.randomness) >> _VARYING_BITS
        pairs[:, :9] = _PAIRS[[fixed >> (10 * (8 - i)) & 1023 for i in range(9)]]
        varying = numbers.astype(np.int64) + (self.randomness & ((1 << _VARYING_BITS) - 1))
        for i in range(4):
            pairs[:, 9 + i] = _PAIRS[varying >> (10 * (3 - i)) & 1023]
        offsets = np.arange(0, 26 * (count + 1), 26, dtype=np.int32)
        return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(pairs))


def new_ulid() -> str:
    ulid: str = Ulids.fresh().ids(np.zeros(1, dtype=np.int64))[0].as_py()
    return ulid
