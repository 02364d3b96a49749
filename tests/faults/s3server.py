"""An S3 server on the loopback with the faults inside.

One server holds many worlds. A world is a bucket's content plus the clients that use it; the access key of a request,
`<world>.<client>.<pid>`, says to which world and client it belongs and which process to strike. So two clients can
share a world, and whatever a dead client still had in flight is dropped exactly.

Every request of a client is numbered from 0. A fault names a client and either a request number or a predicate on the
request; it fires once, and the request that it struck is kept in `world.struck`: outcomes are judged by that, not by
the number, because concurrent requests reorder.

    kill_before, kill_after   SIGKILL, with the request not applied or applied
    ghost                     SIGKILL, and the request is applied when `release` is called
    error_500, error_503      answered so, not applied
    drop                      connection closed, not applied
    lost                      applied, connection closed
    applied_500               applied, answered 500
    delay                     applied and answered later
    denied                    403 for this and all further requests (credentials revoked)
    lost_denied               applied, connection closed, 403 from then on
    freeze_before, _after     SIGSTOP; `release` applies what was held, answers and sends SIGCONT
    release_ghosts            no fault: before this request of this client, what is held in the world is released

A world with `conditional=False` ignores If-None-Match and If-Match, as stores do that call themselves compatible.

All state belongs to the server's thread; other threads go through `S3Server.call`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
import urllib.parse
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TypeVar

from tests.faults.s3store import MUTATIONS, Object, Request, Response, Store, error

T = TypeVar("T")
REGION = "us-east-1"
DELAY_S = 0.2


@dataclass
class Entry:
    """One line of a world's log. `applied` says whether the store has performed the request, whatever was answered."""

    n: int
    client: str
    operation: str
    key: str
    applied: bool = False
    status: int = 0
    fault: str = ""

    @property
    def mutates(self) -> bool:
        return self.operation in MUTATIONS

    @property
    def done(self) -> bool:
        """The request changed what is stored."""
        return self.applied and self.mutates and self.status < 300


@dataclass(frozen=True)
class Fault:
    kind: str
    client: str
    at: int = -1
    when: Callable[[Entry], bool] | None = None

    def strikes(self, entry: Entry) -> bool:
        if entry.client != self.client:
            return False
        return self.when(entry) if self.when else entry.n == self.at


@dataclass
class Client:
    name: str
    pid: int
    sent: int = 0
    dead: bool = False
    denied: bool = False
    connections: set[_Connection] = field(default_factory=set)


class World:
    def __init__(self, name: str, objects: dict[str, Object] | None = None, *, conditional: bool = True) -> None:
        self.name = name
        self.store = Store(objects, conditional=conditional)
        self.clients: dict[str, Client] = {}
        self.log: list[Entry] = []
        self.faults: list[Fault] = []
        self.struck: Entry | None = None
        self.has_struck = threading.Event()
        self.held: list[Callable[[], None]] = []

    def take_fault(self, entry: Entry) -> str:
        for fault in self.faults:
            if fault.strikes(entry):
                self.faults.remove(fault)
                return fault.kind
        return ""

    def release(self) -> None:
        """Let the held requests land, in the order in which they were sent."""
        held, self.held = self.held, []
        for land in held:
            land()


class S3Server:
    """Runs in a thread of its own. Use as a context manager."""

    def __init__(self) -> None:
        self._worlds: dict[str, World] = {}
        self._loop = asyncio.new_event_loop()
        self._port: Future[int] = Future()
        self._stopped: asyncio.Event | None = None
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()), daemon=True)

    def __enter__(self) -> S3Server:
        self._thread.start()
        self._port.result(timeout=10)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._stopped is not None
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(timeout=10)

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        server = await self._loop.create_server(lambda: _Connection(self), "127.0.0.1", 0, backlog=512)
        self._port.set_result(server.sockets[0].getsockname()[1])
        await self._stopped.wait()
        server.close()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port.result()}"

    def call(self, function: Callable[[], T]) -> T:
        """Run `function` in the server's thread, between two requests, and return its result."""
        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(function())
            except Exception as problem:  # noqa: BLE001  handed to the caller
                answer.set_exception(problem)

        self._loop.call_soon_threadsafe(run)
        return answer.result(timeout=60)

    def add(self, world: World) -> World:
        self.call(lambda: self._worlds.__setitem__(world.name, world))
        return world

    def remove(self, world: World) -> None:
        def run() -> None:
            self._worlds.pop(world.name, None)
            for client in world.clients.values():
                for connection in list(client.connections):
                    connection.drop()

        self.call(run)

    # ---- one request -------------------------------------------------------------------------------------------------

    def handle(self, connection: _Connection, request: Request) -> None:
        credential = request.headers.get("authorization", "").partition("Credential=")[2].partition("/")[0]
        world_name, client_name, pid = [*credential.split("."), "", ""][:3]
        world = self._worlds.get(world_name)
        if world is None:
            connection.drop()
            return
        client = world.clients.setdefault(client_name, Client(client_name, int(pid or 0)))
        if client.dead:
            connection.drop()
            return
        client.connections.add(connection)
        connection.client = client
        entry = Entry(client.sent, client_name, request.operation, request.subject)
        client.sent += 1
        world.log.append(entry)
        if client.denied:
            entry.fault = "denied"
            connection.send(error(403, "AccessDenied"), request.method)
            return
        entry.fault = world.take_fault(entry)
        if entry.fault and entry.fault != "release_ghosts":
            world.struck = entry
        _Strike(self._loop, world, client, entry, connection, request).perform()
        if world.struck is entry:
            world.has_struck.set()


