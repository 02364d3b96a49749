"""YAML as a pipeline file uses it: values that know where they stand, and errors that show the place.

1. compose   PyYAML's safe parser makes a tree of nodes. Refused on the way: a key twice, anchors and aliases, tags,
             several documents, deep nesting, large files
2. resolve   plain words by the rules of YAML 1.2: true and false, null and ~, numbers; everything else is text, also
             yes, no, on, off and dates
3. fill in   `${NAME}` in texts takes the variable's value; `$${` stands for a plain `${`. Values are put in after
             parsing, so they can't change the structure; an unquoted value is resolved again: `keep: ${N}` is a number

Pure: text in, values out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from omnigraph.errors import PipelineFileError, PipelineVariableMissing
from omnigraph.language.schema.source import Place, excerpt

DEPTH_MAX = 16
FILE_BYTES_MAX = 1 << 20

_VARIABLE = re.compile(r"\$\$\{|\$\{(?P<name>[^{}]*)(?P<end>\}?)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("null", "Null", "NULL", "~", ""), None),
}


@dataclass(frozen=True)
class Value:
    """A value of the file. `data` is text, a number, true, false, None, a list of Values, or a dict of Entries by key.

    `raw` is a scalar as it was written: 2024 is a number, and a good name for a branch all the same. `is_open` says
    that a variable in it has no value.
    """

    data: Any
    place: Place
    raw: str = ""
    is_open: bool = False


@dataclass(frozen=True)
class Entry:
    """One `key: value` of a mapping, with the place of its key."""

    key: str
    place: Place
    value: Value


@dataclass(frozen=True)
class Text:
    """The text of a file, for errors that show a place of it."""

    file: str
    text: str

    def line(self, place: Place) -> str:
        lines = self.text.split("\n")
        return lines[place.line - 1] if place.line <= len(lines) else ""

    def fields(self, place: Place, detail: str) -> dict[str, Any]:
        shown = excerpt(self.line(place), place.column)
        return {"file": self.file, "line": place.line, "column": place.column, "detail": detail, "excerpt": shown}

    def error(self, place: Place, detail: str) -> PipelineFileError:
        return PipelineFileError(**self.fields(place, detail), more="", problems=[])


@dataclass(frozen=True)
class Missing:
    """A variable that has no value, where it stands."""

    name: str
    place: Place

    @property
    def detail(self) -> str:
        return f"the variable {self.name} has no value."


def parse_yaml(source: Text, variables: Mapping[str, str], *, missing: list[Missing] | None = None) -> Value:
    """The one document of the file. PipelineFileError, PipelineVariableMissing; `missing` collects these instead."""
    if len(source.text) > FILE_BYTES_MAX:
        raise source.error(Place(1, 1), f"the file is larger than {FILE_BYTES_MAX >> 20} MiB; is it a pipeline file?")
    try:
        root = _Loader(source).get_single_node()
    except yaml.MarkedYAMLError as error:
        place = _place(error.problem_mark or error.context_mark)
        raise source.error(place, _reason(error, source.line(place))) from None
    except yaml.reader.ReaderError as error:
        detail = f"the file holds a character that YAML does not allow: {error.character:#x}."
        raise source.error(_place_of(source.text, error.position), detail) from None
    if root is None:
        raise source.error(Place(1, 1), "the file is empty.")
    found: list[Missing] = [] if missing is None else missing
    value = _Reader(source, variables, found).value(root)
    if found and missing is None:
        raise PipelineVariableMissing(name=found[0].name, **source.fields(found[0].place, found[0].detail), more="")
    return value


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Composes nodes only: no Python object is ever made by a tag."""

    def __init__(self, source: Text) -> None:
        super().__init__(source.text)
        self._source = source
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        place = _place(event.start_mark)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise self._source.error(place, "anchors (&name) and aliases (*name) are not part of a pipeline file.")
        if getattr(event, "tag", None):
            raise self._source.error(place, f"tags like {event.tag} are not part of a pipeline file.")
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._source.error(place, f"the nesting is deeper than {DEPTH_MAX} levels.")
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


@dataclass(frozen=True)
class _Reader:
    source: Text
    variables: Mapping[str, str]
    missing: list[Missing]

    def value(self, node: Any) -> Value:
        place = _place(node.start_mark)
        if isinstance(node, yaml.MappingNode):
            return Value(self._mapping(node), place)
        if isinstance(node, yaml.SequenceNode):
            return Value([self.value(item) for item in node.value], place)
        before = len(self.missing)
        text = self._filled(node.value, node)
        is_open = len(self.missing) > before
        return Value(_resolved(text) if node.style is None else text, place, text, is_open)

    def _mapping(self, node: Any) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        for key_node, value_node in node.value:
            place = _place(key_node.start_mark)
            key = key_node.value
            if not isinstance(key, str):
                raise self.source.error(place, "a key is a plain word, not a list or a mapping.")
            if key in found:
                first = found[key].place
                raise self.source.error(place, f"{key} stands here a second time; the first is in line {first.line}.")
            found[key] = Entry(key, place, self.value(value_node))
        return found

    def _filled(self, text: str, node: Any) -> str:
        def replace(match: re.Match[str]) -> str:
            if match.group() == "$${":
                return "${"
            name = match.group("name")
            place = self._place_in(node, match.start())
            if not match.group("end") or not _NAME.fullmatch(name):
                detail = "a variable is written ${NAME}, with letters, digits and _; a plain ${ is written $${."
                raise self.source.error(place, detail)
            if name not in self.variables:
                self.missing.append(Missing(name, place))
            return self.variables.get(name, "")

        return _VARIABLE.sub(replace, text) if "${" in text else text

    def _place_in(self, node: Any, offset: int) -> Place:
        """The place of a character of a scalar, exact for a text on one line without escapes, else where it begins."""
        start, end = node.start_mark, node.end_mark
        raw = self.source.text[start.index : end.index]
        at = raw.find(node.value[offset : offset + 3])
        if start.line != end.line or at < 0:
            return _place(start)
        return Place(start.line + 1, start.column + at + 1)


def _resolved(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _place(mark: Any) -> Place:
    return Place(1, 1) if mark is None else Place(mark.line + 1, mark.column + 1)


def _place_of(text: str, offset: int) -> Place:
    before = text[:offset]
    return Place(before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)


def _reason(error: Any, line: str) -> str:
    """PyYAML's problem as a sentence; what it was busy with helps, where it says so."""
    problem = str(error.problem or "it is not YAML").replace("could not ", "can't ")
    if "expected a single document" in str(error.context or ""):
        return "a pipeline file is one document; there is a second one here."
    if "'\\t'" in problem or "found character '\\t'" in problem:
        return "YAML does not allow a tab for indentation; use spaces."
    if "flow" in str(error.context or "") and "${" in line:
        return 'between braces and brackets a variable stands in quotes, as in {path: "${NAME}"}.'
    context = f" {error.context}" if error.context else ""
    return f"this is not YAML:{context}{':' if context else ''} {problem}."


def variables_in(text: str, variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that a text names, of those that have a value."""
    names = {match.group("name") for match in _VARIABLE.finditer(text)}
    return {name: variables[name] for name in names if name in variables}
