"""Remedies are commands that are accepted as they stand, and they mend what they are named for."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.cli.main import main
from omnigraph.maintenance.verify import CODES
from omnigraph.maintenance.verify.findings import make_finding, remedied
from tests.maintenance.verify import damage

TO_FILL_IN = {"FILE", "ID", "NAME"}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a remedy's own files go."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_ENGINE", "local")


def commands(remedy: str) -> Iterator[list[str]]:
    """The commands of a remedy, in their order."""
    for text in re.findall(r"`(omnigraph [^`]+)`", remedy):
        yield shlex.split(text)[1:]


def causes() -> Iterator[tuple[str, str | None]]:
    for code, known in CODES.items():
        yield code, None
        yield from ((code, cause) for cause in known.special)


def remedy_for(graph: og.Graph, code: str, cause: str | None, table: str) -> str:
    return remedied(make_finding(code, "", table=table, branch="main", cause=cause), graph.uri).remedy


def test_every_command_of_every_remedy_is_accepted(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "a graph", "node City { name: String @key }\nedge LivesIn: City -> City")
    graph.insert({"City": [{"name": "Bonn"}], "LivesIn": [{"src": "Bonn", "dst": "Bonn"}]})
    done: set[tuple[str, ...]] = set()
    for code, cause in causes():
        table = "edge:LivesIn" if code in ("dangling_endpoint", "cardinality") else "node:City"
        for arguments in commands(remedy_for(graph, code, cause, table)):
            if TO_FILL_IN.isdisjoint(arguments) and graph.uri in arguments and tuple(arguments) not in done:
                done.add(tuple(arguments))
                assert main([*arguments, "-q"] if arguments[0] != "commit" else arguments) == 0, arguments
    assert {arguments[0] for arguments in done} >= {
        "optimize",
        "export",
        "load",
        "mutate",
        "repair",
        "cleanup",
        "maintain",
    }
    assert {f.code for f in og.open(graph.uri).verify().findings} <= {"index_uncovered"}, "and harms nothing"


def edit(work: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    file = Path("rows.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(row) + "\n" for row in work(rows)))


def each_once(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({row["data"]["id"]: row for row in rows}.values())


def without_the_id_of_trier(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for row in rows:
        if row["data"]["id"] == "Trier":
            del row["data"]["id"]
    return rows


def complete(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["from"] is not None]


EDITED = {
    "duplicate_key": (lambda g: damage.raw_rows(g, "City", [{"id": "Bonn", "name": "Bonn"}]), each_once),
    "key_mismatch": (lambda g: damage.raw_rows(g, "City", [{"id": "Trier", "name": "Wien"}]), without_the_id_of_trier),
    "null_key": (lambda g: damage.without(g, "LivesIn", "src"), complete),
}


@pytest.mark.parametrize("code", EDITED)
def test_rows_are_saved_edited_and_written_anew(plain: og.Graph, code: str) -> None:
    damaged, edited = EDITED[code]
    damaged(plain)
    finding = damage.only(plain.verify(full=True), code)
    saved, written = commands(finding.remedy)
    assert main([*saved, "-q"]) == 0
    edit(edited)
    assert main([*written, "-q"]) == 0
    assert og.open(plain.uri).verify(full=True).ok


@pytest.mark.parametrize("code", ["dangling_endpoint", "cardinality"])
def test_edges_are_removed_by_the_command_with_their_ids_filled_in(plain: og.Graph, code: str) -> None:
    ends = [("p001", "nobody")] if code == "dangling_endpoint" else [("p001", f"p00{i}") for i in (3, 4, 5)]
    damage.raw_rows(plain, "Knows", [{"id": f"bad{n}", "src": a, "dst": b} for n, (a, b) in enumerate(ends)])
    finding = damage.only(plain.verify(), code)
    (command,) = [arguments for arguments in commands(finding.remedy) if arguments[0] == "mutate"]
    at = command.index("-e") + 1
    for name in ("bad0",) if code == "dangling_endpoint" else ("p001", "p003"):
        command[at] = command[at].replace('"ID"', f'"{name}"', 1)
    assert main([*command, "-q"]) == 0
    assert og.open(plain.uri).verify().ok
