"""The parser of both languages: an LALR automaton that calls its lexer for one terminal at a time.

        grammar.lark    the grammar in its readable form
    grammar.json    the automaton that lark builds from it, which is read here; a test compares the two, and writes
                    the second again on request

1. skip       space and comments, the same in both languages
2. lex        the lexer gets the terminals that may occur here: words are keywords only where they are expected
3. feed       reduce by rules as long as the automaton requires it, then shift
4. build      a rule becomes a Tree of its kept children; one whose name starts with _ is spliced into the rule above it

Nothing recurses, whatever the text. Lark itself is not needed to parse: its import and its tables took longer than all
the rest of a first query.
"""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Callable, Collection
from functools import cache
from typing import Any, NamedTuple

END = "$END"
Lexer = Callable[[str, int, Collection[str]], tuple[str, int]]
"""From a text, a position in it and the terminals that may occur there to a terminal and its end; "" if none."""

_SKIPPED = re.compile(r"(?:[ \t\r\n\f\ufeff]+|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)*")


class Token(str):
    """A piece of the text with its terminal and its place. Lines and columns count from 1."""

    __slots__ = ("column", "end_column", "end_line", "line", "start", "type")
    type: str
    start: int
    line: int
    column: int
    end_line: int
    end_column: int


class Tree:
    """A rule and its children: tokens and trees."""

    __slots__ = ("children", "data")

    def __init__(self, data: str, children: list[Any]) -> None:
        self.data = data
        self.children = children


class Unexpected(Exception):
    """A token that is not accepted at its place, or a character that starts no token: its type is "" then."""

    def __init__(self, token: Token, expected: set[str], before: Token | None) -> None:
        super().__init__(token)
        self.token = token
        self.expected = expected
        self.before = before


class Rule(NamedTuple):
    origin: str
    size: int
    name: str | None
    """The name of its tree; None if its children are spliced into the rule above."""
    only_child_stays: bool
    """Whether a single child replaces the tree."""
    kept: list[tuple[int, bool]]
    """The children that are kept, and whether each is spliced."""

    def build(self, children: list[Any]) -> Any:
        kept: list[Any] = []
        for index, is_spliced in self.kept:
            if not is_spliced:
                kept.append(children[index])
            elif kept:
                kept += children[index]
            else:  # this list has no other reference: reuse it, so that a long list that grows at its end is not copied
                kept = children[index]
        if self.name is None:
            return kept
        return kept[0] if self.only_child_stays and len(kept) == 1 else Tree(self.name, kept)


class Grammar:
    """The automaton: the action of each state at a terminal (shift to a state, or reduce by rule -1 - n), and its
    gotos.
    """

    def __init__(self, tables: dict[str, Any]) -> None:
        self.words: dict[str, str] = tables["words"]
        """Terminals of a fixed text, by that text."""
        self.patterns: dict[str, str] = tables["patterns"]
        """The regular expressions of all others, by name."""
        self._actions: list[dict[str, int]] = tables["actions"]
        self._gotos: list[dict[str, int]] = tables["gotos"]
        self._end: int = tables["end"]
        self._rules = [Rule(*rule) for rule in tables["rules"]]

    def parse(self, text: str, lex: Lexer) -> Tree:
        states: list[int] = [0]
        values: list[Any] = []
        last: Token | None = None
        position, line, line_start = 0, 1, 0
        while True:
            next_start = _skipped(text, position)
            if newlines := text.count("\n", position, next_start):
                line, line_start = line + newlines, text.rfind("\n", position, next_start) + 1
            position = next_start
            if position == len(text):
                token = _end_of(last)
            else:
                type_, end = lex(text, position, self._actions[states[-1]])
                token = Token(text[position : end if type_ else position + 1])
                token.type, token.start, token.line, token.column = type_, position, line, position - line_start + 1
                if not type_:
                    raise Unexpected(token, self._acceptable(states), last)
                if newlines := text.count("\n", position, end):
                    line, line_start = line + newlines, text.rfind("\n", position, end) + 1
                token.end_line, token.end_column = line, end - line_start + 1
                position = end
            tree = self._feed(states, values, token, last)
            if tree is not None:
                return tree
            last = token

    def _feed(self, states: list[int], values: list[Any], token: Token, last: Token | None) -> Tree | None:
        """Shift the token after all possible reductions; return the whole tree at the end of the text."""
        while True:
            action = self._actions[states[-1]].get(token.type)
            if action is None:
                raise Unexpected(token, self._acceptable(states), last)
            if action >= 0:
                states.append(action)
                values.append(token)
                return None
            rule = self._rules[-1 - action]
            first = len(values) - rule.size
            values[first:] = [rule.build(values[first:])]
            del states[first + 1 :]
            states.append(self._gotos[states[-1]][rule.origin])
            if token.type == END and states[-1] == self._end:
                return values[0]  # type: ignore[no-any-return]

    def _acceptable(self, states: list[int]) -> set[str]:
        """The terminals that can be shifted: a state also reduces at some that are refused later."""
        here = self._actions[states[-1]]
        return {terminal for terminal in here if self._is_shifted(states, terminal)} or set(here)

    def _is_shifted(self, states: list[int], terminal: str) -> bool:
        stack = list(states)
        while (action := self._actions[stack[-1]].get(terminal)) is not None:
            if action >= 0:
                return True
            rule = self._rules[-1 - action]
            del stack[len(stack) - rule.size :]
            stack.append(self._gotos[stack[-1]][rule.origin])
        return terminal == END and stack[-1] == self._end


def _skipped(text: str, position: int) -> int:
    """The start of the next token."""
    match = _SKIPPED.match(text, position)
    assert match is not None, "the pattern also matches the empty text"
    return match.end()


def _end_of(last: Token | None) -> Token:
    """The token for the end of the text, which is reported at the end of the last token."""
    token = Token("")
    token.type = END
    token.start = last.start if last else 0
    token.line = token.end_line = last.end_line if last else 1
    token.column = token.end_column = last.end_column if last else 1
    return token


@cache
def grammar_of(package: str) -> Grammar:
    """The grammar of a package, read on first use and cached for the process."""
    tables = pkgutil.get_data(package, "grammar.json")
    assert tables is not None, f"{package} is installed without its grammar.json"
    return Grammar(json.loads(tables))
