"""Pipeline files: what they may say, what is told about those that are wrong, what a plan shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import omnigraph as og
from omnigraph.errors import FileUnreadable, GraphNotFound, PipelineFileError, PipelineVariableMissing, UsageError
from omnigraph.pipeline.file.model import Embed, Input, Target
from omnigraph.pipeline.file.reader import parse_file
from omnigraph.pipeline.file.run import check_pipeline, plan_pipeline, read_pipeline
from omnigraph.pipeline.load.table_sources import TableSource

SCHEMA = """
node Person { name: String @key  age: I32?  bio: String?  v: Vector(4)? @embed("bio") }
node Company { name: String @key }
edge Follows: Person -> Person { since: Date? }
"""
FILE = """\
graph: graph                      # beside this file
schema: people.pg
mode: merge
on_error: quarantine
quarantine: rejects
sources:
  people: {path: "people*.csv", options: {header: true, delimiter: ";"}}
  raw:    {path: follows}
nodes:
  Person: {source: people, map: {full_name: name}, skip: company}
edges:
  Follows: {path: follows/a.parquet, from: a, to: b}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a schema, data and FILE, and another one to be in."""
    home = tmp_path / "home"
    (home / "follows").mkdir(parents=True)
    (home / "people.pg").write_text(SCHEMA)
    (home / "people1.csv").write_text("full_name;age;company\nAda;36;A\nBob;;B\n")
    (home / "people2.csv").write_text("full_name;age;company\nEve;40;A\n")
    parquet.write_table(pa.table({"a": ["Ada"], "b": ["Bob"], "id": ["1"]}), home / "follows" / "a.parquet")
    (home / "p.yaml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return home


def parsed(text: str, **variables: str) -> Any:
    return parse_file(text, file="/data/p.yaml", variables=variables)


def refused(text: str, **variables: str) -> PipelineFileError:
    with pytest.raises(PipelineFileError) as caught:
        parsed(text, **variables)
    return caught.value


def test_a_file_is_read_as_values_with_paths_relative_to_itself(folder: Path) -> None:
    file = read_pipeline("home/p.yaml")
    people = Input(str(folder / "people*.csv"), None, {"header": "true", "delimiter": ";"})
    assert file.graph == str(folder / "graph")
    assert file.sources == {"people": people, "raw": Input(str(folder / "follows"))}
    assert file.quarantine == str(folder / "rejects")
    assert file.targets == (
        Target("node", "Person", people, "people", None, {"full_name": "name"}, skip=("company",)),
        Target("edge", "Follows", Input(str(folder / "follows" / "a.parquet")), None, None, {}, "a", "b"),
    )
    assert file.targets[0].table_source() == TableSource(
        path=people.path, options=people.options, columns={"full_name": "name"}, skip=("company",)
    )


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ("quarantine: out/bad.parquet", "/data/out/bad.parquet"),
        ("quarantine: rejects/", "/data/rejects/p.rejected.jsonl"),
        ("", "/data/p.rejected.jsonl"),
    ],
)
def test_rejected_rows_go_to_a_file_into_a_folder_or_beside_the_pipeline_file(said: str, path: str) -> None:
    assert parsed(f"graph: g\nmode: merge\non_error: quarantine\nembed: [{{}}]\n{said}\n").quarantine == path
    assert parsed("graph: g\nmode: merge\nembed: [{}]\n").quarantine is None


def test_everything_a_file_can_say() -> None:
    file = parsed("""
graph: s3://bucket/people
branch: 2024
from: main
mode: append
data: ["extra/*.jsonl", "s3://bucket/more.jsonl.gz"]
embed:
  - {type: Person, property: v, provider: local, batch: 64, commit_every: 1000}
  - {}
