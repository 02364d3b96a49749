"""On an object store: found by listings, nothing is put, and what is gone is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import omnigraph as og
from omnigraph.cli.main import main
from omnigraph.maintenance.verify.run import scratch
from omnigraph.storage import durability
from omnigraph.storage.lance.tables import Tables
from omnigraph.tasks.runner import LocalRunner
from tests.faults.s3server import S3Server, World
from tests.maintenance.verify import damage

URI = "s3://graphs/g"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with S3Server() as server:
        variables = {"AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": server.endpoint}
        for name, value in {**variables, "AWS_ACCESS_KEY_ID": "verify.test.0", "AWS_ALLOW_HTTP": "true"}.items():
            monkeypatch.setenv(name, value)
        yield server.add(World("verify"))


def requests(world: World, graph: og.Graph, **options: bool) -> tuple[Counter[str], list[str]]:
    """How many requests of each kind a run makes, and its findings."""
    before = len(world.log)
    result = og.open(graph.uri, engine="local").verify(**options)
    news = world.log[before:]
    assert [e.key for e in news if e.mutates] == [], "nothing is written"
    return Counter(e.operation for e in news), [f.code for f in result.findings]


def test_a_graph_in_a_bucket_is_checked_by_listings_and_never_written(world: World) -> None:
    graph = og.init(URI, damage.SCHEMA)
    for start in range(0, 24, 3):
        graph.insert({"Person": [damage.person(i) for i in range(start, start + 3)]})
    graph.delete({"Person": ["p003"]})
    damage.index(graph, kinds={"Person": [("id", "BTREE"), ("bio", "INVERTED")]})
    graph.create_branch("side")
    graph.upsert({"Person": [damage.person(2)]}, branch="side")
    damage.index(graph, "side", {"Person": [("id", "BTREE"), ("bio", "INVERTED")]})
    quick, findings = requests(world, graph, quick=True)
    assert findings == []
    files = sum("/data/" in key or "/_indices/" in key for key in world.store.objects)
    assert files > 20
    assert quick["HEAD"] < files / 2, quick
    _, findings = requests(world, graph, full=True)
    assert findings == []

    pin = damage.pin_of(graph, "Person")
    lost = sorted(k for k in world.store.objects if k.endswith(".lance") and f"{pin.root}/data/" in k)[0]
    kept = world.store.objects.pop(lost)
    _, findings = requests(world, graph, quick=True)
    assert set(findings) == {"missing_file"}
    world.store.objects[lost] = kept
    assert requests(world, graph, quick=True)[1] == []


def test_scratch_files_lie_here_if_the_workers_do_and_are_gone_afterwards(world: World) -> None:
    graph = og.init(URI, "node N { name: String @key }")

    class Elsewhere(LocalRunner):
        is_here = False

    with scratch(graph._location, LocalRunner()) as staging:
        assert staging.location.is_local
    with scratch(graph._location, Elsewhere()) as staging:
        staging.put("digests", b"x")
        assert any("__staging" in key for key in world.store.objects)
    assert not any("__staging" in key for key in world.store.objects)


def test_an_index_in_a_bucket_whose_files_are_gone_is_built_anew_also_on_a_branch_that_uses_those_of_main(
    world: World,
) -> None:
    graph = og.init(URI, "node N { name: String @key  n: I32 @index }")
    graph.insert({"N": [{"name": f"n{i}", "n": i} for i in range(20)]})
    graph.optimize(engine="local")
    graph.create_branch("side")
    graph.upsert({"N": [{"name": "n1", "n": 99}]}, branch="side")
    graph.optimize(engine="local", branch="side")
    assert og.open(URI, engine="local").verify(quick=True).findings == ()
    lost = [key for key in world.store.objects if "/_indices/" in key and "/tree/" not in key]
    assert lost
    for key in lost:
        del world.store.objects[key]
    world.store.objects["g/notes.txt"] = world.store.objects["g/nodes/notes.txt"] = next(
        iter(world.store.objects.values())
    )
    told = og.open(URI, engine="local").verify(quick=True).findings
    assert {f.code for f in told} == {"missing_file", "unexplained_file"}
    assert next(f for f in told if f.code == "unexplained_file").examples == ("nodes/notes.txt", "notes.txt")
    del world.store.objects["g/notes.txt"], world.store.objects["g/nodes/notes.txt"]
    for branch in ("main", "side"):
        og.open(URI, engine="local").optimize(branch=branch)
        assert og.open(URI, engine="local").optimize(branch=branch).commit is None
    left = og.open(URI, engine="local").verify(full=True).findings
    assert [f.code for f in left if f.branch == "main"] == []


def test_what_was_written_to_a_bucket_is_counted_as_not_compared(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """No small write reads its files back, so they have no checksums: verify says of how many files and bytes."""
    graph = og.init(URI, "node N { name: String @key  n: I32? @index }")
    for i in range(3):
        graph.insert({"N": [{"name": f"n{i}-{j}", "n": j} for j in range(20)]})
    graph.delete({"N": ["n0-0"]})
    graph.optimize()
    graph.delete({"N": ["n1-0"]})
    pins = og.open(URI)._manifest.head("main").pins
    (pin,) = pins.values()
    sizes = {key: len(body.body) for key, body in world.store.objects.items() if f"/{pin.root}/" in f"/{key}"}
    table = Tables(graph._location).open(pin)
    names = {f.path for part in table.get_fragments() for f in part.metadata.files}
    names |= {str(s.uuid) for index in table.describe_indices() for s in index.segments}
    needed = {key: size for key, size in sizes.items() if any(name in key for name in names)}
    needed |= {key: size for key, size in sizes.items() if "/_deletions/" in key and _is_pinned(key, table)}
    version = next(key for key in sizes if key.endswith(durability.manifest_path("", pin.version).lstrip("/")))
    needed[version] = sizes[version]

    checked = og.open(URI, engine="local").verify(full=True).checked
    assert checked["checksums"] == 0
    assert checked["unchecked"] == len(needed) > 3
    assert checked["unchecked_bytes"] == sum(needed.values())

    assert main(["verify", URI, "--full", "--engine", "local", "-q"]) == 0
    shown = capsys.readouterr().out
    assert f"{len(needed)} files (" in shown
    assert "have no recorded checksum and were not compared: Lance writes to a bucket by itself" in shown


def _is_pinned(key: str, table: Any) -> bool:
    deletions = (part.metadata.deletion_file for part in table.get_fragments())
    return any(d is not None and f"-{d.read_version}-{d.id}." in key for d in deletions)
