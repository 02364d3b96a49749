"""Pipeline files: a graph, its inputs and the steps that load them, in one file that can be run repeatedly.

1. read      the YAML, its variables, its model                                     config.yaml, reader
2. check     the engine; types and properties against the schema                    check
3. create    the graph from `schema`, if there is none
4. load      all nodes, edges and records: one commit, or none if nothing changes
5. embed     each step, in commits of its own
6. optimize  the branch, in a commit of its own, or none if there is nothing to do
7. cleanup   versions of the whole graph, by the policy of the file

Invariants: nothing is written before 1 and 2 have checked the whole file and found every input. Running a file again
with the same inputs in the mode `merge` makes no commit.
A crash in 3 leaves a graph or none, in 4 to 7 what `load`, `embed`, `optimize` and `cleanup` leave; running the same
file again continues. The load stays committed if a later step fails.

    from omnigraph.pipeline.file.run import run_pipeline

    result = run_pipeline("people.yaml", variables={"DAY": "2026-01-31"})
    result.load.inserted
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omnigraph.config.yaml import variables_in
from omnigraph.errors import FileUnreadable, GraphNotFound
from omnigraph.errors.redact import concealing
from omnigraph.graph.results import LoadResult
from omnigraph.language.schema.model import Schema
from omnigraph.language.schema.syntax.parse import parse_schema
from omnigraph.pipeline.file.check import check_available, check_schema
from omnigraph.pipeline.file.model import PipelineFile
from omnigraph.pipeline.file.plan import PipelinePlan, input_bytes, input_paths, make_plan, steps_of
from omnigraph.pipeline.file.reader import parse_file
from omnigraph.pipeline.file.sql import prepared_frames
from omnigraph.pipeline.load.input_files import plain_path
from omnigraph.pipeline.load.quarantine_file import input_at
from omnigraph.tasks.engine import EngineSettings
from omnigraph.tasks.progress import SilentWatcher, Watcher
from omnigraph.tasks.session import SparkSettings

if TYPE_CHECKING:
    import omnigraph

Path = str | os.PathLike[str]


@dataclass(frozen=True)
class CheckedPipeline:
    """A file that can run: it fits the schema, and its engine is available."""

    file: PipelineFile
    schema: Schema
    creates_graph: bool
    schema_text: str | None

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file.text.file,
            "graph": self.file.graph,
            "creates_graph": self.creates_graph,
            "branch": self.file.branch,
            "mode": self.file.mode,
            "types": [t.key for t in self.file.targets],
            "steps": list(steps_of(self.file, creates_graph=self.creates_graph)),
        }


@dataclass(frozen=True)
class PipelineResult:
    """The result of a run. `load` is None if the file loads nothing; its `commit` is None if nothing changed.

    `optimize` and `cleanup` are the results of these verbs, None if the file does not have them.
    """

    file: str
    graph: str
    created_graph: bool
    load: LoadResult | None
    embed: tuple[Any, ...]
    optimize: Any
    cleanup: Any
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether optimize and cleanup succeeded for every table."""
        return (self.optimize is None or self.optimize.ok) and (self.cleanup is None or not self.cleanup.failed)

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "graph": self.graph,
            "created_graph": self.created_graph,
            "load": None if self.load is None else self.load.to_json(),
            "embed": [step.to_json() for step in self.embed],
            "optimize": None if self.optimize is None else self.optimize.to_json(),
            "cleanup": None if self.cleanup is None else self.cleanup.to_json(),
            "seconds": round(self.seconds, 3),
        }


def read_pipeline(path: Path, *, variables: Mapping[str, str] | None = None) -> PipelineFile:
    """The file as values. `variables` override those of the environment."""
    name = os.fspath(path)
    return parse_file(_text(name), file=name, variables={**os.environ, **(variables or {})})


