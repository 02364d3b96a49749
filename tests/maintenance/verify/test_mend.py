"""What verify names as the remedy of a broken index mends it: the command is pasted, and verify is content afterwards.

Whoever looks has opened the graph after the damage: a handle that had the index open would still answer.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.cli.main import main
from omnigraph.maintenance.verify import Finding
from omnigraph.storage.lance.indices import built_indices
from tests.maintenance.verify import damage
from tests.support.forged_indices import CHANGES, forge


def fresh(graph: og.Graph) -> og.Graph:
    return og.open(graph.uri, engine="local")


def pasted(finding: Finding) -> list[str]:
    """The arguments of the command that a remedy names first."""
    command = shlex.split(finding.remedy.split("`")[1])
    assert command[0] == "omnigraph"
    return command[1:]


def mend(graph: og.Graph, findings: Sequence[Finding], *, full: bool = False) -> None:
    """Run the remedy of every finding; nothing is wrong and nothing is left to do afterwards."""
    (finding,) = {f.remedy: f for f in findings}.values()
    assert main([*pasted(finding), "--engine", "local", "-q"]) == 0
    after = fresh(graph)
    assert after.verify(full=full).findings == ()
    assert after.optimize(tables=[str(finding.table)]).commit is None


def segments(graph: og.Graph, type_name: str, name: str, branch: str = "main") -> list[Path]:
    pin = damage.pin_of(graph, type_name, branch)
    table = damage.newest(graph, type_name, branch)
    found = next(i for i in built_indices(table) if i.name == name)
    return [Path(graph.uri, pin.root, "_indices", s.uuid) for s in found.segments]


def garbage(folder: Path) -> None:
    for file in folder.glob("*.*"):
        file.write_bytes(b"\xff" * file.stat().st_size)


def garbage_within(folder: Path) -> None:
    """The ends of the files are right: only who asks the index finds out."""
    for file in folder.glob("*.*"):
        body = file.read_bytes()
        file.write_bytes(b"\xff" * (len(body) - 64) + body[-64:])


def cut(folder: Path) -> None:
    file = next(folder.glob("*.*"))
    file.write_bytes(file.read_bytes()[:-7])


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "gone": (shutil.rmtree, "missing_file"),
    "cut": (cut, "wrong_size"),
    "garbage": (garbage, "index_unreadable"),
    "garbage within": (garbage_within, "index_unreadable"),
}


@pytest.fixture(scope="module")
def _small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph that optimize has seen to, with every kind of index."""
    path = tmp_path_factory.mktemp("small") / "graph"
    schema = """
    node Doc {
        slug: String @key
        n: I32 @index
        open: Bool @index
        tags: [String] @index
        v: Vector(4) @index
    }
    """
    graph = og.init(path, schema)
    graph.insert(
        {
            "Doc": [
                {
                    "slug": f"d{i}",
                    "n": i % 40,
                    "open": i % 2 == 0,
                    "tags": [f"t{i % 5}"],
                    "v": [float(i), 1.0, float(i % 7), 0.5],
                }
                for i in range(300)
            ]
        }
    )
    graph.optimize(engine="local")
    graph.close()
    return path


@pytest.fixture
def small(_small: Path, tmp_path: Path) -> og.Graph:
    shutil.copytree(_small, tmp_path / "graph of mine")
    return og.open(tmp_path / "graph of mine", engine="local")


NAMES = ("id_btree", "n_btree", "open_bitmap", "tags_label_list", "slug_inverted", "v_ivf")


@pytest.mark.usefixtures("unsummed")
@pytest.mark.parametrize("how", DAMAGES)
def test_files_of_indices_that_are_damaged(small: og.Graph, how: str) -> None:
    work, code = DAMAGES[how]
    for name in NAMES:
        for folder in segments(small, "Doc", name):
            work(folder)
    small.close()
    findings = fresh(small).verify(quick=code != "index_unreadable").findings
    assert {(f.code, f.table, f.severity) for f in findings} == {(code, "node:Doc", "error")}
    for name in NAMES:
        assert any(name in f.message for f in findings), name
    mend(small, findings)


