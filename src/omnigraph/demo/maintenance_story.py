"""The second half of the demo: a graph with many small writes, and its maintenance.

1. writes    several processes make small writes, on main and on a branch
2. stats     the effect on the graph
3. optimize  merges and indexes: rows as before, one commit; a second run does nothing. Queries run before and
             after it (`query_story`)
4. cleanup   a preview, then old versions go
5. drift     bare Lance writes to two tables: repair classifies them, publishes the harmless one, discards the other
6. verify    checks every file, row rule and index
7. maintain  more writes, and one command for all of it, with a report
8. answers   of those queries, and their times

Each step asserts what it reports.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import omnigraph as og
from omnigraph.config.sizes import size_text
from omnigraph.demo.narrator import Narrator
from omnigraph.demo.query_story import QuestionTimes, compare, questions, run_questions, tell_answers
from omnigraph.errors import UncoveredDrift

if TYPE_CHECKING:
    from omnigraph.maintenance.stats import GraphStats

BRANCH = "review/anna"
KEEP = 3
WRITER = """
import json, sys
import omnigraph as og

uri, branch, name, count, known = *sys.argv[1:4], int(sys.argv[4]), json.loads(sys.argv[5])
graph = og.open(uri, actor=name)
people, likes = known["people"], known["likes"]
for i in range(count):
    who = people[i % len(people)]
    post = f"{name}-{i}"
    graph.insert(
        {
            "Post": [{"slug": post, "text": f"note {i} of {name}", "posted_at": "2026-01-31T12:00:00Z"}],
            "Posted": [{"from": who, "to": post}],
            "Likes": [{"from": people[(i + 1) % len(people)], "to": post}],
            "Follows": [{"from": who, "to": people[(i + 3) % len(people)]}],
        },
        branch=branch,
    )
    if i % 4 == 3:
        graph.update("Person", {"city": f"{name} {i}"}, ids=[who], branch=branch)
        graph.delete({"Likes": [likes[i % len(likes)]]}, branch=branch)
