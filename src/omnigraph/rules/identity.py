"""Identity: an id stands once in a write, an insert brings new ids only, and an id is the one that the key gives."""

from __future__ import annotations

from omnigraph.language.schema.model import EntityType
from omnigraph.rules.problem import Problem, value_text


def id_rule(t: EntityType) -> str:
    """The rule that ids of this type break: `key` if a key gives them, else `id`."""
    return "key" if t.key_properties else "id"


def repeated_id(t: EntityType, entity_id: object, where: str) -> Problem:
    """An earlier row of the write has the id; `where` is that row's line or number."""
    rule = id_rule(t)
    return Problem(rule, f"{rule}: {value_text(entity_id)} is already given by {where}")


def existing_id(t: EntityType, entity_id: object) -> Problem:
    """The graph has the id, and the write may not replace it."""
    rule = id_rule(t)
    return Problem(rule, f"{rule}: {value_text(entity_id)} exists already")


def other_id(entity_id: object, key_id: object) -> Problem:
    """The row brings another id than its key gives."""
    return Problem("id", f"is {entity_id!r}, but the key gives {key_id!r}").on("id")


def invalid_id(problem: Problem) -> Problem:
    """The id of a row is no text; `problem` says why."""
    return Problem("id", problem.message).on("id")


def changed_key(name: str) -> Problem:
    return Problem("key", "a key can't be changed; delete the entity and insert another").on(name)
