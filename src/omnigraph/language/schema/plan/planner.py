"""From the accepted schema to the desired one: the steps, the unsupported changes and why, and the resulting schema.

1. match      types and properties by name or `@rename_from`, or by id (`match`)
2. compare    interfaces, then each matched type: its head, its properties, its constraints (`compare`)
3. list       renames first, so that every later step uses new names; types are added before others are dropped
4. result     the accepted schema after the steps: ids kept, properties in the order of the table's columns
              (accepted ones first, added ones behind), the desired file's text as source

Invariants: an id never moves to another element; an unsupported plan has the accepted schema as its result; a plan
against its own result is empty. Pure: `populated` is called to check whether a type holds rows, only where it matters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from omnigraph.language.schema.identity import identifiers
from omnigraph.language.schema.lint import Finding, finding
from omnigraph.language.schema.model import EdgeType, EntityType, NodeType, Schema
from omnigraph.language.schema.plan.compare import Changes, compare_interfaces, compare_types
from omnigraph.language.schema.plan.match import Match
from omnigraph.language.schema.plan.steps import AddType, DropType, Mode, RenameType, Step, UnsupportedChange
from omnigraph.language.schema.syntax.constraints import in_order

T = TypeVar("T", NodeType, EdgeType)
_CONFIRM_DROP = (
    "if that is meant, confirm it with the graph's name on a terminal, with drop_all=True from Python, or remove the "
    "data too with --allow-data-loss"
)


@dataclass(frozen=True)
class SchemaPlan:
    steps: tuple[Step, ...]
    result: Schema
    findings: tuple[Finding, ...] = ()

    @property
    def supported(self) -> bool:
        return not self.unsupported

    @property
    def changed(self) -> bool:
        return bool(self.steps)

    @property
    def unsupported(self) -> tuple[UnsupportedChange, ...]:
        return tuple(s for s in self.steps if isinstance(s, UnsupportedChange))

    def to_json(self) -> dict[str, Any]:
        return {
            "supported": self.supported,
            "changed": self.changed,
            "steps": [s.to_json() for s in self.steps],
            "findings": [f.to_json() for f in self.findings],
        }


def accept(desired: Schema, *, new_id: Callable[[str], str]) -> Schema:
    """The first acceptance: every type and property gets an id. `@rename_from` has no effect."""
    changes = Changes(new_id, "soft", lambda t: False)
    nodes = tuple(_with_ids(n, changes) for n in desired.nodes)
    edges = tuple(_with_ids(e, changes) for e in desired.edges)
    return replace(desired, nodes=nodes, edges=edges)


def plan_changes(
    accepted: Schema,
    desired: Schema,
    *,
    new_id: Callable[[str], str],
    allow_data_loss: bool = False,
    drop_all: bool = False,
    populated: Callable[[EntityType], bool] = lambda t: True,
) -> SchemaPlan:
    """`populated` is whether an accepted type holds rows; `allow_data_loss` turns soft drops into hard ones.

    A plan that keeps no type (the file is empty or belongs to another graph) needs `allow_data_loss` or `drop_all`.
    """
    mode: Mode = "hard" if allow_data_loss else "soft"
    changes = Changes(_unused(new_id, accepted), mode, _cached(populated))
    return _plan(accepted, desired, changes, drop_all=allow_data_loss or drop_all)


def plan_by_id(accepted: Schema, desired: Schema) -> SchemaPlan:
    """Between two schemas that both have ids: elements are matched by id, added ones keep theirs, drops are soft.

    The caller checks what depends on rows: a required property without default is added, whatever its type holds.
    """
    changes = Changes(lambda prefix: "", "soft", lambda t: False, by_id=True)
    return _plan(accepted, desired, changes, drop_all=True)


def _plan(accepted: Schema, desired: Schema, changes: Changes, *, drop_all: bool) -> SchemaPlan:
    nodes = changes.match(accepted.nodes, desired.nodes)
    edges = changes.match(accepted.edges, desired.edges)
    compare_interfaces(accepted, desired, changes)
    _conflicts(nodes, accepted, changes)
    _conflicts(edges, accepted, changes)
    pairs: list[tuple[EntityType, EntityType]] = [*nodes.pairs, *edges.pairs]
    for old, new in pairs:
        if old.name != new.name:
            changes.steps.append(RenameType(new.kind, new.name, old.id, old.name))
    kept_nodes = tuple(compare_types(old, new, nodes.renames(), changes) for old, new in nodes.pairs)
    kept_edges = tuple(compare_types(old, new, nodes.renames(), changes) for old, new in edges.pairs)
    added_nodes = tuple(_added(n, changes) for n in nodes.added)
    added_edges = tuple(_added(e, changes) for e in edges.added)
    _drop_types(edges.dropped, nodes.dropped, accepted, changes)
    if not pairs:
        _drop_all(accepted, desired, changes, allowed=drop_all)

    steps = tuple(changes.steps)
    if not steps or any(isinstance(s, UnsupportedChange) for s in steps):
        return SchemaPlan(steps, accepted, tuple(changes.findings))
    result = Schema(desired.interfaces, kept_nodes + added_nodes, kept_edges + added_edges, desired.source)
    return SchemaPlan(steps, result, tuple(changes.findings))


def _conflicts(matched: Match[NodeType] | Match[EdgeType], accepted: Schema, changes: Changes) -> None:
    kinds = {t.name: t.kind for t in accepted.types()}
    for new, old, reason in matched.conflicts:
        if old is None:
            other = next((str(a.argument) for a in new.annotations if a.name == "rename_from"), "")
            if other in kinds:
                reason = f"@rename_from names {other}, which is no {new.kind} type"
        changes.unsupported(new.key, reason, type_id="" if old is None else old.id)


def _drop_types(edges: Sequence[EdgeType], nodes: Sequence[NodeType], accepted: Schema, changes: Changes) -> None:
    """Edges before nodes; a node type that is an endpoint of a remaining edge type can't be dropped."""
    dropped_edges = {e.name for e in edges}
    types: list[EntityType] = [*edges, *nodes]
    for dropped in types:
        users = [e.name for e in accepted.incident_edges(dropped.name) if e.name not in dropped_edges]
        if isinstance(dropped, NodeType) and users:
            reason = f"the node type is dropped, and {', '.join(users)} still connects it; drop that edge type as well"
            changes.unsupported(dropped.key, reason, type_id=dropped.id)
            continue
        changes.steps.append(DropType(dropped.kind, dropped.name, dropped.id, changes.mode))
        if changes.populated(dropped):
            code = "OG-DS-102" if isinstance(dropped, NodeType) else "OG-DS-103"
            effect = (
                "its rows and their history are removed, unless another branch holds them"
                if changes.mode == "hard"
                else "its rows stay readable at older commits until cleanup"
            )
            changes.findings.append(finding(code, dropped.key, f"{dropped.name} holds rows and is dropped; {effect}"))


