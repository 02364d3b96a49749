"""The command line uses the public API: what a command does, a Python program can do.

At run time a module of the command line imports `omnigraph` itself, `omnigraph.errors`, `omnigraph.config`, its own
package, and the exact names below. Types for annotations are free: they do nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import omnigraph
from omnigraph import cli

CLI = Path(cli.__file__).parent
FREE = ("omnigraph", "omnigraph.errors", "omnigraph.config", "omnigraph.cli")
EXCEPTIONS = {
    # Options and files are checked before a graph is opened: what is wrong there costs nothing.
    "omnigraph.commit.actor": {"checked_actor"},
    "omnigraph.maintenance.cleanup": {"make_policy"},
    "omnigraph.maintenance.cleanup.document": {"read_plan"},
    "omnigraph.maintenance.maintain.policy": {"make_maintain_policy"},
    "omnigraph.branch.merge.resolutions": {"read_resolution_file", "conflict_lines"},
    "omnigraph.pipeline.export.folder": {"folder_location"},
    "omnigraph.pipeline.load.chunks": {"checked_line_bytes"},
    "omnigraph.pipeline.load.input_files": {"REJECTED", "find_files"},
    "omnigraph.pipeline.load.table_sources": {"parse_option"},
    "omnigraph.tasks.session": {"SparkSettings"},
    "omnigraph.tasks.progress": {"SilentWatcher", "Watcher"},
    # Pipeline files are checked, and asked about, before they run; what they conceal is not printed.
    "omnigraph.pipeline.file.run": {"check_pipeline", "concealed", "plan_pipeline", "run_pipeline"},
    # Addresses, also those of a cluster, whose state is no part of a graph.
    "omnigraph.storage.layout": {"MANIFEST", "Location", "locate"},
    "omnigraph.storage.objects.folder": {"Folder"},
    # A file that appears whole or not at all, as those of the graph do.
    "omnigraph.storage.objects.atomic_file": {"placed"},
    # Texts: of schemas, of changes as JSON, of cells, without control characters.
    "omnigraph.branch.diff.diff": {"json_rows"},
    "omnigraph.branch.feed.page": {"change_documents"},
    "omnigraph.language": {"identifiers"},
    "omnigraph.language.controls": {"escaped"},
    "omnigraph.language.identifiers": {"is_branch_path"},
    "omnigraph.language.schema.serial": {"schema_to_json"},
    "omnigraph.language.schema.syntax.show": {"render"},
    "omnigraph.language.schema.source": {"did_you_mean"},
    "omnigraph.maintenance.maintain.report": {"count_text", "share_text"},
    "omnigraph.query.result": {"cell"},
    # lint needs no graph; completion in the shell knows the words of the language.
    "omnigraph.language.query.check.functions": {"AGGREGATES", "SCALARS"},
    "omnigraph.language.query.lint": {"lint_text"},
    "omnigraph.language.query.syntax.parse": {"parse_queries"},
    "omnigraph.language.query.check.ranking": {"RANKS", "SEARCHES"},
    "omnigraph.language.query.syntax.tree": {"TEXT_OPERATORS"},
    "omnigraph.language.schema.syntax.parse": {"parse_schema"},
    "omnigraph.language.schema.model": {"Property", "Schema"},
    # The demo is a program of its own.
    "omnigraph.demo.narrator": {"Narrator"},
    "omnigraph.demo.story": {"prepare_folder", "summary", "tell"},
}
"""Names of other modules that the command line may use at run time, by reason."""
INTERNAL = {"queries", "engines", "view"}
"""Attributes of a graph or a snapshot that are not part of the public API, although they have no underscore."""
OWN = {"self", "cls", "Session"}


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(CLI.rglob("*.py")):
        yield path.relative_to(CLI).as_posix(), ast.parse(path.read_text())


def _runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield node
            yield from _runtime_nodes(node)


def _imports() -> Iterator[tuple[str, str, str]]:
    """(file, module, name) of every import of our own at run time."""
    for file, tree in _modules():
        for node in _runtime_nodes(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "omnigraph":
                assert node.module is not None
                yield from ((file, node.module, alias.name) for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from ((file, alias.name, "") for alias in node.names if alias.name.startswith("omnigraph."))


def _is_free(module: str, name: str) -> bool:
    if module == "omnigraph":
        return name in omnigraph.__all__
    return any(module == free or module.startswith(f"{free}.") for free in FREE[1:])


def test_commands_import_the_public_api_and_the_named_exceptions_only() -> None:
    used = {(module, name) for _, module, name in _imports() if not _is_free(module, name)}
    assert used == {(module, name) for module, names in EXCEPTIONS.items() for name in names}


def test_commands_use_no_private_attribute_of_a_graph() -> None:
    private = []
    for file, tree in _modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                owner = ast.unparse(node.value)
                is_private = node.attr.startswith("_") and not node.attr.startswith("__")
                if (is_private and owner not in OWN and owner != "super()") or (
                    node.attr in INTERNAL and owner != "report"
                ):
                    private.append(f"{file}:{node.lineno} {owner}.{node.attr}")
    assert private == []


def test_commands_open_graphs_in_one_module() -> None:
    opening = {
        file
        for file, tree in _modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "omnigraph.open"
    }
    assert opening == {"target.py"}
