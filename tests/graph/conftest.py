from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from tests.support.graphs import Templates

SCHEMA = """
node Person { name: String @key  age: I32?  email: String? @unique }
node Doc { title: String  body: Blob?  tags: [String]?  v: Vector(3)? }
edge Knows: Person -> Person { since: Date? }
edge Wrote: Person -> Doc
"""


def _build(path: Path) -> og.Graph:
    return og.init(path, SCHEMA)


@pytest.fixture
def graph(graph_templates: Templates, tmp_path: Path) -> og.Graph:
    return graph_templates.open(_build, tmp_path / "graph")
