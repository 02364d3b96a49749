"""Findings: the effects of a schema change on existing data, as stable codes.

A code is `OG-<family>-<number>`. Destructive findings (DS) are warnings: the plan can be applied and loses something.
Data-dependent findings (MF) are errors: existing rows could break the new schema, the plan is refused.

CODES lists every code with its meaning and remedy, FAMILIES the families.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

# Two are in use; the others are reserved for future findings.
FAMILIES = {
    "DS": "destructive: stored data goes away",
    "MF": "data-dependent: existing rows may not fit the new schema",
    "BC": "backward-incompatible: names that queries use change",
    "CD": "constraint deletion: a promise about the data goes away",
    "CR": "cardinality and endpoints of edges",
    "EM": "embeddings: provenance of stored vectors",
    "ID": "identity: keys and the ids derived from them",
    "IF": "interfaces and their implementing types",
    "IX": "indices: cost of building and keeping them",
    "NM": "naming",
}


@dataclass(frozen=True)
class Code:
    code: str
    severity: Literal["error", "warning"]
    meaning: str
    remedy: str

    @property
    def family(self) -> str:
        return self.code.split("-")[1]


_EXPORT = "Keep the type, or export its rows first."
CODES = {
    c.code: c
    for c in (
        Code(
            "OG-DS-101",
            "warning",
            "every type of the graph is dropped",
            "Check the schema file, or export first.",
        ),
        Code("OG-DS-102", "warning", "a node type that holds rows is dropped", _EXPORT),
        Code("OG-DS-103", "warning", "an edge type that holds rows is dropped", _EXPORT),
        Code(
            "OG-DS-104",
            "warning",
            "a property of a type that holds rows is dropped",
            "Keep the property, or rename it with @rename_from.",
        ),
        Code(
            "OG-DS-105",
            "warning",
            "a vector property of a type that holds rows is dropped",
            "Keep the property: to embed everything again costs time and money.",
        ),
        Code(
            "OG-MF-103",
            "error",
            "a required property without a default is added to a type that holds rows",
            "Make the property nullable (?), or give it @default(…) to fill the existing rows.",
        ),
        Code(
            "OG-MF-104",
            "error",
            "a nullable property becomes required",
            "Keep the ?, or add a new required property with @default(…).",
        ),
        Code(
            "OG-MF-106",
            "error",
            "the type of a property changes",
            "Add a property of the new type under another name, copy the values, then drop the old one.",
        ),
    )
}


@dataclass(frozen=True)
class Finding:
    """`entity` is `node:Person`, `edge:Knows` or one of their properties, `node:Person.age`."""

    code: str
    severity: Literal["error", "warning"]
    entity: str
    message: str
    suggestion: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def finding(code: str, entity: str, message: str) -> Finding:
    definition = CODES[code]
    return Finding(code, definition.severity, entity, message, definition.remedy)
