"""Ranks: whole numbers that are ordered as values are, and equal where these are. -1 stands for null.

Up to `sorting.PART_ROWS` values Arrow encodes them and sorts the different ones. More are ranked part by part:

1. numbers, times, Booleans  become 64-bit integers of the same order, which are sorted (`sorting`)
2. texts                     are encoded part by part, where that leaves fewer; their dictionaries are ranked together
3. ranking of texts          seven bytes at a time as one integer (and how many of them there are): texts are ordered by
                             the first seven; those that are equal so far and longer by the next seven, and so on
4. lists                     the same, item by item, by the ranks of their items; a list comes after its beginnings
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.query.execution import sorting
from omnigraph.query.execution.frame import bounds_of, factorize
from omnigraph.query.execution.sorting import argsort, parts
from omnigraph.query.limits import checkpoint, holding, reserve

WORD_BYTES = 7
WORDS_MAX = 64
"""Texts that are equal in so many words are compared by Arrow, in one call."""
_I64_MAX = np.iinfo(np.int64).max
_SIGN = np.uint64(1 << 63)
_KEPT = np.array([0, *((1 << 64) - (1 << (64 - 8 * n)) for n in range(1, WORD_BYTES + 1))], dtype=np.uint64)
"""By number of bytes: what of a word belongs to the text."""

Words = Callable[[int, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""From a depth and places to (the word of each value at that depth, whether the value goes on after it).

Of equal words either all values go on or none.
"""


def ranked(values: pa.Array) -> np.ndarray:
    """Lists compare item by item."""
    if len(values) > sorting.PART_ROWS:
        return ranked_parts(values[p] for p in parts(len(values)))
    if pa.types.is_nested(values.type):
        return _ranked_lists(values)
    if pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0.0, values.type))  # minus zero is zero
    encoded = values.dictionary_encode()
    order = np.asarray(pc.array_sort_indices(encoded.dictionary))
    ranks = np.empty(len(order) + 1, dtype=np.int64)
    ranks[order] = np.arange(len(order))
    ranks[-1] = -1
    return np.asarray(ranks[np.asarray(encoded.indices.fill_null(-1))])


def ranked_parts(values: Iterable[pa.Array]) -> np.ndarray:
    """The same for values that come in parts, at least one; only what ranking needs of a part is kept."""
    kept: list[tuple[pa.Array, np.ndarray | None]] = []
    held = rows = 0
    is_repetitive = True
    for part in values:
        small = _reduced(part, encode=is_repetitive)
        kept.append(small)
        is_repetitive = is_repetitive and 2 * len(small[0]) < len(part)
        rows += len(part)
        held += small[0].nbytes + (0 if small[1] is None else small[1].nbytes)
        reserve(2 * held + 16 * rows)
    with holding(2 * held):
        ranks = _ranked_whole([k[0] for k in kept])
    found = np.empty(rows, dtype=np.int64)
    at = below = 0
    while kept:
        checkpoint()
        dictionary, indices = kept.pop(0)
        own = ranks[below : below + len(dictionary)]
        size = len(own) if indices is None else len(indices)
        found[at : at + size] = own if indices is None else np.append(own, -1)[indices]
        at, below = at + size, below + len(dictionary)
    return found


def _reduced(values: pa.Array, *, encode: bool) -> tuple[pa.Array, np.ndarray | None]:
    """(values, which of them each row has, -1 for null); without the second the values are those of the rows."""
    if pa.types.is_nested(values.type):
        return values, None
    if not _is_text(values.type):
        return pa.array(_integers(values), mask=np.asarray(values.is_null())), None
    wide = pa.large_binary() if _is_binary(values.type) else pa.large_string()
    if not encode:
        return values.cast(wide), None
    encoded = values.dictionary_encode()
    return encoded.dictionary.cast(wide), np.asarray(encoded.indices.fill_null(-1))


def _ranked_whole(dictionaries: Sequence[pa.Array]) -> np.ndarray:
    if pa.types.is_nested(dictionaries[0].type):
        dictionaries = _with_ranked_items(dictionaries)
    whole = pa.concat_arrays(dictionaries)
    checkpoint()
    there = None if whole.null_count == 0 else np.flatnonzero(np.asarray(whole.is_valid()))
    some = whole if there is None else whole.take(pa.array(there))
    if pa.types.is_integer(some.type):
        ranks = factorize(np.asarray(some))[1]
    elif pa.types.is_nested(some.type):
        ranks = _by_words(len(some), _words_of_lists(some), lambda at: _ranked_lists(some.take(pa.array(at))))
    else:
        ranks = _by_words(len(some), _words_of_texts(some), lambda at: _ranked_by_arrow(some.take(pa.array(at))))
    if there is None:
        return ranks
    found = np.full(len(whole), -1, dtype=np.int64)
    found[there] = ranks
    return found


def _with_ranked_items(lists: Sequence[pa.Array]) -> list[pa.Array]:
    """The lists with the ranks of their items instead of these: smaller, and in the same order."""
    ranks = ranked_parts(part.flatten() for part in lists)
    ranked_lists = []
    start = 0
    for part in lists:
        checkpoint()
        lengths = np.asarray(pc.list_value_length(part).fill_null(0)).astype(np.int64)
        offsets = bounds_of(lengths)
        items = pa.array(ranks[start : start + int(offsets[-1])])
        mask = part.is_null() if part.null_count else None
        ranked_lists.append(pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), items, mask=mask))
        start += int(offsets[-1])
    return ranked_lists


