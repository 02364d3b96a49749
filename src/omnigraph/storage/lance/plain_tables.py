"""Plain Lance tables outside of a graph: written by tasks as fragments, made a table by one commit.

Before the commit there are data files and no table; after it the table has one version that holds all rows. A task
that ran twice leaves a data file that the table does not name; `commit_table` removes those.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from omnigraph.errors import StorageError
from omnigraph.storage import durability
from omnigraph.storage.lance import lance_api
from omnigraph.storage.objects.folder import Folder


def write_fragments(folder: Folder, name: str, rows: pa.RecordBatchReader) -> list[dict[str, Any]]:
    """Write rows as fragments of the table that `name` will be; what to hand to `commit_table`."""
    from lance.fragment import write_fragments as write

    location = folder.location
    uri = location.join(name)
    with lance_api.reading(f"writing {uri}"):
        fragments = write(rows, uri, schema=rows.schema, mode="create", storage_options=location.lance_options)
    bodies = [json.loads(json.dumps(fragment.to_json())) for fragment in fragments]
    if location.is_local:
        durability.sync_files(durability.new_files(uri, bodies))
    return bodies


def commit_table(folder: Folder, name: str, schema: pa.Schema, fragments: Sequence[dict[str, Any]]) -> None:
    """Make these fragments a table, in this order."""
    from lance.fragment import FragmentMetadata

    location = folder.location
    uri = location.join(name)
    metadata = [FragmentMetadata.from_json(json.dumps(body)) for body in fragments]
    rows = sum(int(body["physical_rows"]) for body in fragments)
    with lance_api.reading(f"writing {uri}"):
        operation = lance_api.operations().Overwrite(schema, metadata)
        table = lance_api.commit(location, uri, lance_api.transaction(operation, read_version=0))
        row_count = int(table.count_rows())
    if row_count != rows:
        raise StorageError(doing=f"writing {uri}", detail=f"it holds {row_count} rows, {rows} were written")
    named = {f"{name}/data/{file['path']}" for body in fragments for file in body["files"]}
    folder.delete(set(folder.files(f"{name}/data")) - named)
