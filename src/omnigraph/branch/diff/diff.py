"""What differs between two states of a graph: schema steps, and row changes of every type (`branch/diff/type_changes`).

Types come nodes before edges, then by name; the changes of a type in the order of entity ids. So two states always give
the same rows in the same order. A difference that takes more than one read holds a lease on both states, which cleanup
then leaves alone; a reader that may not write reads without one. Nothing else is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from omnigraph.branch.ancestry import merge_bases
from omnigraph.branch.diff.change_rows import OPERATIONS
from omnigraph.branch.diff.type_changes import PAGE_ROWS, TypeChanges, changed_types
from omnigraph.branch.merge.model import json_image
from omnigraph.commit import owner
from omnigraph.commit.operation import View
from omnigraph.errors import StorageError, UnknownType, UsageError
from omnigraph.language.schema.model import Schema
from omnigraph.language.schema.plan.steps import Step
from omnigraph.storage.manifest.table import Manifest
from omnigraph.storage.objects import leases

DataFrames = Callable[[TypeChanges, "ChangeFilter"], Any]


@dataclass(frozen=True)
class ChangeFilter:
    """Which changes: those of some types (names or table keys), entities and operations; None is all of them."""

    types: tuple[str, ...] | None = None
    ids: tuple[str, ...] | None = None
    operations: tuple[str, ...] | None = None

    @staticmethod
    def of(types: Sequence[str] | None, ids: Sequence[str] | None, operations: Sequence[str] | None) -> ChangeFilter:
        for operation in operations or ():
            if operation not in OPERATIONS:
                raise UsageError(detail=f"an operation is one of {', '.join(OPERATIONS)}, not {operation!r}.")
        return ChangeFilter(*(None if part is None else tuple(part) for part in (types, ids, operations)))

    def includes(self, changes: TypeChanges) -> bool:
        names = {f(t) for t in (changes.shape.old, changes.shape.new) if t is not None for f in (_name, _key)}
        return self.types is None or not names.isdisjoint(self.types)

    def require_known(self, *schemas: Schema) -> None:
        known = {f(t) for schema in schemas for t in schema.types() for f in (_name, _key)}
        for name in self.types or ():
            if name not in known:
                raise UnknownType(kind="node or edge", type_name=name)


def _name(t: Any) -> str:
    return str(t.name)


def _key(t: Any) -> str:
    return str(t.key)


@dataclass(frozen=True, eq=False)
class Diff:
    """The changes that lead from the state of commit `base` to that of commit `target`.

    Iterating gives Arrow tables with the columns operation, table_key, id, src, dst, changed, before, after: the
    changes of one type after another, some rows at a time.
    """

    old: View
    new: View
    filter: ChangeFilter = field(default_factory=ChangeFilter)
    dataframes: DataFrames | None = None

    @property
    def base(self) -> str | None:
        """None for the state before the first commit."""
        return self.old.head.commit or None

    @property
    def target(self) -> str:
        return self.new.head.commit

    @cached_property
    def _types(self) -> list[TypeChanges]:
        self.filter.require_known(self.old.schema, self.new.schema)
        every = (TypeChanges(self.old, self.new, type_id) for type_id in changed_types(self.old, self.new))
        return [changes for changes in every if self.filter.includes(changes)]

    @property
    def types(self) -> list[str]:
        """Table keys of the types whose table or declaration differs. Their rows may still be the same."""
        return [changes.table_key for changes in self._types]

    @property
    def schema(self) -> list[Step]:
        """What differs in the schemas, by identity: a rename is one step and changes no row."""
        return [step for changes in self._types for step in changes.schema_steps]

    # ---- rows --------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[pa.Table]:
        return self.batches()

    def batches(self, *, rows_max: int = PAGE_ROWS) -> Iterator[pa.Table]:
        """The changes of all types, at most `rows_max` rows at a time."""
        for _, batches in self.by_type(rows_max=rows_max):
            yield from batches

    def by_type(self, *, rows_max: int = PAGE_ROWS) -> Iterator[tuple[TypeChanges, Iterator[pa.Table]]]:
        """Type by type, each with its batches, which must be read before the next type."""
        with ExitStack() as stack:
            for changes in self._leased(stack):
                yield changes, self._batches(changes, rows_max)

    def _batches(self, changes: TypeChanges, rows_max: int = PAGE_ROWS) -> Iterator[pa.Table]:
        return changes.batches(rows_max=rows_max, operations=self.filter.operations, ids=self.filter.ids)

    def to_table(self, type_name: str) -> pa.Table:
        """All changes of one type."""
        changes = self.of_type(type_name)
        with ExitStack() as stack:
            if not changes.is_small:
                self._lease(stack, [changes])
            return pa.concat_tables([changes.schema.empty_table(), *self._batches(changes)])

    def dataframe(self, type_name: str) -> Any:
        """All changes of one type as a Spark DataFrame, in no particular order: for differences of any size."""
        if self.dataframes is None:
            raise UsageError(detail='a diff gives DataFrames with engine="spark".')
        return self.dataframes(self.of_type(type_name), self.filter)

    def of_type(self, type_name: str) -> TypeChanges:
        """The changes of one type; without rows if it has none. UnknownType if neither state has it."""
        chosen = ChangeFilter(types=(type_name,))
        chosen.require_known(self.old.schema, self.new.schema)
        for changes in self._types:
            if chosen.includes(changes):
                return changes
        t = self.new.type(type_name.partition(":")[2] or type_name)
        return TypeChanges(self.old, self.new, t.id)

    # ---- counts ------------------------------------------------------------------------------------------------------

    def stat(self) -> dict[str, dict[str, int]]:
        """The number of changes per table key and operation; types without changes are left out."""
        counts = {}
        with ExitStack() as stack:
            for changes in self._leased(stack):
                by_operation = changes.counts(ids=self.filter.ids, operations=self.filter.operations)
                if any(by_operation.values()):
                    counts[changes.table_key] = by_operation
        return counts

    def to_json(self) -> dict[str, Any]:
        changes = [row for batch in self for row in json_rows(batch)]
        return {**self.head_json(), "changes": changes}

    def head_json(self) -> dict[str, Any]:
        """Both commits and the changes of the schema, without row changes."""
        return {"base": self.base, "target": self.target, "schema": [step.to_json() for step in self.schema]}

    # ---- lease -------------------------------------------------------------------------------------------------------

    def _leased(self, stack: ExitStack) -> Iterator[TypeChanges]:
        """The types, under a lease from the first one that is not read at once."""
        is_leased = False
        for i, changes in enumerate(self._types):
            if not is_leased and not changes.is_small:
                self._lease(stack, self._types[i:])
                is_leased = True
            yield changes

    def _lease(self, stack: ExitStack, types: Sequence[TypeChanges]) -> None:
        """VersionReclaimed if cleanup has removed one of the states."""
        lease = leases.hold(
            self.new.tables.location,
            {pin: None for changes in types for pin in changes.pins},
            owner=owner.myself(),
            is_gone=owner.is_gone,
            branch=self.new.head.branch,
            commit=self.target,
            table_keys={**self.old.table_keys, **self.new.table_keys},
        )
        try:
            stack.enter_context(lease)
        except StorageError as error:
            if not leases.may_not_write(error):
                raise


def json_rows(batch: pa.Table) -> Iterator[dict[str, Any]]:
    """Changes with values as JSON has them."""
    for row in batch.to_pylist():
        yield {**row, "before": json_image(row["before"]), "after": json_image(row["after"])}


def diff_base(manifest: Manifest, base: str, target: str) -> str:
    """The merge base of two commits. UsageError if there are several."""
    bases = merge_bases(manifest, base, target)
    if len(bases) != 1:
        detail = f"{base} and {target} have {len(bases)} merge bases ({', '.join(bases)}): compare with one of them."
        raise UsageError(detail=detail)
    return bases[0]


def empty_state(view: View) -> View:
    """The state before the first commit of a graph: no types, no rows."""
    empty = replace(view, head=replace(view.head, commit=""), pins={}, rows_by_id={})
    empty.__dict__["schema"] = Schema()
    empty.__dict__["table_keys"] = dict[str, str]()
    return empty