optimize: false
cleanup: {keep: 10, older_than: 7d}
engine: spark
""")
    assert (file.graph, file.branch, file.from_branch) == ("s3://bucket/people", "2024", "main")
    assert file.data == ("/data/extra/*.jsonl", "s3://bucket/more.jsonl.gz")
    assert file.embed == (Embed("Person", "v", "local", batch=64, commit_every=1000), Embed())
    assert (file.optimize, file.cleanup, file.engine) == (False, {"keep": 10, "older_than": "7d"}, "spark")


# ---- YAML ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "column", "told"),
    [
        ("graph: g\nmode: merge\ngraph: h\n", 3, 1, "graph stands here a second time; the first is in line 1"),
        ("graph: g\nnodes:\n  A: {path: a.csv, path: b.csv}\n", 3, 20, "path stands here a second time"),
        ("graph: &g x\nmode: merge\n", 1, 8, "anchors"),
        ("graph: !!python/object:os.system x\n", 1, 8, "tags"),
        ("graph: g\n---\ngraph: h\n", 2, 1, "one document"),
        ("graph: [a\nmode: merge\n", 2, 5, "this is not YAML"),
        ("graph: g\n\tmode: merge\n", 2, 1, "tab"),
        ("graph: g\ndata: [${A}]\n", 2, 9, "a variable stands in quotes"),
        ("graph: 'g\n", 2, 1, "this is not YAML"),
        ("", 1, 1, "the file is empty"),
        ("# nothing\n", 1, 1, "the file is empty"),
        ("graph: g\x00\n", 1, 9, "a character that YAML does not allow"),
        ("? [a]\n: b\n", 1, 3, "a key is a plain word"),
        ("graph: " + "[" * 40 + "]" * 40, 1, 23, "nesting is deeper"),
    ],
)
def test_what_is_no_plain_yaml_is_refused_at_its_place(text: str, line: int, column: int, told: str) -> None:
    error = refused(text)
    assert told in error.message
    assert (error.fields["line"], error.fields["column"]) == (line, column)
    assert error.message.startswith(f"/data/p.yaml:{line}:{column}: ")


def test_the_caret_stands_under_the_place() -> None:
    shown = refused("graph: g\nmode: mrege\nnodes: {A: {path: a.csv}}\n").message.splitlines()
    assert shown[1] == "mode: mrege"
    assert shown[2] == "      ^"


@pytest.mark.parametrize("word", ["yes", "no", "on", "off", "2024-01-31", "1:30", "0x10"])
def test_words_that_old_yaml_turns_into_something_else_are_texts(word: str) -> None:
    assert parsed(f"graph: g\nmode: merge\nbranch: {word}\nfrom: main\nembed: [{{}}]\n").branch == word


# ---- variables -------------------------------------------------------------------------------------------------------


def test_variables_are_filled_in_after_parsing_and_can_not_change_the_structure() -> None:
    text = 'graph: "${ROOT}/g"\nmode: ${MODE}\ndata: ["${DAY}/*.jsonl", "$${DAY}"]\ncleanup: {keep: "${N}"}\n'
    file = parsed(text, ROOT="s3://b", MODE="merge", DAY='x", "y', N="7")
    assert file.graph == "s3://b/g"
    assert file.data == ('/data/x", "y/*.jsonl', "/data/${DAY}")
    assert file.cleanup == {"keep": 7, "older_than": None}
    assert parsed(text, ROOT="/r", MODE="merge", DAY="mode: append\n#", N="7").mode == "merge"


def test_a_missing_variable_is_named_with_its_place() -> None:
    with pytest.raises(PipelineVariableMissing) as caught:
        parsed('graph: g\nmode: merge\ndata: ["day/${DAY}.jsonl"]\n', DAYS="x")
    error = caught.value
    assert error.condition == "pipeline_variable_missing"
    assert error.fields["name"] == "DAY"
    assert (error.fields["line"], error.fields["column"]) == (3, 13)
    assert "--var DAY=VALUE" in error.remedy


@pytest.mark.parametrize("text", ["${", "${}", "${A B}", "${A-B}", "a${A"])
def test_a_variable_that_is_not_written_right_is_refused(text: str) -> None:
    assert "${NAME}" in refused(f"graph: '{text}'\nmode: merge\n", A="x").message


def test_given_variables_come_before_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "p.yaml").write_text("graph: ${WHERE}\nmode: merge\nembed: [{}]\n")
    monkeypatch.setenv("WHERE", "here")
    assert read_pipeline("home/p.yaml").graph == str(folder / "here")
    assert read_pipeline("home/p.yaml", variables={"WHERE": "there"}).graph == str(folder / "there")


# ---- the model -------------------------------------------------------------------------------------------------------

BASE = "graph: g\nmode: merge\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- a\n", "a pipeline file is a mapping"),
        ("mode: merge\nembed: [{}]\n", "graph is missing"),
        ("graph: g\nembed: [{}]\n", "mode is missing"),
        ("graph: g\nmode: mrge\nembed: [{}]\n", "mode is append, merge or overwrite, not mrge. Did you mean merge?"),
        (BASE + "nods: {}\n", "has no key nods. Did you mean nodes?"),
        (BASE + "wibble: 1\n", "Known: graph, schema,"),
        (BASE, "there is nothing to do"),
        (BASE + "nodes: {}\n", "nodes is a mapping of names, not an empty mapping"),
        (BASE + "nodes: {A: {}}\n", "A takes one of source, path or sql, and none is there"),
        (BASE + "nodes: {A: {path: a.csv, sql: select 1}}\n", "not path and sql together"),
        (BASE + "nodes: {A: {source: peple}}\nsources: {people: {path: x.csv}}\n", "Did you mean people?"),
        (BASE + "nodes: {A: {path: a.csv, from: x}}\n", "node type A has no key from"),
        (BASE + "nodes: {A: {source: s, format: csv}}\nsources: {s: {path: x}}\n", "format goes with path"),
        (BASE + "nodes: {A: {path: a.csv, map: [x]}}\n", "map is a mapping of texts, not a list"),
        (BASE + "nodes: {A: {path: a.csv, map: {x: }}}\n", "map.x is a text, not nothing"),
        (BASE + "nodes: {A: {path: true}}\n", "path is a text, not true. Put it in quotes"),
        (BASE + "nodes: {A: {path: ''}}\n", "path is empty"),
        (BASE + "sources: {my-source: {path: a}}\nembed: [{}]\n", "'my-source' is no name for a source"),
        (BASE + "sources: {s: {}}\nembed: [{}]\n", "path is missing"),
        (BASE + "data: x.jsonl\n", "data is a list, not x.jsonl"),
        (BASE + "embed: [{type: A, batch: 0}]\n", "batch is a number from 1 up, not 0"),
        (BASE + "embed: [{property: v}]\n", "needs the type that has it"),
        (BASE + "embed: [{}]\noptimize: maybe\n", "optimize is true or false, not maybe"),
        (BASE + "embed: [{}]\nquarantine: x\n", "a quarantine goes with on_error: quarantine"),
        (BASE + "embed: [{}]\nfrom: main\n", "name that branch with branch"),
    ],
)
def test_what_a_file_can_not_say_is_told_in_a_sentence(text: str, told: str) -> None:
    assert told in refused(text).message


def test_all_problems_are_told_at_once_in_the_order_of_the_file() -> None:
    error = refused("graph: g\nmode: mrge\nnodes:\n  A: {}\n  B: {path: b.csv, mpa: {}}\n")
    assert [p["line"] for p in error.fields["problems"]] == [2, 4, 5]
    assert "/data/p.yaml:5:20: node type B has no key mpa. Did you mean map?" in error.message


# ---- against a schema ------------------------------------------------------------------------------------------------


def checked(folder: Path, text: str, **options: Any) -> Any:
    (folder / "p.yaml").write_text(text)
    return check_pipeline(folder / "p.yaml", **options)


def test_a_file_is_checked_against_the_schema_file_where_there_is_no_graph(folder: Path) -> None:
    found = check_pipeline("home/p.yaml")
    assert found.creates_graph
    assert found.to_json()["types"] == ["node:Person", "edge:Follows"]
    assert not (folder / "graph").exists()


NEW = "graph: graph\nschema: people.pg\nmode: merge\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nodes: {Persn: {path: a.csv}}\n", "no node type Persn. Did you mean Person?"),
        ("nodes: {Follows: {path: a.csv}}\n", "Follows is no node type; put it under edges"),
        ("edges: {Person: {path: a.csv}}\n", "Person is no edge type; put it under nodes"),
        ("nodes: {Person: {path: a.csv, map: {x: nam}}}\n", "node:Person has no property nam. Did you mean name?"),
        ("nodes: {Person: {path: a.csv, map: {x: name, y: name}}}\n", "name is filled by two columns, x and y"),
        ("embed: [{type: Persn}]\n", "no node type Persn to embed. Did you mean Person?"),
        ("embed: [{type: Company}]\n", "node:Company has no vector property with @embed"),
        ("embed: [{type: Person, property: age}]\n", "node:Person.age is not declared @embed"),
        ("embed: [{type: Person, property: w}]\n", "node:Person.w does not exist"),
        ("branch: trial\nembed: [{}]\n", "a new graph has the branch main only"),
    ],
)
def test_what_does_not_fit_the_schema_is_told_at_its_place(folder: Path, text: str, told: str) -> None:
    with pytest.raises(PipelineFileError) as caught:
        checked(folder, NEW + text)
    assert told in caught.value.message
    assert caught.value.fields["line"] == 4


def test_the_schema_of_the_graph_counts_and_a_file_that_differs_is_refused(folder: Path) -> None:
    graph = og.init(folder / "graph", SCHEMA)
    assert not check_pipeline("home/p.yaml").creates_graph
    graph.apply_schema(SCHEMA + "node City { name: String @key }\n")
    with pytest.raises(PipelineFileError, match="another schema than this file") as caught:
        check_pipeline("home/p.yaml")
    assert caught.value.fields["line"] == 2
    text = "graph: graph\nmode: merge\nnodes: {City: {path: a.csv}}\n"
    assert checked(folder, text).schema.node.keys() >= {"City"}


def test_without_graph_and_without_schema_there_is_nothing_to_check_against(folder: Path) -> None:
    with pytest.raises(GraphNotFound):
        checked(folder, "graph: graph\nmode: merge\nembed: [{}]\n")


def test_optimize_and_cleanup_are_the_last_steps(folder: Path) -> None:
    text = f"{NEW}cleanup: {{keep: 10, older_than: 7d}}\noptimize: true\nembed: [{{}}]\n"
    assert checked(folder, text).to_json()["steps"][1:] == [
        "embed every @embed property with the provider local",
        "optimize the branch main",
        "remove old versions of the graph, except the newest 10 and those of the last 7d",
    ]
    assert checked(folder, f"{NEW}optimize: true\n").file.optimize, "a file may do only that"


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("cleanup: {}", "cleanup needs to know what to keep: give keep, older_than or both."),
        ("cleanup: {older_than: soon}", "older_than is a number and a unit, as 90s, 15m, 12h, 7d or 2w, not soon."),
        ("cleanup: {keep: 0}", "keep is a number from 1 up, not 0."),
        ("optimize: false", "there is nothing to do: give nodes, edges, data, embed, optimize or cleanup."),
    ],
)
def test_what_may_be_removed_is_checked_before_anything_is_written(folder: Path, step: str, told: str) -> None:
    with pytest.raises(PipelineFileError, match=re.escape(told)):
        checked(folder, f"{NEW}{step}\n")


def test_sql_without_spark_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"{NEW}sources: {{p: {{path: p.csv}}}}\nnodes: {{Company: {{sql: select 1 as name}}}}\n"
    assert checked(folder, text).file.needs_sql
    with pytest.raises(UsageError, match="Company is filled by sql, which runs on Spark"):
        checked(folder, text, engine="local")
    with pytest.raises(UsageError, match="runs on Spark"):
        checked(folder, f"{text}engine: local\n")
    monkeypatch.setenv("OMNIGRAPH_ENGINE", "local")
    with pytest.raises(UsageError, match="runs on Spark"):
        checked(folder, text)


def test_a_file_that_is_not_there_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(FileUnreadable, match=r"none\.yaml can't be read: no such file"):
        read_pipeline(tmp_path / "none.yaml")


# ---- plans -----------------------------------------------------------------------------------------------------------


def test_a_plan_shows_files_bytes_columns_and_steps_and_writes_nothing(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    plan = plan_pipeline("home/p.yaml")
    assert plan.steps == ("create the graph with people.pg", "load Person, Follows in one commit")
    assert plan.engine == "local: starting a JVM would take longer than the work"
    person, follows = plan.targets
    assert person.files is not None
    assert person.columns is not None
    size = sum(p.stat().st_size for p in folder.glob("people*.csv"))
    assert (person.files.files, person.files.size_bytes, person.files.format) == (2, size, "csv")
    assert person.columns.mapped == {"full_name": "name", "age": "age"}
    assert person.columns.skipped == ("company",)
    assert follows.columns is not None
    assert follows.columns.mapped == {"a": "from", "b": "to", "id": "id"}
    assert plan.fits
    assert plan.size_bytes == size + (folder / "follows" / "a.parquet").stat().st_size
    assert plan.to_json()["size_bytes"] == plan.size_bytes
    assert sorted(folder.rglob("*")) == before


def test_a_plan_shows_columns_that_fit_nothing_and_properties_that_nothing_fills(folder: Path) -> None:
    (folder / "p.yaml").write_text(FILE.replace(", skip: company", "").replace("full_name: name", "fullname: name"))
    person = plan_pipeline("home/p.yaml").targets[0]
    assert person.columns is not None
    assert person.columns.unknown == ("full_name", "company")
    assert person.columns.missing == ("fullname",)
    (folder / "p.yaml").write_text(FILE.replace("{full_name: name}", "{full_name: bio}").replace("to: b", "to: id"))
    person, follows = plan_pipeline("home/p.yaml").targets
    assert person.columns is not None
    assert person.columns.missing == ("name",)
    assert follows.columns is not None
    assert follows.columns.unknown == ("b",)


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.jsonl", b'{"name": "A", "age": 3}\n', {"name": "name", "age": "age"}),
        ("a.csv.gz", b"name,age\nA,3\n", {"name": "name", "age": "age"}),
        ("a.tsv", b"\xef\xbb\xbfname\tage\n", {"name": "name", "age": "age"}),
    ],
)
def test_columns_are_known_for_every_format_of_lines(
    folder: Path, name: str, content: bytes, columns: dict[str, str]
) -> None:
    with pa.output_stream(str(folder / name), compression="detect") as file:
        file.write(content)
    (folder / "p.yaml").write_text(f"{NEW}nodes: {{Person: {{path: {name}}}}}\n")
    found = plan_pipeline("home/p.yaml").targets[0].columns
    assert found is not None
    assert found.mapped == columns


def test_an_input_that_is_not_there_or_not_what_its_name_says_is_told(folder: Path) -> None:
    (folder / "p.yaml").write_text(f"{NEW}nodes: {{Person: {{path: none.csv}}}}\n")
    with pytest.raises(FileUnreadable, match=r"none\.csv can't be read: there is no such file"):
        plan_pipeline("home/p.yaml")
    (folder / "bad.parquet").write_text("no parquet")
    (folder / "p.yaml").write_text(f"{NEW}nodes: {{Person: {{path: bad.parquet}}}}\n")
    with pytest.raises(FileUnreadable, match="it is no parquet"):
        plan_pipeline("home/p.yaml")
