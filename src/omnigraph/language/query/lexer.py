"""From the text of a query to the terminals of its grammar.

1. one expression finds the next piece of text: space, a comment, a word, a variable, a number, a string, a sign
2. what a word or a sign means depends on what the parser accepts there: a keyword or an operator if it accepts that,
   otherwise a name; the few terminals that look ahead are tried first

Lark's own contextual lexer gives the same terminals. It compiles an expression of up to fifty alternatives for each of
the states that a text passes through, which took longer than all the rest of a first query.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lark.exceptions import UnexpectedCharacters
from lark.lexer import Lexer, LexerState, Token

if TYPE_CHECKING:
    from lark.common import LexerConf

_PIECE = re.compile(
    r"""(?P<skipped>(?:[ \t\r\n\f\ufeff]+|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)+)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<VARIABLE>\$[A-Za-z0-9_]+)
    |(?P<SYSTEM>@[A-Za-z_][A-Za-z0-9_]*)
    |(?P<NUMBER>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_]))
    |(?P<STRING>"(?:[^"\\]|\\(?s:.))*")
    |(?P<sign>[<>!]=|[^A-Za-z0-9_$@"])""",
    re.VERBOSE,
)
_AHEAD = re.compile(r"(?:[ \t\r\n\f\ufeff]|//[^\n]*+|/\*(?:[^*]|\*(?!/))*\*/)*([(:])")
# Words that are something of their own where the text goes on as their terminal says.
_LOOKING_AHEAD = {"not": "NOT_IN", "path": "PATH", "shortest": "SHORTEST", "optional": "OPTIONAL"}
_NO_FUNCTIONS = frozenset(
    ("and", "or", "not", "in", "is", "as", "asc", "desc", "true", "false", "null", "distinct", "where")
)
_OPERATORS = frozenset((">=", "<=", "!=", "="))


class QueryLexer(Lexer):
    __future_interface__ = 2

    def __init__(self, conf: LexerConf) -> None:
        self._conf = conf
        self._texts: dict[str, str] = {t.pattern.value: t.name for t in conf.terminals if t.pattern.type == "str"}

    def lex(self, lexer_state: LexerState, parser_state: Any) -> Iterator[Token]:
        text, line = lexer_state.text.text, lexer_state.line_ctr
        states = parser_state.parse_conf.parse_table.states
        while line.char_pos < len(text):
            found = _PIECE.match(text, line.char_pos)
            if found is not None and found.lastgroup == "skipped":
                line.feed(found[0])
                continue
            accepted = states[parser_state.position]
            type_, value = self._terminal(found, text, accepted) if found else ("", "")
            if not type_:
                raise UnexpectedCharacters(  # type: ignore[no-untyped-call]
                    text,
                    line.char_pos,
                    line.line,
                    line.column,
                    allowed=self._allowed(accepted),
                    token_history=lexer_state.last_token and [lexer_state.last_token],
                    state=parser_state,
                    terminals_by_name=self._conf.terminals_by_name,
                )
            token = Token(type_, value, line.char_pos, line.line, line.column)
            line.feed(value)
            token.end_line, token.end_column, token.end_pos = line.line, line.column, line.char_pos
            lexer_state.last_token = token
            yield token

    def _allowed(self, accepted: Any) -> set[str]:
        """What to tell was expected: where a name may stand, the keywords that may too are not listed."""
        names = {name for name in accepted if name in self._conf.terminals_by_name}
        if names & {"NAME", "WORD"}:
            names -= {name for text, name in self._texts.items() if text.isalpha()}
        return names

    def _terminal(self, found: re.Match[str], text: str, accepted: Any) -> tuple[str, str]:
        """The terminal that a piece of text is, and its text; "" if it is none."""
        value = found[0]
        kind = found.lastgroup or ""
        if kind == "word":
            return self._word(value, text, found.start(), accepted)
        if kind != "sign":
            return kind, value
        if value in _OPERATORS and "OPERATOR" in accepted:
            return "OPERATOR", value
        return self._texts.get(value, "OPERATOR" if value in _OPERATORS else ""), value

    def _word(self, word: str, text: str, start: int, accepted: Any) -> tuple[str, str]:
        special = _LOOKING_AHEAD.get(word, "")
        if special in accepted:
            whole = re.compile(self._conf.terminals_by_name[special].pattern.to_regexp()).match(text, start)
            if whole is not None:
                return special, whole[0]
        if "FUNCTION" in accepted or "KEY" in accepted:
            ahead = _AHEAD.match(text, start + len(word))
            if ahead is not None and ahead[1] == "(" and "FUNCTION" in accepted and word not in _NO_FUNCTIONS:
                return "FUNCTION", word
            if ahead is not None and ahead[1] == ":" and "KEY" in accepted:
                return "KEY", word
        keyword = self._texts.get(word)
        if keyword is not None and (keyword in accepted or ("NAME" not in accepted and "WORD" not in accepted)):
            return keyword, word
        return ("NAME" if "NAME" in accepted else "WORD"), word
