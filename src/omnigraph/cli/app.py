"""Every verb with its examples, made into a typer application.

typer's own use of rich is off: it costs start-up, and its boxes break lines that people want to copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from typer import Context, Typer, echo
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_group

from omnigraph.cli.commands import (
    changes,
    cleanup,
    clone,
    completion,
    data,
    demo,
    diff,
    direct,
    embed,
    export,
    lint,
    load,
    local,
    maintain,
    merge,
    mutate,
    optimize,
    pipeline,
    query,
    relocate,
    repair,
    stats,
    tags,
    verify,
)
from omnigraph.cli.logs import VARIABLE, set_verbosity
from omnigraph.cli.shell import command as shell


@dataclass(frozen=True)
class Verb:
    """`words` and `usage` are what the user types; `short` stands in the list of commands, `examples` end the help."""

    words: str
    usage: str
    short: str
    run: Callable[..., Any]
    examples: tuple[str, ...]


GROUPS = {
    "schema": "Show, plan and apply schemas.",
    "branch": "Create, list, merge, reset and delete branches.",
    "tag": "Create, list and delete tags.",
    "commit": "List, show, revert and cherry-pick commits.",
    "pipeline": "Run, check and plan pipeline files.",
}

VERBS = (
    Verb(
        "init",
        "URI --schema FILE [OPTIONS]",
        "Create a graph.",
        direct.init,
        (
            "omnigraph init ./people --schema people.pg",
            "omnigraph init s3://bucket/people --schema people.pg --row-ids address",
        ),
    ),
    Verb(
        "load",
        "URI --data FILE... --mode MODE [OPTIONS]",
        "Load nodes and edges from JSON lines and tables.",
        load.load,
        (
            "omnigraph load ./people --data people.jsonl --mode append",
            "omnigraph load ./people --data 'day/*.jsonl.gz' --mode merge --on-error quarantine",
            "omnigraph load ./people --data new.jsonl --mode merge --branch review/anna --from main",
            "omnigraph load ./people --mode append --nodes Person=people.csv,map=full_name:name "
            "--edges 'Knows=follows/*.parquet,from=a,to=b'",
            "zcat dump.gz | omnigraph load s3://bucket/people --data - --mode overwrite --yes",
        ),
    ),
    Verb(
        "embed",
        "URI [OPTIONS]",
        "Fill vector properties from texts.",
        embed.embed,
        (
            "omnigraph embed ./people",
            "omnigraph embed ./people --type Post --property vector --provider openai --commit-every 10000",
            "omnigraph embed s3://bucket/people --provider gemini --rate 100 --engine spark",
        ),
    ),
    Verb(
        "export",
        "URI [OPTIONS]",
        "Write nodes and edges as JSON lines or tables.",
        export.export,
        (
            "omnigraph export ./people > people.jsonl",
            "omnigraph export ./people --type Person --commit 01JABC… --out person.jsonl.gz",
            "omnigraph export ./people --format parquet --out people-parquet/ --as-of 2026-01-31",
        ),
    ),
    Verb(
        "pipeline run",
        "FILE [OPTIONS]",
        "Run a pipeline file.",
        pipeline.run,
        (
            "omnigraph pipeline run people.yaml",
            "omnigraph pipeline run people.yaml --var DAY=2026-01-31 --engine local",
            "omnigraph pipeline run people.yaml --master spark://host:7077 --conf spark.executor.memory=8g",
        ),
    ),
    Verb(
        "pipeline validate",
        "FILE [OPTIONS]",
        "Check a pipeline file; no data is read.",
        pipeline.validate,
        ("omnigraph pipeline validate people.yaml --var DAY=2026-01-31",),
    ),
    Verb(
        "pipeline plan",
        "FILE [OPTIONS]",
        "Show what a run would read and do.",
        pipeline.plan,
        ("omnigraph pipeline plan people.yaml", "omnigraph pipeline plan people.yaml --json"),
    ),
    Verb(
        "query",
        "URI [NAME] --query FILE | -e SOURCE [OPTIONS]",
        "Run a read query.",
        query.query,
        (
            "omnigraph query ./people --query people.gq friends_of --param slug=ada",
            "omnigraph query ./people -e 'query all() { match { $p: Person } return { $p.name } }'",
            'omnigraph query ./people find --query people.gq --params \'{"q": "graphs"}\' --format jsonl',
            "omnigraph query s3://bucket/people --query count.gq --as-of 2026-01-31 --explain",
        ),
    ),
    Verb(
        "mutate",
        "URI [NAME] --query FILE | -e SOURCE [OPTIONS]",
        "Run a query that writes.",
        mutate.mutate,
        (
            "omnigraph mutate ./people hire --query people.gq --param person=ada --param company=acme --as anna",
            "omnigraph mutate ./people -e 'query off() { update Person set { active: false } where score < 0 }'",
            "omnigraph mutate ./people --query tidy.gq --branch review/anna --if-commit 01JABC… --json",
            "omnigraph mutate s3://bucket/people forget --query people.gq --params @who.json --format csv > gone.csv",
        ),
    ),
    Verb(
        "shell",
        "URI [OPTIONS]",
        "Ask a graph, query by query.",
        shell.shell,
        (
            "omnigraph shell ./people",
            "omnigraph shell ./people --branch review/anna --as anna",
            "cat questions.gq | omnigraph shell s3://bucket/people --format csv > answers.csv",
        ),
    ),
    Verb(
        "lint",
        "--query FILE (--schema FILE | URI) [OPTIONS]",
        "Check queries against a schema.",
        lint.lint,
        (
            "omnigraph lint --query people.gq --schema people.pg",
            "omnigraph lint ./people --query people.gq --json",
        ),
    ),
    Verb(
        "snapshot",
        "URI [OPTIONS]",
        "Show the tables of one state.",
        data.snapshot,
        (
            "omnigraph snapshot ./people",
            "omnigraph snapshot ./people --branch review/anna --json",
            "omnigraph snapshot ./people --as-of 2026-01-31T12:00:00",
        ),
    ),
    Verb(
        "optimize",
        "URI [OPTIONS]",
        "Merge small fragments, restore indices.",
        optimize.optimize,
        (
            "omnigraph optimize ./people",
            "omnigraph optimize ./people --plan",
            "omnigraph optimize s3://bucket/people --tables Knows --max-bytes 20GiB --max-time 30m",
            "omnigraph optimize ./people --plan --json > plan.json && omnigraph optimize ./people --apply plan.json",
        ),
    ),
    Verb(
        "schema show",
        "URI [OPTIONS]",
        "Show the schema of a branch.",
        data.schema_show,
        ("omnigraph schema show ./people > people.pg", "omnigraph schema show ./people --branch review/anna"),
    ),
    Verb(
        "schema plan",
        "URI --schema FILE [OPTIONS]",
        "Show what apply would do.",
        direct.schema_plan,
        (
            "omnigraph schema plan ./people --schema people.pg",
            "omnigraph schema plan ./people --schema people.pg --json",
        ),
    ),
    Verb(
        "schema apply",
        "URI --schema FILE [OPTIONS]",
        "Move a branch to a new schema.",
        data.schema_apply,
        (
            "omnigraph schema apply ./people --schema people.pg",
            "omnigraph schema apply ./people --schema people.pg --branch trial --as anna",
        ),
    ),
    Verb(
        "branch create",
        "URI NAME [OPTIONS]",
        "Create a branch.",
        data.branch_create,
        (
            "omnigraph branch create ./people review/anna",
            "omnigraph branch create review/anna --store ./people --from trial",
            "omnigraph branch create ./people hotfix --from release/1",
        ),
    ),
    Verb("branch list", "URI [OPTIONS]", "List the branches.", data.branch_list, ("omnigraph branch list ./people",)),
    Verb(
        "branch reset",
        "URI NAME --to REVISION [OPTIONS]",
        "Let a branch stand at another commit.",
        data.branch_reset,
        (
            "omnigraph branch reset ./people main --to release/1",
            "omnigraph branch reset s3://bucket/people trial --to 01JABC… --if-commit 01JDEF… --yes",
        ),
    ),
    Verb(
        "branch delete",
        "URI NAME [OPTIONS]",
        "Delete a branch.",
        data.branch_delete,
        ("omnigraph branch delete ./people review/anna", "omnigraph branch delete s3://bucket/people trial --yes"),
    ),
    Verb(
        "branch merge",
        "URI SOURCE [OPTIONS]",
        "Merge a branch into another.",
        merge.branch_merge,
        (
            "omnigraph branch merge ./people review/anna",
            "omnigraph branch merge ./people review/anna --plan --conflicts conflicts.jsonl",
            "omnigraph branch merge ./people review/anna --resolve conflicts.jsonl --delete-branch",
            "omnigraph branch merge s3://bucket/people main --into review/anna --strategy theirs --json",
            "omnigraph branch merge s3://bucket/people reload --engine spark --master spark://host:7077",
        ),
    ),
    Verb(
        "tag create",
        "URI NAME [REVISION] [OPTIONS]",
        "Name a commit.",
        tags.tag_create,
        (
            "omnigraph tag create ./people release/1",
            "omnigraph tag create ./people before-cleanup 01JABC… --message 'last good state'",
            "omnigraph tag create january 2026-01-31 --store ./people --branch trial",
        ),
    ),
    Verb("tag list", "URI [OPTIONS]", "List the tags.", tags.tag_list, ("omnigraph tag list ./people",)),
    Verb(
        "tag delete",
        "URI NAME [OPTIONS]",
        "Delete a tag.",
        tags.tag_delete,
        ("omnigraph tag delete ./people release/1",),
    ),
    Verb(
        "changes",
        "[baseline] URI [OPTIONS]",
        "Show what each commit changed, and follow.",
        changes.changes,
        (
            "omnigraph changes ./people --limit 10",
            "omnigraph changes ./people --after feed1.WyI… --type Person --format jsonl",
            "omnigraph changes s3://bucket/people --from-now --follow --format jsonl",
            "omnigraph changes baseline ./people --format jsonl > baseline.jsonl",
        ),
    ),
    Verb(
        "commit list",
        "URI [OPTIONS]",
        "List the commits of a branch.",
        data.commit_list,
        (
            "omnigraph commit list ./people --limit 10",
            "omnigraph commit list ./people --branch trial --json",
            "omnigraph commit list ./people --graph",
        ),
    ),
    Verb(
        "commit show",
        "URI REVISION [OPTIONS]",
        "Show one commit.",
        data.commit_show,
        (
            "omnigraph commit show ./people 01JABC…",
            "omnigraph commit show ./people release/1",
            "omnigraph commit show ./people 01JABC… --changes --json",
        ),
    ),
    Verb(
        "commit revert",
        "URI ID [OPTIONS]",
        "Undo what one commit changed.",
        merge.commit_revert,
        ("omnigraph commit revert ./people 01JABC…", "omnigraph commit revert ./people 01JABC… --branch review/anna"),
    ),
    Verb(
        "commit cherry-pick",
        "URI ID [OPTIONS]",
        "Bring the change of one commit onto a branch.",
        merge.commit_cherry_pick,
        ("omnigraph commit cherry-pick ./people 01JABC… --onto review/anna",),
    ),
    Verb(
        "diff",
        "URI BASE..TARGET [OPTIONS]",
        "Show what differs between two states.",
        diff.diff,
        (
            "omnigraph diff ./people main..review/anna",
            "omnigraph diff ./people main...review/anna --stat",
            "omnigraph diff ./people 01JABC…..main --type Person --op update --format jsonl",
            "omnigraph diff s3://bucket/people 01JABC…..01JDEF… --format parquet --out changes/ --engine spark",
        ),
    ),
    Verb(
        "history",
        "URI --type NAME --id ID [OPTIONS]",
        "Show every version of one entity.",
        diff.history,
        (
            "omnigraph history ./people --type Person --id Ada",
            "omnigraph history ./people --type Knows --id 01J… --json",
        ),
    ),
    Verb(
        "cleanup",
        "URI --keep N | --older-than DURATION [OPTIONS]",
        "Remove old versions and leftovers.",
        cleanup.cleanup,
        (
            "omnigraph cleanup ./people --keep 10 --older-than 7d",
            "omnigraph cleanup ./people --keep 10 --older-than 7d --confirm",
            "omnigraph cleanup ./people --policy policy.yaml --plan --json > plan.json",
            "omnigraph cleanup s3://bucket/people --apply plan.json --confirm --yes",
        ),
    ),
    Verb(
        "maintain",
        "URI [OPTIONS]",
        "Recover, verify, optimize, clean up: one report.",
        maintain.maintain,
        (
            "omnigraph maintain ./people",
            "omnigraph maintain ./people --keep 10 --older-than 7d --confirm --html report.html",
            "omnigraph maintain s3://bucket/people --policy policy.yaml --confirm --yes --quiet --json",
            "omnigraph maintain ./people --branch main --branch 'review/*' --max-time 30m --max-bytes 20GiB",
        ),
    ),
    Verb(
        "stats",
        "URI [OPTIONS]",
        "Show how healthy a graph is.",
        stats.stats,
        ("omnigraph stats ./people", "omnigraph stats s3://bucket/people --branch review/anna --json"),
    ),
    Verb(
        "verify",
        "URI [OPTIONS]",
        "Check everything a graph rests on.",
        verify.verify,
        (
            "omnigraph verify ./people",
            "omnigraph verify ./people --quick --json",
            "omnigraph verify s3://bucket/people --branch main --full --engine spark",
        ),
    ),
    Verb(
        "repair",
        "URI [OPTIONS]",
        "Publish or discard what changed tables without omnigraph.",
        repair.repair,
        (
            "omnigraph repair ./people",
            "omnigraph repair ./people --confirm",
            "omnigraph repair s3://bucket/people --branch review/anna --tables Person --discard --confirm",
            "omnigraph repair --cluster ./cluster --graph people --force --confirm --json",
        ),
    ),
    Verb(
        "clone",
        "SOURCE TARGET [OPTIONS]",
        "Copy a graph, verified, beside its writers.",
        clone.clone,
        (
            "omnigraph clone ./people ./backup/people",
            "omnigraph clone ./people s3://backup/people --verify full",
            "omnigraph clone s3://bucket/people ./review --branch review/anna",
            "omnigraph clone ./people ./january --as-of 2026-01-31 --copy --json",
        ),
    ),
    Verb(
        "relocate",
        "URI [OPTIONS]",
        "Make a copied or moved graph independent.",
        relocate.relocate,
        (
            "omnigraph relocate ./people",
            "omnigraph relocate ./people --confirm",
            "omnigraph relocate s3://backup/people --from s3://live/people --confirm --json",
        ),
    ),
    Verb(
        "demo",
        "[OPTIONS]",
        "Show what omnigraph does, on made-up data.",
        demo.demo,
        ("omnigraph demo", "omnigraph demo --scale 0.1 --keep ./demo"),
    ),
    Verb(
        "completion",
        "bash|zsh|fish",
        "Print a script that completes words in a shell.",
        completion.completion,
        ("omnigraph completion bash > omnigraph.bash", "omnigraph completion fish > omnigraph.fish"),
    ),
    Verb("version", "[OPTIONS]", "Show the version.", local.version, ("omnigraph version", "omnigraph version --json")),
)

_SETTINGS: dict[str, Any] = {"help_option_names": ["--help", "-h"]}


@cache
def command() -> TyperGroup:
    """The application as it is run; typer takes 30 ms to make it, and a process may call it more than once."""
    return get_group(_build())


def _build() -> Typer:
    app = _group("A typed, versioned property graph on the Lance format.", OVERVIEW)
    groups = {"": app}
    for verb in VERBS:
        *outer, name = verb.words.split()
        group = " ".join(outer)
        if group not in groups:
            groups[group] = _group(GROUPS[group], f"Run `omnigraph {group} COMMAND --help` for examples.")
            app.add_typer(groups[group], name=group)
        groups[group].command(
            name,
            cls=_Command,
            short_help=verb.short,
            options_metavar=verb.usage,
            epilog=_examples(verb.examples),
            context_settings=_SETTINGS,
        )(verb.run)
    return app


OVERVIEW = """\b
Start with:
  omnigraph init ./people --schema people.pg
  omnigraph load ./people --data people.jsonl --mode append
  omnigraph snapshot ./people
\b
Every command has examples: omnigraph COMMAND --help
Exit codes: 0 done, 1 failed, 2 wrong usage, 4 --if-commit lost, 130 stopped by Ctrl-C."""


class _Command(TyperCommand):
    """A command whose usage line is the one in VERBS: what is needed first, in the order in which people type it.

    Every command has the option --verbose.
    """

    def __init__(self, name: str | None, *, params: list[Any] | None = None, **options: Any) -> None:
        super().__init__(name, params=[*(params or []), _verbose()], **options)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [self.options_metavar or ""]


def _verbose() -> TyperOption:
    return TyperOption(
        param_decls=["--verbose", "-v"],
        count=True,
        default=0,
        expose_value=False,
        callback=set_verbosity,
        help=f"Show log lines on stderr; -vv shows more. {VARIABLE}=debug, info, warning or error does the same.",
    )


def _group(text: str, epilog: str) -> Typer:
    group = Typer(
        help=text,
        epilog=epilog,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        invoke_without_command=True,
        context_settings=_SETTINGS,
    )
    group.callback()(_help_alone)
    return group


def _help_alone(context: Context) -> None:
    if context.invoked_subcommand is None:
        echo(context.get_help())


def _examples(lines: tuple[str, ...]) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
