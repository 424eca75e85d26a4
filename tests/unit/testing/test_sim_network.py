"""The simulated network: TCP's promises kept, everything else drawn, each fault as a program sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.testing.sim_node import SimNode, SimRuntime
from headrace.testing.simulation import Simulation

SEEDS = range(8)
Body = Callable[[Simulation, SimNode, "Recorder"], Coroutine[Any, Any, Any]]


class Recorder:
    """What the server's connections saw."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.echo = False

    def data(self) -> bytes:
        return b"".join(bytes(connection.data) for connection in self.connections)


class Connection(asyncio.Protocol):
    def __init__(self, recorder: Recorder | None = None) -> None:
        self.recorder = recorder
        self.data = bytearray()
        self.reads: list[int] = []
        self.events: list[str] = []
        self.problem: Exception | None = None
        self.lost = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport
        if recorder is not None:
            recorder.connections.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.reads.append(len(data))
        if self.recorder is not None and self.recorder.echo:
            self.transport.write(data)

    def eof_received(self) -> bool:
        self.events.append("eof")
        return False

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")
        self.problem = exc
        if not self.lost.done():
            self.lost.set_result(None)


class Buffered(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.buffer = bytearray(100)
        self.data = bytearray()

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self.buffer[:nbytes]


def play(seed: int, body: Body) -> Any:
    simulation = Simulation(seed)
    recorder = Recorder()

    async def program(node: SimNode, runtime: SimRuntime) -> None:
        server = await asyncio.get_running_loop().create_server(lambda: Connection(recorder), "0.0.0.0", 80)
        await server.serve_forever()

    server = simulation.node("s", program)

    async def scenario(simulation: Simulation) -> Any:
        server.start()
        await asyncio.sleep(0.1)
        return await body(simulation, server, recorder)

    return simulation.run(scenario, limit_s=1000)


async def connect() -> Connection:
    _, protocol = await asyncio.get_running_loop().create_connection(Connection, "s", 80)
    return protocol


@pytest.mark.parametrize("seed", SEEDS)
def test_bytes_arrive_whole_in_order_and_cut_at_random(seed: int) -> None:
    payload = bytes(range(256)) * 2000

    async def body(simulation: Simulation, server: SimNode, recorder: Recorder) -> list[int]:
        client = await connect()
        for start in range(0, len(payload), 50_000):
            client.transport.write(payload[start : start + 50_000])
        client.transport.close()
        await client.lost
        await asyncio.sleep(60)
        assert recorder.data() == payload
        assert recorder.connections[0].events == ["made", "eof", "lost"]
        assert recorder.connections[0].problem is None
        return recorder.connections[0].reads

    reads = play(seed, body)
    assert len(set(reads)) > 2


@pytest.mark.parametrize("seed", SEEDS)
def test_buffered_protocols_and_a_reader_that_pauses(seed: int) -> None:
    async def body(simulation: Simulation, server: SimNode, recorder: Recorder) -> None:
        recorder.echo = True
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_connection(Buffered, "s", 80)
        transport.pause_reading()
        transport.write(b"x" * 5000)
        await asyncio.sleep(10)
        assert protocol.data == b""
        transport.resume_reading()
        await asyncio.sleep(10)
        assert len(protocol.data) == 5000
        transport.abort()

    play(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_back_pressure_reaches_the_writer_and_lets_go(seed: int) -> None:
    async def body(simulation: Simulation, server: SimNode, recorder: Recorder) -> None:
        client = await connect()
        await asyncio.sleep(1)
        recorder.connections[0].transport.pause_reading()
        client.transport.write(b"x" * 2_000_000)
        assert "pause" in client.events
        await asyncio.sleep(30)
        assert "resume" not in client.events
        assert client.transport.get_write_buffer_size() > 0
        recorder.connections[0].transport.resume_reading()
        await asyncio.sleep(120)
        assert client.events[-1] == "resume"
        assert len(recorder.data()) == 2_000_000

    play(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cut_holds_bytes_and_healing_delivers_them(seed: int) -> None:
    async def body(simulation: Simulation, server: SimNode, recorder: Recorder) -> None:
        client = await connect()
        simulation.network.cut("outside", "s")
        client.transport.write(b"late")
        await asyncio.sleep(30)
        assert recorder.data() == b""
        simulation.network.heal()
        await asyncio.sleep(1)
        assert recorder.data() == b"late"
        assert "lost" not in client.events

    play(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_kernel_gives_up_on_a_long_cut(seed: int) -> None:
    async def body(simulation: Simulation, server: SimNode, recorder: Recorder) -> None:
        client, silent = await connect(), await connect()
        simulation.network.cut("outside", "s")
        client.transport.write(b"x")
        await asyncio.sleep(100)
        assert isinstance(client.problem, TimeoutError)
        assert "lost" not in silent.events, "who sends nothing learns nothing"

    play(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_asymmetric_cut_is_deaf_one_way(seed: int) -> None:
    async def body(simulation: Simulation, server: SimNode, recorder: Recorder) -> None:
        client = await connect()
        await asyncio.sleep(1)
        simulation.network.cut("outside", "s", both_ways=False)
        client.transport.write(b"unheard")
        recorder.connections[0].transport.write(b"heard")
        await asyncio.sleep(5)
        assert (bytes(client.data), recorder.data()) == (b"heard", b"")

    play(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_connecting(seed: int) -> None:
    async def body(simulation: Simulation, server: SimNode, recorder: Recorder) -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Connection, "s", 81)
        with pytest.raises(OSError, match="not known"):
            await loop.create_connection(Connection, "nowhere", 80)
        simulation.network.refuse("outside", "s")
        with pytest.raises(ConnectionRefusedError):
            await connect()
        simulation.network.heal()
        simulation.network.cut("outside", "s")
        started = loop.time()
        with pytest.raises(TimeoutError):
            await connect()
        assert loop.time() - started == pytest.approx(20, abs=0.1)
        attempt = asyncio.ensure_future(connect())
        await asyncio.sleep(3)
        simulation.network.heal()
        await attempt
        server.kill()
        with pytest.raises(ConnectionRefusedError):
            await connect()

    play(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_connect_that_is_given_up_leaves_nothing_behind(seed: int) -> None:
    async def body(simulation: Simulation, server: SimNode, recorder: Recorder) -> None:
        for delay in (0.0, 0.0001, 0.0005, 0.001, 0.002, 0.003):
            attempt = asyncio.ensure_future(connect())
            await asyncio.sleep(delay)
            attempt.cancel()
            await asyncio.wait([attempt])
            if not attempt.cancelled():
                attempt.result().transport.abort()
        await asyncio.sleep(10)
        assert simulation.network.connections("outside") == []
        assert simulation.network.connections("s") == []
        assert all(connection.events[-1] == "lost" for connection in recorder.connections)

    play(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_reset_is_seen_by_both_ends(seed: int) -> None:
    async def body(simulation: Simulation, server: SimNode, recorder: Recorder) -> None:
        client = await connect()
        await asyncio.sleep(1)
        assert simulation.network.reset("outside", "s") == 1
        await asyncio.sleep(1)
        for connection in (client, recorder.connections[0]):
            assert isinstance(connection.problem, ConnectionResetError)
            assert connection.events.count("lost") == 1

    play(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_abort_is_a_reset_for_the_other_end(seed: int) -> None:
    async def body(simulation: Simulation, server: SimNode, recorder: Recorder) -> None:
        client = await connect()
        await asyncio.sleep(1)
        client.transport.abort()
        await client.lost
        assert client.problem is None
        await asyncio.sleep(1)
        assert isinstance(recorder.connections[0].problem, ConnectionResetError)

    play(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_half_open_is_noticed_only_by_sending(seed: int) -> None:
    async def body(simulation: Simulation, server: SimNode, recorder: Recorder) -> None:
        client = await connect()
        await asyncio.sleep(1)
        simulation.network.half_open("s", "outside")
        await asyncio.sleep(50)
        assert "lost" not in client.events
        client.transport.write(b"anyone?")
        await asyncio.sleep(1)
        assert isinstance(client.problem, ConnectionResetError)

    play(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_process_is_heard_and_a_dark_host_is_not(seed: int) -> None:
    async def body(simulation: Simulation, server: SimNode, recorder: Recorder) -> None:
        client = await connect()
        await asyncio.sleep(1)
        server.kill()
        await asyncio.sleep(1)
        assert client.events[-1] == "lost"
        assert recorder.connections[0].events == ["made"], "the dead hear nothing"
        server.start()
        await asyncio.sleep(1)
        client = await connect()
        server.cut_power()
        await asyncio.sleep(50)
        assert "lost" not in client.events
        server.start()
        await asyncio.sleep(1)
        client.transport.write(b"still there?")
        await asyncio.sleep(1)
        assert isinstance(client.problem, ConnectionResetError)

    play(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_paused_process_hears_everything_when_it_wakes(seed: int) -> None:
    async def body(simulation: Simulation, server: SimNode, recorder: Recorder) -> None:
        client = await connect()
        await asyncio.sleep(1)
        server.pause()
        client.transport.write(b"while you slept")
        late = await connect()  # its kernel shakes hands for it
        await asyncio.sleep(600)
        assert recorder.data() == b""
        server.resume()
        await asyncio.sleep(1)
        assert recorder.data() == b"while you slept"
        assert len(recorder.connections) == 2
        late.transport.abort()

    play(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_request_can_arrive_after_its_client_gave_up(seed: int) -> None:
    """KAFKA-17754: an EndTxn that was delayed on one connection arrives after the next transaction began on another."""

    async def body(simulation: Simulation, server: SimNode, recorder: Recorder) -> None:
        first = await connect()
        await asyncio.sleep(1)
        simulation.network.delay_next("outside", "s", 40)
        first.transport.write(b"old")
        first.transport.close()
        await asyncio.sleep(1)
        second = await connect()
        second.transport.write(b"new")
        await asyncio.sleep(5)
        assert recorder.data() == b"new"
        await asyncio.sleep(60)
        assert [bytes(connection.data) for connection in recorder.connections] == [b"old", b"new"]

    play(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_slow_link_is_slow(seed: int) -> None:
    async def body(simulation: Simulation, server: SimNode, recorder: Recorder) -> None:
        client = await connect()
        simulation.network.slow("outside", "s", bytes_per_s=1000)
        client.transport.write(b"x" * 10_000)
        await asyncio.sleep(5)
        assert len(recorder.data()) < 10_000
        await asyncio.sleep(60)
        assert len(recorder.data()) == 10_000

    play(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_half_close_lets_the_answer_through(seed: int) -> None:
    async def body(simulation: Simulation, server: SimNode, recorder: Recorder) -> bytes:
        recorder.echo = True
        reader, writer = await asyncio.open_connection("s", 80)
        writer.write(b"question")
        await writer.drain()
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    assert play(seed, body) == b"question"


def test_names_ports_and_listeners() -> None:
    async def body(simulation: Simulation, server: SimNode, recorder: Recorder) -> None:
        loop = asyncio.get_running_loop()
        one = await loop.create_server(Connection, "127.0.0.1", 0)
        two = await loop.create_server(Connection, None, 0)
        ports = [listener.sockets[0].getsockname()[1] for listener in (one, two)]
        assert ports[0] != ports[1]
        with pytest.raises(OSError, match="taken"):
            await loop.create_server(Connection, "127.0.0.1", ports[0])
        with pytest.raises(OSError, match="not an address"):
            await loop.create_server(Connection, "s", 0)
        transport, _ = await loop.create_connection(Connection, "localhost", ports[0])
        assert transport.get_extra_info("peername")[1] == ports[0]
        transport.get_extra_info("socket").setsockopt(6, 1, 1)
        transport.abort()
        one.close()
        assert one.sockets == ()
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Connection, "localhost", ports[0])
        by_address = await loop.create_connection(Connection, server.address, 80)
        by_address[0].abort()

    play(1, body)


def test_partition_splits_into_groups() -> None:
    simulation = Simulation(1)
    for name in "abcd":
        simulation.network.host(name)
    simulation.network.partition(["a"], ["b", "c"])
    cut = {(one, two) for one in "abcd" for two in "abcd" if simulation.network.link(one, two).is_cut}
    assert cut == {("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")}
    simulation.network.heal()
    assert not any(simulation.network.link(one, two).is_cut for one in "abcd" for two in "abcd")
