"""Packing beside other operations, one at a time: an act that another interrupts right before its swap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

import omnigraph as og
from omnigraph.storage.manifest import packed_heads
from omnigraph.storage.manifest.config import HEAD
from omnigraph.storage.manifest.packed_heads import pack_heads
from omnigraph.storage.manifest.records import Head, Record
from omnigraph.storage.manifest.table import Manifest
from omnigraph.storage.ulids import new_ulid

SCHEMA = "node Person { name: String @key }"


def pack(graph: og.Graph, *, keep: int = 0) -> bool:
    return pack_heads(graph._manifest, keep=keep)


def write(graph: og.Graph, branch: str, name: str) -> None:
    graph.insert({"Person": [{"name": name}]}, branch=branch)


def loose(graph: og.Graph) -> set[str]:
    """Branches with a key in the config."""
    manifest = graph._manifest
    config = manifest.reader.config_of(manifest.table())
    return {key.removeprefix(HEAD) for key in config if key.startswith(HEAD)}


def contents(graph: og.Graph) -> dict[str, list[str]]:
    """The rows of every branch, as a fresh handle sees them."""
    fresh = og.open(graph.uri)
    names = [branch.name for branch in fresh.branches()]
    return {name: sorted(fresh.snapshot(name).read("Person")["name"].to_pylist()) for name in names}


@contextmanager
def before_swap(manifest: Manifest, act: Callable[[], object]) -> Any:
    """Do `act` once, right before the next swap of this handle: between what it has read and what it sets."""
    swap, pending = manifest.update, [act]

    def interrupted(updates: Mapping[str, str | None], **options: Any) -> int:
        while pending:
            pending.pop()()
        return swap(updates, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(manifest, "update", interrupted)
        yield
    assert not pending, "the operation has swapped nothing"


@contextmanager
def packing_at(most: int, *, keep: int = 0) -> Any:
    """Operations pack as soon as there are more than `most` keys of heads."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(packed_heads, "LOOSE_MAX", most)
        patched.setattr(packed_heads, "LOOSE_KEPT", keep)
        yield


def moved(head: Head) -> Head:
    """The head after one more decided epoch, which changed nothing."""
    record = Record(
        branch=head.branch,
        incarnation=head.incarnation,
        epoch=head.epoch + 1,
        commit=new_ulid(),
        parent=head.commit,
        kind="test",
        actor=None,
        created_at_us=head.epoch,
        schema=head.schema,
        delta={},
    )
    return replace(head, commit=record.commit, parent=head.commit, epoch=record.epoch, recent=(*head.recent, record))


@dataclass
class Model:
    """What the branches must be: (incarnation, epoch) by name, and every epoch that was ever decided."""

    states: dict[str, tuple[str, int]] = field(default_factory=dict)
    decided: set[tuple[str, int]] = field(default_factory=set)

    def check(self, manifest: Manifest) -> None:
        heads = manifest.heads()
        assert {name: (head.incarnation, head.epoch) for name, head in heads.items()} == self.states
        assert manifest.names() == set(self.states)
        for incarnation, epoch in self.decided:
            assert manifest.outcome(incarnation, epoch) is not None, (incarnation, epoch)
