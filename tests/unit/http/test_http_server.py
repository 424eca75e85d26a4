"""The HTTP server on real loopback sockets: order, keep-alive, continue, streams, caps, drain."""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.http.connection import HttpConnection
from headrace.http.listening import HttpSettings
from headrace.http.messages import TEXT, Request, Response, StreamingResponse
from headrace.http.router import Router
from headrace.http.server import HttpServer
from headrace.http.sse import encode_event, event_stream
from headrace.security.rights import OWN


class TestClock:
    __test__ = False

    def now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def wall_ms(self) -> int:
        return 1_700_000_000_000


class Door:
    """Routes of every kind, and gates that let a test decide when a slow one goes on."""

    def __init__(self) -> None:
        self.router = Router()
        self.gate = asyncio.Event()
        self.entered = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.stream_closed = asyncio.Event()
        self.router.add("GET", "/now", lambda request: Response(b"now", content_type=TEXT), OWN)
        self.router.add(
            "POST", "/echo", lambda request: Response(request.body, content_type=TEXT), OWN, any_body=True
        )
        self.router.add("GET", "/later", self.later, OWN)
        self.router.add("GET", "/stream", self.stream, OWN)
        self.router.add("GET", "/events", self.events, OWN)
        self.router.add("GET", "/bug", self.bug, OWN)
        self.router.add("GET", "/refuse", self.refuse, OWN)
        self.router.add("GET", "/inject", self.inject, OWN)
        self.router.add("GET", "/big", lambda request: Response(b"x" * (8 << 20), content_type=TEXT), OWN)
        self.router.add("GET", "/peer/{name}", self.peer, OWN)

    async def later(self, _request: Request) -> Response:
        self.entered.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return Response(b"later", content_type=TEXT)

    async def stream(self, _request: Request) -> StreamingResponse:
        return StreamingResponse(self._pieces(), content_type=TEXT)

    async def _pieces(self) -> AsyncIterator[bytes]:
        try:
            for piece in (b"one", b"", b"two"):
                yield piece
            self.entered.set()
            await self.gate.wait()
        finally:
            self.stream_closed.set()

    def events(self, _request: Request) -> StreamingResponse:
        async def source() -> AsyncIterator[bytes]:
            yield encode_event("a\nb", event="tick", event_id="1", retry_ms=5)
            await self.gate.wait()

        return event_stream(source(), heartbeat_ms=1)

    def bug(self, _request: Request) -> Response:
        raise ZeroDivisionError

    async def refuse(self, _request: Request) -> Response:
        raise HeadraceError(ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, 'topic "x" does not exist')

    def inject(self, _request: Request) -> Response:
        return Response(b"", headers=(("x", "a\r\nset-cookie: b"),))

    def peer(self, request: Request) -> Response:
        text = (
            f"{request.peer.host} {request.params['name']} {request.query.get('q')} {request.deadline_ms > 0}"
        )
        return Response(text.encode(), content_type=TEXT)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def get(self, path: str, *headers: str) -> None:
        lines = "".join(f"{header}\r\n" for header in headers)
        self.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode())

    async def response(self, *, head_only: bool = False) -> tuple[int, dict[str, str], bytes]:
        async with asyncio.timeout(5):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            status_line, *lines = head.split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines if line)
            body = b""
            if not head_only and "content-length" in headers:
                body = await self.reader.readexactly(int(headers["content-length"]))
            return int(status_line.split()[1]), headers, body

    async def rest(self) -> bytes:
        async with asyncio.timeout(5):
            return await self.reader.read()


