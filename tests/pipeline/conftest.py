from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from tests.support.graphs import Templates

SCHEMA = """
node Person { name: String @key  age: I32?  joined: DateTime?  photo: Blob?  v: Vector(2)?  @range(age, 0..150) }
node Note { text: String  tags: [String]? }
edge Knows: Person -> Person @card(0..2) { since: Date? }
"""


def _build(path: Path) -> og.Graph:
    return og.init(path, SCHEMA)


@pytest.fixture
def graph(graph_templates: Templates, tmp_path: Path) -> og.Graph:
    return graph_templates.open(_build, tmp_path / "graph")
