"""X13: the limits of time, on virtual time: nobody holds a connection by being slow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace.http.connection import HttpConnection
from headrace.http.listening import HttpSettings
from headrace.http.messages import TEXT, Request, Response, StreamingResponse
from headrace.http.router import Router
from headrace.http.server import HttpServer
from headrace.security.rights import OWN
from headrace.testing.sim_node import SimNode, SimRuntime
from headrace.testing.simulation import Simulation

Body = Callable[[Simulation, HttpServer], Awaitable[Any]]
SEEDS = range(5)


def play(seed: int, body: Body, **settings: int) -> None:
    simulation = Simulation(seed)

    async def slow(_request: Request) -> Response:
        await asyncio.sleep(10_000)
        return Response()

    async def poll(request: Request) -> Response:
        await asyncio.sleep(20)
        return Response(b"polled", content_type=TEXT)

    async def stream(_request: Request) -> StreamingResponse:
        async def pieces():  # type: ignore[no-untyped-def]
            for _ in range(20):
                await asyncio.sleep(60)
                yield b"piece"

        return StreamingResponse(pieces())

    router = Router()
    router.add("GET", "/now", lambda _request: Response(b"now", content_type=TEXT), OWN)
    router.add("POST", "/echo", lambda request: Response(request.body, content_type=TEXT), OWN, any_body=True)
    router.add("GET", "/slow", slow, OWN)
    router.add("GET", "/poll", poll, OWN)
    router.add("GET", "/stream", stream, OWN)
    router.add("GET", "/big", lambda _request: Response(b"x" * 3_000_000), OWN)

    async def program(node: SimNode, runtime: SimRuntime) -> None:
        server = HttpServer(router, runtime.clock, HttpSettings(**settings))
        await server.start("0.0.0.0", 80)
        node.service = server
        await asyncio.sleep(1e9)

    node = simulation.node("s", program)

    async def scenario(simulation: Simulation) -> None:
        node.start()
        await asyncio.sleep(1)
        await body(simulation, node.service)

    simulation.run(scenario)


async def closed_after(reader: asyncio.StreamReader) -> tuple[float, bytes]:
    loop = asyncio.get_running_loop()
    start = loop.time()
    try:
        rest = await reader.read()
    except ConnectionError:
        rest = b"reset"
    return loop.time() - start, rest


@pytest.mark.parametrize("seed", SEEDS)
def test_slowloris_is_cut_off_thirty_seconds_after_its_first_byte(seed: int) -> None:
    async def body(simulation: Simulation, server: HttpServer) -> None:
        reader, writer = await asyncio.open_connection("s", 80)

        async def drip() -> None:
            for byte in b"GET /now HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 1000:
                if writer.is_closing():
                    return
                writer.write(bytes([byte]))
                await asyncio.sleep(1)

        dripping = asyncio.ensure_future(drip())
        seconds, rest = await closed_after(reader)
        assert 29 < seconds < 34
        assert rest.startswith(b"HTTP/1.1 408 ")
        writer.close()
        await dripping
        await asyncio.sleep(5)
        assert server.connection_count == 0

    play(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_body_that_never_ends_is_a_partial_request_too(seed: int) -> None:
    async def body(simulation: Simulation, server: HttpServer) -> None:
        reader, writer = await asyncio.open_connection("s", 80)
        writer.write(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc")
        seconds, rest = await closed_after(reader)
        assert 29 < seconds < 34
        assert b"408" in rest
        writer.close()
        assert server.body_budget.used_bytes == 0

    play(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_request_gets_its_own_thirty_seconds(seed: int) -> None:
    async def body(simulation: Simulation, server: HttpServer) -> None:
        reader, writer = await asyncio.open_connection("s", 80)
        for _ in range(5):
            writer.write(b"GET /now HTTP/1.1\r\n")
            await asyncio.sleep(20)
            writer.write(b"Host: localhost\r\n\r\n")
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            await reader.readuntil(b"\r\n\r\nnow")
        writer.close()

    play(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_f16_one_connection_that_raises_does_not_end_the_limits_of_others(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, broken = HttpConnection.sweep, list[HttpConnection]()

    def sweeping(self: HttpConnection, now_ms: int) -> None:
        if not broken:
            broken.append(self)
        if self in broken:
            raise RuntimeError("a bug of the test's own making")
        sweep(self, now_ms)

    monkeypatch.setattr(HttpConnection, "sweep", sweeping)

    async def body(simulation: Simulation, server: HttpServer) -> None:
        connections = [await asyncio.open_connection("s", 80) for _ in range(3)]
        for _, writer in connections:
            writer.write(b"GET /now HTTP/1.1\r\n")
        ends = await asyncio.gather(*(closed_after(reader) for reader, _ in connections))
        told = sorted(rest[:12] for _, rest in ends)
        assert told == [b"HTTP/1.1 408"] * 2 + [b"reset"], "the others are told as ever"
        for _, writer in connections:
            writer.close()
        await asyncio.sleep(5)
        assert len(broken) == 1 and server.connection_count == 0

    play(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_idle_connection_is_closed_after_ten_minutes(seed: int) -> None:
    async def body(simulation: Simulation, server: HttpServer) -> None:
        reader, writer = await asyncio.open_connection("s", 80)
        writer.write(b"\r\n")  # not a request
        seconds, rest = await closed_after(reader)
        assert 599 < seconds < 603
        assert rest == b""
        writer.close()

    play(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_long_polls_and_streams_are_exempt(seed: int) -> None:
    async def body(simulation: Simulation, server: HttpServer) -> None:
        reader, writer = await asyncio.open_connection("s", 80)
        writer.write(b"GET /poll HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"\r\n\r\npolled")
        writer.write(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"0\r\n\r\n")
        writer.close()

    play(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_handler_past_its_deadline_is_cancelled_and_the_connection_lives(seed: int) -> None:
    async def body(simulation: Simulation, server: HttpServer) -> None:
        reader, writer = await asyncio.open_connection("s", 80)
        loop = asyncio.get_running_loop()
        start = loop.time()
        writer.write(
            b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\nGET /now HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        assert await reader.readline() == b"HTTP/1.1 504 Gateway Timeout\r\n"
        assert 64 < loop.time() - start < 67
        await reader.readuntil(b"\r\n\r\nnow")
        writer.close()

    play(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_reader_that_never_reads_is_dropped_and_a_slow_one_is_not(seed: int) -> None:
    async def body(simulation: Simulation, server: HttpServer) -> None:
        class Silent(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                assert isinstance(transport, asyncio.Transport)
                transport.pause_reading()
                transport.write(b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)

        await asyncio.get_running_loop().create_connection(Silent, "s", 80)
        reader, writer = await asyncio.open_connection("s", 80, limit=1000)
        writer.write(b"GET /big HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        await asyncio.sleep(1)
        assert server.connection_count == 2
        taken = 0
        while chunk := await reader.read(20_000):
            taken += len(chunk)
            await asyncio.sleep(2)
        assert taken > 3_000_000
        assert server.connection_count == 0
        writer.close()

    play(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_drain_under_simulation(seed: int) -> None:
    async def body(simulation: Simulation, server: HttpServer) -> None:
        reader, writer = await asyncio.open_connection("s", 80)
        writer.write(b"GET /poll HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.sleep(1)
        await server.stop(grace_ms=60_000)
        answer = await reader.read()
        assert answer.endswith(b"connection: close\r\n\r\npolled")
        writer.close()

    play(seed, body)


def test_hundreds_of_slow_clients_do_not_stop_a_quick_one() -> None:
    async def body(simulation: Simulation, server: HttpServer) -> None:
        writers = []
        for _ in range(300):
            _, writer = await asyncio.open_connection("s", 80)
            writer.write(b"GET /now HTTP/1.1\r\nHo")
            writers.append(writer)
        reader, writer = await asyncio.open_connection("s", 80)
        writer.write(b"GET /now HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).endswith(b"now")
        writer.close()
        await asyncio.sleep(40)
        assert server.connection_count == 0
        for writer in writers:
            writer.close()

    play(1, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_a4_the_longest_idle_connection_makes_room(seed: int) -> None:
    async def body(simulation: Simulation, server: HttpServer) -> None:
        async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
            writer.write(b"GET /now HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            return await reader.readexactly(3)

        clients = []
        for _ in range(3):
            clients.append(await asyncio.open_connection("s", 80))
            assert await ask(*clients[-1]) == b"now"
            await asyncio.sleep(1)
        assert await ask(*clients[0]) == b"now"
        await asyncio.sleep(1)
        clients.append(await asyncio.open_connection("s", 80))
        assert await ask(*clients[3]) == b"now"
        _, rest = await closed_after(clients[1][0])
        assert rest in (b"", b"reset")
        for client in (clients[0], clients[2], clients[3]):
            assert await ask(*client) == b"now"
        assert server.connection_count == 3

    play(seed, body, max_connections=3, connections_reserved_for_loopback=0)
