"""Options that several verbs share. The same option means the same everywhere, with the same default."""

from __future__ import annotations

from typing import Annotated, Literal

from typer import Argument, Option

from omnigraph.cli.commands.completion import branch_names

# Arguments are hidden from the list of options because the usage line of each verb names them.
Uri = Annotated[str | None, Argument(hidden=True)]
Words = Annotated[list[str] | None, Argument(hidden=True)]
Store = Annotated[
    str | None,
    Option(
        "--store",
        metavar="URI",
        help="The graph, instead of the argument: a path, a file:// or an s3:// URI.",
        show_default=False,
    ),
]
Cluster = Annotated[
    str | None,
    Option(
        "--cluster",
        metavar="ROOT",
        help="The cluster that the graph belongs to, instead of the graph's URI: a path, a file:// or an s3:// URI.",
        show_default=False,
    ),
]
GraphId = Annotated[
    str | None,
    Option("--graph", metavar="ID", help="Which graph of the cluster; needed if it has several.", show_default=False),
]
Json = Annotated[bool, Option("--json", help="Answer with one JSON document, also on failure.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Do not say on stderr what is written where, and no progress.")]
Branch = Annotated[str, Option("--branch", "-b", metavar="NAME", help="The branch.", autocompletion=branch_names)]
At = Annotated[
    str | None,
    Option(
        "--commit",
        metavar="REVISION",
        help="An older state: that of a commit, by its id, a branch, a tag or a time.",
        show_default=False,
    ),
]
AsOf = Annotated[
    str | None,
    Option(
        "--as-of",
        metavar="TIME",
        help="An older state: that of the branch's newest commit at this time, as 2026-01-31 (its end) or "
        "2026-01-31T12:00:00, in UTC unless an offset says otherwise.",
        show_default=False,
    ),
]
Actor = Annotated[
    str | None,
    Option(
        "--as",
        metavar="NAME",
        envvar="OMNIGRAPH_ACTOR",
        show_envvar=True,
        help="Who writes; stands on the commit.",
        show_default=False,
    ),
]
IfCommit = Annotated[
    str | None,
    Option(
        "--if-commit",
        metavar="ID",
        help="Write only if the branch is still at this commit; otherwise exit code 4.",
        show_default=False,
    ),
]
Yes = Annotated[bool, Option("--yes", help="Do not ask before destroying data on a target that is not a local path.")]
SchemaFile = Annotated[str, Option("--schema", metavar="FILE", help="The schema, a .pg file; - reads it from stdin.")]
DataLoss = Annotated[
    bool, Option("--allow-data-loss", help="Make drops hard: what is dropped is gone from the history as well.")
]
Engine = Annotated[
    Literal["auto", "spark", "local"] | None,
    Option(
        "--engine",
        help="Where it runs. auto, the default: on Spark, unless the work is too small to start a JVM for; local: in "
        "this process. OMNIGRAPH_ENGINE is the same.",
        show_default=False,
    ),
]
Master = Annotated[
    str | None,
    Option(
        "--master",
        metavar="URL",
        help="Which Spark: local[*], spark://…, yarn, k8s://…, or sc://… for Spark Connect; local[*] by default. "
        "OMNIGRAPH_MASTER is the same.",
        show_default=False,
    ),
]
Conf = Annotated[
    list[str] | None,
    Option(
        "--conf",
        metavar="KEY=VALUE",
        help="A setting of Spark, as spark.driver.memory=4g; may be repeated.",
        show_default=False,
    ),
]
