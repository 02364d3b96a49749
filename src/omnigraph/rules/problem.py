"""A broken rule, before it is known which row breaks it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from omnigraph.errors import Violation


@dataclass(frozen=True)
class Problem:
    """Why a value or a record is refused: the rule, the reason, and the property or field."""

    rule: str
    message: str
    property: str | None = None

    def on(self, name: str) -> Problem:
        """The same problem of the property or field `name`, which the message then names."""
        return replace(self, property=name, message=f"{name}: {self.message}")

    def violation(
        self,
        table_key: str,
        *,
        entity_id: str | None = None,
        line: int | None = None,
        row: int | None = None,
        source: str | None = None,
    ) -> Violation:
        """The same problem of one row."""
        return Violation(
            rule=self.rule,
            table_key=table_key,
            message=self.message,
            entity_id=entity_id,
            property=self.property,
            line=line,
            row=row,
            source=source,
        )


def shortened(text: str, length_max: int = 60) -> str:
    return text if len(text) <= length_max else text[: length_max - 1] + "…"


def value_text(value: object) -> str:
    """A stored value or an id, as messages show it."""
    return shortened(repr(value))


def entity_text(type_name: str, entity_id: object) -> str:
    """An entity, as messages name it."""
    return f"{type_name} {value_text(entity_id)}"
