"""The schema language `.pg`: text to model, model to text and JSON, and the plan from one schema to the next.

Pure: no files but the grammar, no Lance, no Arrow. The names below load their modules when they are first used: a
caller that needs only the model (every reader of a graph) does not load the parser and the planner.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omnigraph.language.schema.ids import fresh_ids
    from omnigraph.language.schema.lint import CODES, FAMILIES, Finding
    from omnigraph.language.schema.model import (
        Annotation,
        Constraint,
        EdgeType,
        EntityType,
        InterfaceType,
        NodeType,
        Property,
        PropertyType,
        Schema,
    )
    from omnigraph.language.schema.plan.planner import SchemaPlan, accept, plan_changes
    from omnigraph.language.schema.serial import schema_from_json, schema_to_json
    from omnigraph.language.schema.syntax.parse import parse_schema
    from omnigraph.language.schema.syntax.show import render

_HOME = {
    "ids": ("fresh_ids",),
    "lint": ("CODES", "FAMILIES", "Finding"),
    "model": (
        "Annotation",
        "Constraint",
        "EdgeType",
        "EntityType",
        "InterfaceType",
        "NodeType",
        "Property",
        "PropertyType",
        "Schema",
    ),
    "syntax.parse": ("parse_schema",),
    "plan.planner": ("SchemaPlan", "accept", "plan_changes"),
    "serial": ("schema_from_json", "schema_to_json"),
    "syntax.show": ("render",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "CODES",
    "FAMILIES",
    "Annotation",
    "Constraint",
    "EdgeType",
    "EntityType",
    "Finding",
    "InterfaceType",
    "NodeType",
    "Property",
    "PropertyType",
    "Schema",
    "SchemaPlan",
    "accept",
    "fresh_ids",
    "parse_schema",
    "plan_changes",
    "render",
    "schema_from_json",
    "schema_to_json",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
