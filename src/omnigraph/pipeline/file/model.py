"""The content of a pipeline file, as frozen values. `reader` creates them, `check` compares them with a schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from omnigraph.config.yaml import Missing, Text
from omnigraph.errors import PipelineFileError, PipelineVariableMissing
from omnigraph.language.schema.source import Place
from omnigraph.pipeline.load.table_sources import TableSource


@dataclass(frozen=True)
class Input:
    """Files of one format: a path, a pattern, or a folder, and the options of its reader."""

    path: str
    format: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """The rows of one type: from an input, or from SQL over the sources. `columns` maps a column to its property."""

    kind: Literal["node", "edge"]
    type_name: str
    input: Input | None
    source: str | None
    sql: str | None
    columns: Mapping[str, str] = field(default_factory=dict)
    from_column: str | None = None
    to_column: str | None = None
    skip: tuple[str, ...] = ()
    place: Place = field(default=Place(1, 1), compare=False, repr=False)
    column_places: Mapping[str, Place] = field(default_factory=dict, compare=False, repr=False)

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.type_name}"

    def table_source(self) -> TableSource | None:
        """The argument of `load` for this target; None if its rows come from SQL."""
        if self.input is None:
            return None
        return TableSource(
            path=self.input.path,
            format=self.input.format,
            options=self.input.options,
            columns=self.columns,
            from_column=self.from_column,
            to_column=self.to_column,
            skip=self.skip,
        )


@dataclass(frozen=True)
class Embed:
    """A vector property to fill. None is the default of `embed`, or all properties."""

    type_name: str | None = None
    property: str | None = None
    provider: str | None = None
    model: str | None = None
    batch: int | None = None
    commit_every: int | None = None
    rate_per_minute: int | None = None
    place: Place = field(default=Place(1, 1), compare=False, repr=False)


@dataclass(frozen=True)
class PipelineFile:
    """A complete and consistent pipeline file. Paths are absolute, or URIs."""

    text: Text = field(repr=False)
    graph: str
    mode: Literal["append", "merge", "overwrite"]
    schema: str | None = None
    branch: str = "main"
    from_branch: str | None = None
    on_error: Literal["fail", "quarantine"] = "fail"
    quarantine: str | None = None
    sources: Mapping[str, Input] = field(default_factory=dict)
    targets: tuple[Target, ...] = ()
    data: tuple[str, ...] = ()
    embed: tuple[Embed, ...] = ()
    optimize: bool = False
    cleanup: Mapping[str, Any] | None = None
    """`keep` and `older_than`, as arguments of cleanup; at least one is not None."""
    engine: str | None = None
    max_line_bytes: int | None = None
    """The maximum length of a line of its inputs; None is the default of `load`."""
    places: Mapping[str, Place] = field(default_factory=dict, compare=False, repr=False)
    """The position of each key of the file."""

    @property
    def needs_sql(self) -> bool:
        return any(t.sql is not None for t in self.targets)

    def problem(self, key: str, detail: str) -> PipelineFileError:
        return self.text.error(self.places.get(key, Place(1, 1)), detail)


def raise_all(source: Text, problems: Sequence[tuple[Place, str]], *, missing: Sequence[Missing] = ()) -> None:
    """One error for all problems, in the order of the file; nothing if there are none.

    If a variable has no value, the error is about that variable: it may be the cause of the others.
    """
    all_problems = [*problems, *((variable.place, variable.detail) for variable in missing)]
    if not all_problems:
        return
    ordered = sorted(all_problems, key=lambda problem: (problem[0].line, problem[0].column))
    place, detail = (missing[0].place, missing[0].detail) if missing else ordered[0]
    rest = [problem for problem in ordered if problem != (place, detail)]
    more = "".join(f"\n{source.file}:{p.line}:{p.column}: {d}" for p, d in rest)
    problems_json = [{"line": p.line, "column": p.column, "detail": d} for p, d in ordered]
    fields = {**source.fields(place, detail), "more": f"\n{more}" if more else "", "problems": problems_json}
    raise PipelineVariableMissing(name=missing[0].name, **fields) if missing else PipelineFileError(**fields)
