"""The public door and the shape of the package: what is exported, what imports what, which errors exist."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph
from omnigraph import errors

SOURCE = Path(omnigraph.__file__).parent
DOCS = SOURCE.parent.parent / "docs"
LAYERS = (
    {"errors"},
    {"durations", "sizes", "environment", "arguments"},
    {"language"},
    {"storage"},
    {"commit"},
    {"snapshot", "results", "history"},
    {"write", "branch", "index"},
    {"pipeline", "read"},
    {"maintenance", "query"},
    {"upkeep", "ask", "prepared", "branching", "versioning"},
    {"graph", "create", "transaction"},
    {"demo"},
    {"cli"},
)


def test_the_export_list_is_exactly_this() -> None:
    assert omnigraph.__all__ == [
        "BranchInfo",
        "CommitInfo",
        "EmbedResult",
        "ExportResult",
        "Graph",
        "LoadResult",
        "ResetResult",
        "SchemaResult",
        "Snapshot",
        "TableSource",
        "TagInfo",
        "Transaction",
        "WriteResult",
        "__version__",
        "clone",
        "errors",
        "init",
        "open",
        "register",
    ]
    assert all(getattr(omnigraph, name) is not None for name in omnigraph.__all__)


def test_importing_the_package_loads_neither_lance_nor_spark() -> None:
    code = "import sys, omnigraph; print({'lance', 'pyarrow', 'pyspark', 'lark'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert shown.strip() == "set()"


def _imports() -> Iterator[tuple[str, str, str]]:
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if parts[0] == "__init__":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("omnigraph."):
                names = [node.module]
            elif isinstance(node, ast.Import):
                names = [a.name for a in node.names if a.name.startswith("omnigraph.")]
            for name in names:
                yield str(path.relative_to(SOURCE)), parts[0], name.split(".")[1]


def test_imports_go_downwards_only() -> None:
    level = {name: i for i, names in enumerate(LAYERS) for name in names}
    upward = [(path, of) for path, package, of in _imports() if level[of] > level[package]]
    assert upward == []


def test_only_storage_and_the_door_know_lance() -> None:
    """Above the door, Lance is a type at most: nothing else may open, write or commit a table."""
    calls = []
    for path in SOURCE.rglob("*.py"):
        package = path.relative_to(SOURCE).parts[0]
        if package == "storage":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("write_dataset", "LanceOperation"):
                calls.append(str(path))
    assert calls == []


def _all_errors(cls: type[errors.OmnigraphError] = errors.OmnigraphError) -> Iterator[type[errors.OmnigraphError]]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _all_errors(sub)


PUBLIC_ERRORS = [e for e in _all_errors() if e.__module__.startswith("omnigraph.errors")]


def test_every_condition_is_named_once() -> None:
    conditions = [e.condition for e in PUBLIC_ERRORS]
    assert len(conditions) == len(set(conditions))


@pytest.mark.parametrize("error", PUBLIC_ERRORS, ids=lambda e: e.condition)
def test_every_error_says_what_to_do_and_stands_in_the_docs(error: type[errors.OmnigraphError]) -> None:
    leaf = not error.__subclasses__()
    if leaf:
        assert error.remedy_text
    assert f"`{error.condition}`" in (DOCS / "errors.md").read_text()


def test_an_error_survives_pickling_and_turns_into_json() -> None:
    import pickle

    error = errors.PreconditionFailed(expected="A", actual="B", branch="main")
    again = pickle.loads(pickle.dumps(error))
    assert again.to_json() == error.to_json()
    assert error.to_json()["condition"] == "precondition_failed"
    assert error.exit_code == 4
