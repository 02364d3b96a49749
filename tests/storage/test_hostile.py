"""What is read from storage becomes a path, a name or a filter only if it has the form that ours have."""

from __future__ import annotations

import json
import random
import shutil
import timeit
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import HostileOrDamagedManifest, OmnigraphError
from omnigraph.language import identifiers as form
from omnigraph.storage.manifest.records import Head, Pin
from tests.maintenance.verify import damage
from tests.storage import hostile

CONDITION = "hostile_or_damaged_manifest"
SHRUNK = "node P { name: String @key }"


def _read(graph: og.Graph) -> None:
    for name in ("P", "Q"):
        graph.nodes(name)
    graph.edges("E")


VERBS = {
    "read": _read,
    "look": lambda g: (g.snapshot().tables(), g.branches(), g.commits()),
    "filter": lambda g: g.nodes("P", where={"age": 1}),
    "write": lambda g: g.insert({"P": [{"name": "planted"}], "Q": [{"name": "planted"}]}),
    "verify": lambda g: g.verify(),
    "cleanup": lambda g: g.cleanup(keep=1, confirm=True),
    "shrink": lambda g: g.apply_schema(SHRUNK, allow_data_loss=True),
}


@pytest.fixture(scope="module")
def _template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile.template(tmp_path_factory.mktemp("hostile"))


@pytest.fixture
def world(_template: Path, tmp_path: Path) -> Iterator[Path]:
    """A folder with a graph and what lies beside it, which is the same in the end."""
    root = Path(shutil.copytree(_template, tmp_path / "world"))
    # A copy has the base paths of its template, which is a matter of its own: the fork goes.
    lance.dataset(str(root / "graph/__manifest")).update_config({"head:review/anna": None})
    before = hostile.tree(root / "outside")
    yield root
    assert hostile.tree(root / "outside") == before
    assert sorted(p.name for p in root.iterdir()) == ["graph", "outside"]


def _outside_table(world: Path) -> tuple[str, int]:
    path = next(p for p in (world / "outside/nodes").iterdir() if "age" in lance.dataset(str(p)).schema.names)
    return path.name, int(lance.dataset(str(path)).version)


@pytest.mark.parametrize("place", ["incarnation", "fork", "table", "version"])
def test_a_pin_that_is_not_ours_has_no_effect(world: Path, place: str) -> None:
    """Pins are paths: one with `..` in it would read, write and remove tables of another graph."""
    graph = world / "graph"
    name, version = _outside_table(world)
    honest = hostile.head(graph)
    table = next(iter(honest["pins"]))
    (graph / f"nodes/{table}-z").mkdir()
    bad = {
        "incarnation": (f"z/../../../outside/nodes/{name}", "..", "a/b", "/etc", "", "a\x00b", "ABC"),
        "fork": (f"../../../../outside/nodes/{name}", "x/../../..", "/etc", "", "a\x00b", "a\nb"),
        "table": ("../outside", "n/../x", "", "x1", "n1/", "N1"),
        "version": (0, -1, 2**63, 1.0, "1", None, True),
    }[place]
    for value in bad:
        body = json.loads(json.dumps(honest))
        pin = body["pins"].pop(table)
        if place == "table":
            body["pins"][value] = pin
        else:
            at = {"incarnation": 0, "fork": 1, "version": 2}[place]
            pin[at] = value
            if at < 2:
                pin[2] = version
            body["pins"][table] = pin
        hostile.plant_head(graph, {**body, "recent": []})
        before = hostile.tree(graph)
        with pytest.raises(HostileOrDamagedManifest) as refused:
            _read(og.open(graph))
        assert refused.value.fields["where"] == "the head of 'main'"
        assert hostile.outcomes(graph, VERBS) == dict.fromkeys(VERBS, CONDITION), repr(value)
        assert hostile.tree(graph) == before


NAMES = ("../../outside/x", "/etc/x", "a/b", "a\\b", "x\x00", "", "`", "P'", "p", "X\x1b]52;c;\x07", "..", "𝕏")


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_the_name_of_a_type_never_becomes_a_path(world: Path, name: str, tmp_path: Path) -> None:
    graph = world / "graph"
    body = json.loads(hostile.row(graph, "schema")["body"])
    body["nodes"][0]["name"] = name
    hostile.plant_schema(graph, body)
    assert hostile.outcomes(graph, VERBS)["read"] == CONDITION
    for format in ("parquet", "csv", "lance"):
        with pytest.raises(HostileOrDamagedManifest):
            og.open(graph, engine="local").export(tmp_path / "out" / format, file_format=format)
    assert not (tmp_path / "out").exists()


