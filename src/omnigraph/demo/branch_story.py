"""The last part of the demo: an agent works on a branch, and its work is reviewed and merged.

1. work     an agent changes rows on a branch of its own; meanwhile another writer changes main
2. diff     what the agent changed since the branch was created
3. tag      a name for the state of main before the merge
4. merge    one conflict: nothing is changed, and a file holds its three images
5. resolve  the file is filled in and the merge is repeated with it; the branch is deleted
6. history  a commit with two parents; the tag still reads the state before

Commands run as the real command line, in processes of their own. Assertions check what each step says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.demo.narrator import Narrator

# Cities that the generated data does not have, so that every update changes a value.
CITY_AGENT_ONLY, CITY_BOTH, CITY_THEIRS, CITY_OURS = "Uppsala", "Bergamo", "Rouen", "Braga"
BRANCH = "agent/cities"
TAG = "before"
CONFLICTS_FILE = "conflicts.jsonl"
AGENT = "city-agent"
LINE_CHARS_MAX = 80
INDENT = "    "


@dataclass(frozen=True)
class Merged:
    """What the merge did, for programs. `conflicts` are the entities that were in conflict, by kind."""

    branch: str
    tag: str
    changes: dict[str, int]
    conflicts: dict[str, str]
    inserted: int
    updated: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class People:
    """Whose rows are changed: by the agent alone, by both in different properties, by both in the same one."""

    agent_only: str
    both: str
    conflicting: str


def tell_branches(graph: og.Graph, folder: str, *, narrator: Narrator, times: dict[str, float]) -> Merged:
    """Steps 1 to 6. `folder` holds the graph, and gets the file of conflicts."""
    began = time.monotonic()
    people = _work(graph, narrator)
    uri = os.path.relpath(graph.uri, folder)
    changes = _diff(graph, uri, folder, narrator)
    conflicts = _conflicts(uri, folder, people, narrator)
    result = _resolve(uri, folder, narrator)
    _check(graph, people)
    _history(graph, uri, folder, people, narrator)
    times["merge"] = time.monotonic() - began
    counts = {name: sum(table[name] for table in result["tables"]) for name in ("inserted", "updated")}
    return Merged(BRANCH, TAG, changes, conflicts, **counts)


def _work(graph: og.Graph, narrator: Narrator) -> People:
    narrator.say(
        "\n13. An agent corrects cities, on a branch of its own. Meanwhile another\n"
        "    writer changes two of the same people on main: the age of one, the city\n"
        "    of the other."
    )
    handles = graph.snapshot().read("Person", columns=["handle"]).column("handle").to_pylist()
    people = People(*sorted(handles)[:3])
    graph.create_branch(BRANCH)
    cities = {people.agent_only: CITY_AGENT_ONLY, people.both: CITY_BOTH, people.conflicting: CITY_THEIRS}
    for handle, city in cities.items():
        graph.update("Person", {"city": city}, ids=[handle], branch=BRANCH, actor=AGENT)
    new = {"handle": "newcomer", "name": "New Comer", "email": "new@example.org", "joined": "2026-02-01"}
    edge = {"from": "newcomer", "to": people.agent_only}
    graph.insert({"Person": [new], "Follows": [edge]}, branch=BRANCH, actor=AGENT)
    graph.update("Person", {"age": 40}, ids=[people.both])
    graph.update("Person", {"city": CITY_OURS}, ids=[people.conflicting])
    return people


def _diff(graph: og.Graph, uri: str, folder: str, narrator: Narrator) -> dict[str, int]:
    narrator.say("\n    What did the agent change since the branch was created?")
    shown = _command(["diff", uri, f"main...{BRANCH}"], folder, narrator)
    counts = {"insert": 0, "update": 0, "delete": 0}
    for by_operation in graph.diff("main", BRANCH, since_merge_base=True).stat().values():
        counts = {name: counts[name] + by_operation[name] for name in counts}
    assert counts == {"insert": 2, "update": 3, "delete": 0}, counts
    assert len(shown.splitlines()) == sum(counts.values()) + 1, shown
    return counts


def _conflicts(uri: str, folder: str, people: People, narrator: Narrator) -> dict[str, str]:
    narrator.say(
        "\n    The state before the merge gets a name. Then the merge, which changes\n    everything or nothing:"
    )
    _command(["tag", "create", uri, TAG], folder, narrator)
    _command(["branch", "merge", uri, BRANCH, "--conflicts", CONFLICTS_FILE], folder, narrator, exit_code=1)
    (conflict,) = [json.loads(line) for line in Path(folder, CONFLICTS_FILE).read_text().splitlines()]
    assert (conflict["id"], conflict["property"]) == (people.conflicting, "city"), conflict
    cities = ", ".join(f"{side} {conflict[side]['city']}" for side in ("base", "ours", "theirs"))
    narrator.say("\n" + _fitted(f"The file has three images of the row: {cities}."))
    return {f"{conflict['table_key']} {conflict['id']}": conflict["kind"]}


def _resolve(uri: str, folder: str, narrator: Narrator) -> dict[str, Any]:
    narrator.say('    A reviewer writes "resolution": "theirs" into it, and merges again:')
    path = Path(folder, CONFLICTS_FILE)
    conflicts = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps({**conflict, "resolution": "theirs"}) + "\n" for conflict in conflicts))
    arguments = ["branch", "merge", uri, BRANCH, "--resolve", CONFLICTS_FILE]
    planned: dict[str, Any] = json.loads(_run([*arguments, "--plan", "--json"], folder))
    assert planned["conflicts"] == [], planned
    _command([*arguments, "--delete-branch"], folder, narrator)
    return planned


def _check(graph: og.Graph, people: People) -> None:
    rows = {row["handle"]: row for row in graph.snapshot().read("Person").to_pylist()}
    assert rows[people.agent_only]["city"] == CITY_AGENT_ONLY
    assert (rows[people.both]["city"], rows[people.both]["age"]) == (CITY_BOTH, 40), "both changes of one row"
    assert rows[people.conflicting]["city"] == CITY_THEIRS, "the resolution"
    assert rows["newcomer"]["name"] == "New Comer"
    assert BRANCH not in {branch.name for branch in graph.branches()}


def _history(graph: og.Graph, uri: str, folder: str, people: People, narrator: Narrator) -> None:
    narrator.say("\n    One commit with two parents, and the tag still reads the state before it:")
    _command(["commit", "list", uri, "--graph", "--limit", "7"], folder, narrator)
    _command(["diff", uri, f"{TAG}..main", "--stat"], folder, narrator)
    newest = graph.commits(limit=1)[0]
    assert (newest.kind, len(newest.parents)) == ("merge", 2), newest
    before = graph.snapshot(commit=TAG).read("Person", columns=["handle", "city"]).to_pylist()
    assert {"handle": people.conflicting, "city": CITY_OURS} in before


def _command(arguments: list[str], folder: str, narrator: Narrator, *, exit_code: int = 0) -> str:
    """Run the command line, show the command and what it prints."""
    narrator.say(_fitted(f"$ omnigraph {' '.join(arguments)}", line_end=" \\"))
    output = _run(arguments, folder, exit_code=exit_code)
    for line in output.splitlines():
        narrator.say(_fitted(line))
    return output


def _run(arguments: list[str], folder: str, *, exit_code: int = 0) -> str:
    command = [sys.executable, "-m", "omnigraph.cli.main", *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False, cwd=folder)
    assert finished.returncode == exit_code, (arguments, finished.returncode, finished.stdout, finished.stderr)
    return finished.stdout


def _fitted(text: str, *, line_end: str = "") -> str:
    """The text, indented and wrapped; `line_end` ends every line but the last."""
    width = LINE_CHARS_MAX - len(line_end)
    lines = textwrap.wrap(text, width, initial_indent=INDENT, subsequent_indent=f"{INDENT}  ", break_on_hyphens=False)
    return f"{line_end}\n".join(lines)
