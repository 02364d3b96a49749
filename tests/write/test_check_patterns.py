"""A graph whose schema holds a pattern of @check that nothing runs any more: it is read, repaired and then written."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import ConstraintViolation, SchemaRuleError

OLD = 'node A { k: String @key  s: String?  @check(s, "(?=.*z)b") }'


def test_a_pattern_that_can_not_be_run_is_removed_and_then_rows_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SchemaRuleError, match="Lookaround"):
        og.init(tmp_path / "refused", OLD)
    with monkeypatch.context() as earlier:
        earlier.setattr("omnigraph.language.schema.syntax.constraints._check_pattern", lambda value, source: None)
        og.init(tmp_path / "graph", OLD)
    graph = og.open(tmp_path / "graph")
    assert graph.insert({"A": [{"k": "null"}]}).commit is not None
    with pytest.raises(ConstraintViolation, match="remove it from the schema"):
        graph.insert({"A": [{"k": "a", "s": "bz"}]})
    with pytest.raises(ConstraintViolation, match="remove it from the schema"):
        graph.mutate('query q() { update A set { s: "bz" } where true }')
    assert graph.nodes("A").num_rows == 1
    done = graph.apply_schema("node A { k: String @key  s: String? }")
    assert [s.kind for s in done.plan.steps] == ["update_type_metadata"]
    graph.insert({"A": [{"k": "a", "s": "bz"}]})
    assert graph.nodes("A").num_rows == 2


def test_a_check_of_a_small_write_and_of_a_query_ends_at_once(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "graph", 'node A { k: String @key  s: String?  @check(s, "^(a+)+$") }')
    hostile = "a" * 5000 + "!"
    with pytest.raises(ConstraintViolation, match="does not match the pattern"):
        graph.insert({"A": [{"k": "a", "s": hostile}]})
    with pytest.raises(ConstraintViolation, match="does not match the pattern"):
        graph.mutate("query q($s: String) { insert A { k: $s, s: $s } }", s=hostile)
