"""What runs inside a client process: prepare a start, perform a verb, check a graph after a fault.

Everything here goes through the public door (`omnigraph.open`, `init` and the handle), as a user's program would. The
logical state that `read_state` returns is plain JSON, so that the oracle compares values:

    {branch: {"schema": {type: [property: type, …]}, "rows": {type: [row, …]}, "commits": n,
              "indices": {type: {index: rows that it does not cover}}, "deferred": [type, …]}}

`indices` and `deferred`, types whose indices wait for a remap, are left out where there are none, and so are `tags`,
which stand at main: the names of the people at each. Rows are sorted lists, not sets: a row that is there twice shows.
Generated edge ids are left out. `commits` counts the graph commits of the branch that were not made by recovery. A
place without a graph is `{}`.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import pkgutil
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any

from tests.faults import scenes, verbs
from tests.faults.s3server import REGION
from tests.faults.scenes import Place

JOBS: dict[str, Callable[..., Any]] = {}
PRELOADED = (
    "errors",
    "language",
    "storage",
    "commit",
    "write",
    "branch",
    "create",
    "graph",
    "history",
    "results",
    "snapshot",
    "transaction",
    "pipeline",
    "index",
    "maintenance",
    "upkeep",
)
# The last two are found out by a profile: every client imports them on its way, as `pyarrow.array(ndarray)` does.
PRELOADED_LIBRARIES = (
    "lance",
    "lance.fragment",
    "lance.optimize",
    "pyarrow.compute",
    "obstore.store",
    "orjson",
    "numpy.ma",
    "tests.maintenance.optimize.answers",
)
RECOVERY_ACTOR = "omnigraph:recovery"
State = dict[str, dict[str, Any]]


def job(function: Callable[..., Any]) -> Callable[..., Any]:
    JOBS[function.__name__] = function
    return function


def import_everything() -> None:
    """Load what a client needs, once, before the first fork. Nothing may be used yet."""
    for name in PRELOADED_LIBRARIES:
        importlib.import_module(name)
    package = importlib.import_module("omnigraph")
    for found in pkgutil.walk_packages(package.__path__, "omnigraph."):
        if found.name.split(".")[1] in PRELOADED:
            importlib.import_module(found.name)


def describe(problem: BaseException) -> dict[str, Any]:
    """An exception as JSON; `condition` is set for the product's own typed errors only, `trace` for all others."""
    described: dict[str, Any] = {
        "type": type(problem).__name__,
        "condition": getattr(problem, "condition", None),
        "message": str(problem)[:800],
    }
    if described["condition"] is None:
        described["trace"] = "".join(traceback.format_exception(problem)[-6:])[-2000:]
    return described


def _place(uri: str, store: dict[str, str] | None, observer: Callable[[str], None] = scenes.unobserved) -> Place:
    """`store` names endpoint, world and client of the S3 server; the process id joins here, because it is ours."""
    if store is None:
        return Place(uri, None, observer)
    options = {
        "aws_access_key_id": f"{store['world']}.{store['client']}.{os.getpid()}",
        "aws_secret_access_key": "secret",
        "region": REGION,
        "endpoint": store["endpoint"],
        "allow_http": "true",
    }
    return Place(uri, options, observer)


@job
def prepare(uri: str, store: dict[str, str] | None, verb: str) -> None:
    verbs.by_name(verb).start(_place(uri, store))


@job
def perform(uri: str, store: dict[str, str] | None, verb: str) -> None:
    verbs.by_name(verb).run(_place(uri, store))


@job
def perform_observed(uri: str, store: dict[str, str] | None, verb: str, die_at: int = -1) -> list[str]:
    """The phases of the door that the verb went through; it dies by SIGKILL before the one with this number."""
    phases: list[str] = []

    def observe(phase: str) -> None:
        if len(phases) == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        phases.append(phase)

    verbs.by_name(verb).run(_place(uri, store, observe))
    return phases


