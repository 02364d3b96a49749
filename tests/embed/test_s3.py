"""Embedding on an object store: staged files, column files, and those of a fork, which go to the root table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import omnigraph as og
from tests.embed.conftest import SMALL, posts, texts, vectors
from tests.embed.server import Server
from tests.support.s3 import bucket_at


@pytest.fixture
def bucket(s3_endpoint: str) -> Iterator[str]:
    with bucket_at(s3_endpoint, "embed") as client:
        yield "s3://embed/graph"
        names = [o["Key"] for o in client.list_objects_v2(Bucket="embed").get("Contents", [])]
    assert not [n for n in names if "__staging" in n]
    assert not [n for n in names if "/tree/" in n and n.endswith(".lance")]


def test_main_and_a_branch_on_an_object_store(bucket: str, server: Server) -> None:
    graph = og.init(bucket, SMALL)
    graph.insert({"Post": posts(5)})
    assert graph.embed(provider="openai").embedded == {"node:Post": 5}
    graph.create_branch("trial")
    graph.update("Post", {"text": "on the branch"}, ids=["p0001"], branch="trial")
    assert graph.embed(provider="openai", branch="trial").embedded == {"node:Post": 1}
    assert all(v is not None for v in vectors(graph, branch="trial").values())
    assert texts(graph, "trial")["p0001"] == "on the branch"
    assert graph.embed(provider="openai", branch="trial").commits == ()
