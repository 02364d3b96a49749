"""export: stable, loadable again, complete or not at all."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from tests.cli.conftest import Cli

OMNIGRAPH = (sys.executable, "-m", "omnigraph.cli.main")
GUIDE = Path(__file__).parents[2] / "docs" / "export.md"


def test_an_export_loads_into_a_new_graph_that_exports_the_same_bytes(done: Cli, graph: Path) -> None:
    first = done("export", graph).out
    assert len(first.splitlines()) == 3
    done("init", "copy", "--schema", "people.pg")
    done("load", "copy", "--data", "-", "--mode", "append", stdin=first)
    assert done("export", "copy").out == first


def test_an_older_commit_and_single_types_can_be_exported(done: Cli, graph: Path) -> None:
    before = done("export", graph).out
    head = done("snapshot", graph, "--json").json["commit"]
    more = '{"type": "Person", "data": {"name": "Cyd"}}'
    done("load", graph, "--data", "-", "--mode", "append", stdin=more)
    assert done("export", graph, "--commit", head).out == before
    people = done("export", graph, "--type", "Person").out
    assert len(people.splitlines()) == 3
    assert "Knows" not in people


def test_a_packed_file_holds_the_same_lines_and_is_loadable(done: Cli, graph: Path) -> None:
    done("init", "copy", "--schema", "people.pg")
    for name in ("all.jsonl.gz", "all.jsonl.zst"):
        done("export", graph, "--out", name)
        done("load", "copy", "--data", name, "--mode", "overwrite")
        assert done("export", "copy").out == done("export", graph).out


def test_a_failing_export_leaves_the_old_file_and_nothing_beside_it(cli: Cli, graph: Path) -> None:
    Path("all.jsonl").write_text("old")
    before = sorted(p.name for p in Path().iterdir())
    result = cli("export", graph, "--out", "all.jsonl", "--type", "Nobody", "--json")
    assert result.code == 1
    assert result.error["condition"] == "unknown_type"
    assert Path("all.jsonl").read_text() == "old"
    assert sorted(p.name for p in Path().iterdir()) == before


def test_a_file_that_cannot_be_written_is_told(cli: Cli, graph: Path) -> None:
    result = cli("export", graph, "--out", "no/such/folder/all.jsonl", "--json")
    assert result.code == 1
    assert result.error["condition"] == "file_unwritable"


def test_a_reader_that_goes_away_ends_the_export_without_a_word(done: Cli, empty: Path) -> None:
    lines = "\n".join(f'{{"type": "Person", "data": {{"name": "{i:060}"}}}}' for i in range(5000))
    done("load", empty, "--data", "-", "--mode", "append", stdin=lines)
    with subprocess.Popen([*OMNIGRAPH, "export", empty], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"type"')
        process.stdout.close()
        told = process.stderr.read()
    assert process.returncode == 1
    assert told == b""


def test_a_full_disk_behind_stdout_is_a_failure(graph: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        for verb, told in (("export", b"the store failed"), ("snapshot", b"the command is done")):
            result = subprocess.run([*OMNIGRAPH, verb, graph], stdout=full, stderr=subprocess.PIPE, check=False)
            assert result.returncode == 1
            assert told in result.stderr
            assert b"No space left" in result.stderr
            assert b"Traceback" not in result.stderr


# ---- states ----------------------------------------------------------------------------------------------------------


def test_a_time_names_an_older_state(cli: Cli, done: Cli, graph: Path) -> None:
    before = done("export", graph).out
    commits = done("commit", "list", graph, "--json").json["commits"]
    time.sleep(0.01)
    done("load", graph, "--data", "-", "--mode", "append", stdin='{"type": "Person", "data": {"name": "Cyd"}}')
    then = commits[0]["created_at"]
    assert done("export", graph, "--as-of", then).out == before
    assert done("snapshot", graph, "--as-of", then, "--json").json["commit"] == commits[0]["id"]
    assert done("export", graph, "--as-of", "2999-12-31").out != before
    early = cli("snapshot", graph, "--as-of", "1999-12-31", "--json")
    assert (early.code, early.error["condition"]) == (1, "no_commit_at_that_time")
    for wrong in (("--as-of", "noon"), ("--as-of", then, "--commit", commits[0]["id"])):
        for verb in ("snapshot", "export"):
            assert cli(verb, graph, *wrong).code == 2


# ---- folders ---------------------------------------------------------------------------------------------------------


def test_a_folder_is_what_ends_in_a_slash_or_is_one_or_has_another_format(
    done: Cli, graph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.tasks.engine.active_session", lambda: None)
    Path("there").mkdir()
    for out, options in (("new/", ()), ("there", ()), ("tables", ("--format", "parquet"))):
        result = done("export", graph, "--out", out, *options)
        assert Path(out, "_export.json").is_file()
        assert f"→ exporting to {graph.parent / out.rstrip('/')}\n" in result.err
        assert "→ engine local: starting a JVM would take longer than the work\n" in result.err
        assert re.search(r"writing (jsonl|parquet): 2 tasks, 3 rows, .* s\n", result.err)
        assert "exported 3 entities of commit" in result.out
    assert pq.read_table("tables/nodes/Person").num_rows == 2
    done("export", graph, "--out", "file.jsonl")
    assert Path("file.jsonl").is_file()


def test_quiet_says_nothing_but_the_answer(done: Cli, graph: Path) -> None:
    assert done("export", graph, "--out", "new/", "--quiet").err == ""


def test_a_jsonl_folder_loads_into_a_graph_that_exports_the_same_bytes(done: Cli, graph: Path) -> None:
    done("export", graph, "--out", "all/")
    done("init", "copy", "--schema", "all/schema.pg")
    done("load", "copy", "--data", "all/*/*/*.jsonl", "--mode", "append")
    assert done("export", "copy").out == done("export", graph).out
    assert done("schema", "show", "copy").out == done("schema", "show", graph).out


def test_wrong_combinations_are_told_and_nothing_is_written(cli: Cli, graph: Path) -> None:
    before = sorted(p.name for p in Path().iterdir())
    for options, told in (
        (("--format", "csv"), "name it with --out DIR"),
        (("--json",), "it also needs --out"),
        (("--engine", "spark"), "Spark writes a folder"),
        (("--conf", "a=b", "--out", "x.jsonl"), "Spark writes a folder"),
        (("--conf", "nonsense", "--out", "x/"), "key=value"),
        (("--format", "csv", "--out", "x.jsonl"), "names a file"),
        (("--out", "s3://bucket/x.jsonl"), "names a file"),
        (("--out", f"{graph}/x/"), "lies in the graph"),
    ):
        result = cli("export", graph, *options)
        assert result.code == 2
        assert told in result.err or told in result.out
    assert sorted(p.name for p in Path().iterdir()) == before


def test_an_engine_of_the_environment_does_not_forbid_the_stream(
    done: Cli, graph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_ENGINE", "spark")
    assert len(done("export", graph).out.splitlines()) == 3


def test_a_folder_that_is_taken_is_refused_by_its_name(cli: Cli, graph: Path) -> None:
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    result = cli("export", graph, "--out", "mine", "--json")
    assert (result.code, result.error["condition"]) == (1, "export_folder_taken")
    assert result.error["path"] == str(graph.parent / "mine")
    assert [p.name for p in Path("mine").iterdir()] == ["notes.txt"]


def test_a_bucket_takes_an_export_like_a_folder(cli: Cli, done: Cli, graph: Path, bucket: str) -> None:
    import boto3

    here = og.open(graph)
    for format in ("jsonl", "parquet", "csv", "lance"):
        document = done("export", graph, "--out", f"{bucket}/{format}/", "--format", format, "--json").json
        assert document["out"] == f"{bucket}/{format}"
        done("export", graph, "--out", f"{format}/", "--format", format)
        taken = cli("export", graph, "--out", f"{bucket}/{format}", "--format", format, "--json")
        assert taken.error["condition"] == "export_folder_taken"
    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], region_name="us-east-1")
    listed = client.list_objects_v2(Bucket="cli")["Contents"]
    remote = {o["Key"]: client.get_object(Bucket="cli", Key=o["Key"])["Body"].read() for o in listed}
    local = {str(p): p.read_bytes() for f in ("jsonl", "parquet", "csv") for p in Path(f).rglob("*") if p.is_file()}
    assert {name: body for name, body in remote.items() if not name.startswith("lance/")} == local
    import lance

    from omnigraph.storage.layout import locate

    options = locate(f"{bucket}/x").lance_options
    people = lance.dataset(f"{bucket}/lance/nodes/Person.lance", storage_options=options).to_table()
    assert people.sort_by("id").to_pylist() == here.snapshot().read("Person").sort_by("id").to_pylist()


@pytest.fixture
def large(empty: Path) -> Path:
    """A graph whose export takes long enough to be stopped."""
    og.open(empty).insert({"Person": pa.table({"name": [f"{i:060}" for i in range(150_000)]})})
    return empty


@pytest.mark.parametrize("way", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_export_is_unfinished_and_the_next_one_starts_over(done: Cli, large: Path, way: int) -> None:
    command = [*OMNIGRAPH, "export", str(large), "--out", "all/", "--engine", "local"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not list(Path("all").glob("_partial/*/*")) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(way)
        assert process.stderr is not None
        told = process.stderr.read().decode()
    assert process.returncode == (130 if way == signal.SIGINT else -signal.SIGKILL)
    assert "Traceback" not in told
    assert Path("all/_unfinished.json").is_file()
    assert not Path("all/_export.json").exists()
    done("export", large, "--out", "all/", "--engine", "local")
    assert json.loads(Path("all/_export.json").read_text())["rows"]["node:Person"] == 150_000
    assert sorted(p.name for p in Path("all").iterdir()) == ["_export.json", "edges", "nodes", "schema.pg"]
    assert sum(1 for p in Path("all/nodes/Person").iterdir() for _ in p.open()) == 150_000


# ---- the guide -------------------------------------------------------------------------------------------------------


def test_every_example_of_the_guide_runs(done: Cli, graph: Path) -> None:
    graph.rename("people")
    blocks = re.findall(r"```(sh|python)\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(blocks) >= 5
    for kind, text in blocks:
        if kind == "python":
            exec(compile(text, str(GUIDE), "exec"), {})
            continue
        for line in text.splitlines():
            words = shlex.split(line)
            assert words[0] == "omnigraph"
            command, _, file = line.partition(" > ")
            out = done(*shlex.split(command)[1:]).out
            if file:
                Path(file).write_text(out)
    for copy in ("people-copy", "people-again"):
        assert done("export", copy).out == Path("people-all.jsonl").read_text()