@dataclass
class _Strike:
    """What happens to one request: `entry.fault` names one of the methods below, or nothing."""

    loop: asyncio.AbstractEventLoop
    world: World
    client: Client
    entry: Entry
    connection: _Connection
    request: Request

    def perform(self) -> None:
        getattr(self, self.entry.fault or "answer")()

    def apply(self) -> Response:
        response = self.world.store.apply(self.request)
        self.entry.applied, self.entry.status = True, response.status
        return response

    def send(self, response: Response) -> None:
        self.connection.send(response, self.request.method)

    def answer(self) -> None:
        self.send(self.apply())

    def release_ghosts(self) -> None:
        self.world.release()
        self.answer()

    def kill_before(self) -> None:
        self.client.dead = True
        self._signal(signal.SIGKILL)
        for connection in list(self.client.connections):
            connection.drop()

    def kill_after(self) -> None:
        self.apply()
        self.kill_before()

    def ghost(self) -> None:
        self.world.held.append(lambda: (self.apply(), None)[1])
        self.kill_before()

    def error_500(self) -> None:
        self.send(error(500, "InternalError"))

    def error_503(self) -> None:
        self.send(error(503, "SlowDown"))

    def drop(self) -> None:
        self.connection.drop()

    def lost(self) -> None:
        self.apply()
        self.connection.drop()

    def applied_500(self) -> None:
        self.apply()
        self.error_500()

    def delay(self) -> None:
        self.loop.call_later(DELAY_S, self.answer)

    def denied(self) -> None:
        self.client.denied = True
        self.send(error(403, "AccessDenied"))

    def lost_denied(self) -> None:
        self.client.denied = True
        self.lost()

    def freeze_before(self) -> None:
        self._freeze(self.answer)

    def freeze_after(self) -> None:
        response = self.apply()
        self._freeze(lambda: self.send(response))

    def _freeze(self, land: Callable[[], None]) -> None:
        def thaw() -> None:
            land()
            self._signal(signal.SIGCONT)

        self.world.held.append(thaw)
        self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        # The process may have ended by itself, and pid 0 would strike our own process group.
        if self.client.pid > 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.client.pid, number)


class _Connection(asyncio.Protocol):
    """HTTP/1.1 with keep-alive, as much of it as S3 clients use."""

    def __init__(self, server: S3Server) -> None:
        self._server = server
        self._buffer = bytearray()
        self._continued = False
        self.client: Client | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, _: Exception | None) -> None:
        if self.client:
            self.client.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (request := self._next()) is not None:
            self._server.handle(self, request)

    def _next(self) -> Request | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        first, *lines = self._buffer[:end].decode("latin1").split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        assert "transfer-encoding" not in headers, "chunked bodies are not supported"
        size = int(headers.get("content-length", 0))
        if headers.get("expect") and not self._continued:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._continued = True
        if len(self._buffer) < end + 4 + size:
            return None
        body = bytes(self._buffer[end + 4 : end + 4 + size])
        del self._buffer[: end + 4 + size]
        self._continued = False
        path, _, query_text = target.partition("?")
        query = dict(urllib.parse.parse_qsl(query_text, keep_blank_values=True))
        bucket, _, key = urllib.parse.unquote(path).lstrip("/").partition("/")
        return Request(method, bucket, key, query, headers, body)

    def send(self, response: Response, method: str) -> None:
        if self._transport.is_closing():
            return
        lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in response.headers.items()]
        if response.status != HTTPStatus.NO_CONTENT:
            lines.append(f"Content-Length: {len(response.body)}")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin1")
        self._transport.write(head if method == "HEAD" else head + response.body)

    def drop(self) -> None:
        if not self._transport.is_closing():
            self._transport.abort()
