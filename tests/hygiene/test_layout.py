"""Where helpers of tests live: in modules that are no tests themselves."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_no_module_imports_a_test_module() -> None:
    paths = sorted(TESTS.rglob("*.py"))
    assert len(paths) > 400
    wrong = [
        f"{path.relative_to(TESTS)} imports {name}"
        for path in paths
        for name in imported(path)
        if name.startswith("tests.") and any(part.startswith("test_") for part in name.split(".")[:-1])
    ]
    assert not wrong, "move what both use to tests/support"


def test_one_module_starts_moto_and_one_fixture_starts_processes() -> None:
    """The comparison of our own server with moto starts both itself."""
    sources = {str(path.relative_to(TESTS)): path.read_text() for path in TESTS.rglob("*.py") if path != Path(__file__)}
    starts = {name for name, text in sources.items() if "ThreadedMotoServer(" in text}
    assert starts == {"support/s3.py", "faults/test_s3server_matches_moto.py"}
    assert {name for name, text in sources.items() if "-> Iterator[Processes]:" in text} == {"conftest.py"}
