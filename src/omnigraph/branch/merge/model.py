"""Values of a merge: its options, conflicts, resolutions and result.

`ours` is the target branch, `theirs` the source. A conflict holds the three images of one entity and a digest of them:
a resolution applies only while that digest is the same. There is no merge state in the graph.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import orjson

from omnigraph.branch.three_way import Grain, Side
from omnigraph.write.values import json_value

Strategy = Literal["fail", "ours", "theirs"]
MergeOutcome = Literal["already_up_to_date", "fast_forward", "merged", "conflicts"]
Image = Mapping[str, Any]
EntityKey = tuple[str, str]
"""Table key and entity id."""
SIDES = ("ours", "theirs", "base")


@dataclass(frozen=True)
class Conflict:
    """One entity, or one schema element, that both sides changed in ways that do not fit together."""

    kind: str
    table_key: str
    id: str | None
    properties: tuple[str, ...] = ()
    base: Image | str | None = None
    ours: Image | str | None = None
    theirs: Image | str | None = None
    message: str = ""
    digest: str = ""

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {"kind": self.kind, "table_key": self.table_key, "id": self.id}
        if self.properties:
            body["properties"] = list(self.properties)
        if len(self.properties) == 1:
            body["property"] = self.properties[0]
        images = {"base": self.base, "ours": self.ours, "theirs": self.theirs}
        return {**body, **images, "message": self.message, "digest": self.digest}


@dataclass(frozen=True)
class Resolution:
    """What becomes of one entity: the image of a side, or `values` set on ours (on theirs where ours has none)."""

    take: Literal["ours", "theirs", "base"] | None = None
    values: Mapping[str, Any] | None = None
    digest: str | None = None


@dataclass(frozen=True)
class TableMerge:
    """What a merge changes in one table."""

    table_key: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    adopted_fragments: int = 0
    copied_rows: int = 0

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class MergeOptions:
    strategy: Strategy = "fail"
    grain: Grain = "properties"
    resolutions: Mapping[EntityKey, Resolution] = field(default_factory=dict)

    @property
    def favour(self) -> Side | None:
        return None if self.strategy == "fail" else self.strategy


@dataclass(frozen=True)
class MergePlan:
    """What a merge of `source_commit` does, or would do, to a branch."""

    outcome: MergeOutcome
    source_commit: str
    bases: tuple[str, ...]
    tables: tuple[TableMerge, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    schema_steps: tuple[str, ...] = ()

    def with_tables(self, tables: Sequence[TableMerge]) -> MergePlan:
        return replace(self, tables=tuple(tables))


def json_image(row: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """One image as JSON values, without hidden columns."""
    if row is None:
        return None
    shown = {name: value for name, value in row.items() if not name.startswith(("__embedded_", "_row"))}
    return dict(orjson.loads(orjson.dumps(shown, default=json_value)))


def digest_of(*images: Mapping[str, Any] | None) -> str:
    body = orjson.dumps(images, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(body, digest_size=12).hexdigest()