def test_an_export_looks_at_names_where_they_become_paths() -> None:
    from omnigraph.language.schema.model import NodeType
    from omnigraph.pipeline.export.folder import _type_path

    with pytest.raises(HostileOrDamagedManifest):
        _type_path(NodeType("../../x"), "csv")


@pytest.mark.parametrize("name", ["a`b", "a b", "A", "", "id", "_rowid", "a'", "x\x00"], ids=ascii)
def test_the_name_of_a_property_never_becomes_a_filter(world: Path, name: str) -> None:
    graph = world / "graph"
    body = json.loads(hostile.row(graph, "schema")["body"])
    body["nodes"][0]["properties"][1]["name"] = name
    hostile.plant_schema(graph, body)
    found = hostile.outcomes(graph, VERBS)
    assert {verb for verb, condition in found.items() if condition == CONDITION} >= {
        "read",
        "filter",
        "write",
        "shrink",
    }


def test_a_version_whose_files_lie_elsewhere_is_refused(world: Path) -> None:
    """A shallow clone refers to the files of the table that it was made from by a base path."""
    graph = world / "graph"
    name, _ = _outside_table(world)
    honest = hostile.head(graph)
    table = next(t for t, pin in honest["pins"].items() if "age" in _columns(graph, t, pin))
    pin = honest["pins"][table]
    path = graph / f"nodes/{table}-{pin[0]}"
    shutil.rmtree(path)
    clone = lance.dataset(str(world / "outside/nodes" / name)).shallow_clone(str(path), 2)
    assert clone.count_rows() == 1
    pin[2] = int(clone.version)
    hostile.plant_head(graph, {**honest, "recent": []})
    with pytest.raises(HostileOrDamagedManifest, match="no part of this table"):
        og.open(graph).nodes("P")
    found = hostile.outcomes(graph, {k: VERBS[k] for k in ("filter", "write", "shrink")})
    assert set(found.values()) == {CONDITION}


def _columns(graph: Path, table: str, pin: list[Any]) -> list[str]:
    kind = {"n": "nodes", "e": "edges"}[table[0]]
    return list(lance.dataset(str(graph / f"{kind}/{table}-{pin[0]}")).schema.names)


def test_a_blob_that_is_an_address_is_never_read(tmp_path: Path) -> None:
    """Lance reads the file that such a value names, wherever it is."""
    secret = tmp_path / "secret"
    secret.write_text("SECRET")
    with og.init(tmp_path / "graph", "node P { name: String @key  photo: Blob? }") as graph:
        graph.insert({"P": [{"name": "a", "photo": b"own"}]})
        blobs = lance.blob_array([lance.blob.Blob.from_uri(secret.as_uri())])
        planted = pa.table([pa.array(["e"]), pa.array(["e"]), blobs], names=["id", "name", "photo"])
        table = damage.newest(graph, "P")
        lance.write_dataset(planted, table.uri, mode="append", allow_external_blob_outside_bases=True)
        damage.publish(graph, "P")
    lines: list[bytes] = []
    with og.open(tmp_path / "graph", engine="local") as graph:
        for read in (
            lambda: graph.nodes("P"),
            lambda: graph.nodes("P", where={"id": "e"}),
            lambda: graph.export(lines.append),
            lambda: graph.export(tmp_path / "out", file_format="parquet"),
            lambda: graph.update("P", {"name": "f"}, ids=["e"]),
            lambda: graph.optimize(),
            lambda: graph.query("query q() { match { $p: P } return { $p.photo } }").to_pylist(),
        ):
            try:
                shown = str(read())
            except OmnigraphError as error:
                shown = str(error)
            assert "SECRET" not in shown
        assert graph.nodes("P", where={"id": "a"})["photo"].to_pylist() == [b"own"]
        with pytest.raises(HostileOrDamagedManifest, match="an address and not bytes"):
            graph.nodes("P", columns=["photo"])
        assert "unreadable_blob" in {f.code for f in graph.verify(full=True).findings}
    assert b"SECRET" not in b"".join(lines)
    written = [p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and p != secret]
    assert not any(b"SECRET" in body for body in written)


# ---- every field -----------------------------------------------------------------------------------------------------


def _plant_control(graph: Path, name: str, body: Any) -> None:
    path = graph / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(body))


def _ticket_body() -> dict[str, Any]:
    owner = {"boot": "x", "namespace": "y", "pid": 1, "start": "1"}
    return {"nonce": "abc", "owner": owner, "tables": ["n1"], "kind": "load", "at": 1.0}