def concealed(path: Path, variables: Mapping[str, str] | None = None) -> AbstractContextManager[None]:
    """Replace the values of the file's variables by their names, in errors and in output, while a block runs."""
    return concealing(variables_in(_text(os.fspath(path)), {**os.environ, **(variables or {})}))


def check_pipeline(
    path: Path, *, variables: Mapping[str, str] | None = None, engine: str | None = None
) -> CheckedPipeline:
    """Steps 1 and 2. Reads the file, the schema and the graph's head, and no data."""
    with concealed(path, variables):
        return _checked(path, variables, engine)


def _checked(path: Path, variables: Mapping[str, str] | None, engine: str | None) -> CheckedPipeline:
    file = read_pipeline(path, variables=variables)
    check_available(file, engine=_engine(file, engine))
    _check_quarantine(file)
    schema_text = None if file.schema is None else _text(file.schema)
    # The schema file is parsed in any case, so that its errors are found before it is needed.
    desired = None if schema_text is None else parse_schema(schema_text, file=str(file.schema))
    graph = _open(file)
    if graph is None:
        if desired is None:
            raise GraphNotFound(uri=file.graph)
        schema = desired
        if file.branch != "main" and file.from_branch != "main":
            raise file.problem(
                "branch", f"a new graph has the branch main only; add `from: main` to make {file.branch}."
            )
    else:
        with graph:
            schema = _schema_of(graph, file, schema_text)
    check_schema(file, schema)
    return CheckedPipeline(file, schema, graph is None, schema_text)


def plan_pipeline(path: Path, *, variables: Mapping[str, str] | None = None, engine: str | None = None) -> PipelinePlan:
    """What a run would read and do. Nothing is written, no row is read, no JVM is started."""
    with concealed(path, variables):
        checked = _checked(path, variables, engine)
        requested = _engine(checked.file, engine)
        name, reason = EngineSettings(requested=requested).choose(work_bytes=input_bytes(checked.file))
        return make_plan(checked.file, checked.schema, creates_graph=checked.creates_graph, engine=f"{name}: {reason}")


def run_pipeline(
    path: Path,
    *,
    variables: Mapping[str, str] | None = None,
    engine: str | None = None,
    settings: SparkSettings | None = None,
    spark: Any = None,
    watcher: Watcher | None = None,
    actor: str | None = None,
    checked: CheckedPipeline | None = None,
) -> PipelineResult:
    """Run the file. `checked` is the result of a check just before, by a caller that conceals variables."""
    with concealed(path, variables):
        ready = checked or _checked(path, variables, engine)
        return _run(ready, engine=engine, settings=settings, spark=spark, watcher=watcher, actor=actor)


def _run(
    ready: CheckedPipeline,
    *,
    engine: str | None,
    settings: SparkSettings | None,
    spark: Any,
    watcher: Watcher | None,
    actor: str | None,
) -> PipelineResult:
    began = time.monotonic()
    file = ready.file
    input_bytes(file)  # raises for a missing input before a graph is created
    engines = EngineSettings(
        requested=_engine(file, engine),
        settings=settings or SparkSettings(),
        session=spark,
        watcher=watcher or SilentWatcher(),
    )
    with _opened(ready, engines, actor=actor) as graph:
        loaded = _load(graph, file, engines)
        embedded = tuple(_embed(graph, file))
        optimized = graph.optimize(branch=file.branch) if file.optimize else None
        cleaned = None if file.cleanup is None else graph.cleanup(**file.cleanup, confirm=True)
        return PipelineResult(
            file=file.text.file,
            graph=graph.uri,
            created_graph=ready.creates_graph,
            load=loaded,
            embed=embedded,
            optimize=optimized,
            cleanup=cleaned,
            seconds=time.monotonic() - began,
        )


# ---- steps -----------------------------------------------------------------------------------------------------------


