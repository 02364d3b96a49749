"""Digests and the look-ups on them: exact where texts are equal, also where digests half agree."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.tasks.digest_index import Index
from omnigraph.tasks.digests import LONG_BYTES, digests


def test_equal_texts_have_equal_digests_wherever_they_stand() -> None:
    texts = [
        "",
        "a",
        "a\0",
        "\0",
        "ab",
        "abcdefgh",
        "abcdefghi",
        "é",
        "e\u0301",
        "x" * LONG_BYTES,
        "x" * (LONG_BYTES + 1),
    ]
    array = pa.array([*texts, *reversed(texts)])
    found = digests(array)
    assert (found[: len(texts)] == found[len(texts) :][::-1]).all()
    assert (digests(array.slice(5, 9)) == found[5:14]).all()
    assert len({tuple(row) for row in found.tolist()}) == len(texts)


def test_a_million_alike_texts_have_different_digests_in_both_halves() -> None:
    found = digests(pa.array([f"person-{i:07d}" for i in range(1_000_000)]))
    for half in range(2):
        assert len(np.unique(found[:, half])) == len(found)
    ones = np.unpackbits(found[:10_000].view(np.uint8)).mean()
    assert 0.495 < ones < 0.505


@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000])
def test_an_index_finds_what_a_dictionary_would(count: int) -> None:
    rng = np.random.default_rng(count)
    # Few first halves, so that many rows agree in one half and not in the other; the ends of the range are there too.
    firsts = np.array([0, 1, 2**63, 2**64 - 1, *rng.integers(0, 2**63, 20)], dtype=np.uint64)
    rows = np.column_stack([rng.choice(firsts, count), rng.integers(0, 5, count).astype(np.uint64)])
    keys = np.column_stack([rng.choice(firsts, 500), rng.integers(0, 7, 500).astype(np.uint64)])
    first_of: dict[tuple[int, int], int] = {}
    for i, row in enumerate(rows.tolist()):
        first_of.setdefault(tuple(row), i)
    index = Index(rows)
    assert index.find(keys).tolist() == [first_of.get(tuple(key), -1) for key in keys.tolist()]
    assert index.groups().tolist() == [first_of[tuple(row)] for row in rows.tolist()]
