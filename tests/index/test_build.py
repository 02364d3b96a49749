"""Index segments that were built and wait for a commit: whole, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from omnigraph.errors import StorageError
from omnigraph.index.build import build_segment
from omnigraph.storage.lance.indices import sync_segment
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin

KINDS = {"id": "BTREE", "kind": "BITMAP", "tags": "LABEL_LIST", "text": "INVERTED", "vec": "IVF_FLAT"}
ROWS = 300


@pytest.fixture
def place(tmp_path: Path) -> tuple[Location, Pin, Any]:
    pin = Pin("n1", "a", None, 1)
    rows = pa.table(
        {
            "id": [f"r{i}" for i in range(ROWS)],
            "kind": ["ab"[i % 2] for i in range(ROWS)],
            "tags": [[f"t{i % 3}"] for i in range(ROWS)],
            "text": [f"word{i % 9}" for i in range(ROWS)],
            "vec": pa.array([[i + 1.0, 2.0] for i in range(ROWS)], pa.list_(pa.float32(), 2)),
        }
    )
    return Location(str(tmp_path), True, {}), pin, lance.write_dataset(rows, str(tmp_path / pin.path))


@pytest.mark.parametrize("column", KINDS)
def test_a_segment_file_that_was_cut_short_is_refused_whatever_size_lance_has_noted(
    place: tuple[Location, Pin, Any], column: str
) -> None:
    """Lance goes on after a failed last write of an INVERTED index and notes the size of what is there."""
    location, pin, table = place
    centroids = np.array([[1.0, 2.0]], dtype=np.float32) if column == "vec" else None
    made = build_segment(
        location, pin, table, column=column, kind=KINDS[column], name="x", fragments=[0], centroids=centroids
    )
    assert made["files"]
    for place_in_list, (name, size) in enumerate(made["files"]):
        file = Path(location.join(pin.path, "_indices", made["uuid"], name))
        whole = file.read_bytes()
        file.write_bytes(whole[: size // 2])
        files = [list(f) for f in made["files"]]
        files[place_in_list][1] = size // 2
        with pytest.raises(StorageError, match="cut short"):
            sync_segment(location, pin, {**made, "files": files})
        file.write_bytes(whole)
    sync_segment(location, pin, made)
