"""A real HTTP server on loopback that speaks OpenAI's and Gemini's embedding protocols, with faults on demand.

The vector of a text is made from its hash, so that a test can tell which text it belongs to.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

KEY = "sk-secret-of-the-test"


def vector(text: str, dimensions: int) -> list[float]:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    found = np.random.default_rng(seed).normal(size=dimensions)
    return [float(x) for x in (found / np.linalg.norm(found)).astype(np.float32)]


@dataclass
class Fault:
    """What a request gets instead of its answer, as long as `times` lasts."""

    times: int = 1
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    drop: bool = False
    slow_s: float = 0.0
    change: Callable[[Any], Any] | None = None


@dataclass
class Server:
    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    native: int | None = None
    """The dimensions that the model gives when nobody says how many."""
    before: Callable[[list[str]], None] | None = None
    mutex: threading.Lock = field(default_factory=threading.Lock)

    @property
    def texts(self) -> list[str]:
        """Every text that was answered or refused, in the order asked."""
        return [text for body in self.requests for text in asked(body)]

    def fault(self) -> Fault | None:
        with self.mutex:
            if not self.faults:
                return None
            self.faults[0].times -= 1
            return self.faults.pop(0) if self.faults[0].times == 0 else self.faults[0]


def asked(body: dict[str, Any]) -> list[str]:
    if "requests" in body:
        return [r["content"]["parts"][0]["text"] for r in body["requests"]]
    return list(body["input"])


def answer(server: Server, body: dict[str, Any]) -> dict[str, Any]:
    if "requests" in body:
        return {"embeddings": [{"values": _long(vector(t, _wide(r)))} for r, t in _pairs(body)]}
    size = body.get("dimensions") or server.native or 8
    items = [{"object": "embedding", "index": i, "embedding": vector(t, size)} for i, t in enumerate(body["input"])]
    # The order is not promised by the protocol.
    return {"object": "list", "data": items[::-1], "model": body["model"], "usage": {"prompt_tokens": 1}}


def _pairs(body: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    yield from zip(body["requests"], asked(body), strict=True)


def _wide(request: dict[str, Any]) -> int:
    return int(request["outputDimensionality"])


def _long(values: list[float]) -> list[float]:
    """Gemini's shortened vectors are not of unit length."""
    return [2 * v for v in values]


@contextmanager
def serving() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with server.mutex:
                server.requests.append(body)
                server.headers.append({k.lower(): v for k, v in self.headers.items()})
                server.at.append(time.monotonic())
            if server.before is not None:
                server.before(asked(body))
            fault = server.fault()
            if fault is not None and self._fails(fault):
                return
            found: Any = answer(server, body)
            if fault is not None and fault.change is not None:
                found = fault.change(found)
            self._say(200, json.dumps(found).encode(), {})

        def _fails(self, fault: Fault) -> bool:
            if fault.slow_s:
                time.sleep(fault.slow_s)
            if fault.drop:
                self.close_connection = True
                self.connection.close()
                return True
            if fault.status is None:
                return False
            refused = json.dumps({"error": {"message": f"no, {KEY} may not"}}).encode()
            self._say(fault.status, refused if fault.body is None else fault.body, fault.headers)
            return True

        def _say(self, status: int, raw: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: Any) -> None:
            return

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    server = Server(url=f"http://127.0.0.1:{httpd.server_address[1]}")
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()
