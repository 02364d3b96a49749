"""Every rule has one definition: no sentence of a rule stands twice in the source, and only `rules` builds problems."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph

SOURCE = Path(omnigraph.__file__).parent
ELSEWHERE = {"record", "unknown_field", "type", "list", "vector"}
"""Rules about the form of an input and the types of values, which its readers and `write/values.py` define."""


OTHERS = {"{} is required and can't be null"}
"""Sentences about something else than rows that hold a sentence of a rule: of queries."""


def texts(source: str) -> Iterator[str]:
    """Every text of a program but docstrings, with `{}` for each value of an f-string."""
    tree = ast.parse(source)
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)  # type: ignore[misc]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value


def sentences(source: str) -> list[str]:
    """The texts of two words or more."""
    return [text.strip() for text in texts(source) if len(re.findall(r"[a-z']{2,}", text)) > 1 and " " in text.strip()]


def occurrences(sentence: str, sources: dict[str, str]) -> list[str]:
    return [
        name for name, source in sources.items() for text in texts(source) if sentence in text and text not in OTHERS
    ]


def problem_rules(source: str) -> set[str]:
    """The rules of problems and violations that a program builds with the rule written out."""
    rules = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Problem", "Violation"):
            rule = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "rule"), None)
            if isinstance(rule, ast.Constant):
                rules.add(str(rule.value))
    return rules


SOURCES = {str(path.relative_to(SOURCE)): path.read_text() for path in SOURCE.rglob("*.py")}
SENTENCES = sorted({s for name, source in SOURCES.items() if name.startswith("rules/") for s in sentences(source)})


def test_the_rules_have_sentences() -> None:
    assert {"is required", "there is no {}", "at most {} allowed", "is held by {}"} <= set(SENTENCES)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_sentence_of_a_rule_stands_once(sentence: str) -> None:
    assert len(occurrences(sentence, SOURCES)) == 1


def test_only_rules_build_problems_of_rows() -> None:
    outside = {name: problem_rules(source) - ELSEWHERE for name, source in SOURCES.items() if "rules/" not in name}
    assert {name: rules for name, rules in outside.items() if rules} == {}


def test_a_copied_sentence_is_seen() -> None:
    copy = 'def message(name):\n    return f"{name}: is required"\n'
    assert occurrences("is required", {**SOURCES, "copy.py": copy}).count("copy.py") == 1
    assert occurrences("there is no {}", {"copy.py": 'f"from: there is no {node} here"'}) == ["copy.py"]
    assert occurrences("is required", {"doc.py": '"""A value is required."""\n'}) == []


def test_a_problem_outside_of_the_rules_is_seen() -> None:
    assert problem_rules('Problem("null", "absent")\nViolation(rule="key", table_key="node:T", message="")') == {
        "null",
        "key",
    }
