"""Providers against a real server on loopback: both protocols, and every way in which a server misbehaves."""

from __future__ import annotations

import subprocess
import sys
import time
from email.utils import formatdate
from typing import Any

import numpy as np
import pytest

import omnigraph as og
from omnigraph.errors import EmbeddingFailed, EmbeddingKeyMissing, EmbeddingMismatch, UsageError
from omnigraph.pipeline.embed import http
from omnigraph.pipeline.embed.local import LocalProvider
from omnigraph.pipeline.embed.provider import Choice, make
from tests.embed.conftest import posts, texts, vectors
from tests.embed.server import KEY, Fault, Server, vector

REMOTE = ("openai", "gemini")


def all_fit(graph: og.Graph) -> bool:
    held = texts(graph)
    return all(v is not None and np.allclose(v, vector(str(held[k]), 8), atol=1e-6) for k, v in vectors(graph).items())


@pytest.mark.parametrize("name", REMOTE)
def test_each_text_gets_its_own_vector_of_unit_length(small: og.Graph, server: Server, name: str) -> None:
    small.insert({"Post": posts(30)})
    result = small.embed(provider=name, batch=7)
    assert result.embedded == {"node:Post": 30}
    assert all_fit(small)
    assert max(len(b.get("input") or b["requests"]) for b in server.requests) == 7


def test_openai_is_told_the_model_and_the_dimensions_and_the_key_is_a_header(small: og.Graph, server: Server) -> None:
    small.insert({"Post": posts(1)})
    small.embed(provider="openai")
    assert server.requests[0]["model"] == "text-embedding-3-small"
    assert server.requests[0]["dimensions"] == 8
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


def test_other_models_are_not_told_the_dimensions(small: og.Graph, server: Server) -> None:
    small.insert({"Post": posts(1)})
    server.native = 8
    small.embed(provider="openai", model="all-minilm")
    assert "dimensions" not in server.requests[0]
    assert small.commits(limit=1)[0].summary["models"] == {"node:Post.vector": "all-minilm"}  # type: ignore[index]


def test_gemini_is_told_the_model_and_the_dimensions_and_the_key_is_a_header(small: og.Graph, server: Server) -> None:
    small.insert({"Post": posts(1)})
    small.embed(provider="gemini")
    asked = server.requests[0]["requests"][0]
    assert asked["model"] == "models/gemini-embedding-001"
    assert asked["outputDimensionality"] == 8
    assert server.headers[0]["x-goog-api-key"] == KEY


def test_the_model_that_the_schema_declares_is_asked_for(tmp_path: Any, server: Server) -> None:
    graph = og.init(tmp_path / "g", 'node P { t: String  v: Vector(8)? @embed("t", model="text-embedding-3-large") }')
    graph.insert({"P": [{"t": "x"}]})
    graph.embed(provider="openai")
    assert server.requests[0]["model"] == "text-embedding-3-large"


def test_the_same_text_is_asked_for_once(small: og.Graph, server: Server) -> None:
    small.insert({"Post": [{"key": str(i), "text": "the same"} for i in range(50)]})
    assert small.embed(provider="openai").embedded == {"node:Post": 50}
    assert server.texts == ["the same"]
    assert all_fit(small)


@pytest.mark.parametrize("name", REMOTE)
@pytest.mark.parametrize(
    "fault",
    [
        Fault(times=2, status=429),
        Fault(times=2, status=500, body=b"oops"),
        Fault(times=1, status=503, body=b""),
        Fault(times=2, drop=True),
        Fault(times=1, change=lambda _: None, status=200, body=b'{"data": [{"embedd'),
    ],
    ids=["429", "500", "503", "dropped", "cut short"],
)
def test_a_fault_that_passes_is_survived(small: og.Graph, server: Server, name: str, fault: Fault) -> None:
    small.insert({"Post": posts(5)})
    server.faults = [Fault(**vars(fault))]
    assert small.embed(provider=name, batch=100).embedded == {"node:Post": 5}
    assert len(server.requests) == 1 + fault.times
    assert all_fit(small)


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_obeyed(small: og.Graph, server: Server, form: str) -> None:
    small.insert({"Post": posts(1)})
    said = "1" if form == "seconds" else formatdate(time.time() + 2, usegmt=True)
    server.faults = [Fault(status=429, headers={"Retry-After": said})]
    small.embed(provider="openai")
    assert 0.9 <= server.at[1] - server.at[0] < 3


