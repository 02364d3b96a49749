"""Schemas without ids."""

from __future__ import annotations

from dataclasses import replace

from omnigraph.language.schema import (
    Schema,
)


def without_ids(schema: Schema) -> Schema:
    def bare(t):  # type: ignore[no-untyped-def]
        return replace(t, id="", properties=tuple(replace(p, id="") for p in t.properties))

    return replace(schema, nodes=tuple(map(bare, schema.nodes)), edges=tuple(map(bare, schema.edges)), source="")
