"""The graph that many processes write to, made so that every kind of mistake shows in its rows.

* every write of a key goes to `Left` and `Right` in one commit, with the same values: a torn commit shows at once
* a counted write also reads `Counter hot`, adds one, and is refused if another was quicker: a lost update shows as a
  counter that differs from the number of counted keys
* every write carries its key as operation id: a doubled one shows in the history, an acknowledged one must be there
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

SCHEMA = """
node Left { name: String @key  n: I64?  by: String? }
node Right { name: String @key  n: I64?  by: String? }
node Counter { name: String @key  value: I64 }
edge Joins: Left -> Right
"""
COUNTED = "counted-"
HOT = "hot"


def create(path: Path | str) -> None:
    import omnigraph

    with omnigraph.init(path, SCHEMA) as graph:
        graph.insert({"Counter": [{"name": HOT, "value": 0}]})


def write(graph: Any, key: str, *, n: int = 0, by: str = "", branch: str = "main", operation_id: str = "") -> Any:
    """Both tables in one commit. Any two writes differ, so that each makes a commit."""
    row = {"name": key, "n": n, "by": by}
    return graph.upsert({"Left": [row], "Right": [row]}, branch=branch, operation_id=operation_id or None)


def count_up(graph: Any, key: str, *, branch: str = "main") -> None:
    """Read, add one, write, together with the key that says so. ReadSetConflict if another was quicker."""
    with graph.transaction(branch, operation_id=COUNTED + key) as tx:
        now = tx.get("Counter", HOT)
        assert now is not None
        row = {"name": COUNTED + key, "n": now["value"], "by": ""}
        tx.upsert({"Counter": [{"name": HOT, "value": now["value"] + 1}], "Left": [row], "Right": [row]})


def rows(snapshot: Any, type_name: str) -> dict[str, tuple[Any, ...]]:
    """Rows by id, without what a schema change may have added; a row that is there twice is an error at once."""
    table = snapshot.read(type_name)
    names = [c for c in table.column_names if c in ("id", "n", "by", "value", "src", "dst")]
    found = [tuple(row[name] for name in names) for row in table.select(names).to_pylist()]
    twice = [key for key, times in Counter(row[0] for row in found).items() if times > 1]
    assert not twice, f"{type_name} holds {twice[:3]} twice"
    return {row[0]: row[1:] for row in found}


def broken_rules(snapshot: Any, *, must_hold: set[str] = frozenset()) -> list[str]:  # type: ignore[assignment]
    """What is wrong with this snapshot; `must_hold` are keys that had been acknowledged before it was taken."""
    left, right = rows(snapshot, "Left"), rows(snapshot, "Right")
    found = []
    if left != right:
        differing = sorted(key for key in left.keys() | right.keys() if left.get(key) != right.get(key))
        found.append(f"a commit is half there: {[(k, left.get(k), right.get(k)) for k in differing[:3]]}")
    counter = rows(snapshot, "Counter").get(HOT)
    counted = sum(1 for key in left if key.startswith(COUNTED))
    if counter != (counted,):
        found.append(f"a lost update: the counter says {counter}, {counted} counted keys are there")
    missing = sorted(must_hold - left.keys())
    if missing:
        found.append(f"{len(missing)} acknowledged keys are missing, e.g. {missing[:3]}")
    return found
