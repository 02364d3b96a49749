"""What all tasks of a bulk load need: the staging area, the schema, the mode, the number of buckets.

It is staged once and read once per worker and job; a task carries a reference to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from omnigraph.language.schema.model import EntityType, Schema
from omnigraph.language.schema.serial import schema_from_json, schema_to_json
from omnigraph.tasks.staging import Staging

ROW_BITS = 32
"""A row is named by the number of its piece, then its number among the piece's rows of its type."""


@dataclass(frozen=True, eq=False)
class Context:
    staging: Staging
    schema: Schema
    mode: str
    buckets: int

    def type(self, key: str) -> EntityType:
        return self.types[key]

    @property
    def types(self) -> dict[str, EntityType]:
        return {t.key: t for t in self.schema.types()}

    def type_index(self, key: str) -> int:
        return list(self.types).index(key)


def stage_context(staging: Staging, schema: Schema, *, mode: str, buckets: int) -> dict[str, Any]:
    """Stage the context. Returns the reference that goes into every task as `context`."""
    body = {"schema": schema_to_json(schema), "mode": mode, "buckets": buckets}
    return {"staging": staging.to_json(), "name": staging.put_json("context", body)}


def context_of(task: Mapping[str, Any]) -> Context:
    return _context(orjson.dumps(task["context"]))


@lru_cache(maxsize=4)
def _context(address: bytes) -> Context:
    reference = orjson.loads(address)
    staging = Staging.of(reference["staging"])
    body = staging.get_json(reference["name"])
    return Context(staging, schema_from_json(body["schema"]), body["mode"], body["buckets"])
