"""docs/schema.md is true: its example parses, its error is the real one, its tables name every code and step."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnigraph.errors import SchemaRuleError
from omnigraph.language.schema import CODES, FAMILIES, parse_schema
from omnigraph.language.schema.plan import steps
from omnigraph.language.schema.syntax.annotations import KNOWN

PAGE = (Path(__file__).parents[3] / "docs" / "schema.md").read_text(encoding="utf-8")
EXAMPLE = re.search(r"```\n(// movies\.pg\n.*?)```", PAGE, re.DOTALL)


def test_the_example_is_a_schema() -> None:
    assert EXAMPLE is not None
    schema = parse_schema(EXAMPLE.group(1))
    assert [t.name for t in schema.types()] == ["Person", "Film", "ActedIn", "DirectedBy"]


def test_the_error_on_the_page_is_the_one_that_is_raised() -> None:
    assert EXAMPLE is not None
    with pytest.raises(SchemaRuleError) as caught:
        parse_schema(EXAMPLE.group(1).replace("born: Date?", "born: Dat?"), file="movies.pg")
    assert f"```\n{caught.value}\n```" in PAGE


def test_every_code_step_and_annotation_is_on_the_page() -> None:
    for step in vars(steps).values():
        if isinstance(getattr(step, "kind", None), str):
            assert f"`{step.kind}`" in PAGE
    for code in CODES.values():
        assert f"| `{code.code}` | {code.severity} |" in PAGE
    for family in FAMILIES:
        assert family in PAGE
    for name in KNOWN:
        assert f"`@{name}" in PAGE
