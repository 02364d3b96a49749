"""Ranks: integers in the order of the values, equal where the values are. -1 stands for null.

Up to `sorting.PART_ROWS` values Arrow encodes them and sorts the distinct ones. More are ranked part by part:

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
"""Texts that are equal in this many words are compared by Arrow, in one call."""
_I64_MAX = np.iinfo(np.int64).max
_SIGN = np.uint64(1 << 63)
_KEPT = np.array([0, *((1 << 64) - (1 << (64 - 8 * n)) for n in range(1, WORD_BYTES + 1))], dtype=np.uint64)
"""By number of bytes: the mask of a word's bits that belong to the text."""

Words = Callable[[int, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""From a depth and positions to (the word of each value at that depth, whether the value continues after it).

The values of equal words either all continue or all end.
"""


def ranked(values: pa.Array) -> np.ndarray:
    """The ranks of the values; lists compare item by item."""
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
    """The same for values in parts, at least one; only what ranking needs of a part stays in memory."""
    reduced_parts: list[tuple[pa.Array, np.ndarray | None]] = []
    held_bytes = rows = 0
    is_repetitive = True
    for part in values:
        reduced = _reduced(part, encode=is_repetitive)
        reduced_parts.append(reduced)
        is_repetitive = is_repetitive and 2 * len(reduced[0]) < len(part)
        rows += len(part)
        held_bytes += reduced[0].nbytes + (0 if reduced[1] is None else reduced[1].nbytes)
        reserve(2 * held_bytes + 16 * rows)
    with holding(2 * held_bytes):
        ranks = _ranked_whole([k[0] for k in reduced_parts])
    ranks_of_rows = np.empty(rows, dtype=np.int64)
    start = dictionary_start = 0
    while reduced_parts:
        checkpoint()
        dictionary, indices = reduced_parts.pop(0)
        own = ranks[dictionary_start : dictionary_start + len(dictionary)]
        size = len(own) if indices is None else len(indices)
        ranks_of_rows[start : start + size] = own if indices is None else np.append(own, -1)[indices]
        start, dictionary_start = start + size, dictionary_start + len(dictionary)
    return ranks_of_rows


def _reduced(values: pa.Array, *, encode: bool) -> tuple[pa.Array, np.ndarray | None]:
    """(values, for each row the index of its value, -1 for null); the second is None if the values are those of the
    rows.
    """
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
    valid_positions = None if whole.null_count == 0 else np.flatnonzero(np.asarray(whole.is_valid()))
    valid_values = whole if valid_positions is None else whole.take(pa.array(valid_positions))
    if pa.types.is_integer(valid_values.type):
        ranks = factorize(np.asarray(valid_values))[1]
    elif pa.types.is_nested(valid_values.type):
        ranks = _by_words(
            len(valid_values), _words_of_lists(valid_values), lambda at: _ranked_lists(valid_values.take(pa.array(at)))
        )
    else:
        ranks = _by_words(
            len(valid_values),
            _words_of_texts(valid_values),
            lambda at: _ranked_by_arrow(valid_values.take(pa.array(at))),
        )
    if valid_positions is None:
        return ranks
    ranks_of_all = np.full(len(whole), -1, dtype=np.int64)
    ranks_of_all[valid_positions] = ranks
    return ranks_of_all


def _with_ranked_items(lists: Sequence[pa.Array]) -> list[pa.Array]:
    """The lists with their items replaced by ranks: smaller, and in the same order."""
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
    """64-bit integers in the order of the values; arbitrary for null."""
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
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.cumsum(np.append(False, np.asarray(pc.not_equal(ordered[1:], ordered[:-1]))))
    return ranks


# ---- words -----------------------------------------------------------------------------------------------------------


def _by_words(rows: int, words: Words, rest: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Dense ranks by the first word, then by the second, and so on; `rest` ranks values equal in `WORDS_MAX` words.

    The rank of values that are equal so far is the position at which they begin in the order of all: so the next word
    refines the values of one rank without reading any other.
    """
    reserve(rows * 48)
    ranks = np.zeros(rows, dtype=np.int64)
    undecided = np.arange(rows)
    for depth in range(WORDS_MAX):
        if len(undecided) == 0:
            break
        word, continues = _all_words(words, depth, undecided)
        if len(word) and bool((word == word[0]).all()):
            undecided = undecided[continues]
            continue
        refined, is_alone = _refined(ranks[undecided], factorize(word)[1])
        ranks[undecided] = refined
        undecided = undecided[continues & ~is_alone]
    if len(undecided):
        ranks[undecided] = _refined(ranks[undecided], rest(undecided))[0]
    return factorize(ranks)[1]


def _all_words(words: Words, depth: int, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    word = np.empty(len(positions), dtype=np.int64)
    continues = np.empty(len(positions), dtype=bool)
    for part in parts(len(positions)):
        word[part], continues[part] = words(depth, positions[part])
    return word, continues


def _refined(ranks: np.ndarray, minor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(ranks by both, whether no other value has the same)."""
    keys = ranks * (int(minor.max()) + 1) + minor
    order = argsort(keys)
    checkpoint()
    ordered, old_ranks = keys[order], ranks[order]
    del keys
    checkpoint()
    is_new = np.append(True, ordered[1:] != ordered[:-1])
    is_alone = is_new & np.append(is_new[1:], True)
    refined = old_ranks + _starts_of_runs(is_new)
    refined -= _starts_of_runs(np.append(True, old_ranks[1:] != old_ranks[:-1]))
    checkpoint()
    refined_ranks = np.empty(len(order), dtype=np.int64)
    refined_ranks[order] = refined
    checkpoint()
    alone = np.empty(len(order), dtype=bool)
    alone[order] = is_alone
    return refined_ranks, alone


def _starts_of_runs(is_first: np.ndarray) -> np.ndarray:
    """For each position the start of its run; `is_first` marks the first position of each run."""
    checkpoint()
    starts = np.flatnonzero(is_first)
    return np.repeat(starts, np.diff(starts, append=len(is_first)))


def _words_of_texts(texts: pa.Array) -> Words:
    """`texts` have a large Arrow type, and none is null."""
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    letters = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)
    if len(letters) < 8:
        letters = np.append(letters, np.zeros(8, dtype=np.uint8))
    # Eight bytes from any position on.
    window = np.ndarray((len(letters) - 7,), dtype=">u8", buffer=letters, strides=(1,))

    def words(depth: int, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        starts = bounds[positions] + depth * WORD_BYTES
        size = np.clip(bounds[positions + 1] - starts, 0, WORD_BYTES + 1)
        inside = np.minimum(starts, len(window) - 1)
        shift = np.minimum(8 * (starts - inside), 63).astype(np.uint64)
        word = window[inside].astype(np.uint64) << shift
        word &= _KEPT[np.minimum(size, WORD_BYTES)]
        # A text that ends here comes before one that continues with zero bytes.
        word |= size.astype(np.uint64)
        return (word ^ _SIGN).view(np.int64), size > WORD_BYTES

    return words


def _words_of_lists(lists: pa.Array) -> Words:
    """The lists hold ranks, and none of them is null."""
    items = np.asarray(lists.flatten()) + 1
    checkpoint()
    bounds = np.asarray(lists.offsets).astype(np.int64)
    bounds -= bounds[0]

    def words(depth: int, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        item_positions = bounds[positions] + depth
        items_left = bounds[positions + 1] - item_positions
        word = np.zeros(len(positions), dtype=np.int64)
        # A list that ends here comes before one that continues.
        word[items_left > 0] = 2 * items[item_positions[items_left > 0]] + (items_left > 1)[items_left > 0]
        return word, items_left > 1

    return words


def _ranked_lists(values: pa.Array) -> np.ndarray:
    items = [None if v is None else tuple(v) for v in values.to_pylist()]
    rank_of = {v: i for i, v in enumerate(sorted({v for v in items if v is not None}))}
    return np.array([-1 if v is None else rank_of[v] for v in items], dtype=np.int64)