def test_a_slow_server_is_given_up_and_asked_again(
    small: og.Graph, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "TIMEOUT_S", 0.3)
    small.insert({"Post": posts(1)})
    server.faults = [Fault(slow_s=1.0)]
    assert small.embed(provider="openai").embedded == {"node:Post": 1}
    assert len(server.requests) == 2


def refused(graph: og.Graph, kind: type[Exception], **options: Any) -> Any:
    """Run embed, which must fail with this error and leave the graph as it is."""
    head = graph.snapshot().commit
    with pytest.raises(kind) as caught:
        graph.embed(**options)
    assert graph.snapshot().commit == head
    assert set(vectors(graph).values()) == {None}
    return caught.value


@pytest.mark.parametrize(
    ("fault", "status", "tries"),
    [
        (Fault(times=99, status=401), 401, 1),
        (Fault(times=99, status=400), 400, 1),
        (Fault(times=99, status=307, headers={"Location": "http://127.0.0.1:1/"}), 307, 1),
        (Fault(times=99, status=429), 429, http.TRIES_MAX),
        (Fault(times=99, drop=True), None, http.TRIES_MAX),
    ],
    ids=["401", "400", "redirect", "429 for ever", "dropped for ever"],
)
def test_a_fault_that_stays_is_a_typed_error_and_nothing_is_written(
    small: og.Graph, server: Server, fault: Fault, status: int | None, tries: int
) -> None:
    small.insert({"Post": posts(3)})
    server.faults = [Fault(**vars(fault))]
    error = refused(small, EmbeddingFailed, provider="openai")
    assert error.fields["provider"] == "openai"
    assert error.fields["status"] == status
    assert len(server.requests) == tries
    assert KEY not in str(error.to_json())


def short(found: Any) -> Any:
    return {**found, "data": found["data"][1:]}


def gap(found: Any) -> Any:
    return {**found, "data": found["data"][:-1]}


def nan(found: Any) -> Any:
    found["data"][0]["embedding"][3] = float("nan")
    return found


def huge(found: Any) -> Any:
    found["data"][0]["embedding"][3] = 1e300
    return found


def narrow(found: Any) -> Any:
    found["data"][0]["embedding"].pop()
    return found


def worded(found: Any) -> Any:
    found["data"][0]["embedding"][0] = "much"
    return found


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (short, EmbeddingFailed, "2 vectors to 3 texts"),
        (gap, EmbeddingFailed, "no list of embeddings"),
        (lambda f: {**f, "data": []}, EmbeddingFailed, "0 vectors to 3 texts"),
        (lambda f: {"object": "list"}, EmbeddingFailed, "no list of embeddings"),
        (nan, EmbeddingFailed, "no JSON"),
        (huge, EmbeddingFailed, "not finite"),
        (worded, EmbeddingFailed, "not numbers"),
        (narrow, EmbeddingMismatch, "7 dimensions, and 8 are declared"),
    ],
    ids=["short", "gap", "empty", "no data", "nan", "huge", "text", "narrow"],
)
def test_an_answer_that_is_no_vector_is_refused(
    small: og.Graph, server: Server, change: Any, kind: type[Exception], message: str
) -> None:
    small.insert({"Post": posts(3)})
    server.faults = [Fault(times=99, change=change)]
    assert message in str(refused(small, kind, provider="openai"))


