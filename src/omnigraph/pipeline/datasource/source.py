"""The graph as a Spark source and sink: `spark.read.format("omnigraph")` and `df.write.format("omnigraph")`.

1. load()   the driver resolves branch, commit or time to one commit, once: every action on the DataFrame, and every
            query of a view, reads that commit, whatever is written meanwhile
2. read     one task per group of fragments; a task opens the table at the pinned version (`read`)
3. changes  with the option `changes` the change feed instead, as a batch or as a stream (`changes`)
4. save()   tasks stage their rows, the driver's commit loads all of them as one graph commit (`write`)

An unknown option is an error. Errors keep their type and remedy in the text that Spark shows.

**Filters are not taken from Spark unless `pushdown` is on.** Spark 4.3 caches the filters that a Python source accepted
for one query and uses them again for the next query of the same DataFrame or view, which then misses rows. The option
`where` filters in Lance as well, and has no such effect.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, DataSourceWriter
from pyspark.sql.types import StructType

from omnigraph.arguments import checked
from omnigraph.errors import UsageError
from omnigraph.pipeline.datasource.changes import ChangeReader, ChangeSource, ChangeStreamReader, change_schema
from omnigraph.pipeline.datasource.changes import aim as aim_changes
from omnigraph.pipeline.datasource.read import GraphReader, Pinned, pin, require_same, spark_schema
from omnigraph.pipeline.datasource.write import GraphWriter, Target, aim
from omnigraph.tasks.error_text import with_remedy

Session = Any
"""A Spark session, classic or Connect."""
FORMAT = "omnigraph"
_BOTH = ("graph", "path", "type", "branch")
READ_OPTIONS = (*_BOTH, "commit", "as_of", "columns", "where", "pushdown", "rows_per_partition", "changes")
CHANGE_OPTIONS = (*_BOTH, "changes", "startingcommit", "endingcommit")
STREAM_OPTIONS = (*_BOTH, "changes", "startingcommit", "maxcommitspertrigger")
WRITE_OPTIONS = (*_BOTH, "load_mode", "actor", "if_commit", "operation_id")
STORAGE = "storage."
"""Options that start like this go to the store, as `storage.region`."""


@checked
def register(spark: Session) -> None:
    """Register the format `omnigraph` with a session, classic or Connect. Calling it again has no effect."""
    spark.dataSource.register(OmnigraphSource)


class OmnigraphSource(DataSource):  # type: ignore[misc]
    """One type of one graph. Spark creates it on the driver and sends it to workers."""

    _pinned: Pinned | None = None
    _changes: ChangeSource | None = None

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        with with_remedy():
            return change_schema(self._change_source()) if self._reads_changes() else spark_schema(self._pin())

    def reader(self, schema: StructType) -> DataSourceReader:
        with with_remedy():
            if self._reads_changes():
                _Options.of(self.options, CHANGE_OPTIONS)
                return ChangeReader(self._change_source())
            pinned = self._pin()
            require_same(pinned, schema)
            return GraphReader(pinned, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        with with_remedy():
            options = _Options.of(self.options, STREAM_OPTIONS)
            if not options.flag("changes"):
                detail = 'a stream of a graph is its change feed: add .option("changes", "true").'
                raise UsageError(detail=detail)
            return ChangeStreamReader(self._change_source(), commits_max=options.number("maxcommitspertrigger"))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        with with_remedy():
            return GraphWriter(self._aim(schema.fieldNames(), overwrite=overwrite))

    def _reads_changes(self) -> bool:
        return _Options({name.lower(): value for name, value in self.options.items()}, None).flag("changes")

    def _change_source(self) -> ChangeSource:
        # Cached like _pinned: the end of a batch is the one of its planning.
        if self._changes is None:
            options = _Options.of(self.options, tuple(dict.fromkeys((*CHANGE_OPTIONS, *STREAM_OPTIONS))))
            self._changes = aim_changes(
                options.graph,
                storage=options.storage,
                branch=options.get("branch", "main"),
                type_name=options.get("type"),
                starting_commit=options.get("startingcommit"),
                ending_commit=options.get("endingcommit"),
            )
        return self._changes

    def _pin(self) -> Pinned:
        # Spark keeps this object after `schema`, and with it the commit that is read.
        if self._pinned is None:
            options = _Options.of(self.options, READ_OPTIONS)
            self._pinned = pin(
                options.graph,
                options.required("type"),
                storage=options.storage,
                branch=options.get("branch", "main"),
                commit=options.get("commit"),
                as_of=options.get("as_of"),
                columns=options.names("columns"),
                where=options.get("where"),
                pushdown=options.flag("pushdown"),
                partition_rows=options.number("rows_per_partition"),
            )
        return self._pinned

    def _aim(self, columns: list[str], *, overwrite: bool) -> Target:
        options = _Options.of(self.options, WRITE_OPTIONS)
        if overwrite:
            detail = (
                'mode("overwrite") is not possible here: use mode("append") with the option load_mode append or merge; '
                'to replace all rows of a type, graph.load(..., mode="overwrite").'
            )
            raise UsageError(detail=detail)
        return aim(
            options.graph,
            options.required("type"),
            columns,
            storage=options.storage,
            branch=options.get("branch", "main"),
            mode=options.get("load_mode", "append"),
            actor=options.get("actor"),
            if_commit=options.get("if_commit"),
            operation_id=options.get("operation_id"),
        )


@dataclass(frozen=True)
class _Options:
    """Options by lower-case name: Spark does not keep the case of options."""

    values: Mapping[str, str]
    storage: Mapping[str, str] | None

    @staticmethod
    def of(options: Mapping[str, str], allowed: tuple[str, ...]) -> _Options:
        names = {name.lower(): value for name, value in options.items()}
        storage = {n.removeprefix(STORAGE): v for n, v in names.items() if n.startswith(STORAGE)}
        rest = {n: v for n, v in names.items() if not n.startswith((STORAGE, "spark.", "__"))}
        for name in rest:
            if name not in allowed:
                similar = difflib.get_close_matches(name, allowed, n=1, cutoff=0.6)
                hint = f"did you mean {similar[0]!r}?" if similar else f"they are {', '.join(allowed)}."
                raise UsageError(detail=f"the format {FORMAT} has no option {name!r} here; {hint}")
        return _Options(rest, storage or None)

    @property
    def graph(self) -> str:
        """The URI: the option `graph`, or the path passed to load() or save()."""
        return self.values.get("graph") or self.values.get("path") or self.required("graph")

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)

    def required(self, name: str) -> str:
        value = self.values.get(name)
        if not value:
            raise UsageError(detail=f'the format {FORMAT} needs the option {name!r}, as .option("{name}", …).')
        return value

    def names(self, name: str) -> list[str] | None:
        value = self.values.get(name)
        return None if value is None else [part.strip() for part in value.split(",") if part.strip()]

    def flag(self, name: str) -> bool:
        value = self.values.get(name, "false").lower()
        if value not in ("true", "false"):
            raise UsageError(detail=f"the option {name!r} is true or false, not {value!r}.")
        return value == "true"

    def number(self, name: str) -> int | None:
        value = self.values.get(name)
        if value is None:
            return None
        if not value.isdecimal() or int(value) < 1:
            raise UsageError(detail=f"the option {name!r} is a whole number, at least 1, not {value!r}.")
        return int(value)
