"""Writers with a ledger, readers through indices, and whoever keeps the graph in shape beside them.

Every writer has keys of its own and notes what it was promised, so that at the end the rows of the graph are exactly
the ledgers of all writers: nothing lost, nothing twice, nothing that came back. Rows are made so that every kind of
index is asked: by number, by label, by word, by neighbourhood.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.contention.clients import signal_at
from tests.faults.jobs import JOBS, job

SCHEMA = """
node Doc {
  key: String @key
  n: I32 @index
  kind: enum(a, b, c) @index
  tags: [String]? @index
  text: String @index
  vec: Vector(8)? @index
}
node Note { key: String @key  n: I32? }
edge Cites: Doc -> Doc { n: I32? }
"""
WORDS = ("alpha", "beta", "gamma", "delta", "omega")
KINDS = "abc"
VALUES = 50


def create(uri: str, *, rows: int, row_ids: Any = "stable") -> None:
    """Rows of nobody, in several fragments, and every index over most of them."""
    import omnigraph

    with omnigraph.init(uri, SCHEMA, row_ids=row_ids) as graph:
        for start in range(0, rows, 60):
            graph.insert({"Doc": [doc(f"base{i}", i) for i in range(start, min(rows, start + 60))]})
        graph.insert({"Note": [{"key": "first"}]})
        graph.optimize(target_rows_per_fragment=200, engine="local")


def doc(key: str, n: int) -> dict[str, Any]:
    """A row that is known by its key and one number: everything in it follows from them."""
    rng = random.Random(f"{key}/{n}")
    return {
        "key": key,
        "n": n % VALUES,
        "kind": KINDS[n % len(KINDS)],
        "tags": [f"t{n % 7}", f"t{n % 3}"],
        "text": f"{WORDS[n % len(WORDS)]} {WORDS[(n // 5) % len(WORDS)]}",
        "vec": [rng.uniform(0.1, 1.0) for _ in range(8)],
    }


def rows_of(graph: Any) -> tuple[dict[str, int], list[str]]:
    """`n` by key, and the keys that are there more than once."""
    found = graph.snapshot().read("Doc", ["id", "n"])
    pairs = list(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True))
    return dict(pairs), [key for key, times in Counter(key for key, _ in pairs).items() if times > 1]


def wrong_rows(graph: Any, promised: dict[str, int]) -> list[str]:
    """How the graph differs from what was promised."""
    there, twice = rows_of(graph)
    found = []
    for what, keys in (
        ("there twice", twice),
        ("lost", sorted(promised.keys() - there.keys())),
        ("there and never promised, or deleted", sorted(there.keys() - promised.keys())),
        ("with another value", sorted(k for k in promised.keys() & there.keys() if promised[k] != there[k])),
    ):
        if keys:
            found.append(f"{len(keys)} rows are {what}, e.g. {keys[:3]}")
    return found


def wrong_answers(graph: Any) -> list[str]:
    """What an index answers otherwise than a scan of the same snapshot."""
    from tests.maintenance.optimize.answers import disagreements

    with graph.lease() as snapshot:
        view = snapshot.view
        types = [*view.schema.nodes, *view.schema.edges]
        return [f"{t.key}: {told}" for t in types for told in disagreements(view.open(t))]


@job
def keep_writing(
    uri: str,
    *,
    client: str,
    seconds: float,
    seed: int,
    rows_max: int = 400,
    pause_s: float = 0.0,
    beside: str | None = None,
) -> dict[str, Any]:
    """Upserts, deletes and appends on own keys; the ledger, and whatever was refused or read back wrongly. Ends before
    its time if there is a file `beside`.
    """
    import omnigraph
    from omnigraph.errors import OmnigraphError

    rng = random.Random(seed)
    graph = omnigraph.open(uri)
    ledger: dict[str, int] = {}
    told: dict[str, Any] = {"operations": 0, "refused": [], "wrong": [], "longest_s": 0.0}
    until = time.monotonic() + seconds
    made = 0
    while time.monotonic() < until and not (beside and os.path.exists(beside)):
        began = time.monotonic()
        act = rng.choice(("append", "append", "upsert", "upsert", "delete")) if ledger else "append"
        if act == "append" and len(ledger) >= rows_max:
            act = "delete"
        try:
            if act == "append":
                rows = [doc(f"{client}x{made + i}", made + i) for i in range(rng.randint(1, 12))]
                graph.insert({"Doc": rows})
                made += len(rows)
            else:
                chosen = rng.sample(sorted(ledger), min(len(ledger), rng.randint(1, 20)))
                rows = [doc(key, rng.randrange(10**6)) for key in chosen]
                graph.upsert({"Doc": rows}) if act == "upsert" else graph.delete({"Doc": chosen})
        except OmnigraphError as error:
            told["refused"].append(f"{client} {act}: {error.condition}: {error}"[:400])
            continue
        if act == "delete":
            for key in chosen:
                del ledger[key]
        else:
            ledger.update({row["key"]: row["n"] for row in rows})
        told["operations"] += 1
        told["longest_s"] = max(told["longest_s"], time.monotonic() - began)
        if told["operations"] % 10 == 0:
            told["wrong"] += _read_back(graph, ledger, rng, client)
        time.sleep(pause_s)
    return {**told, "refused": told["refused"][:5], "wrong": told["wrong"][:5], "ledger": ledger}


def _read_back(graph: Any, ledger: dict[str, int], rng: random.Random, client: str) -> list[str]:
    """A key that I own holds what I wrote, found through the index by id; a key that I deleted is not found."""
    found = []
    if ledger:
        key = rng.choice(sorted(ledger))
        got = graph.nodes("Doc", where={"id": key}, columns=["n"])["n"].to_pylist()
        if got != [ledger[key]]:
            found.append(f"{key} by its id: {got}, not {[ledger[key]]}")
    mine = Counter(graph.nodes("Doc", where=f"n = 7 AND id >= '{client}x' AND id < '{client}y'")["id"].to_pylist())
    want = Counter(key for key, n in ledger.items() if n == 7)
    if mine != want:
        found.append(f"rows of {client} by n = 7: {mine - want} too many, {want - mine} missing")
    return found


@job
def keep_reading(uri: str, *, seconds: float, seed: int, pause_s: float = 0.0) -> dict[str, Any]:
    """One leased snapshot after the other: through every index, against a scan of that snapshot."""
    import omnigraph

    rng = random.Random(seed)
    graph = omnigraph.open(uri)
    told: dict[str, Any] = {"questions": 0, "wrong": []}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with graph.lease() as snapshot:
            told["wrong"] += ask(snapshot, rng)
        told["questions"] += 5
        time.sleep(pause_s)
    return {**told, "wrong": told["wrong"][:5]}


def ask(snapshot: Any, rng: random.Random) -> list[str]:
    """By id, by number, by label, by word, by neighbourhood: what each answers otherwise than a scan."""
    import numpy as np
    from lance.query import MatchQuery

    table = snapshot.view.open(snapshot.view.type("Doc"))
    whole = table.to_table(columns=["id", "n", "tags", "text", "vec"])
    rows = whole.to_pylist()
    one = rng.choice(rows)
    word = rng.choice(WORDS)
    number, label = one["n"], one["tags"][0]
    query = np.asarray(one["vec"], dtype=np.float32)
    near = {"column": "vec", "q": query, "k": 10, "nprobes": 10_000, "metric": "cosine"}

    def ids(**options: Any) -> Counter[str]:
        return Counter(table.scanner(columns=["id"], **options).to_table()["id"].to_pylist())

    matrix = np.asarray([row["vec"] for row in rows], dtype=np.float64)
    cosine = 1 - matrix @ query / (np.linalg.norm(matrix, axis=1) * np.linalg.norm(query))
    closest = {rows[i]["id"] for i in np.argsort(cosine, kind="stable")[:10]}
    answers = table.scanner(columns=["id", "_distance"], nearest=near).to_table()["id"].to_pylist()
    wanted = {
        "id": (ids(filter=f"id = '{one['id']}'"), Counter([one["id"]])),
        "number": (ids(filter=f"n = {number}"), Counter(r["id"] for r in rows if r["n"] == number)),
        "label": (ids(filter=f"array_has(tags, '{label}')"), Counter(r["id"] for r in rows if label in r["tags"])),
        "word": (
            ids(full_text_query=MatchQuery(word, "text"), limit=len(rows)),
            Counter(r["id"] for r in rows if word in r["text"].split()),
        ),
        "neighbours": (Counter(answers), Counter(closest)),
    }
    return [
        f"version {table.version}, by {how}: {got - want} too many, {want - got} missing"
        for how, (got, want) in wanted.items()
        if got != want
    ]


@job
def keep_optimizing(
    uri: str,
    *,
    seconds: float,
    pause_s: float = 0.0,
    target_rows_per_fragment: int = 400,
    deferred: bool = False,
    commits_min: int = 0,
    seconds_max: float = 0.0,
    finished: str | None = None,
) -> dict[str, Any]:
    """One optimize after the other: how many, how many had something to do, what failed, and when each ended.

    It goes on beyond its time, up to `seconds_max`, until `commits_min` of them had something to do, and then makes
    the file `finished`: a slow machine is no failure.
    """
    import omnigraph

    graph = omnigraph.open(uri)
    told: dict[str, Any] = {"runs": 0, "commits": 0, "failed": [], "ended_s": [], "fragments_removed": 0, "rounds": 0}
    began = time.monotonic()
    while (taken_s := time.monotonic() - began) < seconds or (told["commits"] < commits_min and taken_s < seconds_max):
        how: dict[str, Any] = {}
        if deferred:
            how = {"drain": True} if told["runs"] % 3 == 2 else {"defer_index_remap": True}
        result = graph.optimize(engine="local", target_rows_per_fragment=target_rows_per_fragment, **how)
        told["runs"] += 1
        told["commits"] += result.commit is not None
        told["rounds"] = max(told["rounds"], result.rounds)
        told["fragments_removed"] += sum(t.fragments_removed for t in result.tables if t.table_key != "__manifest")
        told["failed"] += [f"{t.table_key}: {t.error or t.skipped}" for t in result.tables if t.error or t.skipped]
        told["ended_s"].append(time.monotonic())
        time.sleep(pause_s)
    if finished is not None:
        Path(finished).touch()
    return {**told, "failed": told["failed"][:5]}


@job
def keep_cleaning(uri: str, *, seconds: float, pause_s: float, keep: int, orphans_s: float) -> dict[str, Any]:
    """One cleanup after the other, with limits of minutes where those of the product are days: work that takes seconds
    is as safe from them as work of hours is from days.
    """
    import omnigraph
    from omnigraph.maintenance.cleanup import policy

    policy.ORPHANS_MIN_S = policy.MANIFEST_MIN_S = orphans_s
    graph = omnigraph.open(uri)
    told: dict[str, Any] = {"runs": 0, "versions_removed": 0, "bytes_removed": 0, "failed": []}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        result = graph.cleanup(keep=keep, orphans_older_than=orphans_s, manifest_older_than=orphans_s, confirm=True)
        told["runs"] += 1
        told["versions_removed"] += result.old_versions_removed
        told["bytes_removed"] += result.bytes_removed
        told["failed"] += [f"{t.table_key}: {t.error}" for t in result.tables if t.error]
        time.sleep(pause_s)
    return {**told, "failed": told["failed"][:5]}


class At:
    """A watcher that sends this process a signal when a stage begins, or after its first task if `midway`."""

    def __init__(self, stage: str, number: int, *, midway: bool = False) -> None:
        self._wanted, self._number, self._midway = stage, number, midway
        self._now = ""

    def engine(self, name: str, reason: str) -> None:
        return

    def stage(self, name: str, *, tasks: int) -> None:
        self._now = name
        if not self._midway:
            self._strike()

    def advance(self, *, tasks: int, rows: int, size_bytes: int) -> None:
        if self._midway and tasks:
            self._strike()

    def _strike(self) -> None:
        if self._now == self._wanted:
            self._wanted = ""
            os.kill(os.getpid(), self._number)


@job
def optimize_struck(
    uri: str,
    *,
    stage: str = "",
    midway: bool = False,
    phase: str = "",
    occurrence: int = 1,
    number: int = signal.SIGKILL,
    **options: Any,
) -> dict[str, Any]:
    """One optimize, by a process that is stopped or killed before a phase of the door or at a stage of its work."""
    import omnigraph

    observer: Callable[[str], None] = signal_at(phase, occurrence, number)
    graph = omnigraph.open(uri, observer=observer, watcher=At(stage, number, midway=midway), engine="local")
    return dict(graph.optimize(**options).to_json())


@job
def write_docs(
    uri: str,
    *,
    upsert: list[int] | None = None,
    delete: list[int] | None = None,
    notes: list[str] | None = None,
    phase: str = "",
    occurrence: int = 1,
    number: int = signal.SIGKILL,
) -> float:
    """Small writes to rows `base…` and to notes, by a process that may be struck. How long they took."""
    import omnigraph

    graph = omnigraph.open(uri, observer=signal_at(phase, occurrence, number))
    began = time.monotonic()
    if notes:
        graph.insert({"Note": [{"key": key} for key in notes]})
    if upsert:
        graph.upsert({"Doc": [doc(f"base{i}", i + 1) for i in upsert]})
    if delete:
        graph.delete({"Doc": [f"base{i}" for i in delete]})
    return time.monotonic() - began


assert JOBS
