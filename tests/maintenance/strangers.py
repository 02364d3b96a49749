"""What somebody with a Lance client and no manners does to the tables of a graph."""

from __future__ import annotations

from typing import Any

import lance
import pyarrow as pa

from omnigraph.storage.lance import lance_api

lance_api.operations()  # with Lance's reader of transactions mended


def place(graph: Any, type_name: str, branch: str = "main") -> tuple[str, int]:
    """The address of the table's line, and the version that is published."""
    view = graph._committer.view(branch)
    pin = view.pins[view.type(type_name).id]
    return str(view.tables.location.join(pin.path)), pin.version


def opened(graph: Any, type_name: str, branch: str = "main") -> Any:
    view = graph._committer.view(branch)
    uri, _ = place(graph, type_name, branch)
    return lance.dataset(uri, storage_options=view.tables.location.lance_options)


def append(graph: Any, type_name: str, *names: str, branch: str = "main", n: int = 1) -> int:
    table = opened(graph, type_name, branch)
    count = len(names)
    rows = pa.table({"id": list(names), "name": list(names), "n": [n] * count}, schema=table.schema)
    options = graph._location.lance_options
    return int(lance.write_dataset(rows, table.uri, mode="append", storage_options=options).version)


def delete(graph: Any, type_name: str, *names: str, branch: str = "main") -> int:
    table = opened(graph, type_name, branch)
    table.delete(f"id IN ({', '.join(map(repr, names))})")
    return int(table.version)


def update(graph: Any, type_name: str, values: dict[str, str], where: str, *, branch: str = "main") -> int:
    table = opened(graph, type_name, branch)
    table.update(values, where=where)
    return int(table.version)


def compact(graph: Any, type_name: str, *, branch: str = "main") -> int:
    """Merge all fragments; there must be several. On a fork by an own Rewrite, as Lance's own breaks indices there."""
    table = opened(graph, type_name, branch)
    before = table.version
    table.optimize.compact_files(target_rows_per_fragment=1_000_000)
    assert table.version > before, "nothing to compact"
    return int(table.version)


def index(graph: Any, type_name: str, column: str, *, branch: str = "main") -> int:
    table = opened(graph, type_name, branch)
    table.create_scalar_index(column, "BTREE", name=f"stranger_{column}", replace=True)
    return int(table.version)


def stamped_append(graph: Any, type_name: str, name: str, *, stamp: str, branch: str = "main") -> int:
    """A leftover: a row with a stamp of the door, above the pin."""
    from lance.fragment import write_fragments

    newest = opened(graph, type_name, branch)
    rows = pa.table({"id": [name], "name": [name], "n": [1]}, schema=newest.schema)
    operation = lance_api.operations().Append(write_fragments(rows, newest, mode="append"))
    tx = lance_api.transaction(operation, read_version=newest.version, properties={lance_api.STAMP: stamp})
    return int(lance_api.commit(graph._location, newest, tx).version)


def decided_stamp(graph: Any, type_name: str, branch: str = "main") -> str:
    from omnigraph.commit.stamp import Stamp

    view = graph._committer.view(branch)
    return str(Stamp(view.head.incarnation, view.head.epoch, 0, view.type(type_name).id, "0", "dead"))
