"""The check of digests that bulk loads and verify share."""

from __future__ import annotations

import numpy as np

from omnigraph.rules.buckets import Degrees, repeats, too_few, too_many, without_node
from omnigraph.rules.cardinality import beyond_limit
from omnigraph.tasks.digest_index import Index


def rows(*digests: int) -> np.ndarray:
    """Rows with these digests, named by their position."""
    return np.array([[d, d, i] for i, d in enumerate(digests)], dtype=np.uint64).reshape(-1, 3)


def test_of_equal_digests_all_but_the_first_are_repeats() -> None:
    repeated = repeats(rows(7, 5, 7, 7))
    assert repeated.firsts.tolist() == [0, 1, 0, 0]
    assert repeated.again.tolist() == [False, False, True, True]


def test_a_row_needs_its_digest_among_any_of_the_nodes() -> None:
    missing = without_node(rows(1, 2, 3), Index(rows(1)), Index(rows(3)))
    assert missing[:, 2].tolist() == [1]


def test_a_source_that_is_there_twice_counts_once() -> None:
    degrees = Degrees(rows(4, 4, 6))
    counts = degrees.count(rows(4, 4, 9))
    assert counts.tolist() == [2, 0, 0]
    assert (too_few(counts, 1) & degrees.is_source).tolist() == [False, False, True]
    assert (too_many(counts, 1) & degrees.is_source).tolist() == [True, False, False]
    assert not too_many(counts, None).any()


def test_the_later_edges_of_a_source_are_beyond_its_limit() -> None:
    late = beyond_limit(np.array([1, 0, 1, 1]), np.array([1, 2]))
    assert late.tolist() == [False, False, False, True]