@job
def look(uri: str, store: dict[str, str] | None) -> State:
    return read_state(_place(uri, store))


@job
def check(uri: str, store: dict[str, str] | None, probe: str) -> dict[str, Any]:
    """Reopen and read, write one row on every branch, read again.

    Where there is no graph, because `init` was struck, creating it must work now.
    """
    place = _place(uri, store)
    return _check(place, probe, read_state(place))


@job
def check_again(uri: str, store: dict[str, str] | None, probes: list[str]) -> list[dict[str, Any]]:
    """One check after the other, each on a graph opened anew, where nobody else writes between them."""
    checks = [check(uri, store, probes[0])]
    for probe in probes[1:]:
        checks.append(_check(_place(uri, store), probe, checks[-1]["after"]))
    return checks


@job
def check_and_clean(uri: str, store: dict[str, str] | None, probe: str) -> dict[str, Any]:
    """A check, then a cleanup with the shortest limits, as if the lease of whoever is stopped had run out: one version
    of each line, and every file at once that nobody refers to.
    """
    from omnigraph.errors import UncoveredDrift
    from omnigraph.maintenance.cleanup import Policy, Rule, cleanup
    from omnigraph.storage.layout import LEASES
    from omnigraph.storage.objects.json_objects import JsonObjects

    checked = check(uri, store, probe)
    place = _place(uri, store)
    with place.open() as graph:
        JsonObjects(graph._location, LEASES).delete(
            lease.path for lease in JsonObjects(graph._location, LEASES).entries()
        )
        policy = Policy(default=Rule(keep=1), orphans_older_than_s=0.0)
        with contextlib.suppress(UncoveredDrift):  # a start that is drifted is what the verb is about
            result = cleanup(graph._committer, policy, confirm=True)
            assert not [t.error for t in result.tables if t.error], "cleanup failed at a table"
    assert read_state(place) == checked["after"], "cleanup has changed what there is to read"
    return checked


@job
def check_and_verify(uri: str, store: dict[str, str] | None, probe: str) -> dict[str, Any]:
    """A check, and every file, row and index behind it."""
    checked = check(uri, store, probe)
    with _place(uri, store).open() as graph:
        wrong = [found for found in graph.verify(full=True, engine="local").findings if found.severity == "error"]
    drifted = {found.code for found in wrong} <= {"uncovered_drift"}
    assert drifted, f"verify: {[(found.code, found.text) for found in wrong][:3]}"
    return checked


def _check(place: Place, probe: str, before: State) -> dict[str, Any]:
    started = time.monotonic()
    if not before:
        scenes.create_empty(place)
    with place.open() as graph:
        probed = [found.name for found in graph.branches() if _probe(graph, found.name, probe)]
        waited_s = time.monotonic() - started
        wrong = [told for found in graph.branches() for told in _wrong_answers(graph, found.name)]
    assert not wrong, f"indices answer otherwise than a scan: {wrong[:3]}"
    return {"before": before, "after": read_state(place), "probed": probed, "waited_s": waited_s}


def _probe(graph: Any, branch: str, probe: str) -> bool:
    """False if the branch went away after it was listed: a late delete may land at any time."""
    from omnigraph.errors import BranchNotFound

    try:
        graph.upsert({"Person": [{"name": probe}]}, branch=branch)
    except BranchNotFound:
        return False
    return True


def _wrong_answers(graph: Any, branch: str) -> list[str]:
    """What any index of the branch answers otherwise than a scan does."""
    from omnigraph.errors import BranchNotFound
    from tests.maintenance.optimize.answers import disagreements

    try:
        view = graph.snapshot(branch).view
    except BranchNotFound:
        return []
    types = [*view.schema.nodes, *view.schema.edges]
    return [f"{t.key}: {told}" for t in types for told in disagreements(view.open(t))]


