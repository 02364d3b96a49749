"""Words of many texts at once: in lower case, runs of letters, digits and marks. And words within an edit distance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_BETWEEN = r"[^\p{L}\p{N}\p{M}]+"


@dataclass(frozen=True, eq=False)
class Words:
    """`vocabulary` holds the distinct words; `words[i]` is a word of text `texts[i]`. `lengths` are words per text."""

    vocabulary: pa.Array
    words: np.ndarray
    texts: np.ndarray
    lengths: np.ndarray


def words_of(texts: pa.Array) -> Words:
    split = pc.split_pattern_regex(pc.utf8_lower(texts.fill_null("")), _BETWEEN)
    parents = np.asarray(pc.list_parent_indices(split)).astype(np.int64)
    encoded = split.flatten().dictionary_encode()
    codes = np.asarray(encoded.indices).astype(np.int64)
    # A text that begins or ends with a separator gives an empty word.
    empty = pc.index(encoded.dictionary, "").as_py()
    keep = codes != empty if empty >= 0 else np.ones(len(codes), dtype=bool)
    codes, parents = codes[keep], parents[keep]
    return Words(encoded.dictionary, codes, parents, np.bincount(parents, minlength=len(texts)))


def plain_words(text: str) -> list[str]:
    """The distinct words of a query, in order."""
    words = words_of(pa.array([text], pa.string()))
    return list(dict.fromkeys(words.vocabulary.take(pa.array(words.words)).to_pylist()))


def with_words(words: Words, is_counted: np.ndarray) -> np.ndarray:
    """How many of the selected words each text has; `is_counted` selects words of the vocabulary."""
    hits = is_counted[words.words]
    return np.bincount(words.texts[hits], minlength=len(words.lengths))


def within_edits(word: str, vocabulary: pa.Array, edits: int) -> np.ndarray:
    """Which words become `word` by at most `edits` insertions, deletions and substitutions of one letter."""
    if edits == 0:
        return np.asarray(pc.equal(vocabulary, word))
    sizes = np.asarray(pc.utf8_length(vocabulary)).astype(np.int64)
    near = np.flatnonzero(np.abs(sizes - len(word)) <= edits)
    is_within = np.zeros(len(vocabulary), dtype=bool)
    if len(near) == 0:
        return is_within
    letters = _letters(vocabulary.take(pa.array(near)), len(word) + edits)
    is_within[near] = _distances(word, letters, sizes[near]) <= edits
    return is_within


def _letters(words: pa.Array, width: int) -> np.ndarray:
    """Code points, one word per row, padded with 0."""
    table = np.zeros((len(words), width), dtype=np.uint32)
    for i, word in enumerate(words.to_pylist()):
        table[i, : len(word)] = np.frombuffer(word.encode("utf-32-le"), dtype=np.uint32)
    return table


def _distances(word: str, letters: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The edit distance table, computed for all words at once, one letter of `word` at a time."""
    count, width = letters.shape
    previous = np.tile(np.arange(width + 1, dtype=np.int16), (count, 1))
    for i, letter in enumerate(word, start=1):
        row = np.empty_like(previous)
        row[:, 0] = i
        exchanged = previous[:, :-1] + (letters != ord(letter))
        deleted = previous[:, 1:] + 1
        best = np.minimum(exchanged, deleted)
        for j in range(1, width + 1):
            np.minimum(best[:, j - 1], row[:, j - 1] + 1, out=row[:, j])
        previous = row
    return np.asarray(previous[np.arange(count), np.minimum(sizes, width)])
