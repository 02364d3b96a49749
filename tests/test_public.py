"""The public door and the shape of the package: what is exported, what imports what, which errors exist."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph
from omnigraph import errors
from tests.support.layers import LAYERS

SOURCE = Path(omnigraph.__file__).parent
DOCS = SOURCE.parent.parent / "docs"
NOT_EXPORTED = {
    *("Any", "Callable", "Iterator", "Literal", "Mapping", "Sequence", "Unpack", "None", "DataFrame", "Event"),
    *("Address", "AsOf", "Format", "Rows", "Source", "Table"),  # aliases of types of Python and Arrow
    *("CommitOptions", "ReadOptions", "WriteOptions"),  # dictionaries of options, for type checkers
    "Write",  # what `Transaction.operation` gives to the handle
}
"""Names in annotations of public methods that users need not import."""
UPWARD = {
    ("pipeline/datasource/changes.py", "graph"),
    ("pipeline/datasource/read.py", "graph"),
    ("pipeline/datasource/write.py", "graph"),
}
"""Spark calls these by name with a graph's address, as any program does: they open the graph by the public API."""


def test_the_export_list_is_exactly_this() -> None:
    assert omnigraph.__all__ == [
        "Baseline",
        "BranchInfo",
        "ChangePage",
        "CleanupResult",
        "CloneResult",
        "CommitInfo",
        "Diff",
        "EmbedResult",
        "EntityHistory",
        "ExportResult",
        "Graph",
        "GraphStats",
        "LoadResult",
        "MaintainPolicy",
        "MaintainResult",
        "Maintenance",
        "MergeResult",
        "MutationResult",
        "OptimizePlan",
        "OptimizeResult",
        "Policy",
        "PreparedQuery",
        "RelocateResult",
        "RepairResult",
        "ResetResult",
        "Result",
        "Schema",
        "SchemaPlan",
        "SchemaResult",
        "Snapshot",
        "TableSource",
        "TagInfo",
        "Transaction",
        "VerifyResult",
        "Watcher",
        "WriteResult",
        "__version__",
        "clone",
        "errors",
        "init",
        "open",
        "register",
        "run_pipeline",
    ]
    assert all(getattr(omnigraph, name) is not None for name in omnigraph.__all__)


def test_every_value_that_a_method_takes_or_returns_is_exported() -> None:
    from omnigraph.graph.handle import Graph

    named: set[str] = set()
    for cls in (Graph, omnigraph.Transaction, omnigraph.PreparedQuery):
        for name, method in inspect.getmembers(cls, inspect.isfunction):
            if not name.startswith("_"):
                annotations = inspect.get_annotations(inspect.unwrap(method)).values()
                named |= {word for text in annotations for word in re.findall(r"(?<![.\w])[A-Z]\w+", str(text))}
    assert named - set(omnigraph.__all__) == NOT_EXPORTED


def test_dir_lists_the_public_names() -> None:
    assert dir(omnigraph) == sorted(omnigraph.__all__)


def test_importing_the_package_loads_neither_lance_nor_spark() -> None:
    code = "import sys, omnigraph; print({'lance', 'pyarrow', 'pyspark', 'lark'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert shown.strip() == "set()"


def _imports() -> Iterator[tuple[str, str, str]]:
    """(path, module, imported module) of every import of our own, also inside functions; a bare `import omnigraph`
    gives the handle.
    """
    for path in SOURCE.rglob("*.py"):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        if module == "__init__":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "omnigraph":
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names if alias.name.partition(".")[0] == "omnigraph"]
            for name in names:
                yield str(path.relative_to(SOURCE)), module, name.partition(".")[2] or "graph"


def _level(module: str) -> int:
    level = {name: i for i, names in enumerate(LAYERS) for name in names}
    parts = module.split(".")
    prefixes = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next(level[prefix] for prefix in prefixes if prefix in level)


def test_imports_go_downwards_only() -> None:
    assert {(path, of) for path, module, of in _imports() if _level(of) > _level(module)} == UPWARD


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


def _modules_outside(package: str) -> Iterator[tuple[str, ast.Module]]:
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith(f"{package}/"):
            yield name, ast.parse(path.read_text())


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def test_only_the_object_store_knows_its_client() -> None:
    """Imports in functions and for type checkers count as well."""
    offenders = {
        name
        for name, tree in _modules_outside("storage/objects")
        for node in ast.walk(tree)
        if any(imported.partition(".")[0] == "obstore" for imported in _imported(node))
    }
    assert offenders == set()


def _private_names_of_lance() -> set[str]:
    import lance
    from lance.dataset import ScannerBuilder

    classes = (lance.LanceDataset, lance.LanceFragment, lance.LanceScanner, ScannerBuilder)
    names = {name for cls in classes for name in vars(cls) if re.match(r"_[^_]", name)}
    assert "_take_rows" in names
    return names | {"_ds", "_fragment", "_scanner"}


def test_private_parts_of_lance_are_used_in_storage_lance_only() -> None:
    """`self._x` and `Class._x` are our own."""
    private = _private_names_of_lance()
    offenders = set()
    for name, tree in _modules_outside("storage/lance"):
        for node in ast.walk(tree):
            if any(re.match(r"lance\.lance\b|lance\..*\._[^_]|lance\._[^_]", imported) for imported in _imported(node)):
                offenders.add(f"{name}:{node.lineno}")
            if isinstance(node, ast.Attribute) and (
                ast.unparse(node) == "lance.lance" or (node.attr in private and not _is_own(node.value))
            ):
                offenders.add(f"{name}:{node.lineno}")
    assert offenders == set()


def _is_own(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and (value.id in ("self", "cls") or value.id[0].isupper())


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
