"""docs/query-language.md and docs/search.md are true: every example is run, and what it prints is what the page shows.

The queries of a page and its schema are also files of examples/query, so that what the page says can be repeated there.

    OMNIGRAPH_DOCS=write python -m pytest tests/query/test_docs.py

writes outputs and files anew, for somebody to read before they are committed. Ids may differ, and far decimals.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import QueryCheckError
from omnigraph.language.query import CODES, check_query, lint_queries, parse_queries, render
from omnigraph.language.query.check.functions import AGGREGATES, SCALARS
from omnigraph.language.query.check.ranking import RANKS, SEARCHES
from omnigraph.language.query.syntax.tree import WORD_OPERATORS, Query
from omnigraph.language.schema import parse_schema
from omnigraph.language.schema.model import Schema
from tests.cli.conftest import Cli, cli  # noqa: F401 - a fixture
from tests.pages import DOCS, WRITES, fenced, run_page

LANGUAGE = (DOCS / "query-language.md").read_text(encoding="utf-8")
SEARCH = (DOCS / "search.md").read_text(encoding="utf-8")
EXAMPLES = DOCS.parent / "examples" / "query"
(PEOPLE_PG,) = fenced(LANGUAGE, "pg")
(NOTES_PG,) = fenced(SEARCH, "pg")
ON_NOTES = [text for text in fenced(SEARCH, "gq") if "Note" in text]
FILES = {
    "people.pg": PEOPLE_PG,
    "notes.pg": NOTES_PG,
    "people.gq": "\n".join(fenced(LANGUAGE, "gq")),
    "search.gq": "\n".join(text for text in fenced(SEARCH, "gq") if text not in ON_NOTES),
    "notes.gq": "\n".join(ON_NOTES),
}
QUERIES = [
    (query, parse_schema(NOTES_PG if name == "notes.gq" else PEOPLE_PG))
    for name, text in FILES.items()
    if name.endswith(".gq")
    for query in parse_queries(text).queries
]


def plain(output: str) -> list[str]:
    """Lines without what differs from run to run: ids, times, last decimals, and their width."""
    output = re.sub(r"\b01[0-9A-HJKMNP-TV-Z…]{1,24}(?![0-9A-Za-z])", "ID", output)
    output = re.sub(r"\bin \d+\.\d s\b", "in TIME", output)
    output = re.sub(r"\b\d+\.\d{4,}(e-\d+)?\b", lambda found: f"{float(found[0]):.4f}", output)
    return [re.sub(r" {2,}", "  ", line.strip()) for line in output.strip().splitlines()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of the examples, which is the current one."""
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_files_of_the_examples_are_those_of_the_pages() -> None:
    for name, text in FILES.items():
        if WRITES:
            (EXAMPLES / name).write_text(text, encoding="utf-8")
        assert (EXAMPLES / name).read_text(encoding="utf-8") == text, name
    assert {p.name for p in EXAMPLES.iterdir()} == {*FILES, "people.jsonl", "notes.jsonl"}


@pytest.mark.parametrize("page", ["query-language.md", "search.md"])
def test_every_example_prints_what_the_page_shows(page: str, folder: Path, cli: Cli) -> None:  # noqa: F811
    path = DOCS / page
    assert run_page(path, folder, cli, plain) >= 10
    text = path.read_text(encoding="utf-8")
    shown = set(re.findall(r"^\$ omnigraph (?:query|mutate) \w+ (\w+) ", text, re.MULTILINE))
    assert shown == {query.name for block in fenced(text, "gq") for query in parse_queries(block).queries}


def test_there_are_examples_of_everything() -> None:
    assert len(QUERIES) >= 25
    text = FILES["people.gq"]
    for word in ("not {", "optional {", "shortest", "path $", "having", "distinct", "offset", "collect", "<knows"):
        assert word in text
    for word in ("{1,}", "insert", "update", "delete", "merge", "from match", "returning { *"):
        assert word in text
    for name in (*SEARCHES, *RANKS):
        assert f"{name}(" in FILES["search.gq"]


@pytest.mark.parametrize(("query", "schema"), QUERIES, ids=[query.name for query, _ in QUERIES])
def test_every_example_checks_without_findings(query: Query, schema: Schema) -> None:
    assert check_query(query, schema)
    file = parse_queries(render(parse_queries(query.text.text)))
    assert [f for f in lint_queries(file, schema) if f.code != "L201"] == []


@pytest.mark.parametrize(
    "clause", re.findall(r"^\| `(.*?)` \|", LANGUAGE.split("| clause |")[1].split("\n\n")[0], re.MULTILINE)
)
def test_every_clause_of_the_table_parses(clause: str) -> None:
    for form in clause.replace("\\|", "|").split("`, `"):
        text = form.replace("{ … }", "{ $x knows $y }")
        assert parse_queries(f"query q($s: String) {{ match {{ {text} }} return {{ $x }} }}").queries


def test_the_error_on_the_page_is_the_one_that_is_raised() -> None:
    text = "query q() {\n  match { $p: Person }\n  return { $p.nmae }\n}"
    (query,) = parse_queries(text, file="people.gq").queries
    with pytest.raises(QueryCheckError) as caught:
        check_query(query, parse_schema(PEOPLE_PG))
    assert f"```\n{caught.value}\n```" in LANGUAGE


def test_every_code_function_and_operator_is_on_the_page() -> None:
    for code, meaning in CODES.items():
        assert f"| `{code}` | {meaning} |" in LANGUAGE
    for name in (*SCALARS, *AGGREGATES, *WORD_OPERATORS):
        assert re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`", LANGUAGE), name
    for name in (*SEARCHES, *RANKS):
        assert re.search(rf"^\| `{name}\(.*\)` \|", SEARCH, re.MULTILINE), name


def test_the_writes_from_python_do_what_the_page_says(folder: Path) -> None:
    graph = og.init("people", PEOPLE_PG)
    graph.load("people.jsonl", mode="append")
    done = graph.mutate("people.gq", "hire", {"person": "dan", "company": "bee"}, actor="anna")
    assert f"{json.dumps(done.inserted)}, {json.dumps(done.to_pylist())}" in LANGUAGE
    last = {"slugs": [], "before": "2020-01-01"}
    assert graph.mutate("people.gq", "forget", last, if_commit=done.graph_commit_id).commit is not None
