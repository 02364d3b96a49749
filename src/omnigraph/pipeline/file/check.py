"""Check a pipeline file against a schema: do its types, properties and vectors exist, and can the engine run it?

Every problem has its position in the file. No data is read. The schema is that of the graph's branch, or that of the
schema file if there is no graph yet.
"""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.errors import UsageError
from omnigraph.language.schema.model import EntityType, NodeType, Schema
from omnigraph.language.schema.source import Place, did_you_mean
from omnigraph.pipeline.file.model import Embed, PipelineFile, Target, raise_all

Problem = tuple[Place, str]


def check_available(file: PipelineFile, *, engine: str | None) -> None:
    """UsageError if SQL is to run without Spark."""
    if engine == "local" and file.needs_sql:
        name = next(t.type_name for t in file.targets if t.sql is not None)
        raise UsageError(detail=f"{name} is filled by sql, which runs on Spark and not with the engine local.")


def check_schema(file: PipelineFile, schema: Schema) -> None:
    """PipelineFileError with all problems against the schema."""
    problems = [problem for target in file.targets for problem in _target(schema, target)]
    problems += [problem for step in file.embed for problem in _embed(schema, step)]
    raise_all(file.text, problems)


def type_of(schema: Schema, target: Target) -> EntityType | None:
    return schema.node.get(target.type_name) if target.kind == "node" else schema.edge.get(target.type_name)


def _target(schema: Schema, target: Target) -> Iterator[Problem]:
    entity_type = type_of(schema, target)
    if entity_type is None:
        yield target.place, _unknown(schema, target)
        return
    names = {*entity_type.by_name, "id"}
    sources: dict[str, str] = {}
    for column, name in target.columns.items():
        place = target.column_places[column]
        if name not in names:
            hint = did_you_mean(name, names) or f" It has {', '.join(sorted(names))}."
            yield place, f"{entity_type.key} has no property {name}.{hint}"
        elif name in sources:
            yield place, f"{name} is filled by two columns, {sources[name]} and {column}."
        sources.setdefault(name, column)


def _unknown(schema: Schema, target: Target) -> str:
    others = schema.edge if target.kind == "node" else schema.node
    if target.type_name in others:
        right = "edges" if target.kind == "node" else "nodes"
        return f"{target.type_name} is no {target.kind} type; put it under {right}."
    types = schema.node if target.kind == "node" else schema.edge
    return f"the schema has no {target.kind} type {target.type_name}.{did_you_mean(target.type_name, types)}"


def _embed(schema: Schema, step: Embed) -> Iterator[Problem]:
    if step.type_name is None:
        if not any(_vectors(n) for n in schema.nodes):
            yield step.place, "the schema has no vector property with @embed."
        return
    node = schema.node.get(step.type_name)
    if node is None:
        hint = did_you_mean(step.type_name, schema.node)
        yield step.place, f"the schema has no node type {step.type_name} to embed.{hint}"
        return
    vectors = _vectors(node)
    if not vectors:
        yield step.place, f"{node.key} has no vector property with @embed."
    elif step.property is not None and step.property not in vectors:
        why = "is not declared @embed" if step.property in node.by_name else "does not exist"
        yield step.place, f"{node.key}.{step.property} {why}.{did_you_mean(step.property, vectors)}"


def _vectors(node: NodeType) -> list[str]:
    return [p.name for p in node.properties if p.type.kind == "Vector" and p.annotation("embed") is not None]