class World:
    def __init__(self, door: Door, server: HttpServer, port: int) -> None:
        self.door = door
        self.server = server
        self.port = port
        self._clients: list[Client] = []

    async def connect(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self._clients.append(client)
        return client

    async def close(self) -> None:
        await self.server.stop(grace_ms=0)
        for client in self._clients:
            client.writer.close()


MakeWorld = Callable[..., Awaitable[World]]


@pytest.fixture
async def make_world() -> AsyncIterator[MakeWorld]:
    worlds: list[World] = []

    async def make(**settings: int) -> World:
        door = Door()
        server = HttpServer(door.router, TestClock(), HttpSettings(**settings), request_id_prefix="r")
        _, port = await server.start("127.0.0.1", 0)
        worlds.append(World(door, server, port))
        return worlds[-1]

    yield make
    for world in worlds:
        await world.close()


async def test_keep_alive_and_fixed_headers(make_world: MakeWorld) -> None:
    world = await make_world()
    client = await world.connect()
    for _ in range(3):
        client.get("/now")
        status, headers, body = await client.response()
        assert (status, body) == (200, b"now")
        assert headers["date"] == "Tue, 14 Nov 2023 22:13:20 GMT"
        assert "connection" not in headers
    client.get("/now", "Connection: close")
    _, headers, _ = await client.response()
    assert headers["connection"] == "close"
    assert await client.rest() == b""


async def test_http_1_0_closes(make_world: MakeWorld) -> None:
    client = await (await make_world()).connect()
    client.send(b"GET /now HTTP/1.0\r\n\r\n")
    assert (await client.response())[2] == b"now"
    assert await client.rest() == b""


async def test_pipelined_answers_keep_their_order_behind_a_slow_one(make_world: MakeWorld) -> None:
    world = await make_world()
    client = await world.connect()
    client.get("/now")
    client.get("/later")
    client.send(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi")
    client.get("/now")
    assert (await client.response())[2] == b"now"
    await world.door.entered.wait()
    world.door.gate.set()
    assert [(await client.response())[2] for _ in range(3)] == [b"later", b"hi", b"now"]


async def test_more_pipelined_requests_than_are_taken_at_once_are_all_answered(make_world: MakeWorld) -> None:
    world = await make_world(max_pipelined=4)
    client = await world.connect()
    client.get("/later")
    one = b"GET /now HTTP/1.1\r\nHost: localhost\r\n\r\n"
    client.send(one * 3000)  # more than one slice, more than one read
    await world.door.entered.wait()
    world.door.gate.set()
    assert (await client.response())[2] == b"later"
    for _ in range(3000):
        assert (await client.response())[2] == b"now"


async def test_expect_continue_is_sent_before_the_body(make_world: MakeWorld) -> None:
    client = await (await make_world()).connect()
    client.send(
        b"POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    )
    assert (await client.response(head_only=True))[0] == 100
    client.send(b"hi")
    assert (await client.response())[2] == b"hi"


async def test_expect_continue_waits_for_the_answer_before_it(make_world: MakeWorld) -> None:
    world = await make_world()
    client = await world.connect()
    client.get("/later")
    client.send(
        b"POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    )
    await world.door.entered.wait()
    world.door.gate.set()
    assert (await client.response())[2] == b"later"
    assert (await client.response(head_only=True))[0] == 100
    client.send(b"hi")
    assert (await client.response())[2] == b"hi"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /nope HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n", 404),
        (
            b"POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 99999999\r\n\r\n",
            413,
        ),
    ],
)
async def test_expect_continue_is_refused_without_asking_for_the_body(
    make_world: MakeWorld, head: bytes, status: int
) -> None:
    client = await (await make_world()).connect()
    client.send(head)
    assert (await client.response())[0] == status
    assert await client.rest() == b""


async def test_too_large_body_gets_its_answer_although_it_is_still_being_sent(make_world: MakeWorld) -> None:
    client = await (await make_world(max_body_bytes=1000)).connect()
    client.send(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500000\r\n\r\n" + b"x" * 500000)
    status, headers, body = await client.response()
    assert status == 413
    assert headers["content-type"] == "application/problem+json"
    assert json.loads(body)["code"] == "PAYLOAD_TOO_LARGE"


async def test_head_has_the_length_and_no_body(make_world: MakeWorld) -> None:
    client = await (await make_world()).connect()
    client.send(b"HEAD /now HTTP/1.1\r\nHost: localhost\r\n\r\n")
    status, headers, _ = await client.response(head_only=True)
    assert (status, headers["content-length"]) == (200, "3")
    client.get("/now")
    assert (await client.response())[2] == b"now"


async def test_not_found_and_method_not_allowed_are_problems_and_keep_the_connection(
    make_world: MakeWorld,
) -> None:
    client = await (await make_world()).connect()
    client.send(
        b"POST /nope HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: mine\r\nContent-Length: 2\r\n\r\nhi"
    )
    status, headers, body = await client.response()
    problem = json.loads(body)
    assert (status, headers["content-type"]) == (404, "application/problem+json")
    assert (problem["status"], problem["request_id"], problem["instance"]) == (404, "mine", "/nope")
    client.send(b"DELETE /now HTTP/1.1\r\nHost: localhost\r\n\r\n")
    status, headers, _ = await client.response()
    assert (status, headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    client.send(b"OPTIONS /now HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (await client.response())[0] == 204


async def test_refusal_of_a_handler_is_a_problem_with_a_hint(make_world: MakeWorld) -> None:
    client = await (await make_world()).connect()
    client.get("/refuse")
    status, headers, body = await client.response()
    problem = json.loads(body)
    assert status == 404
    assert problem["code"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert problem["kafka_error"] == 3
    assert "headrace topic create" in problem["hint"]
    assert problem["request_id"] == headers["x-request-id"] == "r1"


async def test_a_bug_in_a_handler_is_a_500_and_the_connection_lives(
    make_world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    client = await (await make_world()).connect()
    client.get("/bug")
    status, _, body = await client.response()
    assert status == 500
    assert b"ZeroDivision" not in body
    assert "ZeroDivisionError" in caplog.text
    client.get("/now")
    assert (await client.response())[2] == b"now"


async def test_x28_a_header_value_cannot_split_the_response(make_world: MakeWorld) -> None:
    client = await (await make_world()).connect()
    client.get("/inject")
    status, headers, _ = await client.response()
    assert status == 500
    assert "set-cookie" not in headers


async def test_request_id_is_echoed_only_when_it_is_harmless(make_world: MakeWorld) -> None:
    client = await (await make_world()).connect()
    client.get("/now", "X-Request-Id: abc")
    assert (await client.response())[1]["x-request-id"] == "abc"
    client.get("/now", "X-Request-Id: " + "a" * 200)
    assert "x-request-id" not in (await client.response())[1]


async def test_path_values_query_and_peer_reach_the_handler(make_world: MakeWorld) -> None:
    client = await (await make_world()).connect()
    client.get("/peer/a%20b?q=%C3%A9")
    assert (await client.response())[2].decode() == "127.0.0.1 a b é True"
    client.get("/peer/x?q=1&q=2")
    assert (await client.response())[0] == 400


async def test_stream_is_chunked_and_the_connection_goes_on(make_world: MakeWorld) -> None:
    world = await make_world()
    client = await world.connect()
    world.door.gate.set()
    client.get("/stream")
    _, headers, _ = await client.response(head_only=True)
    assert headers["transfer-encoding"] == "chunked"
    assert (
        await client.reader.readexactly(len(b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"))
        == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
    )
    client.get("/now")
    assert (await client.response())[2] == b"now"


async def test_stream_to_http_1_0_ends_with_the_connection(make_world: MakeWorld) -> None:
    world = await make_world()
    client = await world.connect()
    world.door.gate.set()
    client.send(b"GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    _, headers, _ = await client.response(head_only=True)
    assert headers["connection"] == "close"
    assert await client.rest() == b"onetwo"


async def test_server_sent_events_with_heartbeats(make_world: MakeWorld) -> None:
    world = await make_world()
    client = await world.connect()
    client.get("/events")
    _, headers, _ = await client.response(head_only=True)
    assert headers["content-type"].startswith("text/event-stream")
    async with asyncio.timeout(5):
        assert b"event: tick\nid: 1\nretry: 5\ndata: a\ndata: b\n\n" in await client.reader.readuntil(
            b"\n\n\r\n"
        )
        assert b": keep-alive\n\n" in await client.reader.readuntil(b"\n\n\r\n")
        world.door.gate.set()
        await client.reader.readuntil(b"0\r\n\r\n")


async def test_a_client_that_leaves_cancels_its_request(make_world: MakeWorld) -> None:
    world = await make_world()
    client = await world.connect()
    client.get("/later")
    await world.door.entered.wait()
    client.writer.close()
    async with asyncio.timeout(5):
        await world.door.cancelled.wait()


async def test_a_client_that_leaves_ends_its_stream(make_world: MakeWorld) -> None:
    world = await make_world()
    client = await world.connect()
    client.get("/stream")
    await world.door.entered.wait()
    client.writer.close()
    async with asyncio.timeout(5):
        await world.door.stream_closed.wait()


async def test_x14_connection_cap(make_world: MakeWorld) -> None:
    """Those that have something to be answered stay; one of those that are idle makes room (A4)."""
    world = await make_world(max_connections=2, connections_reserved_for_loopback=0)
    clients = [await world.connect() for _ in range(2)]
    for client in clients:
        world.door.entered.clear()
        client.get("/later")
        await world.door.entered.wait()
    third = await world.connect()
    assert (await third.response())[0] == 503
    assert await third.rest() == b""
    world.door.gate.set()
    for client in clients:
        assert (await client.response())[0] == 200
    fourth = await world.connect()
    fourth.get("/now")
    assert (await fourth.response())[0] == 200
    ends = [asyncio.ensure_future(client.reader.read(1)) for client in clients]
    done, waiting = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED, timeout=60)
    assert [end.result() for end in done] == [b""] and len(waiting) == 1, "one of the two, and not both"
    waiting.pop().cancel()


async def test_a4_one_address_makes_room_among_its_own(make_world: MakeWorld) -> None:
    world = await make_world(max_connections=100, max_connections_per_host=1)
    first = await world.connect()
    first.get("/now")
    await first.response()
    second = await world.connect()
    second.get("/now")
    assert (await second.response())[0] == 200
    assert await first.rest() == b""
    assert world.server.connection_count == 1
    second.get("/now", "Connection: close")
    await second.response()
    assert await second.rest() == b""
    async with asyncio.timeout(5):
        while world.server.connection_count:  # noqa: ASYNC110
            await asyncio.sleep(0)
    third = await world.connect()
    third.get("/now")
    assert (await third.response())[0] == 200, "who was thrown out is not counted twice"


async def test_x9_bodies_wait_for_their_turn(make_world: MakeWorld) -> None:
    world = await make_world(max_inflight_body_bytes=1000)
    first, second = await world.connect(), await world.connect()
    head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\nExpect: 100-continue\r\n\r\n"
    first.send(head)
    assert (await first.response(head_only=True))[0] == 100
    second.send(head)
    first.send(b"x" * 899)
    with pytest.raises(TimeoutError):  # the second is not asked for its body while the first holds the budget
        async with asyncio.timeout(0.05):
            await second.reader.read(1)
    first.send(b"x")
    assert len((await first.response())[2]) == 900
    assert (await second.response(head_only=True))[0] == 100
    second.send(b"x" * 900)
    assert len((await second.response())[2]) == 900
    assert world.server.body_budget.used_bytes == 0


async def test_a_lost_connection_gives_its_bytes_back(make_world: MakeWorld) -> None:
    world = await make_world()
    client = await world.connect()
    client.send(
        b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\nExpect: 100-continue\r\n\r\n"
    )
    await client.response(head_only=True)
    assert world.server.body_budget.used_bytes == 900
    client.writer.close()
    async with asyncio.timeout(5):
        while world.server.connection_count:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert world.server.body_budget.used_bytes == 0


async def test_keep_alive_cap(make_world: MakeWorld) -> None:
    client = await (await make_world(max_requests_per_connection=2)).connect()
    client.get("/now")
    client.get("/now")
    assert "connection" not in (await client.response())[1]
    assert (await client.response())[1]["connection"] == "close"
    assert await client.rest() == b""


async def test_drain_answers_what_runs_and_closes_what_idles(make_world: MakeWorld) -> None:
    world = await make_world()
    busy, idle, streaming = [await world.connect() for _ in range(3)]
    idle.get("/now")
    await idle.response()
    streaming.get("/stream")
    await streaming.response(head_only=True)
    await world.door.entered.wait()
    world.door.entered.clear()
    busy.get("/later")
    await world.door.entered.wait()
    stopping = asyncio.ensure_future(world.server.stop(grace_ms=5000))
    assert await idle.rest() == b""
    assert (await streaming.rest()).endswith(b"0\r\n\r\n")
    world.door.gate.set()
    _, headers, body = await busy.response()
    assert (headers["connection"], body) == ("close", b"later")
    await stopping
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", world.port)


async def test_drain_gives_up_after_its_grace(make_world: MakeWorld) -> None:
    world = await make_world()
    client = await world.connect()
    client.get("/later")
    await world.door.entered.wait()
    await world.server.stop(grace_ms=1)
    assert world.server.connection_count == 0


async def test_big_response_is_whole(make_world: MakeWorld) -> None:
    client = await (await make_world()).connect()
    client.get("/big")
    assert len((await client.response())[2]) == 8 << 20


@pytest.mark.skipif(
    shutil.which("curl") is None or shutil.which("openssl") is None, reason="needs curl and openssl"
)
async def test_tls(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = await asyncio.create_subprocess_exec(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate),
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert await made.wait() == 0
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    router = Router()
    router.add(
        "POST",
        "/",
        lambda request: Response(f"{request.peer.is_tls} {len(request.body)}".encode(), content_type=TEXT),
        OWN,
        any_body=True,
    )
    server = HttpServer(router, TestClock())
    _, port = await server.start("127.0.0.1", 0, tls=context)
    (tmp_path / "body").write_bytes(b"x" * 1_000_000)
    curl = await asyncio.create_subprocess_exec(
        "curl", "-sS", "--max-time", "10", "--cacert", str(certificate), "--resolve", f"localhost:{port}:127.0.0.1",
        "--data-binary", f"@{tmp_path / 'body'}", f"https://localhost:{port}/",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await curl.communicate()
    assert out == b"True 1000000"
    await server.stop(grace_ms=1000)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
async def test_curl(make_world: MakeWorld) -> None:
    world = await make_world()
    world.door.gate.set()
    base = f"http://127.0.0.1:{world.port}"
    process = await asyncio.create_subprocess_exec(
        "curl", "-sS", "--max-time", "10", "-H", "Expect: 100-continue", "--data-binary", "hello", f"{base}/echo",
        "--next", "-sS", "-H", "Transfer-Encoding: chunked", "-d", "chunky", f"{base}/echo",
        "--next", "-sS", "--http2", f"{base}/now",
        "--next", "-sS", f"{base}/stream",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    assert (process.returncode, out) == (0, b"hellochunkynowonetwo")


async def test_a_request_whose_client_is_gone_before_its_task_began_leaves_nothing_behind(
    recwarn: pytest.WarningsRecorder,
) -> None:
    """The handler's coroutine exists when its task is cancelled before its first step; nobody else would end it."""
    door = Door()
    server = HttpServer(door.router, TestClock(), HttpSettings())
    await server.start("127.0.0.1", 0)
    connection = HttpConnection(server)
    connection.connection_made(asyncio.WriteTransport())
    connection.data_received(b"GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n")
    connection.connection_lost(None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    del connection
    gc.collect()
    assert not door.entered.is_set()
    assert [str(one.message) for one in recwarn if "never awaited" in str(one.message)] == []
    await server.stop()
