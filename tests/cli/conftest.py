"""A runner of the real command line in this process, graphs to run it on, and an S3 server on loopback."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cli.main import main
from tests.support.s3 import bucket_at

SCHEMA = """\
node Person {
    name: String @key
    age: I32?
}

edge Knows: Person -> Person {
    since: I32?
}
"""
ADA = '{"type": "Person", "data": {"name": "Ada", "age": 36}}'
BOB = '{"type": "Person", "data": {"name": "Bob"}}'
ADA_KNOWS_BOB = '{"edge": "Knows", "from": "Ada", "to": "Bob", "data": {"id": "k1", "since": 2001}}'
PEOPLE = f"{ADA}\n{BOB}\n{ADA_KNOWS_BOB}\n"


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        document = json.loads(self.out)
        assert isinstance(document, dict)
        return document

    @property
    def error(self) -> dict[str, Any]:
        error = self.json["error"]
        assert isinstance(error, dict)
        return error


Cli = Callable[..., Run]


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMNIGRAPH_ACTOR", "OMNIGRAPH_DEBUG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run `omnigraph ARGS` in this process. `tty` makes all three streams terminals."""

    def run(*args: object, stdin: str | bytes = b"", tty: bool = False) -> Run:
        make = Terminal if tty else io.TextIOWrapper
        given = stdin.encode() if isinstance(stdin, str) else stdin
        out, err = io.BytesIO(), io.BytesIO()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", make(io.BytesIO(given), encoding="utf-8"))
            patch.setattr(sys, "stdout", make(out, encoding="utf-8"))
            patch.setattr(sys, "stderr", make(err, encoding="utf-8"))
            code = main([str(a) for a in args])
            sys.stdout.flush()
            sys.stderr.flush()
            return Run(code, out.getvalue().decode(), err.getvalue().decode())

    return run


@pytest.fixture
def done(cli: Cli) -> Cli:
    """As `cli`, and the command must succeed."""

    def run(*args: object, **options: Any) -> Run:
        result = cli(*args, **options)
        assert result.code == 0, f"omnigraph {' '.join(map(str, args))}\n{result.out}{result.err}"
        return result

    return run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of the test, with people.pg and people.jsonl."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.pg").write_text(SCHEMA)
    (tmp_path / "people.jsonl").write_text(PEOPLE)
    return tmp_path


@pytest.fixture(scope="session")
def _templates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The two graphs below, made by the commands of the README, once."""
    folder = tmp_path_factory.mktemp("templates")
    schema, data, empty, full = (folder / name for name in ("people.pg", "people.jsonl", "empty", "full"))
    schema.write_text(SCHEMA)
    data.write_text(PEOPLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OMNIGRAPH_ACTOR", raising=False)
        assert main(["init", str(empty), "--schema", str(schema)]) == 0
        shutil.copytree(empty, full)
        assert main(["load", str(full), "--data", str(data), "--mode", "append"]) == 0
    return empty, full


@pytest.fixture
def empty(folder: Path, _templates: tuple[Path, Path]) -> Path:
    """A graph without entities."""
    return Path(shutil.copytree(_templates[0], folder / "g"))


@pytest.fixture
def graph(folder: Path, _templates: tuple[Path, Path]) -> Path:
    """A graph with Ada, Bob and one edge."""
    return Path(shutil.copytree(_templates[1], folder / "g"))


@pytest.fixture
def bucket(s3_endpoint: str) -> Iterator[str]:
    """An empty bucket, and the environment that finds it."""
    with bucket_at(s3_endpoint, "cli"):
        yield "s3://cli"
