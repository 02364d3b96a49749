"""A saved plan that somebody has changed: refused, or done as far as it fits the graph. No wrong row, no waiting."""

from __future__ import annotations

import copy
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.commit import effects
from omnigraph.commit.request import REFUSALS_MAX, Refusals
from omnigraph.errors import OmnigraphError, StaleView, StorageError
from omnigraph.maintenance.optimize import saved_plan
from tests.storage.hostile import leaves, mutated

SCHEMA = "node P { name: String @key  age: I64? @index  bio: String? @index }"
VALUES = (None, -1, 0, 1, 2**32, 2**63, 2**70, "", "../../x", "x'y", [], [1], {}, True, 1e308, "a\x00b")
PLANNED = ("tables", "incarnation", "schema", "commit", "options", "branch")


@pytest.fixture(scope="module")
def _template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], list[Any]]:
    path = tmp_path_factory.mktemp("tampered") / "graph"
    with og.init(path, SCHEMA) as graph:
        for i in range(3):
            graph.insert({"P": [{"name": f"p{i}-{j}", "age": j, "bio": f"word{j} x"} for j in range(5)]})
        graph.optimize(engine="local")
        for i in range(3):
            graph.insert({"P": [{"name": f"q{i}-{j}", "age": j, "bio": "y z"} for j in range(5)]})
        graph.delete({"P": ["p2-2"]})
        plan = json.loads(json.dumps(graph.plan_optimize().to_json()))
        return path, plan, _rows(graph)


def _rows(graph: og.Graph) -> list[Any]:
    return sorted((row["id"], row["age"], row["bio"]) for row in graph.nodes("P").to_pylist())


@pytest.fixture
def graph(_template: tuple[Path, dict[str, Any], list[Any]], tmp_path: Path) -> Path:
    return Path(shutil.copytree(_template[0], tmp_path / "graph"))


@pytest.fixture
def plan(_template: tuple[Path, dict[str, Any], list[Any]], graph: Path) -> dict[str, Any]:
    return {**copy.deepcopy(_template[1]), "graph": str(graph)}


@pytest.fixture
def rows(_template: tuple[Path, dict[str, Any], list[Any]]) -> list[Any]:
    return _template[2]


def _indices(plan: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = plan["tables"][0]["indexes"]
    return [index for index in found if index["known"]]


def _no_such_segment(plan: dict[str, Any]) -> None:
    _indices(plan)[0]["remove"] = ["5f0c1c4e-0000-4000-8000-000000000000"]


def _kept_segment_built_again(plan: dict[str, Any]) -> None:
    for index in _indices(plan):
        index["remove"] = []
        index["build"] = [[0, 1]]


def _two_segments_of_a_fragment(plan: dict[str, Any]) -> None:
    for index in _indices(plan):
        index["build"] = [*index["build"], *index["build"]]


def _fragment_twice(plan: dict[str, Any]) -> None:
    bins = plan["tables"][0]["rewrites"]
    bins[0]["fragments"] = [*bins[0]["fragments"], bins[0]["fragments"][0]]


def _unknown_column(plan: dict[str, Any]) -> None:
    _indices(plan)[0]["column"] = "nope"


TAMPERED = [_no_such_segment, _two_segments_of_a_fragment, _kept_segment_built_again, _fragment_twice, _unknown_column]


@pytest.mark.parametrize("tamper", TAMPERED, ids=lambda f: f.__name__.strip("_"))
def test_what_a_plan_names_must_be_there(graph: Path, plan: dict[str, Any], rows: list[Any], tamper: Any) -> None:
    """It is told before any work, and no epoch is spent on it."""
    tamper(plan)
    with og.open(graph, engine="local") as opened:
        epoch = opened._manifest.head("main").epoch
        with pytest.raises(StaleView, match="changed since it was made"):
            opened.optimize(plan=plan)
        assert opened._manifest.head("main").epoch == epoch
        assert _rows(opened) == rows


@pytest.mark.parametrize("how_many", [10, pytest.param(200, marks=pytest.mark.long)])
def test_any_tampered_plan_is_refused_or_harmless(
    graph: Path, plan: dict[str, Any], rows: list[Any], tmp_path: Path, how_many: int
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    places = [path for path in leaves(plan) if path[0] in PLANNED]
    for number in range(how_many):
        path, value = rng.choice(places), rng.choice(VALUES)
        copied = Path(shutil.copytree(graph, tmp_path / f"g{number}"))
        print(path[:-1], value)
        with og.open(copied, engine="local") as opened:
            epoch = opened._manifest.head("main").epoch
            try:
                opened.optimize(plan={**mutated(plan, path, value), "graph": str(copied)})
            except OmnigraphError as error:
                assert error.condition not in ("writer_busy", "storage_failed"), error  # noqa: PT017
            assert _rows(opened) == rows
            assert [len(opened.nodes("P", where={"age": k})) for k in range(5)] == [
                sum(age == k for _, age, _ in rows) for k in range(5)
            ]
            assert opened._manifest.head("main").epoch <= epoch + 1
        shutil.rmtree(copied)


def test_a_panic_of_lance_is_an_error_of_the_store(
    graph: Path, plan: dict[str, Any], rows: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lance panics when it commits two segments of one fragment; its panic is no Exception."""
    _two_segments_of_a_fragment(plan)
    monkeypatch.setattr(saved_plan, "_fits", lambda *_: True)
    with og.open(graph, engine="local") as opened:
        with pytest.raises(StorageError, match="Lance can't do it"):
            opened.optimize(plan=plan)
        assert _rows(opened) == rows
        opened.insert({"P": [{"name": "after"}]})
        assert not list((graph / "__recovery").rglob("*.json"))


def test_what_lance_refuses_for_good_is_told_after_a_few_tries(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = effects._commit
    tries = 0

    def refuses(tables: Any, target: Any, tx: Any) -> Any:
        nonlocal tries
        if type(tx.operation).__name__ != "Append":
            return real(tables, target, tx)
        tries += 1
        raise effects.EffectMissed(f"refused at {tries}") from ValueError("no")

    monkeypatch.setattr(effects, "_commit", refuses)
    with og.open(graph, engine="local") as opened:
        epoch = opened._manifest.head("main").epoch
        with pytest.raises(StorageError, match="refused at"):
            opened.insert({"P": [{"name": "new"}]})
        assert opened._manifest.head("main").epoch == epoch + REFUSALS_MAX
        monkeypatch.setattr(effects, "_commit", real)
        opened.insert({"P": [{"name": "new"}]})


def test_only_equal_refusals_in_a_row_count() -> None:
    refusals = Refusals()
    for text in ("a 1", "a 2", None, "a 3", "b 1", "a 4", None, None, None, "a 5", "a 6"):
        refusals.add(text, doing="x")
    with pytest.raises(StorageError):
        refusals.add("a 7", doing="x")
