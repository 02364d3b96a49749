"""No name, value or message makes a terminal do something: control characters are shown, not sent."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import UsageError
from omnigraph.language.controls import escaped
from tests.cli.conftest import Cli, Run
from tests.storage import hostile

EVIL = "x\x1b]52;c;ZXZpbA==\x07\x1b]0;title\x07\x1b[2J\x9b31m\x7f\r\x08\x00\u202eabc\u2066"
QUERY = "query q() { match { $p: Person } return { $p.name } }"
_ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program itself draws no bars and no bold letters there."""
    monkeypatch.setenv("TERM", "dumb")


@pytest.fixture
def evil(graph: Path) -> Path:
    """A graph in whose storage an actor, an operation id and an id of a node hold escape sequences."""
    with og.open(graph) as opened:
        opened.insert({"Person": [{"name": EVIL, "age": 1}]}, actor="ada", operation_id=EVIL)
    body = hostile.head(graph)
    for record in body["recent"]:
        record["a"] = EVIL
        record["r"] = {"outcome": EVIL, "kind": EVIL, "by": EVIL}
    hostile.plant_head(graph, body)
    return graph


def _harmless(run: Run) -> None:
    for text in (run.out, run.err):
        left = _ACTS.search(text)
        assert left is None, f"{left[0]!r} in {text!r}"


LISTINGS = [
    ("branch", "list"),
    ("commit", "list"),
    ("snapshot",),
    ("schema", "show"),
    ("stats",),
    ("verify", "--quick"),
    ("cleanup", "--keep", "1"),
    ("optimize", "--plan"),
    ("export",),
    ("query", "-e", QUERY),
    ("query", "-e", QUERY, "--format", "kv"),
    ("query", "-e", QUERY, "--format", "jsonl"),
]


@pytest.mark.parametrize("command", LISTINGS, ids=" ".join)
def test_what_a_graph_says_is_never_obeyed(evil: Path, cli: Cli, command: tuple[str, ...]) -> None:
    words = 2 if command[0] in ("branch", "commit", "schema") else 1
    args = [*command[:words], evil, *command[words:]]
    for tty in (False, True):
        found = cli(*args, tty=tty)
        assert found.code in (0, 1)
        if tty or command[0] != "export":  # JSON lines in a pipe are data
            _harmless(found)
        if "--format" not in command and command[0] != "export":
            _harmless(cli(*args, "--json", tty=tty))


def test_the_actor_is_shown_with_escapes(evil: Path, done: Cli) -> None:
    assert r"x\u001b]52;c;" in done("commit", "list", evil).out
    commit = json.loads(done("commit", "list", evil, "--json").out)["commits"][0]
    assert commit["actor"] == EVIL, "JSON says the same"
    for tty in (False, True):
        _harmless(done("commit", "show", evil, commit["id"], tty=tty))


def test_csv_is_data_in_a_pipe_and_harmless_on_a_terminal(evil: Path, done: Cli) -> None:
    args = ("query", evil, "-e", QUERY, "--format", "csv")
    assert EVIL.replace("\r", "") in done(*args).out.replace("\r", "")
    _harmless(done(*args, tty=True))


def test_refused_words_are_shown_with_escapes(graph: Path, cli: Cli, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text(json.dumps({"type": "Person", "data": {"name": f"y{EVIL}", f"no{EVIL}": 1}}) + "\n")
    for args in (
        ("branch", "create", graph, f"b{EVIL}".replace("\0", "")),
        ("load", graph, "--data", bad, "--mode", "append"),
        ("query", graph, "-e", f"query q() {{ {EVIL} }}"),
        ("commit", "show", graph, EVIL),
        ("snapshot", tmp_path / EVIL.replace("\0", "")),
        ("snapshot", graph, f"--no{EVIL}"),
        ("load", graph, "--data", f"missing{EVIL}".replace("\0", ""), "--mode", "append"),
    ):
        for tty in (False, True):
            found = cli(*args, tty=tty)
            assert found.code in (1, 2), args
            _harmless(found)


def test_a_traceback_is_harmless(evil: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_DEBUG", "1")
    found = cli("commit", "show", evil, EVIL, tty=True)
    assert "Traceback" in found.err
    _harmless(found)


def test_the_shell_shows_escapes(evil: Path, cli: Cli) -> None:
    _harmless(cli("shell", evil, stdin=f"{QUERY}\n:nope{EVIL}\n:format kv\n{QUERY}\n"))


@pytest.mark.parametrize("actor", ["a\x1b[2J", "a\nb", "a\x9b", "a\u202e", "a\x7f"], ids=ascii)
def test_an_actor_has_no_control_characters(graph: Path, cli: Cli, actor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="control characters"):
        og.open(graph, actor=actor)
    refused = cli("load", graph, "--data", "-", "--mode", "append", "--as", actor, "--json")
    assert refused.error["condition"] == "wrong_usage"
    monkeypatch.setenv("OMNIGRAPH_ACTOR", actor)
    with pytest.raises(UsageError, match="control characters"):
        og.open(graph).insert({"Person": [{"name": "new"}]})


def test_escapes_are_those_of_json() -> None:
    text = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0), 0x202E, 0x2069, 0xDC9B]))
    assert json.loads(f'"{escaped(text, lines=False)}"') == text
    assert escaped("a\tb\nc", lines=True) == "a\tb\nc"
    assert escaped("Grüße, 𝕏 שלום") == "Grüße, 𝕏 שלום"
