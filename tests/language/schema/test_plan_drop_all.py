"""A schema that keeps no type of the graph is refused, unless it is said that this is meant."""

from __future__ import annotations

import pytest

from tests.language.schema.texts import accepted, kinds, plan

BEFORE = "node A {} node B {} edge E: A -> B"
NOTHING = ["", "\n\n", "// only a comment\n", "/* another */"]


@pytest.mark.parametrize("after", NOTHING)
@pytest.mark.parametrize("populated", [True, False])
def test_a_schema_without_types_is_refused(after: str, populated: bool) -> None:
    old = accepted(BEFORE)
    made = plan(old, after, populated=populated)
    assert [(s.entity, s.code) for s in made.unsupported] == [("schema", "OG-DS-101")]
    assert "A, B, E" in made.unsupported[0].reason
    assert "--allow-data-loss" in made.unsupported[0].reason
    assert made.result is old
    assert "OG-DS-101" in [f.code for f in made.findings]


@pytest.mark.parametrize("allowed", ["allow_data_loss", "drop_all"])
def test_it_is_done_where_it_is_said(allowed: str) -> None:
    made = plan(BEFORE, "", **{allowed: True})
    assert kinds(made) == ["drop_type"] * 3
    assert not list(made.result.types())
    assert "OG-DS-101" in [f.code for f in made.findings]


def test_the_schema_of_another_graph_is_refused_while_there_are_rows() -> None:
    assert [s.code for s in plan(BEFORE, "node Other {}").unsupported] == ["OG-DS-101"]
    assert plan(BEFORE, "node Other {}", populated=False).supported


def test_one_type_that_stays_is_enough() -> None:
    assert plan(BEFORE, "node A {}").supported
    assert plan(BEFORE, 'node C @rename_from("A") {}').supported


def test_a_graph_without_types_stays_as_it_is() -> None:
    assert not plan("", "").changed
    assert plan("", "node A {}").supported
