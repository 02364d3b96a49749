"""Matches the declarations of the new schema with those of the accepted one: by name or `@rename_from`, or by id.

An entity whose name exists keeps its identity. A new name with `@rename_from("Old")` gets Old's identity. The
annotation of an applied rename may stay in the file and has no effect: the accepted entity has it too. Any other
`@rename_from` must name an entity that exists and that no other declaration claims. An ambiguous declaration (Old is
still declared, two names are swapped, or Old would silently be dropped) is a conflict with a reason. Where both schemas
have ids, `match_by_id` needs neither names nor annotations, and there are no conflicts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from omnigraph.language.schema.model import EdgeType, NodeType, Property
from omnigraph.language.schema.source import did_you_mean

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
    annotation = next((a for a in entity.annotations if a.name == "rename_from"), None)
    return None if annotation is None else str(annotation.argument)


def match(accepted: Sequence[T], desired: Sequence[T]) -> Match[T]:
    result: Match[T] = Match()
    before = {e.name: e for e in accepted}
    declared = {e.name for e in desired}
    claimed: dict[str, T] = {}
    ambiguous: set[str] = set()
    for new in sorted(desired, key=lambda e: e.name in before):
        old_name = renamed_from(new)
        if new.name in before:
            reason = _contradiction(new, before, declared=declared, claimed=claimed)
            if reason is None:
                claimed[new.name] = new
            else:
                result.conflicts.append((new, before[new.name], reason))
                ambiguous |= {new.name, str(old_name)}
        elif old_name is None:
            result.added.append(new)
        elif old_name not in before:
            result.conflicts.append((new, None, _unknown(old_name, before)))
        elif old_name in declared:
            reason = f"@rename_from names {old_name}, which is still declared; remove one of the two"
            result.conflicts.append((new, before[old_name], reason))
        elif old_name in claimed:
            reason = f"{claimed[old_name].name} is renamed from {old_name} as well"
            result.conflicts.append((new, before[old_name], reason))
        else:
            claimed[old_name] = new
    result.pairs = [(old, claimed[old.name]) for old in accepted if old.name in claimed]
    result.dropped = [old for old in accepted if old.name not in claimed and old.name not in ambiguous]
    return result


def match_by_id(accepted: Sequence[T], desired: Sequence[T]) -> Match[T]:
    before = {e.id for e in accepted}
    after = {e.id: e for e in desired}
    return Match(
        pairs=[(old, after[old.id]) for old in accepted if old.id in after],
        added=[new for new in desired if new.id not in before],
        dropped=[old for old in accepted if old.id not in after],
    )


def _contradiction(
    new: T, before: Mapping[str, T], *, declared: Collection[str], claimed: Collection[str]
) -> str | None:
    """Why the `@rename_from` of an entity whose name exists is a conflict; None if it has none, or it was applied."""
    old_name = renamed_from(new)
    if old_name is None or old_name == new.name:
        return None
    if old_name in before and old_name not in declared and old_name not in claimed:
        return (
            f"@rename_from names {old_name}, but {old_name} and {new.name} both exist; "
            f"drop one of them first, or remove the annotation"
        )
    if old_name == renamed_from(before[new.name]):
        return None
    if old_name in before:
        return (
            f"@rename_from names {old_name}, but {old_name} and {new.name} both exist and stay; "
            f"swap names in two steps, by a third one, or remove the annotation"
        )
    return _unknown(old_name, before)


def _unknown(name: str, before: Iterable[str]) -> str:
    hint = did_you_mean(name, before).lstrip().rstrip("?").replace("Did", "did", 1)
    return f"@rename_from names {name}, which does not exist" + (f" ({hint}?)" if hint else "")
