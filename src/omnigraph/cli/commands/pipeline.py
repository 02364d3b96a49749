"""The verbs of pipeline files: run one, check it, show what it would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from omnigraph.cli.commands.cleanup import cleanup_text
from omnigraph.cli.commands.optimize import result_text as optimize_text
from omnigraph.cli.consent import require_consent
from omnigraph.cli.options import Actor, Conf, Engine, Json, Master, Quiet, Yes
from omnigraph.cli.output import Answer, Table, count, echo_target
from omnigraph.cli.target import checked_actor, resolve
from omnigraph.cli.text import Lines, load_text
from omnigraph.cli.watch import watching
from omnigraph.config.sizes import size_text
from omnigraph.errors import UsageError

if TYPE_CHECKING:
    from omnigraph.pipeline.file.plan import PipelinePlan, TargetPlan
    from omnigraph.pipeline.file.run import PipelineResult
    from omnigraph.tasks.session import SparkSettings

File = Annotated[str, Argument(hidden=True)]
Var = Annotated[
    list[str] | None,
    Option(
        "--var",
        metavar="NAME=VALUE",
        help="What ${NAME} in the file stands for, before the environment; may be repeated.",
        show_default=False,
    ),
]


def run(
    file: File,
    var: Var = None,
    engine: Engine = None,
    master: Master = None,
    conf: Conf = None,
    actor: Actor = None,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> Answer:
    """Run a pipeline file: load its nodes, edges and records in one commit, then embed, optimize and clean up.

    The graph is created if the file names a schema and there is no graph yet. In the mode merge, running it again with
    the same inputs changes nothing.
    """
    variables = _variables(var)
    from omnigraph.pipeline.file.run import concealed
    from omnigraph.tasks.session import SparkSettings

    settings = SparkSettings.of(master=master, conf=conf)
    with concealed(file, variables):
        answer = _run(file, variables, settings, engine=engine, actor=actor, yes=yes, json=json, quiet=quiet)
        return answer.without_secrets()


def _run(
    file: str,
    variables: dict[str, str],
    settings: SparkSettings,
    *,
    engine: str | None,
    actor: str | None,
    yes: bool,
    json: bool,
    quiet: bool,
) -> Answer:
    from omnigraph.pipeline.file.run import check_pipeline, run_pipeline

    checked = check_pipeline(file, variables=variables, engine=engine)
    target = resolve(checked.file.graph, None)
    if checked.file.mode == "overwrite" and not checked.creates_graph:
        effect = f"entities of the types in {file} will be replaced on branch {checked.file.branch}"
        require_consent("pipeline run with mode overwrite", effect, target, yes=yes, as_json=json)
    if checked.file.cleanup is not None and not checked.creates_graph:
        effect = f"versions of the graph that {file} does not keep will be gone for good"
        require_consent("pipeline run with cleanup", effect, target, yes=yes, as_json=json)
    doing = "creating and loading" if checked.creates_graph else "loading into"
    echo_target(doing, target.uri, branch=checked.file.branch, quiet=quiet)
    with watching(quiet=quiet) as watcher:
        result = run_pipeline(
            file, engine=engine, settings=settings, watcher=watcher, actor=checked_actor(actor), checked=checked
        )
    return Answer(result.to_json(), result_text(result), json, exit_code=0 if result.ok else 1)


def validate(file: File, var: Var = None, engine: Engine = None, json: Json = False) -> Answer:
    """Check a pipeline file against the graph's schema, or its schema file. No data is read, nothing is written."""
    variables = _variables(var)
    from omnigraph.pipeline.file.run import check_pipeline, concealed

    with concealed(file, variables):
        document = check_pipeline(file, variables=variables, engine=engine).to_json()
        steps = [f"  {i}. {step}" for i, step in enumerate(document["steps"], start=1)]
        text = [f"{file} is valid; running it would", *steps]
        return Answer({"valid": True, **document}, text, json).without_secrets()


def plan(file: File, var: Var = None, engine: Engine = None, json: Json = False) -> Answer:
    """Show what a run would read and do: files, sizes, columns, steps. Variables show by their names. Nothing is
    written.
    """
    variables = _variables(var)
    from omnigraph.pipeline.file.run import concealed, plan_pipeline

    with concealed(file, variables):
        found = plan_pipeline(file, variables=variables, engine=engine)
        return Answer(found.to_json(), _plan_text(found), json).without_secrets()


def _variables(given: list[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(detail=f"--var takes NAME=VALUE, as DAY=2026-01-31, not {text!r}.")
        found[name.strip()] = value
    return found


def result_text(result: PipelineResult) -> Lines:
    lines: Lines = [] if result.load is None else load_text(result.load)
    for step in result.embed:
        lines.append(str(step))
    if result.optimize is not None:
        lines += optimize_text(result.optimize)
    if result.cleanup is not None:
        lines += cleanup_text(result.cleanup)
    return [*lines, f"done in {result.seconds:.1f} s"]


def _plan_text(found: PipelinePlan) -> Lines:
    graph = f"{found.graph} ({'a new graph' if found.creates_graph else f'branch {found.branch}'}, mode {found.mode})"
    lines: Lines = [f"graph: {graph}", f"engine {found.engine}", f"reads {size_text(found.size_bytes)}"]
    lines += [f"  {i}. {step}" for i, step in enumerate(found.steps, start=1)]
    columns = ("type", "from", "format", "files", "size", "columns")
    rows = [_row(t) for t in found.targets]
    rows += [["records", d.path, d.format, f"{d.files:,}", size_text(d.size_bytes), ""] for d in found.data]
    if rows:
        lines += ["", Table(columns, rows, frozenset(("files", "size")))]
    for t in found.targets:
        lines += _misfits(t)
    return lines


def _row(t: TargetPlan) -> list[str]:
    if t.files is None:
        return [t.table_key, "sql", "", "", "", "known when it runs"]
    shown = "known when it runs"
    if t.columns is not None:
        pairs = [c if c == p else f"{c} → {p}" for c, p in t.columns.mapped.items()]
        shown = ", ".join(pairs) + (f"; skipped: {', '.join(t.columns.skipped)}" if t.columns.skipped else "")
    return [t.table_key, t.files.path, t.files.format, f"{t.files.files:,}", size_text(t.files.size_bytes), shown]


def _misfits(t: TargetPlan) -> list[str]:
    if t.columns is None:
        return []
    lines = []
    if t.columns.unknown:
        told = (
            f"{count(len(t.columns.unknown), 'column fits', 'columns fit')} no property: {', '.join(t.columns.unknown)}"
        )
        lines.append(f"{t.table_key}: {told}; map them, or skip them")
    if t.columns.missing:
        lines.append(f"{t.table_key}: nothing fills {', '.join(t.columns.missing)}")
    return lines
