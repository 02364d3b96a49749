"""Verbs on the data of a graph: snapshot, branches, commits, schema show and apply.

Each verb resolves its target, says on stderr where it writes, calls the graph once and returns an Answer.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from typer import Option

from omnigraph.cli.changes_text import change_lines
from omnigraph.cli.consent import confirmed_by_name, require_consent
from omnigraph.cli.files import read_text
from omnigraph.cli.history_graph import drawn
from omnigraph.cli.options import (
    Actor,
    AsOf,
    At,
    Branch,
    DataLoss,
    IfCommit,
    Json,
    Quiet,
    SchemaFile,
    Store,
    Uri,
    Words,
    Yes,
)
from omnigraph.cli.output import Answer, count, echo_target
from omnigraph.cli.progress import Progress
from omnigraph.cli.target import checked_actor, open_graph, resolve, resolve_with
from omnigraph.cli.text import Lines, branches_text, commit_text, commits_text, dropped_text, plan_text, tables_text
from omnigraph.errors import UnsupportedSchemaChange, UsageError

From = Annotated[
    str, Option("--from", metavar="REVISION", help="Where to start: a branch, a tag, the id of a commit, or a time.")
]
To = Annotated[
    str,
    Option("--to", metavar="REVISION", help="Where it shall stand: the id of a commit, a tag, a branch, or a time."),
]
OneBranch = Annotated[
    str | None,
    Option("--branch", "-b", metavar="NAME", help="The branch; main, or all with --graph.", show_default=False),
]
Drawn = Annotated[bool, Option("--graph", help="Draw how branches and merges hang together.")]
Limit = Annotated[
    int | None, Option("--limit", "-n", metavar="N", help="At most so many, the newest.", show_default=False)
]
Changes = Annotated[bool, Option("--changes", help="Show what it did to each entity.")]

# ---- state -----------------------------------------------------------------------------------------------------------


def snapshot(
    uri: Uri = None,
    store: Store = None,
    branch: Branch = "main",
    commit: At = None,
    as_of: AsOf = None,
    json: Json = False,
) -> Answer:
    """Show the tables of one state: their versions, rows and fragments."""
    target = resolve(uri, store)
    with open_graph(target) as graph:
        state = graph.snapshot(branch, commit=commit, as_of=as_of)
        if commit is not None or as_of is not None:
            state.require_readable()
        if json:
            return Answer(state.to_json(), [], json)
        head = f"branch {state.branch}, commit {state.commit}"
        versions = f"manifest version {state.manifest_version}, format {state.internal_schema_version}"
        return Answer({}, [head, versions, "", tables_text(state.tables())], json)


# ---- schema ----------------------------------------------------------------------------------------------------------


def schema_show(uri: Uri = None, store: Store = None, branch: Branch = "main", json: Json = False) -> Answer:
    """Show the schema of a branch, as text that `schema plan` and `schema apply` take back."""
    target = resolve(uri, store)
    with open_graph(target) as graph:
        found = graph.schema(branch)
    from omnigraph.language.schema.serial import schema_to_json
    from omnigraph.language.schema.syntax.show import render

    source = found.source or render(found)
    if not json:
        return Answer({}, [source], json)
    model = {k: v for k, v in schema_to_json(found).items() if k != "source"}
    return Answer({"branch": branch, "source": source, "schema": model}, [], json)


def schema_apply(
    schema: SchemaFile,
    uri: Uri = None,
    store: Store = None,
    branch: Branch = "main",
    allow_data_loss: DataLoss = False,
    if_commit: IfCommit = None,
    actor: Actor = None,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> Answer:
    """Move one branch to a new schema, all its tables in one commit. Other branches keep theirs.

    Types and properties that the new schema does not have are dropped. They stay readable at older commits, unless
    --allow-data-loss is given: then they are removed, except where another branch holds them. A schema that keeps no
    type at all needs --allow-data-loss, or the graph's name as an answer on a terminal.
    """
    target = resolve(uri, store)
    text = read_text(schema)
    with open_graph(target, actor=checked_actor(actor)) as graph:
        if allow_data_loss and not target.is_local:
            plan = graph.plan_schema(text, branch=branch, allow_data_loss=True, schema_file=schema)
            drops = [step for step in plan.steps if step.kind.startswith("drop_")]
            if drops:
                effect = f"{count(len(drops), 'drop', 'drops')} of {branch}'s schema can't be undone"
                require_consent("schema apply --allow-data-loss", effect, target, yes=yes, as_json=json)
        echo_target("applying the schema to", target.uri, branch=branch, quiet=quiet)
        apply = partial(
            graph.apply_schema,
            text,
            branch=branch,
            allow_data_loss=allow_data_loss,
            schema_file=schema,
            if_commit=if_commit,
        )
        try:
            with Progress("applying", quiet=quiet):
                result = apply()
        except UnsupportedSchemaChange as error:
            if not error.drops_all or not confirmed_by_name(f"every type of {branch} is dropped", target, as_json=json):
                raise
            result = apply(drop_all=True)
    text_lines = plan_text(result.plan)
    if result.commit is not None:
        text_lines.append(f"applied to {branch}, commit {result.commit.id}")
        text_lines += dropped_text(result)
    return Answer(result.to_json(), text_lines, json)


# ---- branches --------------------------------------------------------------------------------------------------------


def branch_create(
    words: Words = None,
    store: Store = None,
    from_: From = "main",
    if_commit: IfCommit = None,
    actor: Actor = None,
    json: Json = False,
    quiet: Quiet = False,
) -> Answer:
    """Create a branch. It costs the same for any size of graph: tables are forked when the branch first writes them."""
    target, name = resolve_with(words or [], store, name="the new branch's name")
    with open_graph(target, actor=checked_actor(actor)) as graph:
        echo_target("creating a branch of", target.uri, branch=name, quiet=quiet)
        made = graph.create_branch(name, from_branch=from_, if_commit=if_commit)
    document = {"branch": made.name, "from": from_, "head": made.commit, "commit": None}
    return Answer(document, [f"created {made.name} from {from_}, at commit {made.commit}"], json)


def branch_list(uri: Uri = None, store: Store = None, json: Json = False) -> Answer:
    """List the branches, by name."""
    target = resolve(uri, store)
    with open_graph(target) as graph:
        found = graph.branches()
    return Answer({"branches": [b.to_json() for b in found]}, [branches_text(found)], json)


def branch_delete(
    words: Words = None,
    store: Store = None,
    actor: Actor = None,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> Answer:
    """Delete a branch with everything that was written on it and not merged."""
    target, name = resolve_with(words or [], store, name="the branch's name")
    require_consent("branch delete", f"the branch {name} will be gone", target, yes=yes, as_json=json)
    with open_graph(target, actor=checked_actor(actor)) as graph:
        echo_target("deleting a branch of", target.uri, branch=name, quiet=quiet)
        gone = graph.delete_branch(name)
    document = {"branch": gone.name, "head": gone.commit, "deleted": True, "commit": None}
    return Answer(document, [f"deleted {gone.name}, which was at commit {gone.commit}"], json)


def branch_reset(
    to: To,
    words: Words = None,
    store: Store = None,
    if_commit: IfCommit = None,
    actor: Actor = None,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> Answer:
    """Let a branch stand at another commit. What came after that commit is no longer part of the branch.

    The commit that the branch was at stays readable as long as cleanup keeps its versions, or for good with a tag. A
    branch that others were made from can't be reset.
    """
    target, name = resolve_with(words or [], store, name="the branch's name")
    require_consent("branch reset", f"the branch {name} will lose its newest commits", target, yes=yes, as_json=json)
    with open_graph(target, actor=checked_actor(actor)) as graph:
        echo_target("resetting a branch of", target.uri, branch=name, quiet=quiet)
        result = graph.reset_branch(name, to=to, if_commit=if_commit)
    if result.commit is None:
        return Answer(result.to_json(), [f"{name} is at commit {result.target} already"], json)
    lines = [
        f"reset {name} to commit {result.target}; the reset is commit {result.commit.id}",
        f"{name} was at commit {result.previous}, which cleanup removes in time; a tag keeps it: "
        f"omnigraph tag create {target.uri} NAME {result.previous}",
    ]
    return Answer(result.to_json(), lines, json)


# ---- commits ---------------------------------------------------------------------------------------------------------


def commit_list(
    uri: Uri = None,
    store: Store = None,
    branch: OneBranch = None,
    limit: Limit = None,
    graph_: Drawn = False,
    json: Json = False,
) -> Answer:
    """List the commits that a branch's state is made of, newest first.

    With --graph, those of all branches, or of one, with what was merged, as a drawing.
    """
    if limit is not None and limit < 1:
        raise UsageError(detail=f"--limit is a number from 1 up, not {limit}.")
    target = resolve(uri, store)
    with open_graph(target) as graph:
        if graph_:
            commits = graph.commit_graph(None if branch is None else [branch], limit=limit)
            text: Lines = [] if json else list(drawn(commits, graph.branches(), graph.tags()))
        else:
            commits = graph.commits(branch or "main", limit=limit)
            text = [commits_text(commits)]
    return Answer({"commits": [c.to_json() for c in commits]}, text, json)


def commit_show(words: Words = None, store: Store = None, changes: Changes = False, json: Json = False) -> Answer:
    """Show one commit: who made it, when, how, and which tables it moved; with --changes also what it did to entities.

    The changes are those to the first parent: a merge did what it brought to its branch.
    """
    target, revision = resolve_with(words or [], store, name="the commit's id, a branch, a tag or a time")
    with open_graph(target) as graph:
        info = graph.get_commit(revision)
        document: dict[str, Any] = {"commit": info.to_json()}
        lines = commit_text(info)
        if changes:
            diff = graph.commit_changes(revision)
            if json:
                document |= {k: v for k, v in diff.to_json().items() if k in ("schema", "changes")}
            else:
                lines += ["changes:", *(f"  {line}" for line in change_lines(diff))]
    return Answer(document, lines, json)
