"""Steps of a schema plan: values with a `kind` in snake_case, the names after all renames, and the stable ids.

`type_kind` is node, edge or interface. Interfaces have no table and no id: their steps change the accepted schema only.
`entity` of any step is `<type_kind>:<type_name>[.<property_name>]`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from omnigraph.language.schema.model import Literal_

TypeKind = Literal["node", "edge", "interface"]
Mode = Literal["soft", "hard"]


@dataclass(frozen=True)
class Step:
    kind: ClassVar[str]

    @property
    def entity(self) -> str:
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """Fields in the order of declaration, without unset ones."""
        shown = {f.name: getattr(self, f.name) for f in fields(self)}
        return {"kind": self.kind} | {
            k: list(v) if isinstance(v, tuple) else v for k, v in shown.items() if v not in (None, "")
        }


@dataclass(frozen=True)
class TypeStep(Step):
    type_kind: TypeKind
    type_name: str
    type_id: str

    @property
    def entity(self) -> str:
        return f"{self.type_kind}:{self.type_name}"


@dataclass(frozen=True)
class PropertyStep(TypeStep):
    property_name: str
    property_id: str

    @property
    def entity(self) -> str:
        return f"{self.type_kind}:{self.type_name}.{self.property_name}"


@dataclass(frozen=True)
class AddType(TypeStep):
    kind = "add_type"

    def __str__(self) -> str:
        return f"add {self.type_kind} {self.type_name}"


@dataclass(frozen=True)
class RenameType(TypeStep):
    kind = "rename_type"
    from_name: str

    def __str__(self) -> str:
        return f"rename {self.type_kind} {self.from_name} to {self.type_name}"


@dataclass(frozen=True)
class DropType(TypeStep):
    kind = "drop_type"
    mode: Mode

    def __str__(self) -> str:
        return f"drop {self.type_kind} {self.type_name} ({self.mode})"


@dataclass(frozen=True)
class UpdateTypeMetadata(TypeStep):
    """`annotations` are the names of changed annotations; empty for an interface whose properties changed."""

    kind = "update_type_metadata"
    annotations: tuple[str, ...] = ()

    def __str__(self) -> str:
        changed = ", ".join(f"@{a}" for a in self.annotations) or "its definition"
        return f"update {self.type_kind} {self.type_name}: {changed}"


@dataclass(frozen=True)
class AddConstraint(TypeStep):
    """Only indices can be added to an existing type: they do not restrict the data.

    A merge that restores a dropped property may restore its other constraints with it.
    """

    kind = "add_constraint"
    constraint: Literal["key", "unique", "index", "range", "check"]
    properties: tuple[str, ...]

    def __str__(self) -> str:
        return f"add @{self.constraint}({', '.join(self.properties)}) to {self.type_kind} {self.type_name}"


@dataclass(frozen=True)
class AddProperty(PropertyStep):
    """`backfill` is the value for existing rows, the literal of @default in the schema; None leaves them null."""

    kind = "add_property"
    property_type: str
    nullable: bool
    backfill: Literal_ | None = None

    def to_json(self) -> dict[str, Any]:
        shown = super().to_json()
        return shown if self.backfill is None else shown | {"backfill": self.backfill}

    def __str__(self) -> str:
        fill = "" if self.backfill is None else f", existing rows get {self.backfill!r}"
        mark = "?" if self.nullable else ""
        return f"add property {self.type_name}.{self.property_name}: {self.property_type}{mark}{fill}"


@dataclass(frozen=True)
class RenameProperty(PropertyStep):
    kind = "rename_property"
    from_name: str

    def __str__(self) -> str:
        return f"rename property {self.type_name}.{self.from_name} to {self.property_name}"


@dataclass(frozen=True)
class ExtendEnum(PropertyStep):
    kind = "extend_enum"
    added_values: tuple[str, ...]

    def __str__(self) -> str:
        return f"extend enum {self.type_name}.{self.property_name} by {', '.join(self.added_values)}"


@dataclass(frozen=True)
class UpdatePropertyMetadata(PropertyStep):
    kind = "update_property_metadata"
    annotations: tuple[str, ...]

    def __str__(self) -> str:
        return f"update {self.type_name}.{self.property_name}: {', '.join(f'@{a}' for a in self.annotations)}"


@dataclass(frozen=True)
class DropProperty(PropertyStep):
    kind = "drop_property"
    mode: Mode

    def __str__(self) -> str:
        return f"drop property {self.type_name}.{self.property_name} ({self.mode})"


@dataclass(frozen=True)
class UnsupportedChange(Step):
    """Why the plan can't be applied. The ids are those of the accepted entity, empty if there is none."""

    kind = "unsupported_change"
    entity_name: str
    reason: str
    code: str | None = None
    type_id: str = ""
    property_id: str = ""

    @property
    def entity(self) -> str:
        return self.entity_name

    def to_json(self) -> dict[str, Any]:
        shown = super().to_json()
        return {"kind": shown.pop("kind"), "entity": shown.pop("entity_name"), **shown}

    def __str__(self) -> str:
        return f"not possible: {self.entity_name}: {self.reason}" + (f" [{self.code}]" if self.code else "")
