from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og

SCHEMA = """
node Person { name: String @key  age: I32?  joined: DateTime?  photo: Blob?  v: Vector(2)?  @range(age, 0..150) }
node Note { text: String  tags: [String]? }
edge Knows: Person -> Person @card(0..2) { since: Date? }
"""


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "graph", SCHEMA)
