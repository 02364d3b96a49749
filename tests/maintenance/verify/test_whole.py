"""A graph that is whole has no findings; verify changes nothing and can run beside everything else."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import BranchNotFound, UsageError
from omnigraph.language.schema.syntax.parse import parse_schema
from omnigraph.maintenance.verify import CODES, run
from omnigraph.maintenance.verify.scope import Line
from omnigraph.storage.manifest.records import Pin
from omnigraph.tasks.engine import EngineSettings
from tests.maintenance.verify import damage
from tests.storage.old_graphs import build_old_graph

# A million rows are some 50 MB of ids and numbers; a sample asks for a handful of their vectors, `--full` for all.
WORK = [(1_000_000, 4, False, "local"), (1_000_000, 1024, False, "local"), (1_000_000, 1024, True, "spark")]
WORK += [(100_000, 4, True, "local"), (20_000_000, 4, False, "spark")]
DOCS = Path(__file__).parents[3] / "docs" / "maintenance.md"


@pytest.mark.parametrize(
    "options",
    [pytest.param({}, marks=pytest.mark.long), {"full": True}, {"quick": True}],
    ids=["sampled", "full", "quick"],
)
def test_a_whole_graph_with_branches_forks_blobs_and_all_kinds_of_indices_has_no_findings(
    graph: og.Graph, options: dict[str, bool]
) -> None:
    damage.branch_out(graph)
    result = graph.verify(orphans_older_than_s=0, **options)
    assert result.findings == ()
    assert result.ok
    assert result.checked["branches"] == 3
    assert result.checked["tables"] == 8, "four of main and a fork of each: the node's edges went with it"
    if not options.get("quick"):
        assert result.checked["indices"] == 2 * sum(map(len, damage.KINDS.values()))
        assert result.checked["rows"] > 0
        assert result.checked["blobs"] > 0


def test_a_graph_with_row_addresses_has_no_findings_either(tmp_path: Path) -> None:
    graph = damage.make(tmp_path / "graph", row_ids="address")
    assert graph.verify(engine="local", full=True).findings == ()


def test_an_empty_graph_has_no_findings(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "graph", damage.SCHEMA)
    assert graph.verify(full=True).findings == ()


def test_a_long_history_with_folded_records_and_fragments_has_no_findings(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "graph", "node N { name: String @key }")
    for i in range(70):
        graph.upsert({"N": [{"name": f"n{i % 9}"}, {"name": f"m{i}"}]})
        if i == 40:
            graph.create_branch("side")
    graph.upsert({"N": [{"name": "new"}]}, branch="side")
    result = graph.verify(orphans_older_than_s=0)
    assert result.findings == ()
    assert result.checked["commits"] == 72


@pytest.mark.parametrize(
    "options", [pytest.param({"full": True}, marks=pytest.mark.long), {"quick": True}], ids=["full", "quick"]
)
def test_nothing_of_the_graph_is_written(graph: og.Graph, options: dict[str, bool]) -> None:
    before = dict(damage.files(graph))
    graph.verify(**options)
    assert dict(damage.files(graph)) == before


def test_one_branch_is_checked_alone(graph: og.Graph) -> None:
    damage.branch_out(graph)
    damage.raw_rows(graph, "City", [{"id": "Bonn", "name": "Bonn"}], branch="side")
    assert graph.verify(branch="main").findings == ()
    damage.only(graph.verify(branch="side"), "duplicate_key", table="node:City", branch="side")
    with pytest.raises(BranchNotFound):
        graph.verify(branch="nowhere")


def test_quick_and_full_exclude_each_other(graph: og.Graph) -> None:
    with pytest.raises(UsageError):
        graph.verify(quick=True, full=True)


def test_quick_reads_no_data(graph: og.Graph) -> None:
    data = next(damage.folder(graph, damage.pin_of(graph, "City")).glob("data/*.lance"))
    data.write_bytes(b"\xff" * data.stat().st_size)
    assert graph.verify(quick=True).findings == ()
    assert not graph.verify().ok


def test_the_same_seed_asks_the_same(graph: og.Graph) -> None:
    first, second = (graph.verify(seed=7).checked for _ in range(2))
    assert first == second


def test_live_writers_do_not_disturb_it_and_are_not_disturbed(graph: og.Graph) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def write(number: int) -> None:
        mine = og.open(graph.uri)
        turn = 0
        try:
            while not stop.is_set():
                turn += 1
                name = f"w{number}-{turn % 5}"
                mine.upsert({"Person": [{"name": name, "email": f"{name}@x", "age": turn % 90}]})
                mine.upsert({"LivesIn": [{"id": name, "src": name, "dst": "Bonn"}]})
                if turn % 3 == 0:
                    mine.delete({"Person": [name]})
        except BaseException as error:  # noqa: BLE001 - told by the test
            failures.append(error)

    writers = [threading.Thread(target=write, args=(n,)) for n in range(2)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(3):
            assert {f.code for f in graph.verify().findings} <= {"index_uncovered"}
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert failures == []


@pytest.mark.parametrize(("rows", "vectors", "full", "engine"), WORK)
def test_the_engine_is_chosen_by_what_is_read(
    monkeypatch: pytest.MonkeyPatch, rows: int, vectors: int, full: bool, engine: str
) -> None:
    monkeypatch.delenv("OMNIGRAPH_ENGINE", raising=False)
    monkeypatch.setattr("omnigraph.tasks.engine.active_session", lambda: None)
    schema = parse_schema(f"node N {{ name: String @key  n: I64 @index  v: Vector({vectors}) @index }}")
    line = Line(Pin("n1", "i", None, 1, rows=rows, fragments=1), next(iter(schema.nodes)), "main")
    chosen, _ = EngineSettings().choose(
        work_bytes=run._work_bytes(line, full=full), local_below_bytes=run.LOCAL_BELOW_BYTES
    )
    assert chosen == engine


def test_every_code_stands_in_the_docs() -> None:
    text = DOCS.read_text()
    for code, known in CODES.items():
        assert f"| `{code}` | {known.severity} |" in text, code
        assert "`omnigraph" in known.remedy
        told = text[text.index(f"| `{code}` | {known.severity} |") :].partition("\n")[0]
        for remedy in (known.remedy, *known.special.values()):
            names = {"uri": "URI", "branch": "BRANCH", "table": "TABLE", "type": "TYPE"}
            assert remedy.format(**names) in told, code


@pytest.mark.parametrize("generation", [1, 2])
def test_a_graph_of_an_older_format_is_checked_as_it_is(tmp_path: Path, generation: int) -> None:
    build_old_graph(str(tmp_path / "old"), generation=generation)
    result = og.open(tmp_path / "old", engine="local").verify(full=True)
    assert result.findings == ()
    assert result.checked["rows"] > 0
