"""What publishing drift would change is told exactly, whatever way the rows took, and in bounded memory."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.maintenance.repair.changes import FIRST_IDS, RowChanges, row_changes
from omnigraph.maintenance.repair.row_digests import row_digests
from tests.maintenance import strangers

SCHEMA = """
node Thing {
    name: String @key
    n: I64?
    f: F64?
    tags: [String]?
    v: Vector(3)?
    when: DateTime?
    raw: Blob?
}
"""


def thing(number: int, **more: Any) -> dict[str, Any]:
    return {
        "name": f"t{number:04d}",
        "n": number,
        "f": number / 3,
        "tags": ["a", str(number)],
        "v": [number, 1, 2],
        **more,
    }


@pytest.fixture(params=["stable", "address"])
def things(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    graph = omnigraph.init(tmp_path / "things", SCHEMA, row_ids=request.param)
    for start in (0, 100, 200):
        graph.insert({"Thing": [thing(n, raw=bytes([n % 256]) * n) for n in range(start, start + 100)]})
    return graph


def changes(graph: Any) -> RowChanges:
    found = graph.repair().tables[0].changes
    assert found is not None
    return found


def counts(found: RowChanges) -> tuple[int, int, int]:
    return found.inserted.count, found.updated.count, found.deleted.count


def test_appends_updates_and_deletes_are_told_with_counts_and_first_ids(things: Any) -> None:
    table = strangers.opened(things, "Thing")
    table.delete("n IN (5, 105, 250)")
    table.update({"n": "n + 1000"}, where="n >= 10 AND n < 30")
    rows = table.to_table(limit=1, columns=["n", "f", "tags", "v", "when"])
    more = pa.table({"id": ["extra"], "name": ["extra"], **{c: rows[c] for c in rows.column_names}})
    options = things._location.lance_options
    import lance

    lance.write_dataset(more, table.uri, mode="append", storage_options=options)
    found = changes(things)
    assert counts(found) == (1, 20, 3)
    assert found.inserted.first == ("extra",)
    assert set(found.updated.first) <= {f"t{n:04d}" for n in range(10, 30)}
    assert len(found.updated.first) == FIRST_IDS
    assert set(found.deleted.first) == {"t0005", "t0105", "t0250"}


def test_rewritten_rows_with_the_same_content_are_no_change(things: Any) -> None:
    table = strangers.opened(things, "Thing")
    table.update({"n": "n"}, where="n < 50")
    table.optimize.compact_files()
    table.update_config({"some": "thing"})
    assert counts(changes(things)) == (0, 0, 0)


def test_a_whole_fragment_that_vanished_is_deleted_rows(things: Any) -> None:
    strangers.opened(things, "Thing").delete("n >= 100 AND n < 200")
    found = changes(things)
    assert counts(found) == (0, 0, 100)
    assert found.deleted.first == tuple(f"t{n:04d}" for n in range(100, 110))


def test_a_restore_to_an_older_version_brings_back_and_takes_away(things: Any) -> None:
    older = strangers.place(things, "Thing")[1]
    things.delete({"Thing": ["t0001"]})
    things.update("Thing", {"n": -1}, ids=["t0002"])
    things.insert({"Thing": [thing(900)]})
    strangers.opened(things, "Thing").checkout_version(older).restore()
    found = changes(things)
    assert counts(found) == (1, 1, 1)
    assert (found.inserted.first, found.updated.first, found.deleted.first) == (("t0001",), ("t0002",), ("t0900",))


def test_an_id_that_stands_there_twice_does_not_hide_another_change(things: Any) -> None:
    table = strangers.opened(things, "Thing")
    twin = table.to_table(columns=["id", "name", "n"], filter="n = 7")
    import lance

    lance.write_dataset(twin, table.uri, mode="append")
    strangers.opened(things, "Thing").delete("n = 8")
    found = changes(things)
    assert (found.inserted.count, found.deleted.first) == (1, ("t0008",))


def test_many_passes_tell_the_same_as_one(things: Any) -> None:
    view = things._committer.view("main")
    t = view.type("Thing")
    table = strangers.opened(things, "Thing")
    table.update({"n": "n + 1"}, where="n < 150")
    table.delete("n >= 260")
    table.optimize.compact_files()
    old = view.open(t)
    new = strangers.opened(things, "Thing")
    assert row_changes(old, new, t, rows_per_pass=17) == row_changes(old, new, t)
    assert counts(row_changes(old, new, t)) == (0, 150, 40)


def test_a_random_history_is_told_as_a_full_comparison_tells_it(things: Any) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    view = things._committer.view("main")
    t = view.type("Thing")
    before = content(view.open(t))
    table = strangers.opened(things, "Thing")
    for _ in range(12):
        low = chance.randrange(300)
        deed = chance.choice(["delete", "update", "compact", "rewrite", "restore"])
        if deed == "delete":
            table.delete(f"n >= {low} AND n < {low + chance.choice([1, 5, 120])}")
        elif deed == "update":
            table.update({"f": "f + 1"}, where=f"n >= {low} AND n < {low + 40}")
        elif deed == "rewrite":
            table.update({"f": "f"}, where=f"n >= {low} AND n < {low + 40}")
        elif deed == "compact":
            table.optimize.compact_files(target_rows_per_fragment=chance.choice([100, 1000]))
        else:
            table.checkout_version(chance.randrange(view.pins[t.id].version, table.version + 1)).restore()
            table = strangers.opened(things, "Thing")
        after = content(table)
        found = row_changes(view.open(t), table, t, rows_per_pass=chance.choice([50, 10**6]))
        common = before.keys() & after.keys()
        assert counts(found) == (
            len(after.keys() - before.keys()),
            sum(before[i] != after[i] for i in common),
            len(before.keys() - after.keys()),
        ), f"seed {seed} after {deed}"


def content(table: Any) -> dict[str, Any]:
    rows = table.to_table(columns=["id", "n", "f", "tags", "v", "raw"], blob_handling="all_binary").to_pylist()
    return {row["id"]: {k: v for k, v in row.items() if k != "id"} for row in rows}


def test_digests_tell_apart_what_differs_and_nothing_else() -> None:
    values: list[tuple[pa.DataType, list[Any]]] = [
        (pa.int32(), [0, 1, -1, None]),
        (pa.float64(), [0.0, -0.0, 1.5, float("nan"), None]),
        (pa.string(), ["", "a", "ab", None]),
        (pa.bool_(), [True, False, None]),
        (pa.large_binary(), [b"", b"\x00", b"\xff\xfe", None]),
        (pa.list_(pa.string()), [[], [""], ["a"], ["a", "b"], ["b", "a"], ["ab"], [None], None]),
        (pa.list_(pa.float32(), 2), [[0, 1], [1, 0], [0, 0], None]),
        (pa.timestamp("ms", tz="UTC"), [0, 1, -1, None]),
        (pa.date32(), [0, 1, None]),
    ]
    for kind, given in values:
        one = row_digests(pa.table({"x": pa.array(given, kind)})).tolist()
        again = row_digests(pa.table({"x": pa.chunked_array([pa.array([v], kind) for v in given])})).tolist()
        assert one == again
        assert len(set(one)) == len(given), f"{kind}: {one}"
    swapped = row_digests(pa.table({"a": ["x", "y"], "b": ["y", "x"]})).tolist()
    assert swapped[0] != swapped[1]
