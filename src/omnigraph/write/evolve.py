"""Schema apply: the accepted schema of a branch moves to a new one, with all tables, in one graph commit.

1. plan     compare the desired schema with the branch's accepted one; refuse what is unsupported
2. prepare  per type: new tables at fresh paths; on existing ones rename, drop and add columns as stamped transactions
3. commit   through the door: all tables, the tombstones of dropped ones and the schema become visible together
4. remove   after a hard drop: versions that still hold the dropped data (`maintenance/cleanup/dropped.py`)

Other branches keep their own accepted schema: a table that they share is forked before it changes. A crash in 2 leaves
unreferenced tables and files; in 3, what the door promises; in 4, old versions for cleanup to find.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.commit.operation import LaterStep, Prepared, TableWork, View, work_on
from omnigraph.errors import UnsupportedSchemaChange
from omnigraph.language.schema.ids import fresh_ids
from omnigraph.language.schema.model import EntityType, Schema
from omnigraph.language.schema.plan.planner import SchemaPlan, plan_changes
from omnigraph.language.schema.plan.steps import (
    AddProperty,
    AddType,
    DropProperty,
    DropType,
    PropertyStep,
    RenameProperty,
    Step,
)
from omnigraph.storage.lance.embedding_marks import mark_column, source_of
from omnigraph.storage.lance.rewrites import reshape
from omnigraph.storage.lance.tables import storage_schema
from omnigraph.storage.manifest.create import create_table
from omnigraph.write.rows import value_array

if TYPE_CHECKING:
    from lance import Transaction


@dataclass(frozen=True)
class ApplySchema:
    """The operation. `desired` has no ids; they are given by the plan, which is made anew on every view."""

    desired: Schema
    allow_data_loss: bool = False
    drop_all: bool = False
    kind: str = "schema_apply"
    quick: bool = False

    def plan(self, view: View) -> SchemaPlan:
        return plan_changes(
            view.schema,
            self.desired,
            new_id=fresh_ids(),
            allow_data_loss=self.allow_data_loss,
            drop_all=self.drop_all,
            populated=lambda t: view.count(t) > 0,
        )

    def scope(self, view: View) -> frozenset[str]:
        return frozenset(view.pins)

    def prepare(self, view: View) -> Prepared:
        plan = self.plan(view)
        if not plan.supported:
            reasons = "; ".join(f"{s.entity}: {s.reason}" for s in plan.unsupported)
            raise UnsupportedSchemaChange(reasons=reasons, plan=plan.to_json())
        if not plan.changed:
            return Prepared(view=view, result=plan)
        tables: dict[str, TableWork] = {}
        for step in plan.steps:
            if isinstance(step, AddType) and step.type_id:
                tables[step.type_id] = new_table(view, plan.result.by_id[step.type_id])
        for type_id, steps in steps_by_type(plan.steps).items():
            tables[type_id] = reshape_table(view, view.schema.by_id[type_id], plan.result.by_id[type_id], steps)
        dropped = frozenset(s.type_id for s in plan.steps if isinstance(s, DropType) and s.type_id)
        return Prepared(
            view=view,
            tables=tables,
            dropped=dropped,
            # Whether a type holds rows decides what is supported, so what was counted must not have moved.
            reads=frozenset(view.pins),
            schema=(f"s{secrets.token_hex(8)}", plan.result),
            summary={"steps": [s.kind for s in plan.steps]},
            result=plan,
        )


def steps_by_type(steps: Iterable[Step]) -> dict[str, list[PropertyStep]]:
    """The steps that change columns of a table, by type id, in their order."""
    by_type: dict[str, list[PropertyStep]] = {}
    for step in steps:
        if isinstance(step, AddProperty | DropProperty | RenameProperty) and step.type_id:
            by_type.setdefault(step.type_id, []).append(step)
    return by_type


def new_table(view: View, t: EntityType) -> TableWork:
    """An empty table for a type that the view's schema lacks, at a path of its own."""
    pin, handle = create_table(
        view.tables.location,
        t,
        incarnation=secrets.token_hex(6),
        stable_row_ids=view.manifest.stable_row_ids(),
        stamp=f"create/{view.head.incarnation}",
    )
    return TableWork(pin=pin, source=None, steps=(), handle=handle)


def reshape_table(view: View, old: EntityType, new: EntityType, steps: Sequence[PropertyStep]) -> TableWork:
    """The steps from `old`, a type of the view's schema, to `new`. A property may take the name of one that is dropped
    or renamed by the same steps.
    """
    renames = {s.from_name: s.property_name for s in steps if isinstance(s, RenameProperty)}
    drops = [_name_in(old, s.property_id) for s in steps if isinstance(s, DropProperty)]
    adds = [s for s in steps if isinstance(s, AddProperty)]
    pin, handle, _ = work_on(view, old)
    filled = [s for s in adds if s.backfill is not None] if handle.count_rows() else []
    plain = [storage_schema(new).field(s.property_name) for s in adds if s not in filled]
    # The hidden marks of embedded vectors come and go with their vectors.
    added = [new.by_name[s.property_name] for s in adds]
    plain += [storage_schema(new).field(mark_column(p)) for p in added if source_of(p) is not None]
    marks = [mark_column(p) for p in old.properties if p.name in drops]
    drops += [name for name in marks if name in handle.schema.names]
    first: tuple[Transaction, ...] = ()
    later: list[LaterStep] = []
    if filled:
        # Written before the ticket, under names that nothing can collide with; the rename that follows is metadata.
        values = {f"__filled_{s.property_id}": value_array(new, s.property_name, [s.backfill])[0] for s in filled}
        first = (reshape.add_filled(view.tables.location, pin, handle, values),)
        renames.update({f"__filled_{s.property_id}": s.property_name for s in filled})
    if renames or drops:
        later.append(LaterStep(lambda table: reshape.rename_and_drop(table, renames=renames, drops=drops), files=()))
    if plain:
        later.append(LaterStep(lambda table: reshape.add_nullable(table, plain), files=()))
    return TableWork(pin=pin, source=view.pins[old.id], steps=first, later=tuple(later), handle=handle)


def _name_in(t: EntityType, property_id: str) -> str:
    return next(p.name for p in t.properties if p.id == property_id)


def hard_drops(plan: SchemaPlan) -> Mapping[str, bool]:
    """Type ids whose old data must go after a hard drop; True if the whole table goes."""
    found: dict[str, bool] = {}
    for step in plan.steps:
        if isinstance(step, DropType) and step.mode == "hard" and step.type_id:
            found[step.type_id] = True
        elif isinstance(step, DropProperty) and step.mode == "hard" and step.type_id:
            found.setdefault(step.type_id, False)
    return found
