"""Start-up: what a command does not need, it does not import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "lance",
    "pyarrow",
    "numpy",
    "pyspark",
    "rich",
    "pydantic",
    "lark",
    "obstore",
    "fastapi",
    "orjson",
    "prompt_toolkit",
}
PROGRAM = """
import json, sys
from omnigraph.cli.main import main
code = main(sys.argv[1:])
sys.stdout.flush()
print(json.dumps(sorted({m.partition(".")[0] for m in sys.modules})), file=sys.stderr)
sys.exit(code)
"""


def imported(*args: object, code: int = 0) -> set[str]:
    command = [sys.executable, "-c", PROGRAM, *map(str, args)]
    result = subprocess.run(command, capture_output=True, check=False, text=True)
    assert result.returncode == code, result.stderr
    return set(json.loads(result.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    "args",
    [
        ("version",),
        ("version", "--json"),
        ("--help",),
        (),
        ("load", "--help"),
        ("shell", "--help"),
        ("branch", "create", "--help"),
    ],
)
def test_version_and_help_import_nothing_heavy(args: tuple[str, ...]) -> None:
    assert not imported(*args) & HEAVY


def test_wrong_usage_is_told_without_importing_anything_heavy() -> None:
    assert not imported("snapshot", code=2) & HEAVY


def test_reads_import_neither_spark_nor_what_draws_tables(graph: Path) -> None:
    unneeded = {"pyspark", "rich", "pydantic", "lark", "yaml"}
    for verb in ("snapshot", "branch list", "commit list"):
        assert not imported(*verb.split(), graph) & unneeded


def test_a_shell_without_a_terminal_needs_nothing_that_draws_one(graph: Path) -> None:
    assert not imported("shell", graph) & {"prompt_toolkit", "rich", "pyspark"}
