"""Completion in a shell: the script of each shell, and a real bash that completes with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import omnigraph
from tests.cli.conftest import Cli

PROGRAM = f"""#!/bin/sh
exec {sys.executable} -m omnigraph.cli.main "$@"
"""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(done: Cli, shell: str) -> None:
    script = done("completion", shell).out
    assert f"_OMNIGRAPH_COMPLETE=complete_{shell}" in script


def test_another_shell_is_wrong_usage(cli: Cli) -> None:
    assert cli("completion", "tcsh").code == 2


def completed(folder: Path, *words: str) -> set[str]:
    """What a real bash offers for the last word."""
    program = folder / "bin" / "omnigraph"
    program.parent.mkdir(exist_ok=True)
    program.write_text(PROGRAM)
    program.chmod(0o755)
    line = f"""
eval "$(omnigraph completion bash)"
COMP_WORDS=({" ".join(f"'{word}'" for word in ("omnigraph", *words))})
COMP_CWORD={len(words)}
_omnigraph_completion omnigraph
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    result = subprocess.run(["bash", "-c", line], capture_output=True, check=True, text=True, env=environment)
    assert result.stderr == ""
    return set(result.stdout.split())


def test_bash_completes_commands_and_options(folder: Path) -> None:
    assert {"optimize", "load"} <= completed(folder, "")
    assert completed(folder, "branch", "cr") == {"create"}
    assert completed(folder, "optimize", "--max-t") == {"--max-time"}


def test_bash_completes_the_branches_and_types_of_a_local_graph(folder: Path, graph: Path) -> None:
    omnigraph.open(graph).create_branch("review/anna")
    assert completed(folder, "export", "g", "--branch", "") == {"main", "review/anna"}
    assert completed(folder, "export", "g", "--branch", "rev") == {"review/anna"}
    assert completed(folder, "export", "g", "--type", "P") == {"Person"}


def test_what_is_no_graph_completes_to_nothing(folder: Path) -> None:
    (folder / "empty").mkdir()
    assert completed(folder, "export", "empty", "--branch", "") == set()
    assert completed(folder, "export", "nowhere", "--branch", "") == set()
