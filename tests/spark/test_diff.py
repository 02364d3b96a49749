"""Changes on Spark: a DataFrame per type with the rows of the same diff in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph.branch.diff.diff import ChangeFilter
from omnigraph.cli.main import main
from omnigraph.errors import UsageError
from omnigraph.pipeline.datasource.diff import dataframe
from tests.branch.diff.oracle import History

SCHEMA = """node Doc { name: String @key  n: U64?  at: DateTime?  v: Vector(2)?  tags: [String]?  body: Blob? }
edge Cites: Doc -> Doc"""


def collected(frame: Any) -> list[dict[str, Any]]:
    return sorted((row.asDict(recursive=True) for row in frame.collect()), key=lambda row: str(row["id"]))


def test_a_diff_of_every_type_of_value_is_the_same_as_in_this_process(tmp_path: Path, spark: Any) -> None:
    with og.init(tmp_path / "graph", SCHEMA) as made:
        made.insert({"Doc": [{"name": f"d{i}", "v": [i, 1], "tags": ["x"], "body": b"z"} for i in range(6)]})
        base = made.branches()[0].commit
        made.insert({"Cites": [{"from": "d1", "to": "d2"}]})
        made.update("Doc", {"n": 2**63, "body": b"y", "tags": []}, ids=["d3"])
        made.delete({"Doc": ["d1"]})
        made.optimize()
    with og.open(tmp_path / "graph", spark=spark) as graph:
        diff = graph.diff(base, "main", engine="spark")
        assert diff.types == ["node:Doc", "edge:Cites"]
        frame = diff.dataframe("Doc")
        rows = collected(frame)
        assert [(r["operation"], r["id"], r["changed"]) for r in rows] == [
            ("delete", "d1", []),
            ("update", "d3", ["n", "tags", "body"]),
        ]
        assert rows[0]["after"] is None
        assert rows[1]["before"]["v"] == [3.0, 1.0]
        assert int(rows[1]["after"]["n"]) == 2**63
        assert bytes(rows[1]["after"]["body"]) == b"y"
        assert frame.count() == 2, "a second action reads again"
        with pytest.raises(UsageError, match="engine"):
            graph.diff(base, "main").dataframe("Doc")
    out = tmp_path / "out"
    words = ["diff", str(tmp_path / "graph"), f"{base}..main", "--type", "Doc", "--op", "delete", "--engine", "spark"]
    assert main([*words, "--format", "parquet", "--out", str(out)]) == 0
    assert pq.read_table(out / "nodes" / "Doc.parquet")["id"].to_pylist() == ["d1"]


def test_tasks_give_the_changes_of_a_random_history(tmp_path: Path, spark: Any) -> None:
    seed = 5
    print(f"seed {seed}")
    history = History(tmp_path / "graph", seed, row_ids="stable")
    history.run(25)
    diffs = [history.graph.diff(commit, "main") for commit in history.commits]
    stats = [(sum(counts.values()), i, key) for i, d in enumerate(diffs) for key, counts in d.stat().items()]
    _, i, table_key = max(stats)
    diff = diffs[i]
    frame = dataframe(spark, diff.of_type(table_key), ChangeFilter(), rows_max=3)
    expected = sorted(diff.to_table(table_key).to_pylist(), key=lambda row: str(row["id"]))
    assert len(expected) > 3
    assert collected(frame) == expected
