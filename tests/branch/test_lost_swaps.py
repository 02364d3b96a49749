"""Creations and deletions that lose many races in a row go on until the write timeout, and then say how long it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.storage.manifest.table import Manifest, SwapLost

VERBS: dict[str, Callable[[og.Graph], object]] = {
    "create_branch": lambda graph: graph.create_branch("work"),
    "delete_branch": lambda graph: graph.delete_branch("old"),
    "create_tag": lambda graph: graph.create_tag("v2"),
    "delete_tag": lambda graph: graph.delete_tag("v1"),
}


@pytest.fixture
def graph(tmp_path: object) -> og.Graph:
    graph = og.init(f"{tmp_path}/graph", "node Person { name: String @key }")
    graph.create_branch("old")
    graph.create_tag("v1")
    return graph


def _lose(monkeypatch: pytest.MonkeyPatch, *, swaps: int) -> list[int]:
    """The first `swaps` swaps are lost before they reach the store; the list counts all of them."""
    original, calls = Manifest.update, list[int]()

    def update(self: Manifest, *args: object, **options: object) -> int:
        calls.append(1)
        if len(calls) <= swaps:
            raise SwapLost("another writer was first")
        return original(self, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Manifest, "update", update)
    return calls


@pytest.mark.parametrize("verb", VERBS)
def test_forty_lost_swaps_are_no_reason_to_give_up(graph: og.Graph, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    calls = _lose(monkeypatch, swaps=40)
    VERBS[verb](graph)
    assert len(calls) == 41
    monkeypatch.undo()
    branches, tags = {b.name for b in graph.branches()}, {t.name for t in graph.tags()}
    assert ("work" in branches, "old" in branches) == (verb == "create_branch", verb != "delete_branch")
    assert ("v2" in tags, "v1" in tags) == (verb == "create_tag", verb != "delete_tag")


@pytest.mark.parametrize("verb", VERBS)
def test_after_the_write_timeout_the_error_says_how_long_it_waited(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setenv("OMNIGRAPH_WRITE_TIMEOUT", "0.2")
    calls = _lose(monkeypatch, swaps=10**9)
    with pytest.raises(errors.WriterBusy) as caught:
        VERBS[verb](graph)
    assert 0.2 <= caught.value.fields["waited_s"] < 5
    assert len(calls) > 5