def _opened(ready: CheckedPipeline, engines: EngineSettings, *, actor: str | None) -> omnigraph.Graph:
    """Step 3. Uses the public API of the package, as any program does: a pipeline file is a program of its user."""
    import omnigraph

    file = ready.file
    if ready.creates_graph:
        assert ready.schema_text is not None
        omnigraph.init(file.graph, ready.schema_text, actor=actor, schema_file=str(file.schema)).close()
    return omnigraph.open(
        file.graph,
        actor=actor,
        spark=engines.session,
        engine=engines.requested,
        master=engines.settings.master,
        conf=engines.settings.conf,
        watcher=engines.watcher,
    )


def _load(graph: omnigraph.Graph, file: PipelineFile, engines: EngineSettings) -> LoadResult | None:
    """Step 4."""
    if not file.targets and not file.data:
        return None
    if file.quarantine is not None:
        os.makedirs(os.path.dirname(plain_path(file.quarantine)), exist_ok=True)
    with prepared_frames(file, engines) as frames:
        tables = {t.key: t.table_source() or frames[t.key] for t in file.targets}
        return graph.load(
            list(file.data) or None,
            nodes={t.type_name: tables[t.key] for t in file.targets if t.kind == "node"} or None,
            edges={t.type_name: tables[t.key] for t in file.targets if t.kind == "edge"} or None,
            mode=file.mode,
            branch=file.branch,
            from_branch=file.from_branch,
            on_error=file.on_error,
            quarantine=file.quarantine,
            max_line_bytes=file.max_line_bytes,
        )


def _embed(graph: omnigraph.Graph, file: PipelineFile) -> Iterator[Any]:
    """Step 5."""
    for step in file.embed:
        yield graph.embed(
            step.type_name,
            step.property,
            provider=step.provider,
            model=step.model,
            batch=step.batch,
            commit_every=step.commit_every,
            rate_per_minute=step.rate_per_minute,
            branch=file.branch,
        )


# ---- helpers ---------------------------------------------------------------------------------------------------------


def _engine(file: PipelineFile, requested: str | None) -> str | None:
    """The engine of the call, or that of the file. SQL needs Spark; another explicit choice is refused later."""
    engine = requested or file.engine or os.environ.get("OMNIGRAPH_ENGINE") or None
    return "spark" if file.needs_sql and engine in (None, "auto") else engine


def _check_quarantine(file: PipelineFile) -> None:
    """The quarantine may not be an input: it would replace one, or be read as one when the file is run again."""
    if file.quarantine is None:
        return
    if "://" in plain_path(file.quarantine):
        raise file.problem("quarantine", f"rejected lines go to a local file, not to {file.quarantine}.")
    path = os.path.abspath(plain_path(file.quarantine))
    detail = input_at(path, names=input_paths(file))
    if detail is not None:
        raise file.problem("quarantine", f"rejected lines can't be written to {path}: {detail}; name another file.")


def _open(file: PipelineFile) -> omnigraph.Graph | None:
    import omnigraph

    try:
        return omnigraph.open(file.graph)
    except GraphNotFound:
        return None


def _schema_of(graph: omnigraph.Graph, file: PipelineFile, schema_text: str | None) -> Schema:
    """The schema of the branch that is loaded. It must equal the schema file if the pipeline file names one."""
    is_new = file.from_branch is not None and file.branch not in {b.name for b in graph.branches()}
    branch = file.from_branch if is_new and file.from_branch is not None else file.branch
    if schema_text is not None and graph.plan_schema(schema_text, branch=branch, schema_file=str(file.schema)).changed:
        detail = (
            f"the graph's branch {branch} has another schema than this file; run `omnigraph schema apply`, or leave "
            "schema out to use the graph's own."
        )
        raise file.problem("schema", detail)
    return graph.schema(branch)


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8-sig")
    except OSError as error:
        raise FileUnreadable(path=path, detail=f"{(error.strerror or str(error)).lower()}.") from error
    except UnicodeDecodeError as error:
        raise FileUnreadable(path=path, detail=f"it is not UTF-8 text (byte {error.start}).") from error
