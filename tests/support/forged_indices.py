"""Indices whose entries are not those of the rows."""

from __future__ import annotations

from typing import Any

import lance

import omnigraph as og
from tests.maintenance.verify import damage


def forge(graph: og.Graph, column: str, kind: str, change: Any) -> None:
    """An index built before `change`, published after it as if it covered everything that is there now."""
    damage.index(graph, kinds={"Person": [(column, kind)]})
    before = damage.newest(graph, "Person")
    stale = damage.segment(before, column, kind)
    change()
    after = damage.newest(graph, "Person")
    covers = [f.fragment_id for f in after.get_fragments()]
    lance.LanceDataset.commit(after, damage.exchange(after, stale, covers=covers))
    damage.publish(graph, "Person")


CHANGES = {
    ("age", "BTREE"): {"age": 99},
    ("weight", "BTREE"): {"weight": 123.5},
    ("active", "BITMAP"): {"active": True},
    ("level", "BITMAP"): {"level": "high"},
    ("tags", "LABEL_LIST"): {"tags": ["tag99"]},
    ("bio", "INVERTED"): {"bio": "flies somewhere"},
    ("v", "IVF_FLAT"): {"v": [900.0, 0.0, 0.0, 0.0]},
}
