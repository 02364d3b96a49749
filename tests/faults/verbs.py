"""The one list of operations under test. A new verb joins by one line in VERBS.

A verb has a start (what is there before), a run (what is struck; it acknowledges by returning) and a change: the
written oracle, a pure function from the logical state before to the one after. Everything else, which faults and how
often, which outcome is right for which fault, comes from elsewhere and is the same for all.

A verb with `interrupted` starts on a graph that another verb left half-done: that one was killed at a named point of
the door, and the run has to settle it first. Its `change` applies to the settled state.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from tests.faults import merges, scenes, worn
from tests.faults.scenes import (
    Place,
    State,
    add_person,
    create_small,
    create_with_branch,
    create_with_forks,
    on_graph,
    on_review,
    person,
)

Act = Callable[[Any], object]
Change = Callable[[State], None]
Start = Callable[[Place], object]


@dataclass(frozen=True)
class Point:
    """A moment inside an operation: the nth time that something of this name becomes visible in the store.

    `after` says whether the process dies before or after it does. `settles_to_new` is the oracle's word on what any
    later writer makes of it: forward if every planned effect is there, back otherwise.
    """

    pattern: str
    after: bool
    settles_to_new: bool
    nth: int = 1

    @property
    def is_visible(self) -> bool:
        """Whether readers see the operation already: it is published, and only its owner is dead."""
        return self.pattern == GRAPH_VERSION and self.after


@dataclass(frozen=True)
class Verb:
    name: str
    run: Callable[[Place], object]
    change: Change
    start: Start
    interrupted: tuple[str, Point] | None = None
    settle: Callable[[State], State] | None = None
    overtaken: tuple[Change, ...] = ()
    """What else is right if the verb was stopped, another writer came by, and it went on: changes of that state."""
    partly: tuple[Change, ...] = ()
    """What a verb may have done that works on several tables, could not do one of them, and says so."""
    by_owner_only: bool = False
    """Whether nobody but its owner publishes it: Lance makes the last commits of each table by itself, or the branch
    gets another incarnation.
    """
    anew: str | None = None
    """The branch on which a table is done anew, in a commit of its own, after the store refused a commit of it: what
    was prepared for it can be used once.
    """

    def settled(self, before: State) -> State:
        """What any writer makes of the start, by the written oracle, where something is pending in it."""
        if self.settle:
            return self.settle(before)
        if self.interrupted and self.interrupted[1].settles_to_new and not self.interrupted[1].is_visible:
            return by_name(self.interrupted[0]).new(before)
        return before

    def new(self, old: State) -> State:
        """The state after the verb, by the written oracle."""
        return _after(old, self.change)

    def some(self, old: State) -> tuple[State, ...]:
        """The states after a verb that could not do all of it, and said so."""
        return tuple(_after(old, change) for change in self.partly)

    def again(self, old: State) -> State | None:
        """The state after a verb that did one table anew."""
        if self.anew is None:
            return None
        return _after(self.new(old), functools.partial(scenes.committed, branch=self.anew))


def _after(old: State, change: Change) -> State:
    state = copy.deepcopy(old)
    change(state)
    return scenes.ordered(state)


TABLE_VERSION = r"/(nodes|edges)/[^/]+/(tree/[^/]+/)?_versions/\d+\.manifest$"
GRAPH_VERSION = r"/__manifest/_versions/\d+\.manifest$"
TICKET = r"/__recovery/[^/]+/\d+\.0\.json$"
PLAN = r"/__recovery/.*\.plan\d+\.json$"
POINTS = {
    "lock": Point(TICKET, after=True, settles_to_new=False),
    "plan": Point(PLAN, after=True, settles_to_new=False),
    "first_effect": Point(TABLE_VERSION, after=True, settles_to_new=False),
    "third_effect": Point(TABLE_VERSION, after=True, settles_to_new=False, nth=3),
    "all_effects": Point(GRAPH_VERSION, after=False, settles_to_new=True),
    "publish": Point(GRAPH_VERSION, after=True, settles_to_new=True),
}

BY_OWNER_ONLY = replace(POINTS["all_effects"], settles_to_new=False)
"""Only its owner knows whether all of what Lance commits by itself was synced, and only who resets a branch replaces
its incarnation: others take it back.
"""


def graph_verb(name: str, act: Act, change: Change, start: Start = create_small) -> Verb:
    """A verb on an open graph."""
    return Verb(name, on_graph(act), change, start)


def person_verb(
    name: str, act: Act, who: str, age: int | None = None, *, start: Start = create_small, branch: str = "main"
) -> Verb:
    """A verb on an open graph after which there is one person of this name, with this age."""
    return graph_verb(name, act, lambda state: add_person(state, who, age, branch=branch), start)


def upkeep_verb(name: str, act: Act, change: Callable[..., None], start: Start) -> Verb:
    """A verb that publishes the tables it could do and tells of the others."""
    partly = tuple(functools.partial(change, tables=(table,)) for table in worn.WORN)
    return replace(graph_verb(name, act, change, start), partly=partly, overtaken=worn.CAUGHT_UP)


def reset_verb(name: str, branch: str, to: str, change: Change, start: Start) -> Verb:
    """A reset that goes on after another writer came by throws away what that one wrote."""
    verb = graph_verb(name, lambda g: g.reset_branch(branch, to=to), change, start)
    return replace(verb, by_owner_only=True, overtaken=(change,))


def recovery_verb(name: str, point: Point, *, of: str = "upsert_types", start: Start = create_small) -> Verb:
    """A write on a graph that another verb, by default a write of four tables, left at this point."""
    verb = person_verb(name, lambda g: g.upsert(person("eve")), "eve", start=start)
    return replace(verb, interrupted=(of, point))


def migration_verb(name: str, generation: int, intent: Literal["forward", "back"] | None = None) -> Verb:
    """The first write on a graph of an older format, which brings it forward."""
    start = scenes.create_old(generation, intent)
    verb = person_verb(name, lambda g: g.upsert(person("dora")), "dora", start=start)
    return replace(verb, settle=scenes.after_old_intent if intent == "forward" else None)


VERBS: tuple[Verb, ...] = (
    Verb("init", scenes.create_empty, scenes.empty_graph, scenes.nothing),
    person_verb("insert", lambda g: g.insert(person("dora", 50)), "dora", 50),
    person_verb("upsert_new", lambda g: g.upsert(person("dora")), "dora"),
    person_verb("upsert_old", lambda g: g.upsert(person("ben", 41)), "ben", 41),
    graph_verb("upsert_types", lambda g: g.upsert(scenes.BOTH), scenes.two_types),
    graph_verb("upsert_wide", lambda g: g.upsert(scenes.ONE_OF_EACH), scenes.with_one_of_each, scenes.create_wide),
    person_verb("update", lambda g: g.update("Person", {"age": 44}, ids=["ben"]), "ben", 44),
    graph_verb("delete_cascade", lambda g: g.delete({"Person": ["anna"]}), scenes.without_anna),
    graph_verb("transaction", scenes.several_in_one, scenes.after_transaction),
    graph_verb("mutate", scenes.several_by_query, scenes.after_mutation),
    graph_verb("load_merge", scenes.load("merge", scenes.MERGED), scenes.after_load_merge),
    graph_verb("load_overwrite", scenes.load("overwrite", scenes.NOTES), scenes.after_load_overwrite),
    graph_verb("bulk_append", scenes.bulk("append", scenes.DORA, scenes.DORA_WORKS), scenes.after_bulk_append),
    graph_verb("bulk_merge", scenes.bulk("merge", scenes.DORA_AND_ACME, scenes.DORA_WORKS), scenes.after_load_merge),
    graph_verb("bulk_overwrite", scenes.bulk("overwrite", scenes.NOTE), scenes.after_load_overwrite),
    graph_verb("schema_add_type", lambda g: g.apply_schema(scenes.ADDED_TYPE), scenes.with_type),
    graph_verb("schema_add_property", lambda g: g.apply_schema(scenes.ADDED_PROPERTY), scenes.with_property),
    graph_verb("schema_rename", lambda g: g.apply_schema(scenes.RENAMED), scenes.with_renames),
    graph_verb("schema_drop", lambda g: g.apply_schema(scenes.DROPPED), scenes.without_city),
    graph_verb("branch_create", lambda g: g.create_branch("review"), scenes.with_branch),
    graph_verb("branch_delete", lambda g: g.delete_branch("review"), scenes.without_branch, create_with_forks),
    person_verb("branch_fork", on_review, "dora", start=create_with_branch, branch="review"),
    person_verb("branch_write", on_review, "dora", start=create_with_forks, branch="review"),
    person_verb("fold_table", lambda g: g.insert(person("dora")), "dora", start=scenes.create_due_for_table_fold),
    person_verb("fold_manifest", lambda g: g.insert(person("dora")), "dora", start=scenes.create_due_for_manifest_fold),
    graph_verb("repair", lambda g: g.repair(force=True, confirm=True), scenes.with_drift, scenes.create_drifted),
    graph_verb(
        "repair_discard", lambda g: g.repair(discard=True, confirm=True), scenes.committed, scenes.create_drifted
    ),
    person_verb("cleanup", scenes.cleanup_and_write, "dora", 50, start=scenes.create_with_history),
    upkeep_verb("optimize", worn.optimize(), worn.optimized, worn.create_worn),
    replace(
        upkeep_verb("optimize_branch", worn.optimize(branch="review"), worn.optimized_review, worn.create_worn_branch),
        overtaken=worn.CAUGHT_UP_ON_REVIEW,
        anew="review",
    ),
    replace(
        upkeep_verb("optimize_deferred", worn.optimize(defer_index_remap=True), worn.compacted, worn.create_by_address),
        by_owner_only=True,
        anew="main",
        overtaken=(*worn.CAUGHT_UP, scenes.committed),
    ),
    upkeep_verb("optimize_drain", worn.optimize(drain=True), worn.drained, worn.create_deferred),
    upkeep_verb("maintain", worn.maintain, worn.optimized, worn.create_worn),
    graph_verb("embed", worn.embed, worn.embedded, worn.create_with_texts),
    migration_verb("migrate_1", 1),
    migration_verb("migrate_2", 2),
    migration_verb("migrate_forward", 1, "forward"),
    migration_verb("migrate_back", 1, "back"),
    *(recovery_verb(f"recover_{name}", point) for name, point in POINTS.items()),
    recovery_verb("recover_optimize", POINTS["all_effects"], of="optimize", start=worn.create_worn),
    recovery_verb("recover_optimize_back", POINTS["first_effect"], of="optimize", start=worn.create_worn),
    recovery_verb("recover_drain", POINTS["all_effects"], of="optimize_drain", start=worn.create_deferred),
    recovery_verb("recover_deferred", BY_OWNER_ONLY, of="optimize_deferred", start=worn.create_by_address),
    recovery_verb("recover_repair", POINTS["all_effects"], of="repair", start=scenes.create_drifted),
    recovery_verb("recover_discard", POINTS["all_effects"], of="repair_discard", start=scenes.create_drifted),
    graph_verb("merge", merges.merge, merges.merged, merges.create_diverged),
    graph_verb("merge_copy", merges.merge_by_copy, merges.merged, merges.create_diverged),
    graph_verb("merge_tasks", merges.merge_by_tasks, merges.merged, merges.create_contended),
    graph_verb("merge_schema", merges.merge_by_copy, merges.with_columns, merges.create_with_new_columns),
    graph_verb("revert", merges.revert_newest, merges.reverted, merges.create_diverged),
    graph_verb("cherry_pick", merges.cherry_pick_first, merges.picked, merges.create_diverged),
    graph_verb("delete_merged", lambda g: g.delete_branch("review"), scenes.without_branch, merges.create_merged),
    person_verb("cleanup_merged", merges.cleanup_and_write, "fay", 50, start=merges.create_merged_and_deleted),
    recovery_verb("recover_merge", POINTS["all_effects"], of="merge", start=merges.create_diverged),
    recovery_verb("recover_merge_back", POINTS["first_effect"], of="merge", start=merges.create_diverged),
    person_verb("pack_first", scenes.pack_and_write, "dora", start=create_with_forks, branch="review"),
    person_verb("pack_merge", scenes.write_and_pack, "dora", start=scenes.create_packed, branch="review"),
    graph_verb("tag_create", lambda g: g.create_tag(scenes.TAG, g.commits()[-2].id), scenes.with_tag),
    graph_verb("tag_delete", lambda g: g.delete_tag(scenes.TAG), scenes.without_tag, scenes.create_tagged),
    reset_verb("reset_main", "main", scenes.TAG, scenes.at_the_tag, scenes.create_tagged),
    reset_verb("reset_branch", "review", "main", scenes.review_at_main, create_with_forks),
    recovery_verb("recover_reset", BY_OWNER_ONLY, of="reset_main", start=scenes.create_tagged),
)


def by_name(name: str) -> Verb:
    return next(verb for verb in VERBS if verb.name == name)
