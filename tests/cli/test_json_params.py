"""Parameters as JSON, however deep or long: a typed error and never an internal one."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph
from omnigraph.cli.commands.query import parameters
from omnigraph.cli.files import read_json
from omnigraph.cli.shell.session import params_of, type_of
from omnigraph.errors import FileUnreadable, ParameterError, UsageError
from omnigraph.language.query import bind_params
from tests.language.query.texts import checked

DEEP = "[" * 10_000 + "]" * 10_000
LONG = "9" * 5000


@pytest.mark.parametrize("value", [DEEP, LONG, "[" * 600 + "]" * 600])
def test_deep_and_long_values_are_refused_with_a_type(tmp_path: Path, value: str) -> None:
    text = "query q($l: [I64]) { match { $p: Person $p.age in $l } return { $p.name } }"
    query = checked(text)
    graph = omnigraph.init(tmp_path / "graph", "node Person { name: String @key  age: I64? }")
    statement = graph.prepare(text)
    with pytest.raises(ParameterError):
        bind_params(query, parameters(statement, [f"l={value}"], None))
    with pytest.raises((UsageError, ParameterError)):
        bind_params(query, parameters(statement, None, f'{{"l": {value}}}'))
    file = tmp_path / "params.json"
    file.write_text(f'{{"l": {value}}}')
    with pytest.raises((FileUnreadable, ParameterError)):
        bind_params(query, read_json(str(file)))
    try:
        given = params_of(f'{{"l": {value}}}')
    except UsageError:
        return
    assert type_of(given["l"]) == "[String]"
