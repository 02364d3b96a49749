"""Names and references: no word that docs/glossary.md forbids, no public name without a docstring, no reference to a
document or a module that is not in the repository.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "omnigraph"
MODULES = sorted(SOURCE.rglob("*.py"))
PROGRAMS = sorted(path for folder in ("src", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

WHOLE = {
    *(
        "found",
        "told",
        "given",
        "made",
        "gone",
        "held",
        "together",
        "cut",
        "aside",
        "around",
        "carry",
        "turn",
        "upkeep",
    ),
    *("ask", "asked", "most", "least"),
}
"""Names that do not name a thing: forbidden as a whole name, allowed as a part of one."""
MODULE_NAMES = {"facts", "renew", "stage", "news", "one", "misc", "utils", "helpers"}
"""Forbidden for modules and packages as well."""
PARTS = {
    *("lancefs", "door", "doors", "ticket", "tickets", "zombie", "zombies", "stranger", "strangers", "upkeep", "told"),
    *("settle", "settles", "settled", "settling", "heal", "heals", "healed", "torn", "doomed", "bereft", "homeless"),
    *("crowded", "politeness"),
}
"""Metaphors that the glossary replaces: forbidden also as a part of a name."""
KEPT = {
    ("maintenance/maintain/run.py", "settled"),
    ("maintenance/recover.py", "settled"),
    ("demo/maintenance_story.py", "asked"),
    ("pipeline/embed/plan.py", "given"),
    ("pipeline/embed/tasks.py", "given"),
}
"""Fields with the name of a field of JSON, which is a contract."""
TO_RENAME = {
    *(("cli/changes_text.py", "_cut"), ("cli/commands/load.py", "_found"), ("cli/consent.py", "_ask")),
    *(("cli/history_graph.py", "_told"), ("cli/output.py", "cut"), ("maintenance/verify/rows.py", "_asked")),
    *(
        ("write/arrays.py", "Found"),
        ("write/embedding_carryover.py", "carry"),
    ),
    *(("write/validate/drop_rejected.py", name) for name in ("_found", "_settled", "settle")),
    ("write/violations.py", "told"),
}
"""Not renamed yet. No name is added here."""
TO_DOCUMENT = {
    *("Graph.delete_branch", "Graph.schema", "Snapshot.count"),
    *(f"Transaction.{name}" for name in ("insert", "upsert", "update", "delete", "operation")),
}
"""Not documented yet. No name is added here."""

Name = tuple[str, str]


def words_of(name: str) -> set[str]:
    """The words of an identifier in either case: `_PolicyReader` and `policy_reader` are policy, reader."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)}


def is_forbidden(name: str) -> bool:
    return name.strip("_").lower() in WHOLE or bool(words_of(name) & PARTS)


