"""Ids are short, typed, unique, and sort in the order of their creation."""

from __future__ import annotations

import re
from concurrent.futures import ProcessPoolExecutor

import pytest

from omnigraph.language.schema import fresh_ids
from omnigraph.language.schema.ids import EPOCH_S


def _many(count: int) -> list[str]:
    new_id = fresh_ids()
    return [new_id("p") for _ in range(count)]


def test_an_id_is_a_letter_and_eleven_crockford_characters() -> None:
    new_id = fresh_ids()
    for prefix in "nep":
        assert re.fullmatch(prefix + "[0-9a-hjkmnp-tv-z]{11}", new_id(prefix))


def test_ids_of_one_source_increase_also_within_a_second() -> None:
    ids = _many(5000)
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_ids_sort_by_time_across_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for second in (EPOCH_S, EPOCH_S + 1, 1_700_000_000, EPOCH_S + 2**31 - 1):
        monkeypatch.setattr("time.time", lambda second=second: second + 0.5)
        made.append(fresh_ids()("n"))
    assert made == sorted(made)
    assert made[-1].startswith("nzzzzzz")


def test_a_clock_that_steps_back_does_not_disturb_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    new_id = fresh_ids()
    first = new_id("n")
    monkeypatch.setattr("time.time", lambda: EPOCH_S + 5.0)
    assert new_id("n") > first


def test_processes_do_not_make_the_same_ids() -> None:
    with ProcessPoolExecutor(2) as pool:
        ids = [i for made in pool.map(_many, [20] * 8) for i in made]
    assert len(set(ids)) == len(ids)
