"""Help and documentation: every verb explains itself, and what is printed there works."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cli import app
from omnigraph.cli.app import VERBS, Verb
from tests.cli.conftest import Cli

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"


def named(verb: Verb) -> str:
    return verb.words


def command_of(verb: Verb) -> Any:
    found: Any = app.command()
    for part in verb.words.split():
        found = found.commands[part]
    return found


@pytest.mark.parametrize("verb", VERBS, ids=named)
def test_the_help_of_every_verb_shows_usage_options_and_examples(cli: Cli, verb: Verb) -> None:
    result = cli(*verb.words.split(), "--help")
    assert result.code == 0
    assert result.out.startswith(f"Usage: omnigraph {verb.words} {verb.usage}\n")
    for example in verb.examples:
        assert example in result.out


@pytest.mark.parametrize("verb", VERBS, ids=named)
def test_the_examples_of_every_verb_parse(verb: Verb) -> None:
    for example in verb.examples:
        words = shlex.split(example[example.index("omnigraph ") :])
        words = words[1 : words.index(">")] if ">" in words else words[1:]
        *path, name = verb.words.split()
        command = command_of(verb)
        assert words[: len(path) + 1] == [*path, name]
        context = command.make_context(name, words[len(path) + 1 :])
        assert not context.args


@pytest.mark.parametrize("verb", VERBS, ids=named)
def test_every_verb_and_option_is_documented(verb: Verb) -> None:
    text = DOCS.read_text()
    heading = f"### omnigraph {verb.words}\n"
    assert heading in text
    section = text.split(heading)[1].split("\n### ")[0].split("\n## ")[0]
    assert f"omnigraph {verb.words} {verb.usage.replace(' [OPTIONS]', '').replace('[OPTIONS]', '')}".strip() in section
    command = command_of(verb)
    everywhere = {"--store", "--json", "--quiet", "--verbose", "--help"}
    for option in (o for p in command.params for o in p.opts if o.startswith("--")):
        assert option in section or option in everywhere, f"{verb.words} {option} is not documented"
