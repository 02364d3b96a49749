"""A pipeline file with several mistakes tells all of them; a variable without a value hides none and makes up none."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.errors import PipelineFileError, PipelineVariableMissing
from omnigraph.pipeline.file.reader import parse_file


def refused(text: str) -> Any:
    with pytest.raises(PipelineFileError) as caught:
        parse_file(text, file="/data/p.yaml", variables={"HERE": "x"})
    return caught.value


def test_a_missing_variable_does_not_hide_other_mistakes() -> None:
    error = refused("graph: ${WHERE}/g\nmode: merg\nnods: {}\ndata: ['${DAY}.jsonl']\n")
    assert isinstance(error, PipelineVariableMissing)
    assert (error.fields["name"], error.fields["line"]) == ("WHERE", 1)
    told = [(p["line"], p["detail"]) for p in error.fields["problems"]]
    assert [line for line, _ in told] == [1, 2, 3, 4]
    for word in ("WHERE", "merge", "nodes", "DAY"):
        assert word in str(error)


@pytest.mark.parametrize(
    "line",
    [
        "mode: ${X}",
        "graph: ${X}",
        "optimize: ${X}",
        "engine: ${X}",
        "nodes: ${X}",
        "data: ${X}",
        "cleanup: {keep: '${X}'}",
        "embed: [{type: '${X}', batch: '${X}'}]",
        "nodes: {Person: {path: '${X}', map: {a: '${X}'}, skip: '${X}', options: '${X}'}}",
        "nodes: {Person: {source: '${X}'}}",
        "sources: {s: {path: '${X}'}}\nnodes: {Person: {source: s}}",
        "on_error: quarantine\nquarantine: ${X}",
    ],
)
def test_a_missing_variable_is_one_mistake_and_makes_no_others(line: str) -> None:
    key = line.partition(":")[0]
    base = {"graph": "graph: g", "mode": "mode: merge", "data": "data: [a.jsonl]"}
    text = "\n".join([*(given for name, given in base.items() if name != key), line])
    error = refused(text)
    assert isinstance(error, PipelineVariableMissing)
    assert {p["detail"] for p in error.fields["problems"]} == {"the variable X has no value."}


def test_a_file_without_missing_variables_tells_its_mistakes_as_before() -> None:
    error = refused("graph: ${HERE}/g\nmode: merg\nnods: {}\ndata: [a.jsonl]\n")
    assert error.condition == "pipeline_file"
    assert [p["line"] for p in error.fields["problems"]] == [2, 3]
