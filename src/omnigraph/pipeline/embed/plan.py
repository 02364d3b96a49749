"""What to embed: the requested vector properties of a schema, each with its provider; and the batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from omnigraph.errors import UnknownProperty, UnknownType, UsageError
from omnigraph.language.schema.model import EntityType, Property, Schema
from omnigraph.pipeline.embed.provider import Choice, choose
from omnigraph.storage.lance.embedding_marks import mark_column, source_of

TASK_ROWS_MAX = 16_384


@dataclass(frozen=True)
class Unit:
    """One vector property, and its provider. Names are those of the schema that it was chosen from."""

    type_id: str
    table_key: str
    property_id: str
    vector: str
    source: str
    mark: str
    nullable: bool
    choice: Choice

    @property
    def column(self) -> str:
        """The name for people: node:Post.vector."""
        return f"{self.table_key}.{self.vector}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(body: dict[str, Any]) -> Unit:
        return Unit(**{**body, "choice": Choice(**body["choice"])})

    def named_as(self, schema: Schema) -> Unit | None:
        """The same property under its present names; None if it no longer exists."""
        t = schema.by_id.get(self.type_id)
        p = next((p for p in t.properties if p.id == self.property_id), None) if t is not None else None
        source = source_of(p) if p is not None else None
        if t is None or p is None or source is None:
            return None
        return replace(self, table_key=t.key, vector=p.name, source=source, nullable=p.nullable)


@dataclass(frozen=True)
class Chunk:
    """Some consecutive live rows of a fragment, and how many of them need a vector or lose theirs."""

    fragment: int
    offset: int
    rows: int
    embed: int
    clear: int
    text_bytes: int


@dataclass(frozen=True)
class SurveyResult:
    """The chunks of one property with rows to embed or to clear, and the counts of the other rows by reason.

    `given` are rows whose vector was loaded, `blank` rows without text, `foreign` rows with a vector of another model.
    """

    unit: Unit
    chunks: tuple[Chunk, ...]
    given: int
    blank: int
    foreign: int

    @property
    def to_embed(self) -> int:
        return sum(c.embed for c in self.chunks)

    @property
    def work_bytes(self) -> int:
        return sum(c.text_bytes for c in self.chunks) + 4 * self.unit.choice.dimensions * self.to_embed


def units_of(
    schema: Schema,
    *,
    type_name: str | None,
    property_name: str | None,
    provider: str | None,
    model: str | None,
    batch: int | None,
) -> list[Unit]:
    """The properties to embed, in the order of the schema. Refuses unknown names, and models that do not fit."""
    if type_name is not None and type_name not in schema.node and type_name not in schema.edge:
        raise UnknownType(kind="node or edge", type_name=type_name)
    types = [t for t in schema.types() if type_name in (None, t.name)]
    declared = [(t, p) for t in types for p in t.properties if source_of(p) is not None]
    if property_name is not None:
        types_with_it = [t for t in types if property_name in t.by_name]
        if not types_with_it:
            key = types[0].key if type_name is not None and types else "the schema"
            raise UnknownProperty(table_key=key, property=property_name)
        declared = [(t, p) for t, p in declared if p.name == property_name]
        if not declared:
            detail = (
                f'{types_with_it[0].name}.{property_name} is not declared with @embed("source") and can\'t be embedded.'
            )
            raise UsageError(detail=detail)
    if not declared:
        scope = "the schema" if type_name is None else type_name
        raise UsageError(detail=f'{scope} has no vector property that is declared with @embed("source").')
    return [_unit(t, p, provider=provider, model=model, batch=batch) for t, p in declared]


def _unit(t: EntityType, p: Property, *, provider: str | None, model: str | None, batch: int | None) -> Unit:
    annotation = p.annotation("embed")
    assert annotation is not None
    assert p.type.dimension is not None
    declared_model = annotation.option("model")
    choice = choose(
        provider,
        model=model,
        declared=None if declared_model is None else str(declared_model),
        dimensions=p.type.dimension,
        batch=batch,
        column=f"{t.key}.{p.name}",
    )
    return Unit(t.id, t.key, p.id, p.name, source_of(p) or "", mark_column(p), p.nullable, choice)


Work = tuple[int, Chunk]
"""The number of the property among the surveys, and some of its rows."""


def batches(surveys: Sequence[SurveyResult], *, commit_every: int | None) -> Iterator[list[Work]]:
    """The chunks in order, in one batch or in batches of about `commit_every` rows."""
    batch: list[Work] = []
    rows = 0
    for number, survey in enumerate(surveys):
        for chunk in survey.chunks:
            size = chunk.embed + chunk.clear
            if batch and commit_every is not None and rows + size > commit_every:
                yield batch
                batch, rows = [], 0
            batch.append((number, chunk))
            rows += size
    if batch:
        yield batch


def groups(batch: Sequence[Work], *, parallelism: int) -> Iterator[tuple[int, list[Chunk]]]:
    """The chunks of one property that make one task: a few tasks per worker, of limited size."""
    total = sum(c.embed + c.clear for _, c in batch)
    rows_max = max(256, min(TASK_ROWS_MAX, -(-total // (parallelism * 3))))
    group: list[Chunk] = []
    rows, last = 0, -1
    for number, chunk in batch:
        size = chunk.embed + chunk.clear
        if group and (number != last or rows + size > rows_max):
            yield last, group
            group, rows = [], 0
        group.append(chunk)
        rows, last = rows + size, number
    if group:
        yield last, group