@pytest.mark.parametrize("how", ["gone", "cut", "garbage"])
def test_optimize_by_itself_builds_what_is_missing_or_cut_short_and_nothing_else(small: og.Graph, how: str) -> None:
    before = {i.name: i.segments for i in built_indices(damage.newest(small, "Doc"))}
    for folder in segments(small, "Doc", "n_btree"):
        DAMAGES[how][0](folder)
    small.close()
    mine = fresh(small)
    (index,) = mine.plan_optimize().tables[0].indexes
    assert (index.name, index.action) == ("n_btree", "rebuild")
    assert index.reason == ("its files are missing" if how == "gone" else "its files are cut short or overwritten")
    result = mine.optimize()
    row = result.table("node:Doc")
    assert (row.committed, row.indexes_built, row.error, row.coverage_after) == (True, 1, None, 1.0)
    assert row.coverage_before < 1.0
    after = {i.name: i.segments for i in built_indices(damage.newest(small, "Doc"))}
    assert {name for name in after if after[name] != before[name]} == {"n_btree"}


def test_every_index_is_built_anew_in_one_commit_if_that_is_asked_for(small: og.Graph) -> None:
    before = {i.name: {s.uuid for s in i.segments} for i in built_indices(damage.newest(small, "Doc"))}
    plan = fresh(small).plan_optimize(rebuild_indexes=True)
    assert plan.to_json()["options"]["rebuild_indexes"] is True
    assert {(i.name, i.reason) for i in plan.tables[0].indexes} == {(name, "it was asked for") for name in before}
    commits = len(small.commits())
    result = fresh(small).optimize(rebuild_indexes=True)
    assert result.ok
    assert len(fresh(small).commits()) == commits + 1
    after = {i.name: {s.uuid for s in i.segments} for i in built_indices(damage.newest(small, "Doc"))}
    assert after.keys() == before.keys()
    assert not any(before[name] & after[name] for name in before)
    assert fresh(small).verify().findings == ()


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("age", "BTREE"),
        *(pytest.param(*each, marks=pytest.mark.long) for each in (("bio", "INVERTED"), ("v", "IVF_FLAT"))),
    ],
)
def test_an_index_that_holds_old_values_of_rows(plain: og.Graph, column: str, kind: str) -> None:
    ids = [f"p{i:03d}" for i in (1, 2, 4, 5, 7, 8)]
    forge(plain, column, kind, lambda: plain.update("Person", CHANGES[column, kind], ids=ids))
    plain.close()
    findings = fresh(plain).verify(full=True).findings
    wrong = {"index_wrong_answer"} if kind == "BTREE" else {"index_stale", "index_wrong_answer"}
    assert {f.code for f in findings} == wrong
    mend(plain, findings, full=True)


def test_an_index_that_a_branch_shares_with_main(small: og.Graph) -> None:
    """The branch has its own fork of the table afterwards, and main is mended by the remedy for main."""
    small.create_branch("side")
    for folder in segments(small, "Doc", "n_btree"):
        shutil.rmtree(folder)
    small.close()
    for branch in ("main", "side"):
        (finding,) = fresh(small).verify(quick=True, branch=branch).findings
        assert (finding.code, finding.branch) == ("missing_file", branch)
        assert main([*pasted(finding), "--engine", "local", "-q"]) == 0
        assert fresh(small).verify(branch="main").findings == ()


def test_counts_that_the_head_notes_wrong(small: og.Graph) -> None:
    pin = damage.pin_of(small, "Doc")
    damage.commit(small, {pin.table: replace(pin, rows=99)})
    small.close()
    findings = fresh(small).verify(quick=True).findings
    assert [f.code for f in findings] == ["wrong_count"]
    mend(small, findings)
