"""Whatever is typed, and whatever a saved plan says: an answer, or an error with a condition of its own.

The mark `internal_error` is what the command line calls a failure that nobody has thought of.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from tests.cli.conftest import Cli
from tests.storage.hostile import OTHERS, TEXTS, leaves, mutated

WORDS = (
    *(text.replace("\0", "") for text in TEXTS),
    *(
        "-1",
        "0",
        "²",
        "1e999",
        "nan",
        "9" * 40,
        "[" * 3000,
        '{"a":1}',
        "null",
        "true",
        "2020-13-45",
        "'",
        "\udc80",
        "☃",
    ),
)
VERBS: dict[str, tuple[str, ...]] = {
    "snapshot": ("--branch", "--commit", "--as-of"),
    "branch list": (),
    "branch create": ("--from", "--if-commit"),
    "branch delete": (),
    "commit list": ("--branch", "--limit"),
    "commit show": (),
    "diff": ("--type", "--id", "--op", "--format"),
    "history": ("--type", "--id", "--branch"),
    "schema show": ("--branch",),
    "schema plan": ("--schema", "--branch"),
    "schema apply": ("--schema", "--branch"),
    "load": ("--data", "--mode", "--branch", "--as", "--on-error", "--nodes", "--edges", "--quarantine"),
    "export": ("--branch", "--commit", "--as-of", "--type", "--format"),
    "query": (
        "-e",
        "--query",
        "--param",
        "--params",
        "--branch",
        "--timeout",
        "--max-rows",
        "--max-memory",
        "--format",
    ),
    "mutate": ("-e", "--param", "--branch", "--if-commit", "--operation-id", "--as"),
    "lint": ("--schema", "--query"),
    "optimize": ("--table", "--branch", "--apply", "--max-bytes", "--max-rows", "--max-time", "--concurrency"),
    "cleanup": ("--keep", "--older-than", "--policy", "--apply", "--orphans-older-than"),
    "verify": ("--branch", "--seed"),
    "repair": ("--table", "--branch"),
    "stats": ("--branch",),
    "maintain": ("--policy", "--keep", "--older-than", "--max-time", "--branch"),
    "pipeline validate": ("--var",),
    "embed": ("--provider", "--type", "--batch", "--rate", "--branch"),
}
NAMED = ("branch create", "branch delete", "commit show", "diff")


def _typed(rng: random.Random, graph: Path, verb: str) -> list[str]:
    """One command line: the right words for the verb, and something hostile in one or two places."""
    args = [*verb.split(), str(graph) if rng.random() < 0.9 else rng.choice(WORDS)]
    if verb in NAMED:
        args.append(rng.choice(WORDS))
    options = VERBS[verb]
    for option in rng.sample(options, min(len(options), rng.choice((0, 1, 1, 2)))):
        args += [option, rng.choice(WORDS)]
    return [*args, "--json"] if verb != "export" else args


@pytest.mark.parametrize("how_many", [3, pytest.param(60, marks=pytest.mark.long)])
def test_no_command_line_ends_in_an_internal_error(graph: Path, cli: Cli, how_many: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for verb in VERBS:
        for _ in range(how_many):
            args = _typed(rng, graph, verb)
            print(ascii(args)[:300])
            found = cli(*args)
            assert "internal_error" not in found.out, found.out
            assert "internal error" not in found.err, found.err
    assert og.open(graph).nodes("Person").num_rows == 2


@pytest.mark.parametrize("how_many", [8, pytest.param(300, marks=pytest.mark.long)])
def test_no_tampered_plan_of_a_cleanup_ends_in_an_internal_error(
    graph: Path, cli: Cli, done: Cli, tmp_path: Path, how_many: int
) -> None:
    """And none removes what a live state needs, or anything outside of the graph."""
    with og.open(graph) as opened:
        for age in range(4):
            opened.upsert({"Person": [{"name": "Ada", "age": age}]})
    plan = done("cleanup", graph, "--keep", "2", "--json").json
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    places = [path for path in leaves(plan) if path[0] not in ("graph", "seconds")]
    for number in range(how_many):
        copied = Path(shutil.copytree(graph, tmp_path / f"g{number}"))
        path, value = rng.choice(places), rng.choice((*TEXTS, *OTHERS))
        print(path[:-1], ascii(value)[:100])
        tampered: Any = {**mutated(plan, path, value), "graph": str(copied)}
        (tmp_path / "plan.json").write_text(json.dumps(tampered))
        found = cli("cleanup", copied, "--apply", tmp_path / "plan.json", "--confirm", "--json")
        assert "internal_error" not in found.out, found.out
        with og.open(copied) as opened:
            assert sorted(opened.nodes("Person")["name"].to_pylist()) == ["Ada", "Bob"]
        assert (outside / "precious").read_text() == "x"
        shutil.rmtree(copied)
