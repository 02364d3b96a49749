"""A step that Lance refuses for good is told as what Lance says, after a few epochs, and leaves little behind."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.commit.operation import Prepared, TableWork, View, work_on
from omnigraph.commit.request import REFUSALS_MAX
from omnigraph.errors import StorageError
from omnigraph.storage.manifest.records import Pin
from tests.branch.operations import Adopt, adopted, run
from tests.commit import deeds


@dataclass(frozen=True)
class AdoptTwice:
    """Adopts one fragment as two of the same id, which Lance refuses; `valid_steps` are committed before it."""

    source: Pin
    valid_steps: bool
    kind: str = "merge"
    quick: bool = True

    def scope(self, view: View) -> frozenset[str]:
        return frozenset({self.source.table})

    def prepare(self, view: View) -> Prepared:
        from lance.fragment import FragmentMetadata

        t = view.type("Left")
        pin, handle, editor = work_on(view, t)
        fragment = view.tables.open(self.source).get_fragments()[-1].metadata
        body = {**adopted(fragment, None).to_json(), "id": 77}
        refused = editor.appended([FragmentMetadata.from_json(json.dumps(body)) for _ in range(2)])
        valid = Adopt(self.source, "Left").prepare(view).tables[t.id].steps if self.valid_steps else ()
        work = TableWork(pin=pin, source=view.pins[t.id], steps=(*valid, refused), handle=handle)
        return Prepared(view=view, tables={t.id: work})


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    deeds.create_with_fork(str(tmp_path / "graph"))
    return og.open(tmp_path / "graph")


@pytest.mark.parametrize("valid_steps", [False, True], ids=["first_step", "second_step"])
def test_a_step_that_lance_refuses_for_good_is_told_after_a_few_epochs(graph: og.Graph, valid_steps: bool) -> None:
    source = graph._committer.view("side").pins[graph.schema().node["Left"].id]
    before, rows = graph.commits(), graph.nodes("Left").num_rows
    with pytest.raises(StorageError, match="two fragments with id 77"):
        run(graph, AdoptTwice(source, valid_steps))
    left = graph.commits()[: len(graph.commits()) - len(before)]
    assert [commit.kind for commit in left] == ["recovery"] * REFUSALS_MAX
    fresh = og.open(graph.uri)
    assert fresh.nodes("Left").num_rows == rows
    assert run(fresh, replace(Adopt(source), type_name="Left")).record is not None
    assert og.open(graph.uri).nodes("Left").num_rows == rows + 1
    assert og.open(graph.uri).verify(full=True).ok