def declared(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """Functions, classes and variables of a module or a class, and of the public classes in it."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            yield from ((part.id, node) for part in ast.walk(target) if isinstance(part, ast.Name))
        if isinstance(node, ast.ClassDef):
            yield from ((name, part) for name, part in declared(node.body) if not name.startswith("_"))
        if isinstance(node, ast.If | ast.Try):
            yield from declared(node.body)


def forbidden_names(path: str, text: str) -> set[Name]:
    return {(path, name) for name, _ in declared(ast.parse(text).body) if is_forbidden(name)}


def test_no_module_or_package_has_a_forbidden_name() -> None:
    names = {part for path in MODULES for part in path.relative_to(SOURCE).with_suffix("").parts}
    assert {name for name in names if name in MODULE_NAMES or is_forbidden(name)} == set()


def test_no_module_level_or_public_name_is_forbidden() -> None:
    forbidden: set[Name] = set()
    for path in MODULES:
        forbidden |= forbidden_names(str(path.relative_to(SOURCE)), path.read_text(encoding="utf-8"))
    assert forbidden - KEPT - TO_RENAME == set()


def test_limits_are_called_max_and_min() -> None:
    wrong = {}
    for path in PROGRAMS:
        limits = wrong_limits(path.read_text(encoding="utf-8"))
        if limits:
            wrong[str(path.relative_to(ROOT))] = limits
    assert wrong == {}


def wrong_limits(text: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        fields = (getattr(node, field, None) for field in ("id", "arg", "attr", "name"))
        names |= {name for name in fields if isinstance(name, str)}
    return {
        name for name in names if re.search(r"(?<!at)(?<!all)_(most|least)(_(s|bytes|rows))?$", name, re.IGNORECASE)
    }


def undocumented(value: object, name: str) -> Iterator[str]:
    """Names of a public class or function, and of public methods of a class, without a docstring."""
    if not inspect.getdoc(value):
        yield name
    for part, member in vars(value).items() if inspect.isclass(value) else ():
        is_public = inspect.isfunction(member) and not part.startswith("_") and part != "to_json"
        if is_public and not inspect.getdoc(member):
            yield f"{name}.{part}"


def test_every_public_name_has_a_docstring() -> None:
    public = {name: getattr(omnigraph, name) for name in omnigraph.__all__}
    objects = {name: value for name, value in public.items() if inspect.isclass(value) or inspect.isfunction(value)}
    missing = {gap for name, value in objects.items() for gap in undocumented(value, name)}
    assert missing - TO_DOCUMENT == set()


def test_every_module_with_code_has_a_docstring() -> None:
    trees = {str(path.relative_to(SOURCE)): ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}
    assert [path for path, tree in trees.items() if tree.body and not ast.get_docstring(tree)] == []


_SECTION = re.compile(
    r"\b(?:sections?|rules?|lines?|chapter) (?:[\d ]+(?:to [\d ]+)?of )?[A-Z]\d{1,2}\b|\bof [BE]\d\b|^[A-Z]\d: "
)
_DOCUMENT = re.compile(r"(?<![\w/.*{}-])[\w./-]*\w\.md\b")
_MODULE = re.compile(r"`([\w]+(?:/[\w]+)*\.py)`")


def prose_of(path: Path) -> str:
    """Comments and texts of a program, or the whole page."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text
    kinds = (tokenize.COMMENT, tokenize.STRING)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "\n".join(token.string.strip("\"'# ") for token in tokens if token.type in kinds)


def dangling(text: str, folder: Path) -> set[str]:
    """References to sections and pages that the repository does not have."""
    missing = {match[0] for line in text.splitlines() for match in _SECTION.finditer(line.strip())}
    folders = (folder, ROOT, ROOT / "docs", ROOT / "docs" / "adr", ROOT / "docs" / "runs")
    pages = {name for name in _DOCUMENT.findall(text) if not any((base / name).exists() for base in folders)}
    return missing | pages


OWN = Path(__file__)


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "docs", "."])
def test_every_document_that_is_referred_to_is_in_the_repository(folder: str) -> None:
    paths = PAGES if folder == "." else [path for path in (*PROGRAMS, *PAGES) if path.is_relative_to(ROOT / folder)]
    wrong = {str(path.relative_to(ROOT)): dangling(prose_of(path), path.parent) for path in paths if path != OWN}
    assert {path: names for path, names in wrong.items() if names} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    names = _MODULE.findall(page.read_text(encoding="utf-8"))
    assert [name for name in names if not any((base / name).exists() for base in (SOURCE, ROOT))] == []


def test_the_checks_notice_what_they_forbid() -> None:
    text = (
        "TICKET_S = 1\nclass Door:\n    def settle(self): ...\n    def _made(self): ...\ndef told(): ...\nfounder = 1"
    )
    assert {name for _, name in forbidden_names("x.py", text)} == {"TICKET_S", "Door", "settle", "told"}
    assert wrong_limits("def f(rows_most: int) -> None: x_LEAST = at_most = a.size_most_s") == {
        *("rows_most", "x_LEAST", "size_most_s"),
    }
    assert dangling("as section B2 wants, see DOOR.md and docs/glossary.md, the lines 2 to 3 of E1", ROOT) == {
        *("section B2", "DOOR.md", "lines 2 to 3 of E1"),
    }
