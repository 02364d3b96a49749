"""The tables of a grammar are kept in the user's cache folder; whatever is wrong there, texts are parsed as ever."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from omnigraph.language import reading

PACKAGE = "omnigraph.language.query"
TEXT = "query q() { match { $a: Person } return { $a } }"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def build() -> object:
    return reading.grammar_of.__wrapped__(PACKAGE).parse(TEXT)


def test_a_second_process_reads_what_the_first_one_kept(home: Path) -> None:
    first = build()
    kept = home / "omnigraph" / f"{PACKAGE}.grammar"
    before = kept.stat().st_mtime_ns
    assert build() == first
    assert kept.stat().st_mtime_ns == before
    assert (home / "omnigraph").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", [b"", b"nonsense", None])
def test_what_can_not_be_read_is_built_again(home: Path, content: bytes | None) -> None:
    expected = build()
    kept = home / "omnigraph" / f"{PACKAGE}.grammar"
    kept.write_bytes(kept.read_bytes()[:-2000] if content is None else content)
    assert build() == expected
    assert build() == expected


def test_a_folder_of_somebody_else_is_not_trusted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = build()
    (home / "omnigraph" / f"{PACKAGE}.grammar").unlink()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert build() == expected
    assert not list((home / "omnigraph").iterdir())


def test_no_place_to_keep_it_is_no_trouble(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "file"))
    assert build() is not None


def test_reading_the_tables_is_several_times_quicker_than_building_them(home: Path) -> None:
    def best_s(*, keep: bool) -> float:
        taken = []
        for _ in range(3):
            start = time.thread_time()
            build()
            taken.append(time.thread_time() - start)
            if not keep:
                (home / "omnigraph" / f"{PACKAGE}.grammar").unlink()
        return min(taken)

    built = best_s(keep=False)
    build()
    assert best_s(keep=True) * 2 < built
