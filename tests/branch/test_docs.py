"""The page about branches: what it shows is what the commands say."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

import omnigraph as og
from tests.cli.conftest import Cli, cli  # noqa: F401 - a fixture
from tests.pages import DOCS, run_page

SCHEMA = "node Person { name: String @key  age: I32?  city: String? }\nedge Knows: Person -> Person"


def people(path: Path) -> None:
    graph = og.init(path, SCHEMA)
    rows = [{"name": "Ada", "age": 36, "city": "Ulm"}, {"name": "Bob", "age": 41, "city": "Ulm"}, {"name": "Cyd"}]
    graph.insert({"Person": rows, "Knows": [{"from": "Ada", "to": "Bob"}]})


def both_sides(path: Path) -> None:
    graph = og.open(path)
    graph.create_branch("fix")
    graph.update("Person", {"age": 42}, ids=["Bob"], branch="fix")
    graph.update("Person", {"age": 43}, ids=["Bob"])


def resolve(folder: Path) -> None:
    file = folder / "conflicts.jsonl"
    file.write_text(file.read_text().replace('"resolution":null', '"resolution":"theirs"'))


def plain(text: str) -> list[str]:
    """Lines without what differs from run to run."""
    text = re.sub(r"\b01[0-9A-HJKMNP-TV-Z…]{1,24}(?![0-9A-Za-z])", "ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[ T][\d:.+Z]+", "THEN", text)
    return [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if line.strip()]


def test_the_commands_of_the_page_say_what_it_shows(
    cli: Cli,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = tmp_path / "people"
    first = {
        "people": partial(people, graph),
        "both sides": partial(both_sides, graph),
        "resolve": partial(resolve, tmp_path),
        "nothing": lambda: None,
    }
    assert run_page(DOCS / "branches.md", tmp_path, cli, plain, first=first) >= 11
