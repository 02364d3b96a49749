"""Read a pipeline file from YAML to values; every problem has its position.

1. read      keys, types and choices; the message for an unknown key suggests a similar one
2. relate    a target has exactly one of source, path and sql; sources that targets name exist
3. locate    relative paths are relative to the folder of the file, whatever the working directory is

All problems of a file are collected and raised as one error. No file is read here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from omnigraph.config.durations import DURATION_FORM, parse_duration
from omnigraph.config.sizes import SIZE_FORM, parse_size
from omnigraph.config.yaml import Entry, Missing, Text, Value, parse_yaml
from omnigraph.errors import UsageError
from omnigraph.language.schema.source import Place, did_you_mean, quoted_list
from omnigraph.pipeline.file.model import Embed, Input, PipelineFile, Target, raise_all
from omnigraph.pipeline.load.chunks import checked_line_bytes

MODES = ("append", "merge", "overwrite")
ON_ERROR = ("fail", "quarantine")
ENGINES = ("auto", "spark", "local")
KEYS = (
    *("graph", "schema", "branch", "from", "mode", "on_error", "quarantine", "sources", "nodes", "edges", "data"),
    *("embed", "optimize", "cleanup", "engine", "max_line_bytes"),
)
EMBED_KEYS = ("type", "property", "provider", "model", "batch", "commit_every", "rate_per_minute")
_VIEW_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_file(text: str, *, file: str, variables: Mapping[str, str]) -> PipelineFile:
    """PipelineFileError with all problems; PipelineVariableMissing with them, if a variable has no value."""
    source = Text(file, text)
    reader = _Reader(source, os.path.dirname(os.path.abspath(file)))
    missing: list[Missing] = []
    pipeline = reader.file(parse_yaml(source, variables, missing=missing))
    reader.finish(missing)
    assert pipeline is not None, "a file without problems is complete"
    return pipeline


class _Reader:
    """Reads values and collects their problems; an invalid value, or one with a missing variable, is read as absent."""

    def __init__(self, source: Text, folder: str) -> None:
        self._source = source
        self._folder = folder
        self._problems: list[tuple[Place, str]] = []

    def finish(self, missing: Sequence[Missing]) -> None:
        raise_all(self._source, self._problems, missing=missing)

    # ---- the file ----------------------------------------------------------------------------------------------------

    def file(self, root: Value) -> PipelineFile | None:
        top = self._mapping(root, "a pipeline file", KEYS)
        sources = {name: self._source_spec(entry) for name, entry in self._named(top, "sources").items()}
        targets = [self._target(entry, "node", sources) for entry in self._named(top, "nodes").values()]
        targets += [self._target(entry, "edge", sources) for entry in self._named(top, "edges").values()]
        graph = self._text(top, "graph", required_in=root)
        mode = self._choice(top, "mode", MODES, required_in=root)
        on_error: Any = self._choice(top, "on_error", ON_ERROR) or "fail"
        quarantine = self._quarantine(top) if on_error == "quarantine" else None
        embed = self._list(top, "embed", self._embed)
        data = self._list(top, "data", self._path_value)
        branch, from_branch = self._text(top, "branch") or "main", self._text(top, "from")
        if from_branch is not None and "branch" not in top:
            self._note(
                top["from"].place, "from names what a missing branch is created from; name that branch with branch."
            )
        if "quarantine" in top and on_error == "fail":
            self._note(top["quarantine"].place, "a quarantine goes with on_error: quarantine.")
        optimize, cleanup = self._flag(top, "optimize"), self._cleanup(top)
        if not ({"nodes", "edges", "data", "embed"} & set(top) or optimize or cleanup):
            self._note(root.place, "there is nothing to do: give nodes, edges, data, embed, optimize or cleanup.")
        max_line_bytes = self._line_bytes(top)
        if graph is None or mode is None:
            return None
        return PipelineFile(
            text=self._source,
            graph=self._located(graph),
            schema=self._path(top, "schema"),
            branch=branch,
            from_branch=from_branch,
            mode=mode,
            on_error=on_error,
            quarantine=quarantine,
            sources={name: source for name, source in sources.items() if source is not None},
            targets=tuple(t for t in targets if t is not None),
            data=tuple(p for p in data if p is not None),
            embed=tuple(e for e in embed if e is not None),
            optimize=optimize,
            cleanup=cleanup,
            engine=self._choice(top, "engine", ENGINES),
            max_line_bytes=max_line_bytes,
            places={key: entry.place for key, entry in top.items()},
        )

    def _source_spec(self, entry: Entry) -> Input | None:
        if not _VIEW_NAME.fullmatch(entry.key):
            self._note(
                entry.place, f"{entry.key!r} is no name for a source: use letters, digits and _, for sql to name it."
            )
        fields = self._mapping(entry.value, f"the source {entry.key}", ("path", "format", "options"))
        return self._input(fields, required_in=entry.value)

    def _input(self, fields: Mapping[str, Entry], *, required_in: Value | None = None) -> Input | None:
        path = self._path(fields, "path", required_in=required_in)
        options = self._texts(fields, "options")
        form = self._text(fields, "format")
        return (
            None if path is None else Input(path=path, format=None if form is None else form.lower(), options=options)
        )

    def _target(
        self, entry: Entry, kind: Literal["node", "edge"], sources: Mapping[str, Input | None]
    ) -> Target | None:
        keys = (
            "source",
            "path",
            "format",
            "options",
            "sql",
            "map",
            "skip",
            *(("from", "to") if kind == "edge" else ()),
        )
        fields = self._mapping(entry.value, f"{kind} type {entry.key}", keys)
        inputs = [key for key in ("source", "path", "sql") if key in fields]
        if len(inputs) != 1:
            mistake = f"not {quoted_list(inputs, 'and')} together" if inputs else "and none is there"
            self._note(entry.place, f"{entry.key} takes one of source, path or sql, {mistake}.")
            return None
        source, sql = self._text(fields, "source"), self._text(fields, "sql")
        if source is not None and source not in sources:
            hint = did_you_mean(source, sources)
            self._note(fields["source"].value.place, f"there is no source named {source}.{hint}")
        for key in ("format", "options"):
            if key in fields and "path" not in fields:
                self._note(fields[key].place, f"{key} goes with path; a source has its own.")
        columns = self._texts(fields, "map")
        places = {key: e.place for key, e in _entries(fields, "map").items()}
        return Target(
            kind=kind,
            type_name=entry.key,
            input=sources.get(source) if source is not None else self._input(fields) if "path" in fields else None,
            source=source,
            sql=sql,
            columns=columns,
            from_column=self._text(fields, "from"),
            to_column=self._text(fields, "to"),
            skip=self._words(fields, "skip"),
            place=entry.place,
            column_places=places,
        )

    def _embed(self, value: Value) -> Embed | None:
        fields = self._mapping(value, "an embed step", EMBED_KEYS)
        if "property" in fields and "type" not in fields:
            self._note(fields["property"].place, "a property to embed needs the type that has it.")
        return Embed(
            type_name=self._text(fields, "type"),
            property=self._text(fields, "property"),
            provider=self._text(fields, "provider"),
            model=self._text(fields, "model"),
            batch=self._positive(fields, "batch"),
            commit_every=self._positive(fields, "commit_every"),
            rate_per_minute=self._positive(fields, "rate_per_minute"),
            place=value.place,
        )

    def _cleanup(self, top: Mapping[str, Entry]) -> dict[str, Any] | None:
        if "cleanup" not in top:
            return None
        fields = self._mapping(top["cleanup"].value, "cleanup", ("keep", "older_than"))
        older_than = self._text(fields, "older_than")
        if older_than is not None and parse_duration(older_than) is None:
            self._note(fields["older_than"].value.place, f"older_than is {DURATION_FORM}, not {older_than}.")
        if not fields:
            self._note(top["cleanup"].place, "cleanup needs to know what to keep: give keep, older_than or both.")
        return {"keep": self._positive(fields, "keep"), "older_than": older_than}

    # ---- values ------------------------------------------------------------------------------------------------------

    def _note(self, place: Place, detail: str) -> None:
        self._problems.append((place, detail))

    def _mapping(self, value: Value, what: str, keys: Sequence[str]) -> dict[str, Entry]:
        if value.is_open:
            return {}
        if not isinstance(value.data, dict):
            self._note(value.place, f"{what} is a mapping of keys to values, not {_kind(value)}.")
            return {}
        for entry in value.data.values():
            if entry.key not in keys:
                hint = did_you_mean(entry.key, keys) or f" Known: {', '.join(keys)}."
                self._note(entry.place, f"{what} has no key {entry.key}.{hint}")
        return {key: entry for key, entry in value.data.items() if key in keys}

    def _named(self, top: Mapping[str, Entry], key: str) -> dict[str, Entry]:
        """A mapping whose keys are names that the user chose."""
        if key not in top or top[key].value.is_open:
            return {}
        data = top[key].value.data
        if not isinstance(data, dict) or not data:
            self._note(top[key].value.place, f"{key} is a mapping of names, not {_kind(top[key].value)}.")
            return {}
        return data

    def _text(self, fields: Mapping[str, Entry], key: str, *, required_in: Value | None = None) -> str | None:
        if key not in fields:
            if required_in is not None and isinstance(required_in.data, dict):
                self._note(required_in.place, f"{key} is missing.")
            return None
        return self._text_value(fields[key].value, key)

    def _text_value(self, value: Value, what: str) -> str | None:
        if value.is_open:
            return None
        is_number = isinstance(value.data, int | float) and not isinstance(value.data, bool)
        if not (isinstance(value.data, str) or is_number):
            hint = " Put it in quotes if it is meant as text." if value.data is None or value.raw else ""
            self._note(value.place, f"{what} is a text, not {_kind(value)}.{hint}")
            return None
        if not value.raw.strip():
            self._note(value.place, f"{what} is empty.")
            return None
        return value.raw

    def _choice(
        self, fields: Mapping[str, Entry], key: str, choices: Sequence[str], *, required_in: Value | None = None
    ) -> Any:
        text = self._text(fields, key, required_in=required_in)
        if text is not None and text not in choices:
            hint = did_you_mean(text, choices)
            self._note(fields[key].value.place, f"{key} is {quoted_list(choices)}, not {text}.{hint}")
            return None
        return text

    def _flag(self, fields: Mapping[str, Entry], key: str) -> bool:
        if key not in fields or fields[key].value.is_open:
            return False
        value = fields[key].value
        if not isinstance(value.data, bool):
            self._note(value.place, f"{key} is true or false, not {_kind(value)}.")
        return value.data is True

    def _positive(self, fields: Mapping[str, Entry], key: str) -> int | None:
        if key not in fields or fields[key].value.is_open:
            return None
        value = fields[key].value
        # The text as written, because a variable is in quotes between braces.
        if not re.fullmatch(r"[0-9]{1,18}", value.raw) or int(value.raw) < 1:
            self._note(value.place, f"{key} is a number from 1 up, not {_kind(value)}.")
            return None
        return int(value.raw)

    def _line_bytes(self, top: Mapping[str, Entry]) -> int | None:
        text = self._text(top, "max_line_bytes")
        if text is None:
            return None
        size = parse_size(text)
        if size is None:
            self._note(top["max_line_bytes"].value.place, f"max_line_bytes is {SIZE_FORM}, not {text}.")
            return None
        try:
            return checked_line_bytes(size)
        except UsageError as error:
            self._note(top["max_line_bytes"].value.place, str(error.fields["detail"]))
            return None

    def _texts(self, fields: Mapping[str, Entry], key: str) -> dict[str, str]:
        """A mapping of texts; true and numbers are texts as they are written, as readers expect them."""
        value = fields[key].value if key in fields else Value({}, Place(1, 1))
        if value.is_open:
            return {}
        if not isinstance(value.data, dict):
            self._note(value.place, f"{key} is a mapping of texts, not {_kind(value)}.")
            return {}
        for entry in value.data.values():
            if isinstance(entry.value.data, dict | list) or (entry.value.data is None and not entry.value.is_open):
                self._note(entry.value.place, f"{key}.{entry.key} is a text, not {_kind(entry.value)}.")
        return {name: entry.value.raw for name, entry in value.data.items()}

    def _words(self, fields: Mapping[str, Entry], key: str) -> tuple[str, ...]:
        """One text, or a list of them."""
        value = fields[key].value if key in fields else Value([], Place(1, 1))
        items = value.data if isinstance(value.data, list) else [value]
        return tuple(text for text in (self._text_value(item, f"an item of {key}") for item in items) if text)

    def _list(self, top: Mapping[str, Entry], key: str, read: Any) -> list[Any]:
        if key not in top or top[key].value.is_open:
            return []
        value = top[key].value
        if not isinstance(value.data, list) or not value.data:
            self._note(value.place, f"{key} is a list, not {_kind(value)}.")
            return []
        return [read(item) for item in value.data]

    # ---- paths -------------------------------------------------------------------------------------------------------

    def _path(self, fields: Mapping[str, Entry], key: str, *, required_in: Value | None = None) -> str | None:
        text = self._text(fields, key, required_in=required_in)
        return None if text is None else self._located(text)

    def _path_value(self, value: Value) -> str | None:
        text = self._text_value(value, "an item of data")
        return None if text is None else self._located(text)

    def _quarantine(self, top: Mapping[str, Entry]) -> str | None:
        """The quarantine file: as named; in the named folder (with a slash at its end), or beside the pipeline file, it
        is named after the pipeline file.
        """
        text = self._text(top, "quarantine") if "quarantine" in top else "./"
        file_name = os.path.splitext(os.path.basename(self._source.file))[0] + ".rejected.jsonl"
        return None if text is None else self._located(text + file_name if text.endswith("/") else text)

    def _located(self, path: str) -> str:
        if "://" in path:
            return path
        return os.path.normpath(os.path.join(self._folder, os.path.expanduser(path)))


def _entries(fields: Mapping[str, Entry], key: str) -> Mapping[str, Entry]:
    data = fields[key].value.data if key in fields else None
    return data if isinstance(data, dict) else {}


def _kind(value: Value) -> str:
    if isinstance(value.data, dict):
        return "a mapping" if value.data else "an empty mapping"
    if isinstance(value.data, list):
        return "a list" if value.data else "an empty list"
    return "nothing" if value.data is None else value.raw
