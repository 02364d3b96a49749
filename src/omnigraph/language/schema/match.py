"""Which declaration of the new schema is which of the accepted one: by name, or by `@rename_from`.

An entity whose name exists keeps its identity, so an old `@rename_from` left in the file means nothing any more. A new
name with `@rename_from("Old")` takes over Old's identity. Where the two readings compete (Old is still declared, or
both names exist and Old would silently be dropped) nothing is guessed: it is a conflict with a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from omnigraph.language.schema.model import EdgeType, NodeType, Property

T = TypeVar("T", NodeType, EdgeType, Property)


@dataclass
class Match(Generic[T]):
    """Pairs in the order of the accepted schema; `conflicts`: new entity, accepted one if any, reason."""

    pairs: list[tuple[T, T]] = field(default_factory=list)
    added: list[T] = field(default_factory=list)
    dropped: list[T] = field(default_factory=list)
    conflicts: list[tuple[T, T | None, str]] = field(default_factory=list)

    def renames(self) -> dict[str, str]:
        return {old.name: new.name for old, new in self.pairs if old.name != new.name}


def renamed_from(entity: NodeType | EdgeType | Property) -> str | None:
    found = next((a for a in entity.annotations if a.name == "rename_from"), None)
    return None if found is None else str(found.argument)


def match(accepted: Sequence[T], desired: Sequence[T]) -> Match[T]:
    result: Match[T] = Match()
    before = {e.name: e for e in accepted}
    declared = {e.name for e in desired}
    taken: dict[str, T] = {}
    unclear: set[str] = set()
    for new in sorted(desired, key=lambda e: e.name in before):
        old_name = renamed_from(new)
        if new.name in before:
            if old_name in before and old_name not in declared and old_name not in taken:
                reason = (
                    f"@rename_from names {old_name}, but {old_name} and {new.name} both exist; "
                    f"drop one of them first, or remove the annotation"
                )
                result.conflicts.append((new, before[new.name], reason))
                unclear |= {new.name, str(old_name)}
            else:
                taken[new.name] = new
        elif old_name is None:
            result.added.append(new)
        elif old_name not in before:
            result.conflicts.append((new, None, f"@rename_from names {old_name}, which does not exist"))
        elif old_name in declared:
            reason = f"@rename_from names {old_name}, which is still declared; remove one of the two"
            result.conflicts.append((new, before[old_name], reason))
        elif old_name in taken:
            reason = f"{taken[old_name].name} is renamed from {old_name} as well"
            result.conflicts.append((new, before[old_name], reason))
        else:
            taken[old_name] = new
    result.pairs = [(old, taken[old.name]) for old in accepted if old.name in taken]
    result.dropped = [old for old in accepted if old.name not in taken and old.name not in unclear]
    return result