@job
def clean(uri: str, keep: int) -> dict[str, Any]:
    """Remove all but so many versions; what it freed, and the errors of tables."""
    import omnigraph

    done = omnigraph.open(uri, engine="local").cleanup(keep=keep, confirm=True)
    return {"bytes": done.bytes_removed, "errors": [t.error for t in done.tables if t.error]}


@job
def insert_into(uri: str, names: list[str]) -> None:
    """One new row in each of these types."""
    import omnigraph

    omnigraph.open(uri).insert({name: [{"name": "new"}] for name in names})


@job
def recover(uri: str) -> int:
    """Settle what dead writers left; how many operations."""
    import omnigraph
    from omnigraph.maintenance.recover import recover as settle

    return len(settle(omnigraph.open(uri)._committer, wait_s=5).settled)


@job
def touch(path: str) -> None:
    """The least that a supervisor of system calls must see."""
    with open(path, "wb"):
        pass


@job
def touch_for_ever(path: str) -> None:
    """A process that tries the same again and again: it hangs, busy as it is."""
    while True:
        touch(path)


@job
def append(uri: str, store: dict[str, str] | None, rows: int) -> int:
    """A bare Lance append, and how many rows there are then: for the tests of the harness itself."""
    import lance
    import pyarrow

    place = _place(uri, store)
    data = pyarrow.table({"n": list(range(rows))})
    return lance.write_dataset(data, place.uri, mode="append", storage_options=place.options).count_rows()


@job
def use_lance_and_fork(**_: Any) -> None:
    """What the fork server must refuse: Lance's threads exist, and a fork would lose them."""
    import lance
    import pyarrow

    from tests.faults import forkserver

    lance.write_dataset(pyarrow.table({"n": [1]}), "memory://harness")
    forkserver.assert_safe_to_fork()


def read_state(place: Place) -> State:
    from omnigraph.errors import BranchNotFound, GraphNotFound

    try:
        graph = place.open()
    except GraphNotFound:
        return {}
    with graph:
        while True:
            with contextlib.suppress(BranchNotFound):  # it went away after it was listed: look again
                return scenes.ordered({found.name: _read_branch(graph, found.name) for found in graph.branches()})


def _read_branch(graph: Any, branch: str) -> dict[str, Any]:
    from omnigraph.storage.lance.indices import fragment_reuse

    snapshot = graph.snapshot(branch)
    types = [*snapshot.schema.nodes, *snapshot.schema.edges]
    # Those of the snapshot: a commit that lands while this reads belongs to the next reading.
    commits = itertools.dropwhile(lambda commit: commit.id != snapshot.commit, graph.commits(branch))
    found: dict[str, Any] = {
        "schema": {t.name: [f"{p.name}: {p.type}{'?' if p.nullable else ''}" for p in t.properties] for t in types},
        "rows": {t.name: _read_rows(snapshot, t) for t in types},
        "commits": sum(1 for commit in commits if commit.actor != RECOVERY_ACTOR),
    }
    indices = {t.name: uncovered for t in types if (uncovered := _uncovered(snapshot.view.open(t)))}
    deferred = [t.name for t in types if t.name in indices and fragment_reuse(snapshot.view.open(t))]
    if branch == "main" and (tags := graph.tags()):
        found["tags"] = {t.name: sorted(graph.nodes("Person", commit=t.commit)["name"].to_pylist()) for t in tags}
    return found | ({"indices": indices} if indices else {}) | ({"deferred": deferred} if deferred else {})


def _uncovered(table: Any) -> dict[str, int]:
    """Rows that each index does not cover."""
    from omnigraph.storage.lance.indices import built_indices

    built = built_indices(table)
    rows = {f.fragment_id: f.count_rows() for f in table.get_fragments()} if built else {}
    return {i.name: sum(n for number, n in rows.items() if number not in i.covered) for i in built}


def _read_rows(snapshot: Any, entity: Any) -> list[dict[str, Any]]:
    rows = snapshot.read(entity.name).to_pylist()
    if entity.kind == "edge":
        rows = [{name: value for name, value in row.items() if name != "id"} for row in rows]
    return rows
