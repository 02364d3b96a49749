"""Branches that have diverged, what brings them together, and what the oracle expects then."""

from __future__ import annotations

from typing import Any

from tests.faults import scenes
from tests.faults.scenes import Place, State, add_edge, committed, drop, put

ON_REVIEW = {
    "Person": [{"name": "anna", "age": 31}, {"name": "dora", "age": 50}, {"name": "eli"}],
    "Company": [{"name": "core", "city": "Chur"}],
    "WorksAt": [{"from": "dora", "to": "core"}],
}


def create_diverged(place: Place) -> None:
    """Both sides have moved: rows of three tables on the branch, one row of a shared table on main."""
    scenes.create_with_branch(place)
    with place.open() as graph:
        graph.upsert(ON_REVIEW, branch="review")
        graph.delete({"Note": ["first"]}, branch="review")
        graph.update("Person", {"age": 41}, ids=["ben"])


def create_contended(place: Place) -> None:
    """Both sides have changed one row as well."""
    create_diverged(place)
    with place.open() as graph:
        graph.update("Person", {"age": 99}, ids=["anna"])


def create_with_new_columns(place: Place) -> None:
    """The branch has a property with a default that main does not have."""
    scenes.create_with_branch(place)
    with place.open() as graph:
        graph.apply_schema(scenes.ADDED_PROPERTY, branch="review")
        graph.upsert({"Company": [{"name": "acme", "city": "Chur", "size": 9}]}, branch="review")
        graph.update("Company", {"city": "Thun"}, ids=["bolt"])


def create_merged(place: Place) -> None:
    """Main refers to files that the branch has written."""
    create_diverged(place)
    with place.open() as graph:
        merge(graph)


def create_merged_and_deleted(place: Place) -> None:
    create_merged(place)
    with place.open() as graph:
        graph.delete_branch("review")


def merge(graph: Any) -> None:
    """Adopts fragments of any size. In a process of its own, as every verb is."""
    from omnigraph.branch.merge.rows import table_edit

    table_edit.ADOPT_ROWS_MIN = 1
    graph.merge("review")


def merge_by_copy(graph: Any) -> None:
    graph.merge("review")


def merge_by_tasks(graph: Any) -> None:
    """Every row is compared, decided and written by a task of its own, on threads."""
    from omnigraph.branch.merge.rows import tasks as row_tasks
    from omnigraph.pipeline import merge_tasks

    row_tasks.CHUNK_BYTES = row_tasks.FRAGMENT_BYTES = 1
    merge_tasks.TASKS_BYTES_MIN = 0
    graph.merge("review", strategy="theirs", engine="local")


def revert_newest(graph: Any) -> None:
    graph.revert(graph.commits()[0].id)


def cleanup_and_write(graph: Any) -> None:
    """Nobody who reads notices a cleanup: the write behind it shows how far it came."""
    graph.cleanup(keep=1, confirm=True)
    graph.upsert({"Person": [{"name": "fay", "age": 50}]})


def cherry_pick_first(graph: Any) -> None:
    """The commit that wrote three tables, without the one that deleted the note."""
    graph.cherry_pick(graph.commits("review")[1].id)


# ---- changes ---------------------------------------------------------------------------------------------------------


def picked(state: State) -> None:
    put(state, "Person", "anna", {"name": "anna", "age": 31})
    put(state, "Person", "dora", {"name": "dora", "age": 50})
    put(state, "Person", "eli", {"name": "eli", "age": None})
    put(state, "Company", "core", {"name": "core", "city": "Chur"})
    add_edge(state, "WorksAt", "dora", "core")
    committed(state)


def merged(state: State) -> None:
    picked(state)
    drop(state, "Note", lambda row: row["id"] != "first")


def with_columns(state: State) -> None:
    scenes.with_property(state)
    put(state, "Company", "acme", {"name": "acme", "city": "Chur", "size": 9})


def reverted(state: State) -> None:
    put(state, "Person", "ben", {"name": "ben", "age": 40})
    committed(state)
