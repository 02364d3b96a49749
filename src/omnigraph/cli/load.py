"""The verb load: NDJSON records of nodes and edges into one branch, in one commit.

1. look      at all input files, the branch and the options; wrong ones cost nothing
2. ask       if existing data on a remote target is to be replaced
3. load      all files as one stream; a line that is wrong is named by its file and its number in that file
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from typer import Option

from omnigraph.cli.consent import require_consent
from omnigraph.cli.inputs import STDIN, Inputs, expand
from omnigraph.cli.options import Actor, Branch, IfCommit, Json, Quiet, Store, Words, Yes
from omnigraph.cli.output import Answer, echo_target
from omnigraph.cli.progress import Progress, size_text
from omnigraph.cli.target import Target, checked_actor, open_graph, resolve
from omnigraph.cli.text import load_text
from omnigraph.errors import ConstraintViolation, FileUnwritable, InputError, RecordError, UsageError, Violation

Data = Annotated[
    list[str],
    Option("--data", "-d", metavar="FILE", help="NDJSON, also .gz and .zst; a pattern; - is stdin. May be repeated."),
]
Mode = Annotated[
    Literal["append", "merge", "overwrite"],
    Option(
        "--mode",
        help="append: new entities only. merge: add or replace by id. overwrite: replace all entities of each type "
        "that is in the files.",
    ),
]
Base = Annotated[
    str | None,
    Option("--from", metavar="NAME", help="Create --branch from this branch if it is missing.", show_default=False),
]
OnError = Annotated[
    Literal["fail", "quarantine"],
    Option("--on-error", help="fail: one wrong line stops the load. quarantine: put wrong lines aside, load the rest."),
]
Quarantine = Annotated[
    str | None,
    Option(
        "--quarantine",
        metavar="FILE",
        help="Where --on-error quarantine puts wrong lines; by default the first file's name with .rejected.jsonl.",
        show_default=False,
    ),
]
Engine = Annotated[
    Literal["auto", "local", "spark"], Option("--engine", help="Where it runs; auto and local are this process.")
]


def load(
    data: Data,
    mode: Mode,
    words: Words = None,
    store: Store = None,
    branch: Branch = "main",
    from_: Base = None,
    on_error: OnError = "fail",
    quarantine: Quarantine = None,
    engine: Engine = "auto",
    if_commit: IfCommit = None,
    actor: Actor = None,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> Answer:
    """Load nodes and edges from JSON lines, in one commit: all of them, or none.

    A line is {"type": "Person", "data": {…}} or {"edge": "Knows", "from": "id", "to": "id", "data": {…}}.
    """
    target, more = _target_and_files(words or [], store)
    _check_options(branch=branch, from_=from_, on_error=on_error, quarantine=quarantine, engine=engine)
    inputs = Inputs(expand([*data, *more]))
    aside = _quarantine_file(inputs, quarantine) if on_error == "quarantine" else None
    if mode == "overwrite":
        effect = f"entities of the types in the input will be replaced on branch {branch}"
        require_consent("load --mode overwrite", effect, target, yes=yes, as_json=json)
    with open_graph(target, actor=checked_actor(actor)) as graph:
        echo_target("loading into", target.uri, branch=branch, quiet=quiet)
        with Progress("loading", lambda: _how_far(inputs), quiet=quiet):
            try:
                result = graph.load(
                    iter(inputs),
                    mode=mode,
                    branch=branch,
                    from_branch=from_,
                    on_error=on_error,
                    quarantine=aside,
                    if_commit=if_commit,
                )
            except (RecordError, ConstraintViolation) as error:
                raise _with_files(error, inputs) from error
    return Answer(result.to_json(), load_text(result), json)


def _target_and_files(words: Sequence[str], store: str | None) -> tuple[Target, Sequence[str]]:
    """The shell turns `--data *.jsonl` into one option value and more words: those are files as well."""
    if store is None:
        if len(words) > 1 and os.path.isfile(words[0]):
            detail = f"{words[0]} is a file, not a graph: name the graph before --data, or with --store."
            raise UsageError(detail=detail)
        return resolve(words[0] if words else None, None), words[1:]
    for word in words:
        if not os.path.isfile(word):
            resolve(word, store)
    return resolve(None, store), words


def _check_options(*, branch: str, from_: str | None, on_error: str, quarantine: str | None, engine: str) -> None:
    if engine == "spark":
        raise UsageError(detail="--engine spark is not available in this version; load runs in this process.")
    if from_ is not None and branch == "main":
        raise UsageError(detail="--from says what a missing --branch is made from; name that branch with --branch.")
    if quarantine is not None and on_error != "quarantine":
        raise UsageError(detail="--quarantine names where wrong lines go; it needs --on-error quarantine.")


def _quarantine_file(inputs: Inputs, given: str | None) -> str:
    first = inputs.files[0]
    path = given if given is not None else f"{'stdin' if first == STDIN else first}.rejected.jsonl"
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise FileUnwritable(path=path, detail=f"there is no folder {folder}.")
    if os.path.isdir(path) or not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise FileUnwritable(path=path, detail="it is a folder." if os.path.isdir(path) else "permission denied.")
    return path


def _how_far(inputs: Inputs) -> str:
    total = "" if inputs.total_bytes is None else f" of {size_text(inputs.total_bytes)}"
    return f"{size_text(inputs.read_bytes)}{total} read"


def _with_files(error: InputError, inputs: Inputs) -> InputError:
    """The same error; with several files, each line is named by its file and its number in that file."""
    violations: list[dict[str, Any]] = error.fields.get("violations", [])
    if len(inputs.files) < 2 or not violations:
        return error
    from omnigraph.write.problems import described

    placed = [_placed(v, inputs) for v in violations]
    lines = []
    for v in placed:
        text = described(Violation(**{k: x for k, x in v.items() if k != "file"}))
        lines.append(f"{v['file']}, {text}" if "file" in v else text)
    shown = "\n".join(lines)
    left = error.fields.get("count", len(placed)) - len(placed)
    if left > 0:
        shown += f"\n… and {left} more"
    return type(error)(**{**error.fields, "violations": placed, "shown": shown})


def _placed(violation: dict[str, Any], inputs: Inputs) -> dict[str, Any]:
    if "line" not in violation:
        return violation
    name, line = inputs.located(violation["line"])
    return {**violation, "file": name, "line": line}
