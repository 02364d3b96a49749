"""Results as frames of packages that nothing here needs: `make torture` installs them and runs this."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import ParameterError

pytestmark = pytest.mark.long
TEXT = "query q() { match { $p: P } return { $p.slug, $p.n, $p.at } order { $p.n desc } }"
ROWS = [{"slug": "b", "n": 2, "at": "2024-02-29T10:00:00Z"}, {"slug": "a", "n": None, "at": None}]


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    made = og.init(tmp_path / "graph", "node P { slug: String @key  n: I64?  at: DateTime? }")
    made.insert({"P": ROWS})
    return made


def test_a_result_is_a_pandas_frame(graph: og.Graph) -> None:
    frame = graph.query(TEXT).to_pandas()
    assert list(frame.columns) == ["p.slug", "p.n", "p.at"]
    assert frame["p.slug"].tolist() == ["b", "a"]
    assert frame["p.n"].isna().tolist() == [False, True]


def test_a_result_is_a_polars_frame(graph: og.Graph) -> None:
    frame = graph.query(TEXT).to_polars()
    assert frame["p.slug"].to_list() == ["b", "a"]
    assert frame["p.n"].to_list() == [2, None]


@pytest.mark.parametrize("declared", ["Date", "DateTime"])
def test_the_moment_of_pandas_that_is_none_is_refused(graph: og.Graph, declared: str) -> None:
    import pandas as pd

    text = f"query q($at: {declared}) {{ match {{ $p: P  $p.at = datetime($at) }} return {{ $p }} }}"
    with pytest.raises(ParameterError, match="at"):
        graph.query(text, at=pd.NaT)
    graph.query(text, at=pd.Timestamp("2024-02-29T10:00:00Z") if declared == "DateTime" else "2024-02-29")
