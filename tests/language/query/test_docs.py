"""docs/query.md is true: its examples parse and check, its error is the real one, its table has every code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnigraph.errors import QueryCheckError
from omnigraph.language.query import CODES, check_query, lint_queries, parse_queries, render
from omnigraph.language.query.functions import AGGREGATES, SCALARS
from omnigraph.language.query.ranking import RANKS, SEARCHES
from omnigraph.language.query.tree import WORD_OPERATORS
from omnigraph.language.schema import parse_schema

PAGE = (Path(__file__).parents[3] / "docs" / "query.md").read_text(encoding="utf-8")
(SCHEMA_TEXT,) = re.findall(r"```pg\n(.*?)```", PAGE, re.DOTALL)
SCHEMA = parse_schema(SCHEMA_TEXT)
QUERIES = [q for text in re.findall(r"```gq\n(.*?)```", PAGE, re.DOTALL) for q in parse_queries(text).queries]


def test_there_are_examples_of_everything() -> None:
    assert len(QUERIES) >= 20
    text = "\n".join(re.findall(r"```gq\n(.*?)```", PAGE, re.DOTALL))
    for word in (
        "not {",
        "optional {",
        "shortest",
        "path $",
        "having",
        "distinct",
        "offset",
        "collect",
        "<knows",
        "{1,}",
    ):
        assert word in text
    for word in ("insert", "update", "delete", "merge", "from match", "returning { *"):
        assert word in text


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: q.name)
def test_every_example_checks_without_findings(query: object) -> None:
    assert check_query(query, SCHEMA)  # type: ignore[arg-type]
    file = parse_queries(render(parse_queries(query.text.text)))  # type: ignore[attr-defined]
    found = [f for f in lint_queries(file, SCHEMA) if f.code != "L201"]
    assert found == []


@pytest.mark.parametrize(
    "clause", re.findall(r"^\| `(.*?)` \|", PAGE.split("| clause |")[1].split("\n\n")[0], re.MULTILINE)
)
def test_every_clause_of_the_table_parses(clause: str) -> None:
    for form in clause.replace("\\|", "|").split("`, `"):
        text = form.replace("{ … }", "{ $x knows $y }")
        assert parse_queries(f"query q($s: String) {{ match {{ {text} }} return {{ $x }} }}").queries


def test_the_error_on_the_page_is_the_one_that_is_raised() -> None:
    text = "query q() {\n  match { $p: Person }\n  return { $p.nmae }\n}"
    (query,) = parse_queries(text, file="people.gq").queries
    with pytest.raises(QueryCheckError) as caught:
        check_query(query, SCHEMA)
    assert f"```\n{caught.value}\n```" in PAGE


def test_every_code_function_and_operator_is_on_the_page() -> None:
    for code, meaning in CODES.items():
        assert f"| `{code}` | {meaning} |" in PAGE
    for name in (*SCALARS, *AGGREGATES, *SEARCHES, *RANKS, *WORD_OPERATORS):
        assert re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`", PAGE), name
