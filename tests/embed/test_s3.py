"""Embedding on an object store: staged files, column files, and those of a fork, which go to the root table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import omnigraph as og
from tests.embed.conftest import SMALL, posts, texts, vectors
from tests.embed.server import Server


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    import boto3
    from moto.server import ThreadedMotoServer

    store = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    store.start()
    host, port = store.get_host_and_port()
    variables = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
    for name, value in {**variables, "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ALLOW_HTTP": "true"}.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1")
    client.create_bucket(Bucket="embed")
    yield "s3://embed/graph"
    names = [o["Key"] for o in client.list_objects_v2(Bucket="embed").get("Contents", [])]
    store.stop()
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