"""


@dataclass(frozen=True)
class MaintenanceSummary:
    """What happened, for programs. Pairs are before and after."""

    commits: int
    fragments: tuple[int, int]
    coverage: tuple[float, float]
    bytes_on_disk: tuple[int, int]
    versions_removed: int
    drift: dict[str, str]
    errors: int
    report: str
    asked: tuple[QuestionTimes, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def tell_maintenance(
    graph: og.Graph, report: str, *, narrator: Narrator, times: dict[str, float]
) -> MaintenanceSummary:
    """Steps 1 to 8. `report` is where the page is written."""
    before = len(graph.commits(limit=10_000))
    graph.create_branch(BRANCH)
    narrator.say(
        "\n6. A day of small writes: three processes on main and one on a branch, all at once. No writer waits\n"
        "   for long and none fails; but small writes leave small files, and rows that no index covers yet."
    )
    times["day"] = _day(graph, ("anna", "ben", "cleo"), each=9)
    fragmented = _decay(graph, before, narrator)
    asked = questions(graph)
    began = time.monotonic()
    before_it = run_questions(graph.uri, asked)
    times["ask"] = time.monotonic() - began
    fresh = _optimize(graph, fragmented, narrator, times)
    began = time.monotonic()
    after_it = run_questions(graph.uri, asked)
    times["ask"] += time.monotonic() - began
    compared = compare(asked, before_it, after_it)
    removed, tidy = _cleanup(graph, fresh, narrator, times)
    drift = _drift(graph, narrator, times)
    errors = _verify(graph, narrator, times)
    _maintain(graph, report, narrator, times)
    tell_answers(asked, before_it, after_it, narrator)
    return MaintenanceSummary(
        commits=len(graph.commits(limit=10_000)) - before,
        fragments=(fragmented.fragments, fresh.fragments),
        coverage=(fragmented.coverage, fresh.coverage),
        bytes_on_disk=(fresh.bytes_on_disk, tidy.bytes_on_disk),
        versions_removed=removed,
        drift=drift,
        errors=errors,
        report=report,
        asked=compared,
    )


def _day(graph: og.Graph, names: Sequence[str], *, each: int) -> float:
    """All writers at once, each a process of its own; the last one on the branch."""
    import json

    state = graph.snapshot()
    people = state.read("Person", columns=["handle"]).slice(0, 40).column("handle").to_pylist()
    likes = state.read("Likes", columns=["id"]).column("id").to_pylist()[: len(names) * each]
    began = time.monotonic()
    running = []
    for i, name in enumerate((*names, "reviewer")):
        known = json.dumps({"people": people[i::4], "likes": likes[i::4]})
        branch = "main" if name in names else BRANCH
        command = [sys.executable, "-c", WRITER, graph.uri, branch, f"{name}-{began:.0f}", str(each), known]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    for process in running:
        _, error = process.communicate()
        assert process.returncode == 0, error.decode()
    return time.monotonic() - began


def _decay(graph: og.Graph, commits: int, narrator: Narrator) -> GraphStats:
    stats = graph.stats()
    new_commits = len(graph.commits(limit=10_000)) - commits
    narrator.say(f"   {new_commits:,} commits on main later, omnigraph stats:")
    narrator.say(f"   {'table':<16}{'rows':>10}{'fragments':>11}{'versions':>10}{'on disk':>12}  indexed")
    for t in stats.tables:
        figures = f"{t.rows:>10,}{t.fragments:>11,}{t.versions:>10,}{size_text(t.bytes_on_disk):>12}"
        narrator.say(f"   {t.table_key:<16}{figures}  {100 * t.coverage:.0f} %")
    narrator.say(f"   its advice, among others: {stats.advice[0]}")
    assert stats.small_fragments > 20, stats
    return stats


def _optimize(graph: og.Graph, fragmented: GraphStats, narrator: Narrator, times: dict[str, float]) -> GraphStats:
    narrator.say(
        "\n7. omnigraph optimize: small files become large ones, every declared index is built and covers every row."
    )
    rows = fragmented.rows
    with narrator.watch() as watcher, narrator.opened(graph.uri, watcher) as handle:
        result = handle.optimize()
        again = handle.optimize()
    assert result.ok, result
    assert again.commit is None, "a second run found something to do"
    times["optimize"] = result.seconds
    fresh = graph.stats()
    assert fresh.rows == rows, "optimize changes no row"
    assert fresh.coverage == 1.0, fresh
    narrator.say(
        f"   fragments: {fragmented.fragments:,} → {fresh.fragments:,}; rows that indices cover: "
        f"{100 * fragmented.coverage:.0f} % → {100 * fresh.coverage:.0f} %; "
        f"all tables in one commit, {result.seconds:.1f} s."
    )
    narrator.say("   No reader and no writer has to stop for it. A second run found nothing to do and made no commit.")
    return fresh


def _cleanup(graph: og.Graph, fresh: GraphStats, narrator: Narrator, times: dict[str, float]) -> tuple[int, GraphStats]:
    narrator.say(
        f"\n8. omnigraph cleanup --keep {KEEP}: first a plan that names every version and file, then it is done."
    )
    plan = graph.plan_cleanup(keep=KEEP)
    files = sum(len(t.files) for t in plan.tables)
    removals = f"{plan.old_versions_removed:,} versions and {files:,} files that only they need"
    narrator.say(f"   the plan: {removals}, {size_text(plan.bytes_removed)}")
    result = graph.cleanup(plan=plan, confirm=True)
    assert not result.failed, result
    assert result.old_versions_removed >= plan.old_versions_removed > 0
    times["cleanup"] = result.seconds
    tidy = graph.stats()
    narrator.say(
        f"   versions: {fresh.versions:,} → {tidy.versions:,}; on disk: {size_text(fresh.bytes_on_disk)} → "
        f"{size_text(tidy.bytes_on_disk)}; {result.seconds:.1f} s. What the branch {BRANCH} pins was kept."
    )
    assert tidy.bytes_on_disk < fresh.bytes_on_disk
    assert graph.snapshot(BRANCH).count("Post") > 0
    return result.old_versions_removed, tidy


def _drift(graph: og.Graph, narrator: Narrator, times: dict[str, float]) -> dict[str, str]:
    narrator.say("\n9. A plain Lance client deletes two companies, and builds an index over the tags.")
    began = time.monotonic()
    companies = graph.snapshot().count("Company")
    _forge(graph)
    assert graph.snapshot().count("Company") == companies, "readers see what is published"
    try:
        graph.upsert({"Company": [{"name": "late", "industry": "media"}]})
        raise AssertionError("a drifted table took a write")
    except UncoveredDrift as refused:
        narrator.say(f"   Readers do not see it. Writers are refused: {refused.message}")
    narrator.say("   omnigraph repair --confirm:")
    result = graph.repair(confirm=True)
    classifications = {t.table_key: t.classification for t in result.tables if t.classification != "clean"}
    for table in result.tables:
        if table.classification != "clean":
            what = f"{', '.join(table.operations)}: {table.classification.replace('_', ' ')}, {table.action}"
            narrator.say(f"   {table.table_key:<16}{what}")
    assert classifications == {"node:Company": "suspicious", "node:Tag": "verified_maintenance"}, classifications
    taken = graph.repair(discard=True, confirm=True, tables=["Company"])
    assert [t.action for t in taken.tables] == ["discarded"], taken
    graph.upsert({"Company": [{"name": "late", "industry": "media"}]})
    assert graph.snapshot().count("Company") == companies + 1
    times["repair"] = time.monotonic() - began
    narrator.say(
        "   omnigraph repair --discard --confirm undoes the deletion; all companies are there, writes work again."
    )
    return classifications


def _forge(graph: og.Graph) -> None:
    import lance

    def table(type_name: str) -> Any:
        view = graph.snapshot()
        path = next(t.path for t in graph.stats().tables if t.table_key == f"node:{type_name}")
        assert view.count(type_name) > 2
        return lance.dataset(os.path.join(graph.uri, path))

    company = table("Company")
    ids = company.to_table(columns=["id"], limit=2).column("id").to_pylist()
    company.delete(f"id IN ({', '.join(repr(name) for name in ids)})")
    table("Tag").create_scalar_index("name", "BTREE", name="foreign_index")


def _verify(graph: og.Graph, narrator: Narrator, times: dict[str, float]) -> int:
    narrator.say(
        "\n10. omnigraph verify: every file, every edge's ends, every key, samples of every index against a full scan."
    )
    with narrator.watch() as watcher, narrator.opened(graph.uri, watcher) as handle:
        result = handle.verify()
    errors = [f for f in result.findings if f.severity == "error"]
    assert not errors, errors
    times["verify"] = result.seconds
    seen = result.checked
    checked = (
        f"{seen['rows']:,} rows, {seen['files']:,} files and {seen['indices']:,} indices in {result.seconds:.1f} s"
    )
    codes = ", ".join(sorted({f.code for f in result.findings}))
    narrator.say(f"   {checked}: no errors." + (f" Warnings that optimize resolves: {codes}." if codes else ""))
    assert codes in ("", "index_uncovered"), result.findings
    return len(errors)


def _maintain(graph: og.Graph, report: str, narrator: Narrator, times: dict[str, float]) -> None:
    narrator.say(
        f"\n11. More small writes, then all steps in one: omnigraph maintain --keep {KEEP} --confirm --html report.html"
    )
    _day(graph, ("dora",), each=9)
    with narrator.watch() as watcher, narrator.opened(graph.uri, watcher) as handle:
        result = handle.maintain(keep=KEEP, confirm=True)
    assert result.ok, result.to_json()
    times["maintain"] = result.seconds
    for step in result.steps:
        name = step.name if step.branch is None else f"{step.name} {step.branch}"
        narrator.say(f"   {name:<15}{step.summary}")
    with open(report, "w", encoding="utf-8") as file:
        file.write(result.to_html())
    narrator.say(f"   The report, with plots of every table before and after: {report}")
