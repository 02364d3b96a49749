"""What `omnigraph demo` does: from files with invalid rows to a loaded, recovered and maintained graph.

1. make      the files, from a seed, with a schema and a pipeline file beside them
2. run       the pipeline file: create the graph, load with quarantine, in one commit; a vector for every post
3. check     rows and rejects must be exactly those that were planted
4. again     the same file once more changes nothing
5. crash     a writer is killed between its effects and their publication; the next one recovers it
6. maintain  optimize, cleanup, repair, verify (`maintenance_story`), and queries (`query_story`)
7. merge     an agent's branch is compared, merged, and a conflict resolved (`branch_story`)

Everything lies in one folder that can be removed. Each step asserts what it reports.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.config.sizes import size_text
from omnigraph.demo.branch_story import CONFLICTS_FILE, Merged, tell_branches
from omnigraph.demo.generate import World, generate
from omnigraph.demo.maintenance_story import MaintenanceSummary, tell_maintenance
from omnigraph.demo.narrator import Narrator
from omnigraph.errors import UsageError
from omnigraph.pipeline.file.run import PipelineResult, run_pipeline

HERE = Path(__file__).parent
MARK = ".omnigraph-demo"
"""A file that marks a folder of a demo, whose files a demo may replace."""
DEMO_FILES = (
    "graph",
    "follows",
    "report.html",
    CONFLICTS_FILE,
    *("people.csv", "companies.csv", "works_at.csv", "posts.jsonl", "likes.parquet"),
)
REASONS = {
    "cardinality": "a second job, where the schema allows one",
    "endpoint": "an edge to or from a node that is not there",
    "enum": "a value that the enum does not have",
    "key": "a key that occurs twice",
    "null": "a required value that is missing",
    "range": "a number outside its range",
    "record": "a line that is no JSON",
    "type": "a value of another type",
    "unique": "an e-mail that another person has",
    "unknown_field": "a field that the schema does not have",
}

CRASH = """
import os, signal, sys
import omnigraph as og

def kill_before_publishing(phase):
    if phase == "publish":
        os.kill(os.getpid(), signal.SIGKILL)

