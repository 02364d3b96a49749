"""Export: stable bytes, and a graph that comes back the same."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.commit import owner
from omnigraph.pipeline.export.folder import export_folder, make_plan
from omnigraph.pipeline.export.stream import Format
from omnigraph.pipeline.export.tasks import write_part
from omnigraph.storage.layout import locate
from omnigraph.tasks.engine import EngineSettings
from omnigraph.tasks.runner import LocalRunner, TaskFunction
from tests.commit import plant
from tests.pipeline.conftest import SCHEMA
from tests.support.exports import FORMATS, exported, filled, rows_of, tree, worn


def test_what_is_exported_loads_into_an_equal_graph(graph: og.Graph, tmp_path: Path) -> None:
    filled(graph)
    text = exported(graph)
    copy = og.init(tmp_path / "copy", SCHEMA)
    copy.load(io.BytesIO(text), mode="append")
    for name in ("Person", "Note", "Knows"):
        key = lambda row: row["id"]  # noqa: E731
        rows = [sorted(g.snapshot().read(name).to_pylist(), key=key) for g in (graph, copy)]
        assert rows[0] == rows[1]
    assert exported(copy) == text


def test_texts_that_look_like_records_stay_one_line_each(graph: og.Graph, tmp_path: Path) -> None:
    traps = [
        '},{"type":"Note",',
        "},{",
        '{"type":"Note","data":{}},{"type":"Note","data":',
        '\\"},{"type":"Note",',
        "\n",
        "}]",
    ]
    graph.insert({"Note": [{"text": text, "tags": traps} for text in traps * 100]})
    lines = exported(graph).splitlines()
    assert len(lines) == 600
    assert {json.loads(line)["data"]["text"] for line in lines} == set(traps)
    assert all(json.loads(line)["data"]["tags"] == traps for line in lines)
    copy = og.init(tmp_path / "copy", SCHEMA)
    copy.load(io.BytesIO(exported(graph)), mode="append")
    assert exported(copy) == exported(graph)


def test_the_order_does_not_depend_on_how_rows_came(graph: og.Graph) -> None:
    filled(graph)
    first = exported(graph)
    graph.update("Person", {"age": 5}, ids=["a"])
    graph.update("Person", {"age": None}, ids=["a"])
    assert exported(graph) == first


def test_a_past_commit_and_chosen_types_can_be_exported(graph: og.Graph) -> None:
    filled(graph)
    commit = graph.snapshot().commit
    before = exported(graph)
    graph.delete({"Person": ["a"]})
    assert exported(graph, commit=commit) == before
    assert exported(graph, types=["Note"]).count(b"\n") == 3


# ---- folders ---------------------------------------------------------------------------------------------------------

FILES: tuple[Format, ...] = ("jsonl", "parquet", "csv")


def folder_of(graph: og.Graph, out: Path, *, watcher: Any = None, **options: Any) -> og.ExportResult:
    engines = EngineSettings("local") if watcher is None else EngineSettings("local", watcher=watcher)
    return export_folder(graph.snapshot(), locate(out), engines, **options)


def small_files(monkeypatch: pytest.MonkeyPatch, rows: int = 5) -> None:
    monkeypatch.setattr("omnigraph.pipeline.export.folder.ROWS_PER_FILE", rows)


@pytest.mark.parametrize("format", FORMATS)
def test_a_folder_names_every_file_with_its_rows_and_commit(graph: og.Graph, tmp_path: Path, format: Format) -> None:
    worn(graph)
    result = graph.export(tmp_path / "out", file_format=format, engine="local")
    told = json.loads((tmp_path / "out/_export.json").read_text())
    assert (told["branch"], told["commit"], told["format"]) == ("main", graph.snapshot().commit, format)
    assert told["types"] == ["node:Note", "node:Person", "edge:Knows"]
    assert told["rows"] == result.rows == {"node:Note": 3, "node:Person": 22, "edge:Knows": 2}
    assert (tmp_path / "out/schema.pg").read_text() == SCHEMA
    listed = {f["path"] for f in told["files"]}
    if format == "lance":
        assert listed == {"nodes/Note.lance", "nodes/Person.lance", "edges/Knows.lance"}
    else:
        assert listed | {"_export.json", "schema.pg"} == set(tree(tmp_path / "out"))
        assert all((tmp_path / "out" / f["path"]).stat().st_size == f["bytes"] for f in told["files"])
    assert (result.out, result.files, result.engine) == (str(tmp_path / "out"), len(listed), "local")


def test_the_records_of_a_jsonl_folder_are_those_of_the_stream(
    graph: og.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worn(graph)
    small_files(monkeypatch)
    folder_of(graph, tmp_path / "out")
    parts = sorted((tmp_path / "out").glob("*/*/*.jsonl"))
    assert len(parts) > 4
    lines = [line for part in parts for line in part.read_bytes().splitlines()]
    assert sorted(lines) == sorted(exported(graph).splitlines())


def test_parquet_has_natural_types_and_tells_null_from_empty(graph: og.Graph, tmp_path: Path) -> None:
    worn(graph)
    graph.export(tmp_path / "out", file_format="parquet")
    people = pq.read_table(tmp_path / "out/nodes/Person")
    assert {f.name: str(f.type) for f in people.schema} == {
        "id": "string",
        "name": "string",
        "age": "int32",
        "joined": "timestamp[ms, tz=UTC]",
        "photo": "binary",
        "v": "list<element: float>",
    }
    assert {f.name: str(f.type) for f in pq.read_table(tmp_path / "out/edges/Knows").schema} == {
        **dict.fromkeys(("id", "src", "dst"), "string"),
        "since": "date32[day]",
    }
    for name, kind in (("Person", "nodes"), ("Note", "nodes"), ("Knows", "edges")):
        assert rows_of(pq.read_table(tmp_path / f"out/{kind}/{name}")) == rows_of(graph.snapshot().read(name))
    by_id = {row["id"]: row for row in people.to_pylist()}
    assert (by_id["a"]["photo"], by_id["p00"]["photo"], by_id["b"]["photo"]) == (b"", None, b"\x00\xff")
    tags = {row["text"]: row["tags"] for row in pq.read_table(tmp_path / "out/nodes/Note").to_pylist()}
    assert tags == {"n1": ["x", "y"], "n2": [], "n3": None}


def test_lance_tables_are_plain_ones_that_lance_reads_and_appends_to(
    graph: og.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import lance

    worn(graph)
    small_files(monkeypatch)
    folder_of(graph, tmp_path / "out", format="lance")
    for name, kind in (("Person", "nodes"), ("Note", "nodes"), ("Knows", "edges")):
        found = lance.dataset(str(tmp_path / f"out/{kind}/{name}.lance"))
        assert found.version == 1
        assert rows_of(found.to_table()) == rows_of(graph.snapshot().read(name))
    people = lance.dataset(str(tmp_path / "out/nodes/Person.lance"))
    assert str(people.schema.field("v").type) == "fixed_size_list<item: float>[2]"
    assert len(people.get_fragments()) > 2
    lance.write_dataset(people.to_table().slice(0, 1), people.uri, mode="append")
    assert lance.dataset(people.uri).count_rows() == 23


def test_csv_tells_null_from_empty_and_writes_lists_vectors_and_blobs_as_text(graph: og.Graph, tmp_path: Path) -> None:
    worn(graph)
    graph.insert({"Note": [{"text": "", "tags": ['a,"b"', "c\nd"]}]})
    graph.export(tmp_path / "out", file_format="csv")
    people = (tmp_path / "out/nodes/Person/part-00000.csv").read_text().splitlines()
    assert people[0] == '"id","name","age","joined","photo","v"'
    assert '"b","b",0,"2026-02-03T04:05:06.789Z","AP8=","[0.5,-1.0]"' in people
    assert '"a","a",,,"",' in people
    read = pyarrow.csv.read_csv(
        tmp_path / "out/nodes/Note/part-00000.csv",
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False),
    )
    tags = {row["text"]: row["tags"] if row["tags"] is None else json.loads(row["tags"]) for row in read.to_pylist()}
    assert tags == {"n1": ["x", "y"], "n2": [], "n3": None, "": ['a,"b"', "c\nd"]}


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_exported_into_a_folder_loads_into_an_equal_graph(
    graph: og.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Format
) -> None:
    worn(graph)
    small_files(monkeypatch)
    out = tmp_path / "out"
    folder_of(graph, out, format=format)
    copy = og.init(tmp_path / "copy", (out / "schema.pg").read_text())
    if format == "jsonl":
        copy.load(f"{out}/*/*/*.jsonl", mode="append", engine="local")
    else:
        ending = ".lance" if format == "lance" else f"/*.{format}"
        tables = {name: f"{out}/nodes/{name}{ending}" for name in ("Person", "Note")}
        copy.load(nodes=tables, edges={"Knows": f"{out}/edges/Knows{ending}"}, mode="append", engine="local")
    assert exported(copy) == exported(graph)
    for name in ("Person", "Note", "Knows"):
        assert rows_of(copy.snapshot().read(name)) == rows_of(graph.snapshot().read(name))


@pytest.mark.parametrize("format", FILES)
def test_the_same_snapshot_gives_the_same_bytes(
    graph: og.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Format
) -> None:
    worn(graph)
    small_files(monkeypatch)
    commit = graph.snapshot().commit
    folder_of(graph, tmp_path / "first", format=format)
    graph.insert({"Person": [{"name": "later"}]})
    again = og.open(graph.uri)
    again.export(tmp_path / "second", file_format=format, commit=commit)
    assert tree(tmp_path / "first") == tree(tmp_path / "second")
    assert len(tree(tmp_path / "first")) > 6


@pytest.mark.parametrize("format", FORMATS)
def test_a_graph_without_rows_gives_files_without_rows(graph: og.Graph, tmp_path: Path, format: Format) -> None:
    result = graph.export(tmp_path / "out", file_format=format)
    assert result.rows == {"node:Note": 0, "node:Person": 0, "edge:Knows": 0}
    assert len(json.loads((tmp_path / "out/_export.json").read_text())["files"]) == 3
    if format == "parquet":
        assert pq.read_table(tmp_path / "out/nodes/Person").column_names[:2] == ["id", "name"]


def test_a_time_a_commit_and_types_choose_what_a_folder_holds(graph: og.Graph, tmp_path: Path) -> None:
    filled(graph)
    then = graph.get_commit(graph.snapshot().commit)
    graph.delete({"Person": ["a"]})
    assert graph.export(tmp_path / "1", as_of=then.created_at, types=["Person"]).rows == {"node:Person": 3}
    assert graph.export(tmp_path / "2", commit=then.id, types=["Knows", "Person"]).rows == {
        "node:Person": 3,
        "edge:Knows": 2,
    }
    assert graph.export(tmp_path / "3", types=["Person"]).rows == {"node:Person": 2}
    assert json.loads((tmp_path / "1/_export.json").read_text())["commit"] == then.id
    assert exported(graph, as_of=then.created_at) == exported(graph, commit=then.id)
    with pytest.raises(errors.UnknownType):
        graph.export(tmp_path / "4", types=["Nobody"])
    assert not (tmp_path / "4").exists()


def test_a_task_that_runs_twice_leaves_the_same_file_and_nothing_else(graph: og.Graph, tmp_path: Path) -> None:
    worn(graph)
    out = tmp_path / "out"
    for format in FILES:
        plan = make_plan(graph.snapshot(), locate(out), format=format, types=["Person"])
        for folder in (plan.scratch, *plan.folders):
            (out / folder).mkdir(parents=True, exist_ok=True)
        first = [write_part(task.to_json()) for task in plan.tasks]
        before = tree(out)
        assert [write_part(task.to_json()) for task in plan.tasks] == first
        assert tree(out) == before


def test_a_lance_table_does_not_keep_the_files_of_a_second_attempt(
    graph: og.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Twice(LocalRunner):
        def run(self, function: TaskFunction, tasks: Any, *, stage: str) -> list[Any]:
            super().run(function, tasks, stage=stage)
            return super().run(function, tasks, stage=stage)

    worn(graph)
    monkeypatch.setattr("omnigraph.tasks.engine.LocalRunner", Twice)
    folder_of(graph, tmp_path / "out", format="lance")
    assert len(list((tmp_path / "out/nodes/Person.lance/data").iterdir())) == 1


# ---- what may be written where ---------------------------------------------------------------------------------------


class Interrupting:
    """A watcher that presses Ctrl-C when the first tasks are done."""

    def engine(self, name: str, reason: str) -> None:
        return

    def stage(self, name: str, *, tasks: int) -> None:
        return

    def advance(self, *, tasks: int, rows: int, size_bytes: int) -> None:
        if tasks:
            raise KeyboardInterrupt


@pytest.mark.parametrize("format", FORMATS)
def test_an_interrupted_export_has_no_last_file_and_the_next_one_cleans_up(
    graph: og.Graph, tmp_path: Path, format: Format
) -> None:
    worn(graph)
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        folder_of(graph, out, format=format, watcher=Interrupting())
    left = set(tree(out))
    assert "_unfinished.json" in left
    assert "_export.json" not in left
    assert any("part-" in name or "/data/" in name for name in left)
    graph.export(out, file_format="parquet")
    graph.export(tmp_path / "fresh", file_format="parquet")
    assert tree(out) == tree(tmp_path / "fresh")
    assert not list(out.rglob("*.lance"))


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(
    graph: og.Graph, tmp_path: Path
) -> None:
    worn(graph)
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        folder_of(graph, out, watcher=Interrupting())
    mark = json.loads((out / "_unfinished.json").read_text())
    before = set(tree(out))
    (out / "_unfinished.json").write_text(json.dumps({**mark, "owner": owner.myself()}))
    with pytest.raises(errors.ExportFolderTaken, match="may still be running"):
        graph.export(out)
    (out / "_unfinished.json").write_text(json.dumps({**mark, "owner": plant.ELSEWHERE}))
    with pytest.raises(errors.ExportFolderTaken, match="may still be running"):
        graph.export(out)
    assert set(tree(out)) == before
    (out / "_unfinished.json").write_text(json.dumps({**mark, "owner": {**owner.myself(), "start": "1"}}))
    graph.export(out)
    assert "_unfinished.json" not in tree(out)


def test_nothing_that_is_not_its_own_is_ever_touched(graph: og.Graph, tmp_path: Path) -> None:
    filled(graph)
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    with pytest.raises(errors.ExportFolderTaken, match=r"it is not empty: notes\.txt"):
        graph.export(out)
    (out / "notes.txt").unlink()
    with pytest.raises(KeyboardInterrupt):
        folder_of(graph, out, watcher=Interrupting())
    planted = out / "nodes/Person/notes.txt"
    planted.write_text("mine")
    before = tree(out)
    with pytest.raises(errors.ExportFolderTaken, match=r"nodes/Person/notes\.txt"):
        graph.export(out)
    assert tree(out) == before
    planted.unlink()
    graph.export(out)
    before = tree(out)
    with pytest.raises(errors.ExportFolderTaken, match="a finished export"):
        graph.export(out, file_format="csv")
    assert tree(out) == before


def test_a_file_that_is_not_there_in_the_end_fails_the_export(graph: og.Graph, tmp_path: Path) -> None:
    """As when executors write to disks of their own."""

    class Losing(Interrupting):
        def advance(self, *, tasks: int, rows: int, size_bytes: int) -> None:
            if tasks == 3:
                (tmp_path / "out/nodes/Person/part-00000.csv").unlink(missing_ok=True)

    filled(graph)
    with pytest.raises(errors.StorageError, match="all of them share"):
        folder_of(graph, tmp_path / "out", format="csv", watcher=Losing())
    assert not (tmp_path / "out/_export.json").exists()


def test_an_export_that_lost_its_folder_to_another_one_does_not_finish(graph: og.Graph, tmp_path: Path) -> None:
    class Robbed(Interrupting):
        def advance(self, *, tasks: int, rows: int, size_bytes: int) -> None:
            mark = tmp_path / "out/_unfinished.json"
            mark.write_text(json.dumps({**json.loads(mark.read_text()), "run": "another"}))

    filled(graph)
    with pytest.raises(errors.ExportFolderTaken, match="took the folder over"):
        folder_of(graph, tmp_path / "out", watcher=Robbed())
    assert not (tmp_path / "out/_export.json").exists()
    assert json.loads((tmp_path / "out/_unfinished.json").read_text())["run"] == "another"


def test_wrong_calls_are_told_before_anything_is_written(graph: og.Graph, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    for to, options, match in (
        (tmp_path / "out", {"file_format": "xml"}, "the format is one of"),
        (tmp_path / "out.jsonl", {}, "names a file"),
        (f"{graph.uri}/nodes/out", {}, "lies in the graph"),
        (tmp_path / "out", {"engine": "flink"}, "the engine is one of"),
        (bytearray().extend, {"file_format": "csv"}, "written into a folder"),
        (bytearray().extend, {"engine": "spark"}, "from this process"),
    ):
        with pytest.raises(errors.UsageError, match=match):
            graph.export(to, **options)  # type: ignore[arg-type]
    (tmp_path / "file").write_text("x")
    with pytest.raises(errors.FileUnwritable, match="a file is there"):
        graph.export(tmp_path / "file")
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "file"])
