"""A merge whose row work runs on Spark: the same rows, counts and conflicts as in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import omnigraph as og
from tests.branch.merge.random_settings import patched
from tests.branch.merge.support import require_clean
from tests.support.merge_sides import BY_TASKS, IN_ONE_PIECE, doc, make_sides, rows_of


def both_ways(graph: og.Graph, spark: Any, source: str, **options: Any) -> list[Any]:
    """Plan and merge, in one piece and on Spark, into two branches of main."""
    results = []
    with og.open(graph.uri, spark=spark) as on_spark:
        ways = (("here", graph, IN_ONE_PIECE, "local"), ("spark", on_spark, BY_TASKS, "spark"))
        for name, handle, way, engine in ways:
            branch = f"{name}-{len(graph.branches())}"
            graph.create_branch(branch)
            with patched(way):
                plan = handle.plan_merge(source, into=branch, engine=engine).to_json()
                result = handle.merge(source, into=branch, engine=engine, **options).to_json()
            results.append((plan["conflicts"], result["outcome"], result["tables"], rows_of(graph, branch)))
    return results


def test_a_merge_on_spark_is_the_same_as_in_this_process(tmp_path: Path, spark: Any) -> None:
    graph = make_sides(tmp_path / "g", row_ids="stable")
    here, on_spark = both_ways(graph, spark, "theirs", strategy="theirs")
    assert here == on_spark
    assert len(here[0]) > 5
    assert here[2][0]["copied_rows"] > 40
    require_clean(graph)


def test_several_merge_bases_on_spark(tmp_path: Path, spark: Any) -> None:
    graph = make_sides(tmp_path / "g", row_ids="stable")
    before = graph.snapshot("main").commit
    graph.merge("theirs", strategy="theirs")
    graph.merge(before, into="theirs", strategy="ours")
    graph.upsert({"Doc": [doc(i, n=11) for i in range(15, 45)]}, branch="theirs")
    graph.upsert({"Doc": [doc(i, m=600) for i in range(30, 50)]})
    here, on_spark = both_ways(graph, spark, "theirs", strategy="theirs")
    assert here == on_spark
    require_clean(graph)