def _bodies(graph: Path) -> dict[str, Any]:
    """What is there to be mutated, by its kind, as a program of ours writes it."""
    at = hostile.head(graph)
    record = json.loads(hostile.row(graph, "commit")["body"])
    pins = at["pins"]
    plan = {
        "attempt": 0,
        "tables": {t: {"pin": pin, "steps": 1, "unstamped": ["Append"]} for t, pin in pins.items()},
        "record": {**record, "e": at["epoch"] + 1, "p": at["commit"]},
        "nonce": "abc",
    }
    path = f"nodes/{next(iter(pins))}-{next(iter(pins.values()))[0]}"
    return {
        "head": at,
        "record": {**record, "f": pins},
        "schema": json.loads(hostile.row(graph, "schema")["body"]),
        "lock": _ticket_body(),
        "plan": plan,
        "lease": {"seconds": 60.0, "owner": None, "branch": "main", "commit": "c", "pins": {path: [1, 2]}},
        "announcement": {"owner": None, "at_s": 1.0, "versions": {path: [1]}, "files": {path: ["data/x.lance"]}},
    }


def _plant(graph: Path, kind: str, body: Any, folder: str) -> None:
    if kind == "head":
        hostile.plant_head(graph, body)
    elif kind == "record":
        hostile.plant_record(graph, body)
    elif kind == "schema":
        hostile.plant_schema(graph, body)
    elif kind == "lock":
        _plant_control(graph, f"{folder}.0.json", body)
    elif kind == "plan":
        _plant_control(graph, f"{folder}.0.json", _ticket_body())
        _plant_control(graph, f"{folder}.plan0.json", body)
    elif kind == "lease":
        _plant_control(graph, "__leases/0123456789abcdef.json", body)
    else:
        _plant_control(graph, "__cleanup/0123456789abcdef.json", body)


QUICK = {name: VERBS[name] for name in ("read", "look", "write")}
MAINTAIN = {**QUICK, "cleanup": VERBS["cleanup"], "lease": lambda g: g.lease().__enter__()}


def _mutations(
    world: Path, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, values: int, most: int
) -> None:
    monkeypatch.setenv("OMNIGRAPH_LEASE_S", "0.02")
    monkeypatch.setenv("OMNIGRAPH_WRITE_TIMEOUT", "5")
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    source = world / "graph"
    body = _bodies(source)[kind]
    at = hostile.head(source)
    cases = [(path, value) for path in hostile.leaves(body) for value in hostile.hostile_values(rng, values)]
    verbs = MAINTAIN if kind in ("lease", "announcement") else QUICK
    for number, (path, value) in enumerate(rng.sample(cases, min(most, len(cases)))):
        graph = Path(shutil.copytree(source, tmp_path / f"g{number}"))
        _plant(graph, kind, hostile.mutated(body, path, value), f"__recovery/{at['inc']}/{at['epoch'] + 1:012d}")
        try:
            hostile.outcomes(graph, verbs)
        except BaseException:
            print(f"{kind} {path} = {value!r}")
            raise
        shutil.rmtree(graph)


KINDS = ("head", "record", "schema", "lock", "plan", "lease", "announcement")


@pytest.mark.parametrize("kind", KINDS)
def test_any_hostile_field_is_refused_or_harmless(
    world: Path, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No mutation of a stored value ends in anything but an answer or an error of ours, and none leaves the graph."""
    _mutations(world, kind, tmp_path, monkeypatch, values=2, most=10)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_every_hostile_field_is_refused_or_harmless(
    world: Path, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _mutations(world, kind, tmp_path, monkeypatch, values=12, most=400)


# ---- forms -----------------------------------------------------------------------------------------------------------


def test_checking_a_pin_takes_microseconds() -> None:
    """As a ratio to reading the same JSON, so that it holds on any machine."""
    pins = {f"n{i:011d}": ["0123456789ab", f"0123456789ab-{i}-0123abcd", 7, 100, 3] for i in range(500)}
    text = json.dumps({"commit": "c", "epoch": 1, "inc": "ab", "schema": "s", "pins": pins, "recent": [], "base": None})
    checked = min(timeit.repeat(lambda: Head.loads("main", text, version=1), number=3, repeat=5))
    unchecked = min(
        timeit.repeat(lambda: [Pin(t, *p) for t, p in json.loads(text)["pins"].items()], number=3, repeat=5)
    )
    assert checked < 10 * unchecked


def test_names_of_forks_and_branches_of_every_generation_are_known() -> None:
    for name in ("review", "review/anna", "4385973bfe11-1-4beaaa6a", "a.b", "v1..2"):
        assert form.fork(name) == name
        assert form.branch(name) == name


def test_a_refused_name_is_shown_harmlessly() -> None:
    with pytest.raises(form.Malformed) as refused:
        form.incarnation(hostile.OSC)
    assert str(refused.value).isprintable()
    assert isinstance(refused.value, ValueError)
    assert not isinstance(refused.value, OmnigraphError)
