"""load: which files it reads, where it puts what it rejects, what it says of files that are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import ADA, BOB, Cli

WRONG = '{"type": "Person", "data": {"name": "Eve", "age": "old"}}'
ASIDE = ("--mode", "merge", "--on-error", "quarantine")


def test_rejects_never_replace_the_file_they_come_from(cli: Cli, empty: Path, folder: Path) -> None:
    records, table = folder / "self.jsonl", folder / "self.csv"
    records.write_text(f"{ADA}\n{WRONG}\n")
    table.write_text("name,age\nAda,36\nEve,old\n")
    for given in (("--data", "self.jsonl"), ("--nodes", "Person=self.csv")):
        own = given[1].rpartition("=")[2]
        for place in (own, f"../{folder.name}/{own}", folder / own):
            refused = cli("load", empty, *given, *ASIDE, "--quarantine", place, "--json")
            assert refused.code == 2
            assert refused.error["condition"] == "wrong_usage"
            assert "input" in refused.error["message"]
    assert records.read_text() == f"{ADA}\n{WRONG}\n"
    assert table.read_text() == "name,age\nAda,36\nEve,old\n"


def test_a_load_that_is_run_again_does_not_read_what_it_put_aside(done: Cli, empty: Path) -> None:
    Path("day").mkdir()
    Path("day/1.jsonl").write_text(f"{ADA}\n{WRONG}\n")
    Path("day/2.jsonl").write_text(f"{BOB}\n")
    for given in (["--data", "day/*.jsonl"], ["--data", "day"], None, None):
        # As the shell hands over an unquoted pattern.
        words = given or ["--data", *map(str, sorted(Path("day").glob("*.jsonl")))]
        told = done("load", empty, *words, *ASIDE, "--json").json
        assert (told["lines"], told["rejected"]) == (3, 1)
        assert Path(told["quarantine"]).name == "1.jsonl.rejected.jsonl"


def test_rejects_go_to_a_local_file_only(cli: Cli, empty: Path, bucket: str) -> None:
    import os

    import boto3

    store = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], region_name="us-east-1")
    for name in ("in/a.jsonl", "in/a.jsonl.rejected.jsonl"):
        store.put_object(Bucket="cli", Key=name, Body=f"{ADA}\n{WRONG}\n".encode())
    refused = cli("load", empty, "--data", f"{bucket}/in/a.jsonl", *ASIDE, "--quarantine", f"{bucket}/in/a.jsonl")
    assert refused.code == 2
    assert "local file" in refused.err
    for source in ("in", "in/*.jsonl", "in/a.jsonl"):
        told = cli("load", empty, "--data", f"{bucket}/{source}", *ASIDE, "--quarantine", "x.jsonl", "--json").json
        assert (told["lines"], told["rejected"]) == (2, 1), source


@pytest.mark.parametrize(
    "given", [["--data", "none.jsonl"], ["--data", "no*.jsonl"], ["--data", "hollow"], ["--nodes", "Person=none.csv"]]
)
def test_a_file_that_is_missing_is_told_as_one_that_can_t_be_read(cli: Cli, empty: Path, given: list[str]) -> None:
    Path("hollow").mkdir()
    result = cli("load", empty, *given, "--mode", "append", "--json")
    assert result.code == 1
    assert result.error["condition"] == "file_unreadable"
    assert given[1].rpartition("=")[2] in result.error["message"]
    assert "file" in result.error["remedy"]


def test_a_link_to_nothing_is_a_file_that_can_t_be_read(cli: Cli, empty: Path) -> None:
    Path("in").mkdir()
    Path("in/gone.jsonl").symlink_to("nowhere")
    assert cli("load", empty, "--data", "in", "--mode", "append", "--json").error["condition"] == "file_unreadable"


def test_the_engine_for_stdin_is_said_with_its_own_reason(done: Cli, cli: Cli, empty: Path) -> None:
    said = done("load", empty, "--data", "-", "--mode", "append", stdin=ADA).err
    assert "engine local" in said
    assert "stdin" in said
    assert "asked for" not in said
    assert "asked for" in done("load", empty, "--data", "-", "--mode", "merge", "--engine", "local", stdin=ADA).err
    assert (
        cli("load", empty, "--nodes", "Person=people.jsonl,format=text", "--mode", "append", "--engine", "local").code
        == 2
    )


def test_an_overwrite_that_leaves_a_type_empty_says_so(done: Cli, empty: Path) -> None:
    Path("in.jsonl").write_text(f"{ADA}\n{BOB}\n")
    done("load", empty, "--data", "in.jsonl", "--mode", "append")
    Path("in.jsonl").write_text(f"{WRONG}\n")
    told = done("load", empty, "--data", "in.jsonl", "--mode", "overwrite", "--on-error", "quarantine").out
    assert "warning: node:Person is empty now: its 2 rows were removed" in told
    done("load", empty, "--data", "people.jsonl", "--mode", "append")
    Path("in.jsonl").write_text(f'{WRONG}\n{{"edge": "Knows", "from": "Ada", "to": "Eve"}}\n')
    told_json = done("load", empty, "--data", "in.jsonl", "--mode", "overwrite", "--on-error", "quarantine", "--json")
    assert told_json.json["emptied"] == {"node:Person": 2, "edge:Knows": 1}


@pytest.mark.parametrize("form", ["parquet", "csv", "lance"])
def test_a_folder_of_tables_has_the_format_of_its_files(done: Cli, graph: Path, form: str) -> None:
    done("export", graph, "--format", form, "--out", "out", "--engine", "local")
    done("init", "copy", "--schema", "people.pg")
    people = "out/nodes" if form == "lance" else "out/nodes/Person"
    told = done("load", "copy", "--nodes", f"Person={people}", "--mode", "append", "--json").json
    assert told["inserted"] == {"node:Person": 2}


def test_a_folder_of_tables_of_several_formats_is_refused(cli: Cli, empty: Path) -> None:
    Path("rows").mkdir()
    Path("rows/part.csv").write_text("name,age\nCyd,3\n")
    Path("rows/more.jsonl").write_text('{"name": "Dan"}\n')
    result = cli("load", empty, "--nodes", "Person=rows", "--mode", "append", "--json")
    assert result.code == 2
    assert "do not agree" in result.error["message"]
    missing = cli("load", empty, "--nodes", "Person=none", "--mode", "append", "--json")
    assert missing.error["condition"] == "file_unreadable"


def test_the_longest_line_is_an_option_in_bytes_or_with_a_unit(cli: Cli, empty: Path, folder: Path) -> None:
    (folder / "in.jsonl").write_text(f"{ADA}\n" + " " * 2000 + "\n")
    words = ("load", empty, "--data", "in.jsonl", "--mode", "append", "--json")
    refused = cli(*words, "--max-line-bytes", "1KiB")
    assert (refused.code, refused.error["condition"]) == (1, "record_too_long")
    assert refused.error["message"] == "line 2 of in.jsonl is longer than 1024 bytes."
    for size in ("much", "0", "2GiB"):
        wrong = cli(*words, "--max-line-bytes", size)
        assert (wrong.code, wrong.error["condition"]) == (2, "wrong_usage")
        assert "--max-line-bytes" in wrong.error["message"]
    assert cli(*words, "--max-line-bytes", "2000").json["inserted"] == {"node:Person": 1}
