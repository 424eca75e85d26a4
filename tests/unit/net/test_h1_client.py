"""The HTTP client against a server that answers byte by byte what a test tells it to."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import trustme

from headrace.net.h1_client import (
    ClientResponse,
    ClientSettings,
    H1Client,
    HttpFailure,
    HttpTimeout,
    Origin,
    ResponseTooLarge,
    encode_request,
)

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Each connection is handed to `handler`; requests are kept."""

    def __init__(self) -> None:
        self.handler: Handler = self.answer
        self.reply = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        self.requests: list[bytes] = []
        self.connections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, tls: ssl.SSLContext | None = None) -> Server:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0, ssl=tls)
        self.origin = Origin("127.0.0.1", self._server.sockets[0].getsockname()[1])
        return self

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            await self.handler(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def read_request(self, reader: asyncio.StreamReader) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        self.requests.append(head + await reader.readexactly(length))

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await self.read_request(reader)
            writer.write(self.reply)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = await Server().start()
    yield made
    await made.stop()


@pytest.fixture
async def client() -> AsyncIterator[H1Client]:
    made = H1Client()
    yield made
    await made.close()


async def post(client: H1Client, server: Server, **options: object) -> ClientResponse:
    return await client.request(server.origin, "POST", "/x", body=b"hello", timeout_s=120, **options)  # type: ignore[arg-type]


async def eventually(condition: Callable[[], bool]) -> None:
    for _ in range(5_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come true")


async def test_a_connection_is_kept_and_used_again(client: H1Client, server: Server) -> None:
    for _ in range(3):
        response = await post(client, server, headers={"X-Y": "z"})
        assert (response.status, response.body, response.headers["content-length"]) == (200, b"ok", "2")
    assert server.connections == 1
    assert server.requests[0].startswith(b"POST /x HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nX-Y: z\r\n" in server.requests[0] and server.requests[0].endswith(b"\r\n\r\nhello")


@pytest.mark.parametrize(
    ("reply", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"abcde"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", b"x"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
    ],
)
@pytest.mark.parametrize("split", [False, True])
async def test_framings(client: H1Client, server: Server, reply: bytes, body: bytes, split: bool) -> None:
    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await server.read_request(reader)
            for byte in [reply[i : i + 1] for i in range(len(reply))] if split else [reply]:
                writer.write(byte)
                await writer.drain()
                await asyncio.sleep(0)

    server.handler = slowly
    for _ in range(2):
        assert (await post(client, server)).body == body
    assert server.connections == 1


async def test_a_body_without_length_ends_with_the_connection(client: H1Client, server: Server) -> None:
    async def until_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        await writer.drain()

    server.handler = until_close
    assert (await post(client, server)).body == b"all of it"
    assert (await post(client, server)).body == b"all of it"
    assert server.connections == 2


async def test_a_server_that_says_close_is_believed(client: H1Client, server: Server) -> None:
    server.reply = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
    await post(client, server)
    await post(client, server)
    assert server.connections == 2


@pytest.mark.parametrize(
    "reply",
    [
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: nope\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_what_is_not_one_http_response_is_refused(
    client: H1Client, server: Server, reply: bytes
) -> None:
    server.reply = reply
    with pytest.raises(HttpFailure) as failed:
        await post(client, server)
        await post(client, server)  # a second answer may only show at the next request
        raise HttpFailure("the connection was not used again", sent=True)
    assert failed.value.sent


async def test_sizes_are_capped(client: H1Client, server: Server) -> None:
    server.reply = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n" + b"x" * 11
    assert len((await post(client, server, max_body_bytes=11)).body) == 11
    with pytest.raises(ResponseTooLarge):
        await post(client, server, max_body_bytes=10)
    server.reply = b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\nContent-Length: 0\r\n\r\n"
    with pytest.raises(HttpFailure):
        await post(client, server)


async def test_r5_a_failure_says_whether_the_request_was_sent(client: H1Client, server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        closed_port = taken.getsockname()[1]
    with pytest.raises(HttpFailure) as refused:
        await client.request(Origin("127.0.0.1", closed_port), "POST", "/", timeout_s=120)
    assert not refused.value.sent

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.read_request(reader)
        writer.transport.abort()

    server.handler = hang_up
    with pytest.raises(HttpFailure) as broken:
        await post(client, server)
    assert broken.value.sent

    async def say_nothing_more(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.read_request(reader)
        writer.write(server.reply)
        await server.read_request(reader)
        await asyncio.Event().wait()

    server.handler = say_nothing_more
    # On a connection that is there, so that the time is not spent on making one.
    await post(client, server)
    with pytest.raises(HttpTimeout) as silent:
        await client.request(server.origin, "POST", "/", timeout_s=0.05)
    assert silent.value.sent


async def test_calls_beyond_the_limit_wait_within_their_deadline(server: Server) -> None:
    client = H1Client(ClientSettings(max_connections_per_origin=2))
    release = asyncio.Event()

    async def when_told(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await server.read_request(reader)
            await release.wait()
            writer.write(server.reply)

    server.handler = when_told
    calls = [asyncio.ensure_future(post(client, server)) for _ in range(6)]
    await eventually(lambda: len(server.requests) == 2)
    with pytest.raises(HttpTimeout) as waited:
        await client.request(server.origin, "POST", "/", timeout_s=0.05)
    assert not waited.value.sent
    release.set()
    assert [response.status for response in await asyncio.gather(*calls)] == [200] * 6
    assert server.connections == 2
    await client.close()


async def test_a_connection_that_died_in_the_pool_is_not_used(client: H1Client, server: Server) -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.read_request(reader)
        writer.write(server.reply)
        await writer.drain()

    server.handler = once
    await post(client, server)
    (connection,) = client._open
    await eventually(lambda: not connection.is_open)
    assert (await post(client, server)).status == 200
    assert server.connections == 2


async def test_an_old_idle_connection_is_not_used(server: Server) -> None:
    client = H1Client(ClientSettings(idle_s=-1))
    await post(client, server)
    await post(client, server)
    assert server.connections == 2
    await client.close()


async def test_a_stream_is_read_as_it_arrives(client: H1Client, server: Server) -> None:
    more = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await more.wait()
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")
        await writer.drain()

    server.handler = drip
    with await client.open_stream(server.origin, "POST", "/watch", timeout_s=120) as stream:
        assert stream.status == 200
        assert await stream.read() == b"one"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await stream.read()
        more.set()
        assert await stream.read() == b"two"
        assert await stream.read() == b""


async def test_a_broken_stream_raises(client: H1Client, server: Server) -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf")
        await writer.drain()

    server.handler = cut
    with await client.open_stream(server.origin, "POST", "/", timeout_s=120) as stream:
        assert await stream.read() == b"half"
        with pytest.raises(HttpFailure):
            await stream.read()


async def test_a_slow_reader_holds_the_server_back(client: H1Client, server: Server) -> None:
    """Flow control: what is not read is not buffered without bound."""
    sent = 0
    total = 64 * 1024 * 1024

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await server.read_request(reader)
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {total}\r\n\r\n".encode())
        while sent < total:
            writer.write(bytes(65_536))
            await writer.drain()
            sent += 65_536

    server.handler = pour
    with await client.open_stream(server.origin, "POST", "/", timeout_s=120) as stream:
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.05)
        assert sent < total / 2
        received = 0
        while chunk := await stream.read():
            received += len(chunk)
        assert received == total


async def test_a_stream_without_headers_times_out(client: H1Client, server: Server) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    server.handler = say_nothing
    with pytest.raises(HttpTimeout):
        await client.open_stream(server.origin, "POST", "/", timeout_s=0.05)


async def test_closing_fails_what_is_under_way(server: Server) -> None:
    client = H1Client()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.read_request(reader)
        await asyncio.Event().wait()

    server.handler = say_nothing
    call = asyncio.ensure_future(post(client, server))
    await eventually(lambda: bool(server.requests))
    await client.close()
    with pytest.raises(HttpFailure):
        await call
    with pytest.raises(HttpFailure):
        await post(client, server)


async def test_tls_checks_the_name_and_x22_connects_to_the_address_given(
    tmp_path: Path, client: H1Client
) -> None:
    authority = trustme.CA()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("hooks.example").configure_cert(serving)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    server = await Server().start(serving)
    port = server.origin.port
    good = Origin("hooks.example", port, trusting, address="127.0.0.1")
    assert (await client.request(good, "GET", "/", timeout_s=120)).status == 200
    assert f"Host: hooks.example:{port}".encode() in server.requests[0]
    for origin in (
        Origin("other.example", port, trusting, address="127.0.0.1"),
        Origin("hooks.example", port, ssl.create_default_context(), address="127.0.0.1"),
    ):
        with pytest.raises(HttpFailure) as failed:
            await client.request(origin, "GET", "/", timeout_s=120)
        assert not failed.value.sent
    await server.stop()


async def test_dead_peers_are_noticed_by_the_kernel(client: H1Client, server: Server) -> None:
    """etcd rule 6: keep-alive probes, and a limit on unacknowledged data."""
    await post(client, server)
    (connection,) = client._open
    assert connection._transport is not None
    sock = connection._transport.get_extra_info("socket")
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 5
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 10_000


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/a b", {}),
        ("GET", "/a\r\nX: y", {}),
        ("GET", "no-slash", {}),
        ("GET /", "/", {}),
        ("HEAD", "/", {}),
        ("GET", "/", {"X": "a\r\nY: b"}),
        ("GET", "/", {"X Y": "a"}),
        ("GET", "/", {"Content-Length": "3"}),
        ("GET", "/", {"transfer-encoding": "chunked"}),
        ("GET", "/é", {}),
    ],
)
def test_a_request_cannot_smuggle_another(method: str, path: str, headers: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        encode_request(Origin("h", 80), method, path, headers, b"")


def test_the_host_header_leaves_out_the_default_port() -> None:
    assert Origin("h", 80).authority == "h"
    assert Origin("h", 443).authority == "h:443"
    assert Origin("::1", 2379).authority == "[::1]:2379"


async def test_many_origins_do_not_pile_up(
    client: H1Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.net.h1_client._MAX_POOLS", 3)
    for number in range(10):
        origin = Origin(f"h{number}", server.origin.port, address="127.0.0.1")
        assert (await client.request(origin, "GET", "/", timeout_s=120)).status == 200
    assert len(client._pools) <= 3 and len(client._open) <= 3


def test_it_works_on_uvloop() -> None:
    """Whose transports are not asyncio's."""
    uvloop = pytest.importorskip("uvloop")

    async def scenario() -> None:
        server = await Server().start()
        client = H1Client()
        assert (await post(client, server)).body == b"ok"
        with await client.open_stream(server.origin, "POST", "/", timeout_s=120) as stream:
            assert await stream.read() == b"ok"
        await client.close()
        await server.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
