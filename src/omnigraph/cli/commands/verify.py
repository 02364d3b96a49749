"""The verb verify: check everything that a graph rests on, and say what mends what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Option

from omnigraph.cli.options import Cluster, Conf, Engine, GraphId, Json, Master, Quiet, Store, Uri
from omnigraph.cli.output import Answer, count, echo_target
from omnigraph.cli.target import open_direct, resolve_direct
from omnigraph.cli.text import Lines
from omnigraph.cli.watch import watching
from omnigraph.config.sizes import size_text

if TYPE_CHECKING:
    from omnigraph.maintenance.verify import Finding, VerifyResult

OneBranch = Annotated[
    str | None,
    Option("--branch", "-b", metavar="NAME", help="Only this branch; by default all of them.", show_default=False),
]
Quick = Annotated[
    bool,
    Option(
        "--quick", help="Read no data but the places of blobs: manifest, versions, files, coverage, drift, tickets."
    ),
]
Full = Annotated[
    bool, Option("--full", help="Ask every index for every value, read every blob, check every rule of every row.")
]
OrphansOlderThan = Annotated[
    str,
    Option(
        "--orphans-older-than",
        metavar="AGE",
        help="Tell of files that no version refers to once they are this old, as 7d, 12h, 30m or 90s. Younger ones may "
        "belong to work in flight.",
    ),
]


def verify(
    uri: Uri = None,
    store: Store = None,
    cluster: Cluster = None,
    graph_id: GraphId = None,
    branch: OneBranch = None,
    quick: Quick = False,
    full: Full = False,
    orphans_older_than: OrphansOlderThan = "7d",
    engine: Engine = None,
    master: Master = None,
    conf: Conf = None,
    json: Json = False,
    quiet: Quiet = False,
) -> Answer:
    """Check that everything a graph rests on is there and agrees with itself. Nothing is changed.

    Without --full, indices and blobs are sampled. Exit code 1 if something is wrong; every finding names the command
    that mends it.
    """
    from omnigraph.config.durations import seconds_of

    target = resolve_direct(uri, store, cluster, graph_id, verb="verify")
    age_s = seconds_of(orphans_older_than, option="--orphans-older-than")
    echo_target("verifying", target.uri, branch=branch, quiet=quiet)
    with watching(quiet=quiet) as watcher, open_direct(target, engine, master, conf, watcher) as graph:
        result = graph.verify(branch=branch, quick=quick, full=full, orphans_older_than_s=age_s)
    return Answer(
        result.to_json(), verify_text(result, in_bucket="://" in target.uri), json, exit_code=0 if result.ok else 1
    )


_WORDS = {
    "branches": ("branch", "branches"),
    "commits": ("commit", "commits"),
    "tables": ("table version", "table versions"),
    "files": ("file", "files"),
    "rows": ("row", "rows"),
    "indices": ("index", "indices"),
    "index_questions": ("question to indices", "questions to indices"),
    "blobs": ("blob", "blobs"),
}


def verify_text(result: VerifyResult, *, in_bucket: bool) -> Lines:
    seen = [count(result.checked[k], *words) for k, words in _WORDS.items() if k in result.checked]
    looked = f"looked at {', '.join(seen)} in {result.seconds:.1f} s on {result.engine}"
    return [looked, *_unchecked_text(result, in_bucket=in_bucket), *findings_text(result)]


def _unchecked_text(result: VerifyResult, *, in_bucket: bool) -> Lines:
    number = result.checked.get("unchecked", 0)
    if not number:
        return []
    size = size_text(result.checked.get("unchecked_bytes", 0))
    files, has, was = ("1 file", "has", "was") if number == 1 else (f"{number:,} files", "have", "were")
    why = ": Lance writes to a bucket by itself, and omnigraph does not see the bytes" if in_bucket else ""
    return [f"{files} ({size}) {has} no recorded checksum and {was} not compared{why}"]


def findings_text(result: VerifyResult) -> Lines:
    """What is wrong, and the verdict."""
    lines: Lines = []
    for finding in result.findings:
        lines += _finding_text(finding)
    errors, warnings = result.count("error"), result.count("warning")
    if not result.findings:
        lines.append("ok: nothing is wrong")
    elif result.ok:
        lines.append(f"ok, with {count(warnings, 'warning', 'warnings')}")
    else:
        lines.append(f"not ok: {count(errors, 'error', 'errors')}, {count(warnings, 'warning', 'warnings')}")
    return lines


def _finding_text(finding: Finding) -> Lines:
    where = " ".join(part for part in (finding.table, finding.branch and f"on {finding.branch}") if part)
    many = f" ({finding.count:,})" if finding.count > 1 else ""
    lines: Lines = [f"{finding.severity} {finding.code} {where}".rstrip() + f": {finding.message}{many}"]
    lines += [f"    {example}" for example in finding.examples]
    lines.append(f"  → {finding.remedy}")
    return lines