@pytest.mark.parametrize("name", REMOTE)
@pytest.mark.parametrize("status", [200, 400])
def test_an_answer_without_an_end_is_not_read_to_its_end(
    small: og.Graph, server: Server, monkeypatch: pytest.MonkeyPatch, name: str, status: int
) -> None:
    monkeypatch.setattr(http, "_ANSWER_BYTES_MIN", 1000)
    monkeypatch.setattr(http, "_DIMENSIONS_MIN", 8)
    monkeypatch.setattr(http, "COMPLAINT_BYTES_MAX", 1000)
    small.insert({"Post": posts(1)})
    server.faults = [Fault(times=99, status=status, body=b"x" * 10_000_000)]
    with pytest.raises(EmbeddingFailed) as refusal:
        small.embed(provider=name)
    assert len(server.requests) == 1, "it is not asked again"
    assert ("longer than" in refusal.value.message) == (status == 200)
    assert len(refusal.value.message) < 1000
    assert set(vectors(small).values()) == {None}


def test_the_limit_of_an_answer_grows_with_what_is_asked_for() -> None:
    assert http.answer_bytes_max(texts=2048, dimensions=8192) > 2048 * 8192 * 25
    assert http.answer_bytes_max(texts=1, dimensions=8) < 2 << 20


def test_a_model_of_other_dimensions_is_refused(small: og.Graph, server: Server) -> None:
    small.insert({"Post": posts(1)})
    server.native = 384
    refused(small, EmbeddingMismatch, provider="openai", model="all-minilm")


def test_vectors_of_another_model_are_not_mixed_in(small: og.Graph, server: Server) -> None:
    small.insert({"Post": posts(2)})
    small.embed(provider="openai")
    small.insert({"Post": posts(1, start=2)})
    with pytest.raises(EmbeddingMismatch, match="2 of its vectors were made by another model"):
        small.embed(provider="gemini")
    assert vectors(small)["p0002"] is None
    assert small.embed(provider="gemini", everything=True).embedded == {"node:Post": 3}


@pytest.mark.parametrize("name", REMOTE)
def test_a_missing_key_is_told_before_anything_else_and_only_if_it_is_needed(small: og.Graph, name: str) -> None:
    assert small.embed(provider=name).commits == ()
    small.insert({"Post": posts(1)})
    error = refused(small, EmbeddingKeyMissing, provider=name)
    assert error.fields["variable"] == f"{name.upper()}_API_KEY"


def test_the_rate_holds_for_all_workers_together(small: og.Graph, server: Server) -> None:
    small.insert({"Post": posts(8)})
    small.embed(provider="openai", batch=1, rate_per_minute=600)
    assert len(server.at) == 8
    assert server.at[-1] - server.at[0] > 0.5


@pytest.mark.parametrize(
    "options", [{"batch": 0}, {"batch": 5000}, {"provider": "nobody"}, {"commit_every": 0}, {"rate_per_minute": 0}]
)
def test_wrong_options_are_refused(small: og.Graph, server: Server, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        small.embed(**{"provider": "openai", **options})


def test_an_address_that_is_no_http_is_refused(
    small: og.Graph, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "file:///etc")
    small.insert({"Post": posts(1)})
    assert "no http address" in str(refused(small, EmbeddingFailed, provider="openai"))


def test_the_local_model_is_the_same_in_any_company_and_takes_long_texts() -> None:
    provider = make(Choice("local", "wordllama-l2-supercat", 256, 1024))
    assert isinstance(provider, LocalProvider)
    alone = provider.embed(["a short one"])
    among = provider.embed(["word " * 20_000, "a short one", *(f"text {i} " * i for i in range(1, 100))])
    assert np.allclose(alone[0], among[1], atol=1e-6)
    assert np.isfinite(among).all()


def test_the_local_model_leaves_the_programs_log_alone() -> None:
    code = """
import logging
from omnigraph.pipeline.embed.provider import Choice, make
make(Choice("local", "wordllama-l2-supercat", 256, 1024))
print(logging.root.level, logging.root.handlers)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("30 []", "")
