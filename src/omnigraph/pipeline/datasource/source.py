"""The graph as a Spark source and sink: `spark.read.format("omnigraph")` and `df.write.format("omnigraph")`.

1. load()   the driver resolves branch, commit or time to one commit, once: every action on the DataFrame, and every
            query of a view, reads that commit, whatever is written meanwhile
2. read     one task per group of fragments; a task opens the table at the pinned version (`datasource_read`)
3. changes  with the option `changes` the change feed instead, as a batch or as a stream (`datasource_changes`)
4. save()   tasks stage their rows, the driver's commit loads all of them as one graph commit (`datasource_write`)

Options are strict: one that is not known is an error, not a silence. Errors keep their type and say what to do, in the
text that Spark shows.

**Filters are not taken from Spark unless `pushdown` is on.** Spark 4.3 keeps what a Python source made of the filters
of one query and uses it again for the next query of the same DataFrame or view, which then misses rows. The option
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
from omnigraph.tasks.error_text import readable

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
    """Make the format `omnigraph` known to a session, classic or Connect. Calling it again does no harm."""
    spark.dataSource.register(OmnigraphSource)


class OmnigraphSource(DataSource):  # type: ignore[misc]
    """One type of one graph. Spark makes it on the driver and sends it to workers."""

    _pinned: Pinned | None = None
    _changes: ChangeSource | None = None

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        with readable():
            return change_schema(self._change_source()) if self._reads_changes() else spark_schema(self._pin())

    def reader(self, schema: StructType) -> DataSourceReader:
        with readable():
            if self._reads_changes():
                _Options.of(self.options, CHANGE_OPTIONS)
                return ChangeReader(self._change_source())
            pinned = self._pin()
            require_same(pinned, schema)
            return GraphReader(pinned, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        with readable():
            given = _Options.of(self.options, STREAM_OPTIONS)
            if not given.flag("changes"):
                detail = 'a stream of a graph is its change feed: add .option("changes", "true").'
                raise UsageError(detail=detail)
            return ChangeStreamReader(self._change_source(), commits_max=given.number("maxcommitspertrigger"))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        with readable():
            return GraphWriter(self._aim(schema.fieldNames(), overwrite=overwrite))

    def _reads_changes(self) -> bool:
        return _Options({name.lower(): value for name, value in self.options.items()}, None).flag("changes")

    def _change_source(self) -> ChangeSource:
        # Kept as _pinned is: the batch ends where it ended when it was planned.
        if self._changes is None:
            given = _Options.of(self.options, tuple(dict.fromkeys((*CHANGE_OPTIONS, *STREAM_OPTIONS))))
            self._changes = aim_changes(
                given.graph,
                storage=given.storage,
                branch=given.get("branch", "main"),
                type_name=given.get("type"),
                starting_commit=given.get("startingcommit"),
                ending_commit=given.get("endingcommit"),
            )
        return self._changes

    def _pin(self) -> Pinned:
        # Spark keeps this object as it is after `schema`, and with it the commit that is read.
        if self._pinned is None:
            given = _Options.of(self.options, READ_OPTIONS)
            self._pinned = pin(
                given.graph,
                given.required("type"),
                storage=given.storage,
                branch=given.get("branch", "main"),
                commit=given.get("commit"),
                as_of=given.get("as_of"),
                columns=given.names("columns"),
                where=given.get("where"),
                pushdown=given.flag("pushdown"),
                partition_rows=given.number("rows_per_partition"),
            )
        return self._pinned

    def _aim(self, columns: list[str], *, overwrite: bool) -> Target:
        given = _Options.of(self.options, WRITE_OPTIONS)
        if overwrite:
            detail = (
                'mode("overwrite") is not possible here: use mode("append") with the option load_mode append or merge; '
                'to replace all rows of a type, graph.load(..., mode="overwrite").'
            )
            raise UsageError(detail=detail)
        return aim(
            given.graph,
            given.required("type"),
            columns,
            storage=given.storage,
            branch=given.get("branch", "main"),
            mode=given.get("load_mode", "append"),
            actor=given.get("actor"),
            if_commit=given.get("if_commit"),
            operation_id=given.get("operation_id"),
        )


@dataclass(frozen=True)
class _Options:
    """What was given, by lower-case name: Spark does not keep the case of options."""

    given: Mapping[str, str]
    storage: Mapping[str, str] | None

    @staticmethod
    def of(options: Mapping[str, str], known: tuple[str, ...]) -> _Options:
        names = {name.lower(): value for name, value in options.items()}
        storage = {n.removeprefix(STORAGE): v for n, v in names.items() if n.startswith(STORAGE)}
        rest = {n: v for n, v in names.items() if not n.startswith((STORAGE, "spark.", "__"))}
        for name in rest:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
                hint = f"did you mean {near[0]!r}?" if near else f"they are {', '.join(known)}."
                raise UsageError(detail=f"the format {FORMAT} has no option {name!r} here; {hint}")
        return _Options(rest, storage or None)

    @property
    def graph(self) -> str:
        """The address: the option `graph`, or the path given to load() or save()."""
        return self.given.get("graph") or self.given.get("path") or self.required("graph")

    def get(self, name: str, default: Any = None) -> Any:
        return self.given.get(name, default)

    def required(self, name: str) -> str:
        found = self.given.get(name)
        if not found:
            raise UsageError(detail=f'the format {FORMAT} needs the option {name!r}, as .option("{name}", …).')
        return found

    def names(self, name: str) -> list[str] | None:
        found = self.given.get(name)
        return None if found is None else [part.strip() for part in found.split(",") if part.strip()]

    def flag(self, name: str) -> bool:
        found = self.given.get(name, "false").lower()
        if found not in ("true", "false"):
            raise UsageError(detail=f"the option {name!r} is true or false, not {found!r}.")
        return found == "true"

    def number(self, name: str) -> int | None:
        found = self.given.get(name)
        if found is None:
            return None
        if not found.isdecimal() or int(found) < 1:
            raise UsageError(detail=f"the option {name!r} is a whole number, at least 1, not {found!r}.")
        return int(found)
