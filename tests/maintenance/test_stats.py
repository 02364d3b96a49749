"""Figures of health: right, cheap, and without reading or changing anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.cli.main import main
from omnigraph.maintenance import stats as module
from omnigraph.storage.objects.store import ObjectStore
from tests.commit import plant
from tests.maintenance.verify import damage
from tests.support.dead_owners import gone
from tests.support.graphs import Templates

SCHEMA = """
node Person { name: String @key  age: I32? @index  bio: String? }
node City { name: String @key }
edge Knows: Person -> Person
"""


def _build(path: Path) -> og.Graph:
    graph = og.init(path, SCHEMA)
    for i in range(10):
        people = [{"name": f"p{i}-{j}", "age": j, "bio": f"text {j}"} for j in range(3)]
        graph.insert({"Person": people, "Knows": [{"src": f"p{i}-0", "dst": f"p{i}-1"}]})
    graph.delete({"Person": [f"p{i}-2" for i in range(9)]})
    return graph


@pytest.fixture
def graph(graph_templates: Templates, tmp_path: Path) -> og.Graph:
    return graph_templates.open(_build, tmp_path / "g")


def table(graph: og.Graph, key: str, branch: str = "main") -> module.TableStats:
    return next(t for t in graph.stats(branch=branch).tables if t.table_key == key)


def test_figures_of_a_table(graph: og.Graph) -> None:
    person = table(graph, "node:Person")
    assert (person.rows, person.deleted_rows) == (21, 9)
    assert person.deleted_fraction == pytest.approx(0.3)
    assert (person.fragments, person.small_fragments) == (10, 10)
    folder = Path(graph.uri, person.path)
    assert person.bytes_on_disk == sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    assert person.bytes_live == sum(f.stat().st_size for f in folder.glob("data/*.lance"))
    assert person.versions == len(list(folder.glob("_versions/*.manifest"))) == person.version
    assert person.forks == 0
    assert person.indices == ()
    assert person.missing_indices == ("id (BTREE)", "name (BTREE)", "name (INVERTED)", "age (BTREE)")
    assert person.coverage == 0.0
    assert table(graph, "node:City").missing_indices == (), "nothing can be built over no rows"


def _bytes_without_reserve(graph: og.Graph) -> int:
    """All files of the graph but the space that it keeps for a full disk."""
    files = (f for f in Path(graph.uri).rglob("*") if f.is_file() and f.name != "__reserve")
    return sum(f.stat().st_size for f in files)


def test_figures_of_the_graph(graph: og.Graph) -> None:
    graph.create_branch("side")
    graph.upsert({"City": [{"name": "Bonn"}]}, branch="side")
    found = graph.stats()
    assert (found.branch, found.commit) == ("main", graph.snapshot().commit)
    assert found.row_ids == "stable"
    assert found.branches == 2
    assert found.commits == 13, "init, ten inserts, a delete, and the one of the branch"
    assert found.forks == 1
    assert found.rows == 31
    assert found.fragments == 20
    assert found.manifest_versions == len(list(Path(graph.uri).glob("__manifest/_versions/*.manifest")))
    everything = _bytes_without_reserve(graph)
    assert found.bytes_on_disk == everything
    assert found.last_optimize is None
    assert found.pending == found.pending_dead == found.staging_bytes == 0
    assert graph.stats(branch="side").rows == 32


def test_decay_is_told_with_the_command_that_mends_it_and_is_gone_afterwards(graph: og.Graph) -> None:
    reasons = "10 small fragments, 30 % deleted rows, 4 declared indices that are not built in node:Person"
    assert f"run omnigraph optimize: {reasons}" in graph.stats().advice
    graph.optimize(engine="local")
    found = graph.stats()
    person = next(t for t in found.tables if t.table_key == "node:Person")
    assert (person.fragments, person.small_fragments, person.deleted_rows) == (1, 0, 0)
    assert person.missing_indices == ()
    assert {(i.property, i.kind) for i in person.indices} == {
        *(("id", "BTREE"), ("name", "BTREE"), ("name", "INVERTED"), ("age", "BTREE"))
    }
    assert all(i.coverage == 1.0 and i.rows == 21 and i.bytes > 0 for i in person.indices)
    assert found.coverage == 1.0
    assert not [line for line in found.advice if "optimize" in line]
    assert found.last_optimize is not None
    assert found.last_optimize_commit == graph.snapshot().commit
    graph.insert({"Person": [{"name": "new"}]})
    index = next(i for i in table(graph, "node:Person").indices if i.property == "age")
    assert (index.rows, index.rows_covered, index.fragments, index.fragments_covered) == (22, 21, 2, 1)
    assert "run omnigraph optimize: 1 row that an index does not cover in node:Person" in graph.stats().advice


def test_drift_dead_writers_and_leftovers_are_told(graph: og.Graph) -> None:
    damage.newest(graph, "Person").delete("id = 'p0-0'")
    plant.lock(Path(graph.uri), {"nonce": "planted", "owner": gone(), "tables": [], "kind": "load"})
    found = graph.stats()
    assert found.drifted_tables == ("node:Person",)
    assert (found.pending, found.pending_dead) == (1, 1)
    assert "run omnigraph maintain: 1 operation of a crashed writer is not recovered" in found.advice
    assert "run omnigraph repair: node:Person was changed without omnigraph" in found.advice


def test_files_of_loads_and_of_older_versions_are_told(graph: og.Graph) -> None:
    folder = Path(graph.uri, "__staging", "job")
    folder.mkdir(parents=True)
    (folder / "rows").write_bytes(bytes(3 << 20))
    stray = Path(graph.uri, table(graph, "node:Person").path, "data", "old.lance")
    stray.write_bytes(bytes(6 << 20))
    found = graph.stats()
    assert found.staging_bytes == 3 << 20
    assert "run omnigraph cleanup: 3.0 MiB of files that loads left" in found.advice
    assert "run omnigraph cleanup: 6 MiB of older versions in node:Person" in found.advice


def test_a_table_that_can_not_be_opened_has_its_error_and_the_others_their_figures(graph: og.Graph) -> None:
    for file in Path(graph.uri, table(graph, "edge:Knows").path, "_versions").glob("*"):
        file.unlink()
    again = og.open(graph.uri)
    knows = table(again, "edge:Knows")
    assert knows.error is not None
    rest = [f for f in Path(graph.uri, knows.path).rglob("*") if f.is_file()]
    assert (knows.files, knows.bytes_on_disk) == (len(rest), sum(f.stat().st_size for f in rest))
    assert again.stats().bytes_on_disk == _bytes_without_reserve(graph)
    assert table(again, "node:Person").rows == 21
    assert "run omnigraph verify: edge:Knows can't be opened" in again.stats().advice


def test_no_data_is_read_and_nothing_is_written(graph: og.Graph) -> None:
    graph.optimize(engine="local")
    before = graph.stats()
    for file in (*Path(graph.uri).glob("nodes/*/data/*.lance"), *Path(graph.uri).glob("nodes/*/_indices/*/*.*")):
        file.write_bytes(b"\xff" * file.stat().st_size)
    files = dict(damage.files(graph))
    assert og.open(graph.uri).stats().to_json() == before.to_json()
    assert dict(damage.files(graph)) == files


def test_the_cost_is_one_listing_and_one_open_per_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(f"node T{i} {{ name: String @key }}" for i in range(100))
    graph = og.init(tmp_path / "g", text)
    listings: list[str] = []
    real = ObjectStore.list_files

    def counted(store: ObjectStore, *args: Any, **options: Any) -> Any:
        listings.append(store.prefix)
        return real(store, *args, **options)

    monkeypatch.setattr(ObjectStore, "list_files", counted)
    opened: list[Any] = []
    tables = graph._committer.tables
    monkeypatch.setattr(type(tables), "newest", lambda self, pin: pytest.fail("only drift needs the newest version"))
    real_open = type(tables).open
    monkeypatch.setattr(type(tables), "open", lambda self, pin, **k: opened.append(pin) or real_open(self, pin, **k))
    found = graph.stats()
    assert len(found.tables) == 100
    listed = [folder for folder in listings if not folder.startswith(("__recovery", "__leases", "__cleanup"))]
    assert len(listed) == len(set(listed)) == 102
    assert len({p.path for p in opened}) == 100


def test_the_command_shows_a_table_and_advice(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", graph.uri]) == 0
    shown = capsys.readouterr()
    assert f"→ looking at {graph.uri} (branch main)" in shown.err
    lines = shown.out.splitlines()
    assert lines[0].split() == [
        *("table", "rows", "deleted", "fragments", "small", "live", "on", "disk", "versions", "indices")
    ]
    assert lines[1].startswith("node:Person    21     30 %         10     10")
    assert "1 branch, 0 tags, 0 forks, 12 commits" in shown.out
    assert "run omnigraph optimize: 10 small fragments" in shown.out


def test_the_json_is_this(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", graph.uri, "--json", "-q"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == graph.stats().to_json()
    assert list(document) == [
        *("ok", "graph", "uri", "branch", "commit", "row_ids", "branches", "tags", "commits", "manifest_versions"),
        "manifest_fragments",
        *("manifest_bytes", "pending", "pending_dead", "staging_bytes", "last_optimize", "last_optimize_commit"),
        *("rows", "fragments", "small_fragments", "bytes_live", "bytes_on_disk", "versions", "forks", "coverage"),
        *("drifted_tables", "tables", "advice"),
    ]
    assert list(document["tables"][0]) == [
        *("table_key", "path", "version", "rows", "deleted_rows", "fragments", "small_fragments", "bytes_live"),
        *("bytes_on_disk", "files", "versions", "forks", "indices", "missing_indices"),
        *("pending_indices", "drifted", "error"),
        *("deleted_fraction", "coverage"),
    ]


def test_a_vector_index_that_waits_for_vectors_is_pending_and_no_reason_to_optimize(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", "node Post { name: String @key  vec: Vector(4)? @index }")
    graph.insert({"Post": [{"name": "a"}]})
    assert table(graph, "node:Post").missing_indices[-1] == "vec (IVF)"
    graph.optimize()
    post = table(graph, "node:Post")
    assert (post.missing_indices, post.pending_indices, post.coverage) == ((), ("vec (IVF)",), 1.0)
    assert not [line for line in graph.stats().advice if "optimize" in line]
