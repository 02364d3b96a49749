"""A writer that meets a dead one settles it first; a store that fails meanwhile is tried again, and then told of."""

from __future__ import annotations

import errno
import time
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.errors import StorageError
from omnigraph.storage.lance import lance_api
from tests.commit import plant

TOLD_S = 10.0


@pytest.fixture
def failures(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """A ticket of a writer that is dead, and what the store says to whoever settles it, each once."""
    monkeypatch.setenv("OMNIGRAPH_LEASE_S", "0.1")
    plant.lock(path)
    coming: list[Exception] = []
    commit = lance_api.commit

    def failing(*args: Any, **kwargs: Any) -> Any:
        if coming:
            raise coming.pop(0)
        return commit(*args, **kwargs)

    monkeypatch.setattr(lance_api, "commit", failing)
    return coming


FULL = f"[Errno {errno.ENOSPC}] No space left on device"
SAID = [StorageError(doing="writing", detail=FULL), OSError(FULL)]


@pytest.mark.parametrize("said", SAID, ids=repr)
def test_a_store_that_fails_for_a_moment_is_tried_again(path: Path, failures: list[Exception], said: Exception) -> None:
    failures += [said, said]
    omnigraph.open(path).upsert({"Left": [{"name": "new"}]})
    assert not failures


@pytest.mark.parametrize("said", SAID, ids=repr)
@pytest.mark.parametrize("settle", [lambda g: g.upsert({"Left": [{"name": "new"}]}), lambda g: g.optimize()])
def test_a_store_that_goes_on_failing_is_told_soon_and_by_its_own_words(
    path: Path, failures: list[Exception], settle: Any, said: Exception
) -> None:
    failures += [said] * 10_000
    graph = omnigraph.open(path)
    began = time.monotonic()
    with pytest.raises(StorageError, match="No space left"):
        settle(graph)
    assert time.monotonic() - began < TOLD_S
    failures.clear()
    graph.upsert({"Left": [{"name": "new"}]})
    assert "new" in [row["name"] for row in graph.snapshot().read("Left").to_pylist()]
