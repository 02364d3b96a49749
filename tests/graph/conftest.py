from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og

SCHEMA = """
node Person { name: String @key  age: I32?  email: String? @unique }
node Doc { title: String  body: Blob?  tags: [String]?  v: Vector(3)? }
edge Knows: Person -> Person { since: Date? }
edge Wrote: Person -> Doc
"""


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "graph", SCHEMA)
