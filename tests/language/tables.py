"""The automaton of a grammar, as lark builds it: what `grammar.json` holds.

States are numbered in the order in which they are reached from the first one, symbols in the order of their names, so
that the same grammar gives the same file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lark import Lark
from lark.grammar import Rule, Symbol, Terminal
from lark.parsers.lalr_analysis import Shift


def by_lark(grammar: str) -> Lark:
    return Lark(grammar, parser="lalr", lexer="contextual", maybe_placeholders=False)


def tables_of(grammar: str) -> dict[str, Any]:
    lark = by_lark(grammar)
    table = lark.parser.parser._parse_table
    moves_of_all = [move for state in table.states.values() for move in state.values()]
    rules = sorted({to for kind, to in moves_of_all if kind is not Shift}, key=str)
    numbers: dict[int, int] = {}
    order = [table.start_states["start"]]
    for state in order:
        if state not in numbers:
            numbers[state] = len(numbers)
            order += [to for _, (action, to) in sorted(table.states[state].items()) if action is Shift]
    actions: list[dict[str, int]] = []
    gotos: list[dict[str, int]] = []
    for state in numbers:
        moves = sorted(table.states[state].items())
        made = {s: numbers[to] if kind is Shift else -1 - rules.index(to) for s, (kind, to) in moves}
        actions.append({symbol: to for symbol, to in made.items() if symbol.isupper()})
        gotos.append({symbol: to for symbol, to in made.items() if not symbol.isupper()})
    return {
        "words": {t.pattern.value: t.name for t in lark.terminals if t.pattern.type == "str"},
        "patterns": {t.name: t.pattern.to_regexp() for t in lark.terminals if t.pattern.type != "str"},
        "end": numbers[table.end_states["start"]],
        "rules": [_rule(rule) for rule in rules],
        "actions": actions,
        "gotos": gotos,
    }


def _rule(rule: Rule) -> list[Any]:
    assert not rule.options.keep_all_tokens
    assert not rule.options.template_source
    kept = [[index, _is_spliced(s)] for index, s in enumerate(rule.expansion) if not _is_left_out(s)]
    origin = str(rule.origin.name)
    name = rule.alias or (None if origin.startswith("_") else origin)
    return [origin, len(rule.expansion), name, bool(rule.options.expand1 and not rule.alias), kept]


def _is_left_out(symbol: Symbol) -> bool:
    return isinstance(symbol, Terminal) and symbol.filter_out


def _is_spliced(symbol: Symbol) -> bool:
    return not isinstance(symbol, Terminal) and str(symbol.name).startswith("_")


def write(grammar: Path) -> None:
    """A line for each rule and state, so that a change of the grammar shows as one."""
    parts = []
    for name, value in tables_of(grammar.read_text(encoding="utf-8")).items():
        if isinstance(value, list):
            lines = ",\n".join(json.dumps(item, separators=(",", ":")) for item in value)
            parts.append(f"{json.dumps(name)}: [\n{lines}\n]")
        else:
            parts.append(f"{json.dumps(name)}: {json.dumps(value, indent=0 if isinstance(value, dict) else None)}")
    grammar.with_suffix(".json").write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
