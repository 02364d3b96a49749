"""The text of the shell: words, and where one statement ends and the next begins. Pure.

A statement is
- a command: `:name …` up to the end of its line; `:explain` up to the end of its query, `:params` of its object
- `query name(…) { … }`: up to its closing brace
- the body of a query alone: up to the end of the line on which it can end (brackets closed, nothing missing), unless
  the next line goes on with one of its sections, as `order { … }`
- anything: up to an empty line outside of brackets, or a semicolon there

Whatever is typed becomes statements whose texts, one after the other, are the input without comments and space between
them: nothing is dropped, and what is wrong is left to whoever runs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from omnigraph.errors import QuerySyntaxError

BODIES = ("match", "insert", "update", "delete", "merge")
SECTIONS = ("return", "having", "order", "limit", "offset", "set", "where", "from", "returning")
NAME = "shell"
"""What a body alone is called as a query."""

_TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\]|\\.)*")
      | (?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<unclosed>".*|/\*.*)
      | (?P<variable>\$\w*)
      | (?P<system>@\w*)
      | (?P<number>[0-9][0-9.eE]*)
      | (?P<word>[A-Za-z_]\w*)
      | (?P<space>\s+)
      | (?P<mark>.)""",
    re.DOTALL | re.VERBOSE | re.ASCII,
)


@dataclass(frozen=True)
class Token:
    """`kind` is string, comment, unclosed (a string or comment up to the end), variable, system, number, word, space
    or mark."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True)
class Statement:
    """`line` is where its text begins in the input, from 1."""

    text: str
    line: int = 1


@dataclass(frozen=True)
class Look:
    """What the beginning of a text is: `end` is where the statement ends if the state is `done`.

    `full`: it can end here, at the end of the text, and could go on.
    """

    state: Literal["nothing", "open", "full", "done"]
    end: int = 0


def tokens_of(text: str) -> Iterator[Token]:
    for found in _TOKEN.finditer(text):
        yield Token(found.lastgroup or "mark", found.group(), found.start())


def words_of(text: str) -> list[Token]:
    """Tokens without space and comments."""
    return [t for t in tokens_of(text) if t.kind not in ("space", "comment")]


class Splitter:
    """Lines in, statements out, each as soon as it is known to be whole."""

    def __init__(self) -> None:
        self._text = ""
        self._line = 1
        self._full = False

    @property
    def open(self) -> bool:
        """Whether what was fed last is the beginning of a statement that needs more."""
        return bool(self._text) and not self._full

    def feed(self, line: str) -> list[Statement]:
        """One line with its end."""
        found = []
        words = words_of(line)
        if self._full and line.strip() and not words:
            self._text += line  # a comment between two sections
            return []
        if self._full and not (words and words[0].text in SECTIONS):
            found += self._take(len(self._text))
        self._full = False
        self._text += line
        while self._text:
            look = look_at(self._text)
            if look.state in ("done", "nothing"):
                found += self._take(look.end)
                continue
            self._full = look.state == "full"
            break
        return found

    def finish(self) -> list[Statement]:
        """The input ends here, and with it whatever is open."""
        return self._take(len(self._text))

    def _take(self, end: int) -> list[Statement]:
        taken, self._text = self._text[:end], self._text[end:]
        began = self._line
        self._line += taken.count("\n")
        words = words_of(taken)
        if not words or [w.text for w in words] == [";"]:
            return []
        start = words[0].start
        return [Statement(taken[start:].rstrip(), began + taken.count("\n", 0, start))]


def split(lines: Iterable[str]) -> Iterator[Statement]:
    splitter = Splitter()
    for line in lines:
        yield from splitter.feed(line)
    yield from splitter.finish()


def is_whole(text: str) -> bool:
    """Whether Enter at the end of this text means to run it."""
    splitter = Splitter()
    for line in f"{text}\n".splitlines(keepends=True):
        splitter.feed(line)
    return not splitter.open


def look_at(text: str) -> Look:
    """The first statement of a text that ends where a line ends."""
    words = words_of(text)
    if not words:
        return Look("nothing", len(text))
    if words[0].text == ":":
        return _command(text, words)
    return _query(text, words, words[0].start)


def _command(text: str, words: list[Token]) -> Look:
    start = words[0].start
    line_end = text.find("\n", start) + 1 or len(text)
    name = words[1].text if len(words) > 1 and words[1].start < line_end else ""
    rest = words[2:]
    if name == "params" and rest and rest[0].text == "{":
        depth = 0
        for word in rest:
            depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(word.text, 0)
            if depth == 0:
                return Look("done", text.find("\n", word.end) + 1 or len(text))
        return Look("open")
    if name == "explain" and rest and rest[0].start < line_end and rest[0].text not in ("on", "off", ":"):
        return _query(text, rest, rest[0].start)
    return Look("done", line_end)


def _query(text: str, words: list[Token], start: int) -> Look:
    named = words[0].text == "query"
    depth = 0
    for word in words:
        if word.kind == "mark":
            depth += (word.text in "([{") - (word.text in ")]}")
            if word.text == ";" and depth <= 0:
                return Look("done", word.end)
            if named and word.text == "}" and depth <= 0:
                return Look("done", _past_semicolon(text, word.end))
    if depth > 0 or words[-1].kind == "unclosed":
        return Look("open")
    if re.search(r"\n[ \t\r]*\n\Z", text):
        return Look("done", len(text))
    if named:
        return Look("open")
    if words[0].text not in BODIES or depth < 0:
        return Look("done", len(text))
    return Look("full") if _can_end(text[start:], words) else Look("open")


def _past_semicolon(text: str, end: int) -> int:
    found = re.compile(r"[ \t]*;").match(text, end)
    return found.end() if found else end


def _can_end(body: str, words: list[Token]) -> bool:
    """Whether the body, put between braces, is refused for nothing but its content."""
    from omnigraph.language.query.syntax.parse import parse_queries

    if words[0].text == "match" and not any(w.text == "return" for w in words):
        return False
    try:
        parse_queries(wrapped(body))
    except QuerySyntaxError as error:
        return int(error.fields["line"]) <= body.count("\n") + 2
    return True


def wrapped(body: str, declared: str = "") -> str:
    """A body as a query of its own; its first line becomes the second one."""
    return f"query {NAME}({declared}) {{\n{body}\n}}"