graph = og.open(sys.argv[1], observer=kill_before_publishing)
graph.insert(
    {
        "Person": [{"handle": "unlucky", "name": "Unlucky", "email": "unlucky@example.org", "joined": "2026-01-01"}],
        "Follows": [{"from": "unlucky", "to": sys.argv[2]}],
    },
    actor="unlucky",
)
"""


@dataclass(frozen=True)
class Report:
    """What happened, for programs. Times are seconds."""

    folder: str
    graph: str
    scale: float
    seed: int
    rows: Mapping[str, int]
    rejected_by_rule: Mapping[str, int]
    vectors: int
    input_bytes: int
    seconds: Mapping[str, float]
    recovered: str
    maintenance: MaintenanceSummary
    merge: Merged

    def to_json(self) -> dict[str, Any]:
        plain = {k: v for k, v in self.__dict__.items() if k not in ("recovered", "maintenance")}
        parts = {"upkeep": self.maintenance.to_json(), "merge": self.merge.to_json()}
        rounded = {k: round(v, 3) for k, v in self.seconds.items()}
        return {**plain, "seconds": rounded, "healed": self.recovered, **parts}


def prepare_folder(folder: str) -> None:
    """An empty folder, or one of an earlier demo, emptied of the files of that demo. UsageError for any other."""
    if os.path.isdir(folder) and os.listdir(folder) and not os.path.exists(os.path.join(folder, MARK)):
        raise UsageError(detail=f"{folder} is not empty and not from a demo; name a new folder with --keep.")
    os.makedirs(folder, exist_ok=True)
    for name in DEMO_FILES:
        path = os.path.join(folder, name)
        shutil.rmtree(path) if os.path.isdir(path) else Path(path).unlink(missing_ok=True)
    Path(folder, MARK).write_text("made by `omnigraph demo`; may be removed\n")


def tell(folder: str, *, scale: float, seed: int, narrator: Narrator, report: str) -> Report:
    """The whole demo, in a folder that `prepare_folder` emptied. `report` is where the page of `maintain` goes."""
    times: dict[str, float] = {}
    world = _make(folder, scale, seed, narrator, times)
    loaded, vectors = _load(folder, world, narrator, times)
    _show_rejects(loaded, narrator)
    _again(folder, narrator, times)
    uri = os.path.join(folder, "graph")
    with og.open(uri, actor="demo") as graph:
        recovered = _crash(graph, narrator, times)
        maintained = tell_maintenance(graph, report, narrator=narrator, times=times)
        merged = tell_branches(graph, folder, narrator=narrator, times=times)
    return Report(
        folder=folder,
        graph=uri,
        scale=scale,
        seed=seed,
        rows=world.rows,
        rejected_by_rule=loaded.rejected_by_rule,
        vectors=vectors,
        input_bytes=world.size_bytes,
        seconds=times,
        recovered=recovered,
        maintenance=maintained,
        merge=merged,
    )


def _make(folder: str, scale: float, seed: int, narrator: Narrator, times: dict[str, float]) -> World:
    narrator.say("1. Files, generated from a seed: people, companies, posts, who follows and likes what.")
    began = time.monotonic()
    world = generate(folder, scale=scale, seed=seed)
    for name in ("social.pg", "pipeline.yaml", "questions.gq"):
        shutil.copyfile(HERE / name, os.path.join(folder, name))
    times["make"] = time.monotonic() - began
    nodes = sum(world.rows.values()) - world.edges
    narrator.say(
        f"   {world.edges:,} edges and {nodes:,} nodes as CSV, Parquet and JSON lines, {size_text(world.size_bytes)};"
    )
    narrator.say(f"   {sum(world.rejects.values()):,} rows among them are invalid on purpose.")
    return world


def _load(folder: str, world: World, narrator: Narrator, times: dict[str, float]) -> tuple[og.LoadResult, int]:
    narrator.say(
        "\n2. omnigraph pipeline run pipeline.yaml: check every row, load the valid ones, in one commit; then a"
    )
    narrator.say("   vector for the text of every post, by a model that runs on this machine.")
    result = _pipeline(folder, narrator)
    loaded = result.load
    assert loaded is not None
    times["embed"] = sum(step.seconds for step in result.embed)
    times["load"] = result.seconds - times["embed"]
    vectors = sum(sum(step.embedded.values()) for step in result.embed)
    assert vectors == world.rows["node:Post"], f"{vectors} vectors for {world.rows['node:Post']} posts"
    with og.open(result.graph) as graph:
        tables = {t.table_key: t.rows for t in graph.snapshot().tables()}
    assert tables == dict(world.rows), f"the graph holds {tables}, and {dict(world.rows)} were good"
    rejected, expected = dict(loaded.rejected_by_rule), dict(world.rejects)
    assert rejected == expected, f"rejected were {rejected}, expected were {expected}"
    for key, rows in tables.items():
        narrator.say(f"   {key:<16}{rows:>12,}")
    rate = loaded.lines / times["load"]
    narrator.say(
        f"   {loaded.lines:,} rows in {times['load']:.1f} s, {rate:,.0f} per second, start of the engine included;"
    )
    narrator.say(f"   {vectors:,} vectors in {times['embed']:.1f} s")
    return loaded, vectors


def _show_rejects(loaded: og.LoadResult, narrator: Narrator) -> None:
    narrator.say(
        "\n3. Invalid rows are in a quarantine file, each with its file, line, rule and reason. All of them were found."
    )
    for rule, count in sorted(loaded.rejected_by_rule.items(), key=lambda item: (-item[1], item[0])):
        narrator.say(f"   {count:>6,}  {rule:<14} {REASONS[rule]}")


def _again(folder: str, narrator: Narrator, times: dict[str, float]) -> None:
    narrator.say("\n4. The same file once more. Everything is there already, so nothing changes and no commit is made.")
    result = _pipeline(folder, narrator)
    times["again"] = result.seconds
    assert result.load is not None
    assert result.load.commit is None, f"a second run changed something: {result.load}"
    assert not any(sum(step.embedded.values()) for step in result.embed), "a second run embedded something"
    narrator.say(f"   read and compared in {result.seconds:.1f} s")


def _crash(graph: og.Graph, narrator: Narrator, times: dict[str, float]) -> str:
    narrator.say("\n5. A writer is killed after its tables are written and before its commit is published.")
    before = graph.snapshot().count("Person")
    someone = graph.snapshot().read("Person", columns=["handle"]).column("handle")[0].as_py()
    crashed = subprocess.run([sys.executable, "-c", CRASH, graph.uri, someone], check=False, capture_output=True)
    assert crashed.returncode == -signal.SIGKILL, crashed
    assert graph.snapshot().count("Person") == before
    narrator.say(f"   killed. Readers still see {before:,} people, and every table as it was.")
    began = time.monotonic()
    graph.upsert({"Tag": [{"name": "resilience"}]})
    times["heal"] = time.monotonic() - began
    recoveries = [c for c in graph.commits(limit=3) if c.recovery is not None]
    assert recoveries, "the operation of the crashed writer was not recovered"
    assert graph.snapshot().count("Person") == before + 1
    outcome = str(recoveries[0].recovery["outcome"]).replace("_", " ") if recoveries[0].recovery else ""
    narrator.say(f"   The next writer recovered its operation first ({outcome}), in {times['heal'] * 1000:.0f} ms.")
    return outcome


def _pipeline(folder: str, narrator: Narrator) -> PipelineResult:
    with narrator.watch() as watcher:
        return run_pipeline(
            os.path.join(folder, "pipeline.yaml"),
            engine=narrator.engine,
            settings=narrator.settings,
            watcher=watcher,
            actor="demo",
        )


def summary(report: Report, *, kept: bool) -> list[str]:
    """The closing text: what was shown, and commands to continue with."""
    edges = sum(count for key, count in report.rows.items() if key.startswith("edge:"))
    lines = [
        "",
        f"Done in {sum(report.seconds.values()):.0f} s. You have seen a graph database without a server:",
        f"  {edges:,} edges from {size_text(report.input_bytes)} of files became visible at once, in one commit;",
        f"  {sum(report.rejected_by_rule.values()):,} invalid rows were rejected: none was loaded, none is lost;",
        f"  {report.vectors:,} posts got a vector from a model that runs on this machine;",
        "  running it again changed nothing; a killed writer was recovered;",
        f"  {report.maintenance.commits:,} small commits fragmented it, and maintenance made it small and fast again;",
        "  changes by a foreign client were detected, classified and undone;",
        "  questions along edges, by words, by meaning and by all of it had the same answers before and after;",
        "  the branch of an agent was compared and merged, and its one conflict resolved in a file.",
        f"The report of its maintenance: {report.maintenance.report}",
    ]
    if kept:
        lines += [
            f"Look around in {report.folder}:",
            f"  omnigraph snapshot {report.graph}",
            f"  omnigraph commit list {report.graph}",
            f"  omnigraph stats {report.graph}",
            f"  omnigraph query {report.graph} most_curious --query {os.path.join(report.folder, 'questions.gq')}",
            f"  omnigraph pipeline plan {os.path.join(report.folder, 'pipeline.yaml')}",
            f"  head {os.path.join(report.folder, 'rejects.jsonl')}",
        ]
    else:
        lines.append("Keep it to look around: omnigraph demo --keep FOLDER")
    return lines