def _is_binary(t: pa.DataType) -> bool:
    return bool(pa.types.is_binary(t) or pa.types.is_large_binary(t))


def _is_text(t: pa.DataType) -> bool:
    return _is_binary(t) or bool(pa.types.is_string(t) or pa.types.is_large_string(t))


def _integers(values: pa.Array) -> np.ndarray:
    """64-bit integers in the order of the values; any for null."""
    if pa.types.is_floating(values.type):
        numbers = np.asarray(values.cast(pa.float64()).fill_null(0.0)) + 0.0  # minus zero is zero
        bits = numbers.view(np.int64)
        bits = np.where(bits < 0, bits ^ _I64_MAX, bits)
        return np.where(np.isnan(numbers), _I64_MAX, bits)
    if values.type == pa.uint64():
        return (np.asarray(values.fill_null(0)) ^ _SIGN).view(np.int64)
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    numbers_or_flags = values.cast(pa.int64())
    return np.asarray(numbers_or_flags.fill_null(0))


def _ranked_by_arrow(values: pa.Array) -> np.ndarray:
    order = np.asarray(pc.array_sort_indices(values))
    ordered = values.take(pa.array(order))
    found = np.empty(len(order), dtype=np.int64)
    found[order] = np.cumsum(np.append(False, np.asarray(pc.not_equal(ordered[1:], ordered[:-1]))))
    return found


# ---- words -----------------------------------------------------------------------------------------------------------


def _by_words(rows: int, words: Words, rest: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Dense ranks by the first word, then by the second, and so on; `rest` ranks what is equal in `WORDS_MAX` of them.

    `ranks` of equal values so far are the place at which they begin in the order of all: so values of one rank are
    told apart by a word without a look at any other.
    """
    reserve(rows * 48)
    ranks = np.zeros(rows, dtype=np.int64)
    open_ = np.arange(rows)
    for depth in range(WORDS_MAX):
        if len(open_) == 0:
            break
        word, goes_on = _all_words(words, depth, open_)
        if len(word) and bool((word == word[0]).all()):
            open_ = open_[goes_on]
            continue
        refined, is_alone = _refined(ranks[open_], factorize(word)[1])
        ranks[open_] = refined
        open_ = open_[goes_on & ~is_alone]
    if len(open_):
        ranks[open_] = _refined(ranks[open_], rest(open_))[0]
    return factorize(ranks)[1]


def _all_words(words: Words, depth: int, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    word = np.empty(len(places), dtype=np.int64)
    goes_on = np.empty(len(places), dtype=bool)
    for part in parts(len(places)):
        word[part], goes_on[part] = words(depth, places[part])
    return word, goes_on


def _refined(ranks: np.ndarray, more: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(ranks by both, whether no other has the same)."""
    keys = ranks * (int(more.max()) + 1) + more
    order = argsort(keys)
    checkpoint()
    ordered, before = keys[order], ranks[order]
    del keys
    checkpoint()
    is_new = np.append(True, ordered[1:] != ordered[:-1])
    is_alone = is_new & np.append(is_new[1:], True)
    refined = before + _starts_of_runs(is_new)
    refined -= _starts_of_runs(np.append(True, before[1:] != before[:-1]))
    checkpoint()
    found = np.empty(len(order), dtype=np.int64)
    found[order] = refined
    checkpoint()
    alone = np.empty(len(order), dtype=bool)
    alone[order] = is_alone
    return found, alone


def _starts_of_runs(is_first: np.ndarray) -> np.ndarray:
    """For each place the start of the run that it lies in; `is_first` marks the first place of each run."""
    checkpoint()
    starts = np.flatnonzero(is_first)
    return np.repeat(starts, np.diff(starts, append=len(is_first)))


def _words_of_texts(texts: pa.Array) -> Words:
    """`texts` are of a large type and none is null."""
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    letters = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)
    if len(letters) < 8:
        letters = np.append(letters, np.zeros(8, dtype=np.uint8))
    # Eight bytes from any place on.
    window = np.ndarray((len(letters) - 7,), dtype=">u8", buffer=letters, strides=(1,))

    def words(depth: int, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        starts = bounds[places] + depth * WORD_BYTES
        size = np.clip(bounds[places + 1] - starts, 0, WORD_BYTES + 1)
        inside = np.minimum(starts, len(window) - 1)
        shift = np.minimum(8 * (starts - inside), 63).astype(np.uint64)
        word = window[inside].astype(np.uint64) << shift
        word &= _KEPT[np.minimum(size, WORD_BYTES)]
        # A text that ends here comes before one that goes on with bytes of zero.
        word |= size.astype(np.uint64)
        return (word ^ _SIGN).view(np.int64), size > WORD_BYTES

    return words


def _words_of_lists(lists: pa.Array) -> Words:
    """The lists hold ranks, and none of them is null."""
    items = np.asarray(lists.flatten()) + 1
    checkpoint()
    bounds = np.asarray(lists.offsets).astype(np.int64)
    bounds -= bounds[0]

    def words(depth: int, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        at = bounds[places] + depth
        left = bounds[places + 1] - at
        word = np.zeros(len(places), dtype=np.int64)
        # A list that ends here comes before one that goes on.
        word[left > 0] = 2 * items[at[left > 0]] + (left > 1)[left > 0]
        return word, left > 1

    return words


def _ranked_lists(values: pa.Array) -> np.ndarray:
    items = [None if v is None else tuple(v) for v in values.to_pylist()]
    known = {v: i for i, v in enumerate(sorted({v for v in items if v is not None}))}
    return np.array([-1 if v is None else known[v] for v in items], dtype=np.int64)
