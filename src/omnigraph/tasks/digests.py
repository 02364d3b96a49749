"""128-bit digests of texts, a whole column at a time.

Eight bytes at a time are mixed into two lanes of 64 bits, for all rows at once. Digests group equal texts within one
job and are never stored in the graph: the function may change between versions.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa

LONG_BYTES = 256
"""Longer texts are digested one by one: otherwise a column of short texts takes as many steps as its longest one."""
CHUNK_ROWS = 32_768

_U = np.uint64
_SEEDS = (_U(0x9E3779B97F4A7C15), _U(0xC2B2AE3D27D4EB4F))
_WORD = (_U(0x87C37B91114253D5), _U(0x4CF5AD432745937F))
_STEP = (_U(0x52DCE729DA3ED6A5), _U(0x38495AB5B5A8C6E3))
_LAST = (_U(0xFF51AFD7ED558CCD), _U(0xC4CEB9FE1A85EC53))
_KEEP = np.array([(1 << (8 * n)) - 1 for n in range(8)] + [2**64 - 1], dtype=np.uint64)


def digests(values: pa.Array) -> np.ndarray:
    """An array of shape (n, 2). `values` are strings without nulls."""
    assert values.null_count == 0
    count = len(values)
    result = np.empty((count, 2), dtype=np.uint64)
    if count == 0:
        return result
    if not pa.types.is_string(values.type):
        values = values.cast(pa.string())
    _, offsets_buffer, data = values.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32)[values.offset : values.offset + count + 1].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    # Eight bytes of slack, so that the last word can be read whole.
    text = np.zeros(last - first + 8, dtype=np.uint8)
    if last > first:
        text[: last - first] = np.frombuffer(data, dtype=np.uint8, count=last - first, offset=first)
    words = np.ndarray((len(text) - 7,), dtype="<u8", buffer=text.data, strides=(1,))
    offsets -= first
    for start in range(0, count, CHUNK_ROWS):
        stop = min(start + CHUNK_ROWS, count)
        _mix(words, offsets[start:stop], np.diff(offsets[start : stop + 1]), result[start:stop])
    for row in np.flatnonzero(np.diff(offsets) > LONG_BYTES).tolist():
        whole = hashlib.blake2b(text[offsets[row] : offsets[row + 1]].tobytes(), digest_size=16).digest()
        result[row] = np.frombuffer(whole, dtype="<u8")
    return result


def _mix(words: np.ndarray, starts: np.ndarray, lengths: np.ndarray, out: np.ndarray) -> None:
    lanes = [seed ^ (lengths.astype(np.uint64) * step) for seed, step in zip(_SEEDS, _STEP, strict=True)]
    steps = int((min(int(lengths.max(initial=0)), LONG_BYTES) + 7) // 8)
    for step in range(steps):
        remaining = lengths - 8 * step
        active = None if remaining.min() > 0 else np.flatnonzero(remaining > 0)
        offsets = starts + 8 * step if active is None else starts[active] + 8 * step
        word_bytes = remaining if active is None else remaining[active]
        word = words[offsets] & _KEEP[np.minimum(word_bytes, 8)]
        for lane in range(2):
            mixed_lane = lanes[lane] if active is None else lanes[lane][active]
            mixed_lane = mixed_lane ^ (word * _WORD[lane])
            mixed_lane = ((mixed_lane << _U(27)) | (mixed_lane >> _U(37))) * _STEP[lane] + _SEEDS[1 - lane]
            if active is None:
                lanes[lane] = mixed_lane
            else:
                lanes[lane][active] = mixed_lane
    for lane in range(2):
        mixed = lanes[lane]
        for round_number in range(2):
            mixed = (mixed ^ (mixed >> _U(33))) * _LAST[round_number]
        out[:, lane] = mixed ^ (mixed >> _U(29))


def buckets_of(digest_rows: np.ndarray, count: int) -> np.ndarray:
    """The bucket of each digest."""
    return np.asarray((digest_rows[:, 0] >> _U(40)) % _U(count)).astype(np.int64)
