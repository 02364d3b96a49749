"""Embedding on executors: the same vectors as in this process, and no JVM for nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import omnigraph as og
from omnigraph.errors import EmbeddingKeyMissing
from tests.embed.conftest import SCHEMA, posts, vectors


def test_spark_and_this_process_make_the_same_vectors(spark: Any, tmp_path: Path) -> None:
    found = []
    for engine in ("spark", "local"):
        uri = tmp_path / engine
        og.init(uri, SCHEMA).insert({"Post": posts(600), "Tag": [{"name": f"tag {i}"} for i in range(5)]})
        graph = og.open(uri, spark=spark, engine=engine)
        result = graph.embed(commit_every=400)
        assert result.embedded == {"node:Post": 600, "node:Tag": 5}
        assert len(result.commits) == 2
        assert graph.embed().commits == ()
        graph.create_branch("trial")
        graph.update("Post", {"text": "new"}, ids=["p0001"], branch="trial")
        assert graph.embed(branch="trial").embedded == {"node:Post": 1}
        found.append(vectors(graph) | vectors(graph, "Tag") | {"new": vectors(graph, branch="trial")["p0001"]})
    assert found[0].keys() == found[1].keys()
    assert all(np.array_equal(found[0][k], found[1][k]) for k in found[0])  # type: ignore[arg-type]


def test_the_key_does_not_travel(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver has the key, the workers' environment has not: nothing must bring it to them."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-driver")
    small = 'node Post { key: String @key  text: String?  vector: Vector(8)? @embed("text") }'
    og.init(tmp_path / "g", small).insert({"Post": posts(3)})
    with pytest.raises(EmbeddingKeyMissing, match="OPENAI_API_KEY"):
        og.open(tmp_path / "g", spark=spark, engine="spark").embed(provider="openai")


def test_nothing_to_do_starts_no_jvm_even_if_spark_is_asked_for(tmp_path: Path) -> None:
    og.init(tmp_path / "g", SCHEMA)
    code = f"""
import sys, omnigraph as og
graph = og.open({str(tmp_path / "g")!r}, engine="spark")
assert graph.embed().commits == ()
print("pyspark" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.stdout.decode().strip() == "False", done.stderr.decode()
