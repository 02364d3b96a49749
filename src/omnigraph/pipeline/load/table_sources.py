"""Tables as inputs of a load: their formats, and which columns belong to which properties.

A table is CSV, Parquet, JSON lines, Arrow IPC, ORC or Lance, by the file's ending or `format`, a folder by the endings
of its files. Columns are matched to properties by name, `id`, `from` and `to` included, or by `columns`; a column that
fits nothing is refused unless it is skipped. Everything else is as strict as a small write: see `write.rows`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from omnigraph.arguments import shape_of
from omnigraph.errors import UsageError
from omnigraph.language.schema.model import EntityType
from omnigraph.pipeline.load.input_files import COMPRESSED, find_files
from omnigraph.write.violations import unknown_property

FORMATS = ("csv", "parquet", "jsonl", "arrow", "orc", "lance")
_ENDINGS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
    ".orc": "orc",
    ".lance": "lance",
}


@dataclass(frozen=True)
class TableSource:
    """One table, or several files with the same columns, for one type.

    `columns` maps a column to its property; `skip` names columns to leave out, `*` all that match no property.
    `options` are those of the format: of CSV those of `pipeline.csv.options`, of a format that only Spark reads what
    Spark takes.
    """

    path: str
    format: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    from_column: str | None = None
    to_column: str | None = None
    skip: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, annotation in (
            ("path", "Address"),
            ("format", "str | None"),
            ("options", "Mapping[str, str]"),
            ("columns", "Mapping[str, str]"),
            ("from_column", "str | None"),
            ("to_column", "str | None"),
            ("skip", "Sequence[str]"),
        ):
            shape_of(annotation)(f"{name} of a TableSource", getattr(self, name))

    @property
    def kind(self) -> str:
        """The format: as given, or by the ending of the path."""
        if self.format is not None:
            return {"json": "jsonl", "ndjson": "jsonl", "ipc": "arrow", "tsv": "csv"}.get(self.format, self.format)
        kind = _kind_of(self.path)
        if kind is None:
            raise _unclear(self.path, "its name")
        return kind

    def renamed(self) -> dict[str, str]:
        """Column to field, endpoints included."""
        names = dict(self.columns)
        for column, name in ((self.from_column, "from"), (self.to_column, "to")):
            if column is not None:
                names[column] = name
        return names

    @property
    def format_options(self) -> dict[str, str]:
        """The options, with those that the name of the format implies."""
        return {"delimiter": "\t", **self.options} if self.format == "tsv" else dict(self.options)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": self.kind,
            "options": self.format_options,
            "columns": self.renamed(),
            "skip": list(self.skip),
        }


def _kind_of(path: str) -> str | None:
    """The format of a name's ending, packed or not."""
    stem = path.rstrip("/")
    ending = os.path.splitext(stem)[1].lower()
    if ending in COMPRESSED:
        ending = os.path.splitext(os.path.splitext(stem)[0])[1].lower()
    return _ENDINGS.get(ending)


def _unclear(path: str, by: str) -> UsageError:
    formats = ", ".join(FORMATS)
    return UsageError(detail=f"the format of {path} is not clear from {by}; say format= with one of: {formats}.")


def with_format(source: TableSource) -> TableSource:
    """The same source with the format of its files, if neither `format` nor the path's ending names one."""
    if source.format is not None or _kind_of(source.path) is not None:
        return source
    kinds = {_kind_of(file.path) for file in find_files(source.path)}
    kind = kinds.pop()
    if kinds or kind is None:
        raise _unclear(source.path, "its name, and its files do not agree" if kinds else "its name")
    return replace(source, format=kind)


def fields_of(t: EntityType, columns: Sequence[str], renamed: Mapping[str, str], skip: Sequence[str]) -> dict[str, str]:
    """Column to field of the type. UsageError or UnknownProperty if that is ambiguous or unknown."""
    missing = [column for column in renamed if column not in columns]
    if missing:
        have = ", ".join(columns) or "none"
        raise UsageError(detail=f"the input for {t.key} has no column {missing[0]!r}; it has: {have}.")
    if t.kind == "edge":
        _require_ends(t, columns, renamed)
    allowed = {"id", *t.by_name, *(("from", "to", "src", "dst") if t.kind == "edge" else ())}
    fields: dict[str, str] = {}
    for column in columns:
        name = renamed.get(column, column)
        if column in skip and column not in renamed:
            continue
        if name not in allowed:
            if "*" in skip and column not in renamed:
                continue
            raise unknown_property(t, name)
        if name in fields.values():
            other = next(c for c, n in fields.items() if n == name)
            raise UsageError(
                detail=f"the columns {other!r} and {column!r} of the input for {t.key} both mean {name!r}."
            )
        fields[column] = name
    return fields


def _require_ends(t: EntityType, columns: Sequence[str], renamed: Mapping[str, str]) -> None:
    """UsageError if no column names the node at an end: no row could be loaded."""
    fields = {renamed.get(column, column) for column in columns}
    missing = [end for end, other in (("from", "src"), ("to", "dst")) if not fields & {end, other}]
    if missing:
        options = " and ".join(f"{end}=COLUMN" for end in missing)
        which = f"columns for the nodes of an edge: name them by {options}"
        if len(missing) == 1:
            which = f"column for the node that an edge goes {missing[0]}: name it by {options}"
        raise UsageError(detail=f"the input for {t.key} has no {which}; it has: {', '.join(columns) or 'none'}.")


def parse_option(text: str, *, edges: bool) -> tuple[str, TableSource]:
    """`Type=PATH[,key=value…]` of the command line: format, map, skip, from, to, and the options of the format."""
    name, equals, rest = text.partition("=")
    flag = "--edges" if edges else "--nodes"
    if not equals or not name.strip() or not rest.strip():
        raise UsageError(detail=f"{flag} takes Type=PATH[,option=value…], not {text!r}.")
    path, *words = rest.split(",")
    columns: dict[str, str] = {}
    options: dict[str, str] = {}
    skip: list[str] = []
    named: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(detail=f"{flag} {name}: options are written key=value, not {word!r}.")
        if key == "map":
            column, colon, target = value.partition(":")
            if not colon or not column or not target:
                raise UsageError(detail=f"{flag} {name}: map= takes column:property, not {value!r}.")
            columns[column] = target
        elif key == "skip":
            skip.append(value)
        elif key in ("format", "from", "to"):
            named[key] = value
        else:
            options[key] = value
    if not edges and (named.keys() & {"from", "to"}):
        raise UsageError(detail=f"--nodes {name}: only edges have from= and to=.")
    source = TableSource(
        path=path,
        format=named.get("format"),
        options=options,
        columns=columns,
        from_column=named.get("from"),
        to_column=named.get("to"),
        skip=tuple(skip),
    )
    return name.strip(), source