def _drop_all(accepted: Schema, desired: Schema, changes: Changes, *, allowed: bool) -> None:
    """No type remains: refused as a probable mistake unless allowed. Replacing types without rows loses nothing."""
    if not any(isinstance(s, DropType) for s in changes.steps):
        return
    if any(desired.types()) and not any(changes.populated(t) for t in accepted.types()):
        return
    reason = f"every type of the graph is dropped ({', '.join(t.name for t in accepted.types())})"
    changes.findings.append(finding("OG-DS-101", "schema", reason))
    if not allowed:
        changes.steps.append(UnsupportedChange("schema", f"{reason}; {_CONFIRM_DROP}", "OG-DS-101"))


def _added(new: T, changes: Changes) -> T:
    typed = _with_ids(new, changes)
    changes.steps.append(AddType(typed.kind, typed.name, typed.id))
    return typed


def _with_ids(t: T, changes: Changes) -> T:
    type_id = changes.id_of_added(t)
    properties = tuple(replace(p, id=changes.id_of_added(p)) for p in t.properties)
    constraints = in_order(t.constraints, [p.name for p in properties])
    return replace(t, id=type_id, properties=properties, constraints=constraints)


def _unused(new_id: Callable[[str], str], accepted: Schema) -> Callable[[str], str]:
    used_ids = {i for t in accepted.types() for e in (t, *t.properties) for i in identifiers(e)}

    def unused(prefix: str) -> str:
        candidate = new_id(prefix)
        while candidate in used_ids:
            candidate = new_id(prefix)
        return candidate

    return unused


def _cached(populated: Callable[[EntityType], bool]) -> Callable[[EntityType], bool]:
    """Counting rows may cost a request, so `populated` is called at most once per type."""
    answers: dict[str, bool] = {}

    def ask(t: EntityType) -> bool:
        if t.key not in answers:
            answers[t.key] = populated(t)
        return answers[t.key]

    return ask
