"""Create a graph: parse the schema, make its tables, publish the manifest."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Literal

from omnigraph.arguments import checked
from omnigraph.commit.phases import Observer, silent
from omnigraph.errors import UsageError
from omnigraph.graph.handle import Address, Graph
from omnigraph.language.schema.ids import fresh_ids
from omnigraph.language.schema.model import Schema
from omnigraph.language.schema.plan.planner import accept
from omnigraph.language.schema.syntax.parse import parse_schema
from omnigraph.storage.files import checksums
from omnigraph.storage.lance import lance_api
from omnigraph.storage.layout import Location, locate
from omnigraph.storage.manifest.create import create_table, publish_manifest, require_free
from omnigraph.storage.manifest.records import MAIN, Head, Pin, Record
from omnigraph.storage.manifest.table import fresh_incarnation
from omnigraph.storage.objects import reserve
from omnigraph.storage.ulids import new_ulid


@checked
def init_graph(
    address: Address,
    schema_text: str,
    *,
    row_ids: Literal["stable", "address"] = "stable",
    actor: str | None = None,
    schema_file: str = "<schema>",
    storage_options: Mapping[str, str] | None = None,
    observer: Observer = silent,
) -> Graph:
    """Create a graph with this schema and open it. GraphExists if there is one; of two that race, one wins."""
    if row_ids not in ("stable", "address"):
        raise UsageError(detail=f"row_ids is 'stable' or 'address', not {row_ids!r}.")
    schema = accept(parse_schema(schema_text, file=schema_file), new_id=fresh_ids())
    location = locate(address, options=storage_options)
    graph = Graph(location, actor=actor, observer=observer)
    with lance_api.reading(f"creating {location.uri}"):
        _create(graph, location, schema, row_ids=row_ids)
    return graph


def _create(graph: Graph, location: Location, schema: Schema, *, row_ids: str) -> None:
    require_free(location)
    incarnation = fresh_incarnation()
    pins: dict[str, Pin] = {}
    for t in schema.types():
        pins[t.id], _ = create_table(
            location,
            t,
            incarnation=secrets.token_hex(6),
            stable_row_ids=row_ids == "stable",
            stamp=f"create/{incarnation}",
        )
    schema_id = f"s{secrets.token_hex(8)}"
    noted = checksums.noted(location.uri, pins)
    record = Record(
        branch=MAIN,
        incarnation=incarnation,
        epoch=0,
        commit=new_ulid(),
        parent=None,
        kind="init",
        actor=graph._by(None),
        created_at_us=time.time_ns() // 1000,
        schema=schema_id,
        delta=pins,
        snapshot=pins,
        checksums=checksums.pack(noted),
    )
    assert record.commit is not None
    head = Head(
        branch=MAIN,
        commit=record.commit,
        epoch=0,
        incarnation=incarnation,
        schema=schema_id,
        pins=pins,
    )
    publish_manifest(location, head=head, record=record, schema=schema, stable_row_ids=row_ids == "stable")
    checksums.published(location.uri, noted)
    reserve.keep(location)
