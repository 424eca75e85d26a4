"""One connection: frames are cut however they arrive, answers leave in order, and nobody can make us hold much."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest

from headrace.broker.connections import Connections
from headrace.cluster.image import ClusterImage
from headrace.core import limits
from headrace.kafka.connection import Connection, Slot
from headrace.kafka.server import KafkaServer
from headrace.security.audit import AuditTrail
from headrace.security.image import SecurityImage
from headrace.security.logins import Logins


class Clock:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    def wall_ms(self) -> int:
        return self.ms


class Transport(asyncio.Transport):
    """Takes what is written until it is told to stop, as a socket whose peer does not read."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self._parts: list[bytes] = []
        self.held = 0
        self.reading = True
        self.aborted = False
        self.peer_reads = True

    @property
    def sent(self) -> bytes:
        return b"".join(self._parts)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.1", 4711) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or 65536

    def write(self, data: Any) -> None:
        if self.peer_reads:
            self._parts.append(bytes(data))
            return
        self.held += len(data)
        if self.held > self.high:
            self._connection.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def abort(self) -> None:
        self.aborted = True


class Desk:
    """Stands where the broker stands: says what each request's handler does with its slot."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.handled: list[bytes] = []
        self.slots: list[Slot] = []
        self.answer: Callable[[Connection, bytes], bool] = self.at_once
        self.closed: list[int] = []
        self.requests: dict[int, int] = {}

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)

    def at_once(self, connection: Connection, frame: bytes) -> bool:
        connection.open_slot().send((frame + b";",))
        return False

    def later(self, connection: Connection, frame: bytes) -> bool:
        """A long poll: its answer comes some time, the next request does not wait for it."""
        self.slots.append(connection.open_slot())
        return False

    def deciding(self, connection: Connection, frame: bytes) -> bool:
        """The next request must wait until this one is done."""
        self.slots.append(connection.open_slot())
        return True

    def connection_closed(self, connection: Connection) -> None:
        self.closed.append(connection.id)

    def handle(self, connection: Connection, frame: memoryview) -> bool:
        self.handled.append(bytes(frame))
        return self.answer(connection, bytes(frame))


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def server(desk: Desk) -> KafkaServer:
    logins = Logins(desk, SecurityImage(), lambda: b"", AuditTrail(desk, 1))  # type: ignore[arg-type]
    return KafkaServer(desk, ClusterImage(), Connections(fencing=True), desk, logins)  # type: ignore[arg-type]


def connect(server: KafkaServer) -> tuple[Connection, Transport]:
    connection = Connection(server, 1)
    transport = Transport(connection)
    connection.connection_made(transport)
    return connection, transport


@pytest.fixture
def pair(server: KafkaServer) -> tuple[Connection, Transport]:
    return connect(server)


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def feed(connection: Connection, data: bytes, step: int | None = None) -> None:
    """Hand over `data` in pieces of at most `step` bytes, as the loop does."""
    while data:
        room = connection.get_buffer(-1)
        count = min(len(room), len(data), step or len(data))
        assert count, "a full buffer would end the connection"
        room[:count] = data[:count]
        data = data[count:]
        connection.buffer_updated(count)


Pair = tuple[Connection, Transport]
BODIES = [b"a", b"bb" * 700, b"c" * 40_000, b"dd", b"e" * 16_380, b"f"]


@pytest.mark.parametrize("step", [None, 1, 3, 4, 5, 4096, 16384])
def test_frames_are_cut_however_they_arrive(pair: Pair, desk: Desk, step: int | None) -> None:
    connection, transport = pair
    feed(connection, framed(*BODIES), step)
    assert desk.handled == BODIES
    assert transport.sent == b"".join(body + b";" for body in BODIES)


def test_answers_leave_in_the_order_of_requests(pair: Pair, desk: Desk) -> None:
    """Trap 13."""
    connection, transport = pair
    desk.answer = desk.later
    feed(connection, framed(b"1", b"2", b"3"))
    one, two, three = desk.slots
    three.send((b"three ",))
    two.send((b"two ",))
    assert transport.sent == b""
    one.send((b"one ",))
    assert transport.sent == b"one two three "
    one.send((b"again",))
    assert transport.sent == b"one two three ", "a slot is filled once"


def test_a_deciding_request_holds_back_the_next_ones_of_its_own_connection(
    server: KafkaServer, desk: Desk
) -> None:
    connection, transport = connect(server)
    other, other_transport = connect(server)
    desk.answer = desk.deciding
    feed(connection, framed(b"1", b"2", b"3"))
    assert desk.handled == [b"1"]
    desk.answer = desk.at_once
    feed(other, framed(b"x"))
    assert other_transport.sent == b"x;"
    desk.slots[0].send((b"one;",))
    connection.request_done()
    assert desk.handled == [b"1", b"x", b"2", b"3"]
    assert transport.sent == b"one;2;3;"


def test_waiting_frames_are_copies(pair: Pair, desk: Desk) -> None:
    """The connection's buffer is used again while they wait."""
    connection, _ = pair
    desk.answer = desk.deciding
    feed(connection, framed(b"first"))
    feed(connection, framed(b"second"))
    desk.answer = desk.at_once
    feed(connection, framed(b"XXXXXX"))
    connection.request_done()
    assert desk.handled == [b"first", b"second", b"XXXXXX"]


@pytest.mark.parametrize("size", [-1, 0, -(2**31), 2**31 - 1, limits.MAX_FRAME_BYTES + 1])
def test_a_frame_of_impossible_length_ends_the_connection(pair: Pair, desk: Desk, size: int) -> None:
    """X8: the length is looked at before anything is read for it."""
    connection, transport = pair
    feed(connection, framed(b"fine"))
    feed(connection, struct.pack(">i", size))
    assert transport.aborted and desk.handled == [b"fine"]


def test_a_claim_costs_nothing_until_bytes_come(pair: Pair, server: KafkaServer) -> None:
    """X8: a frame said to be 100 MB holds what has arrived of it, at most doubled."""
    connection, _ = pair
    feed(connection, struct.pack(">i", limits.MAX_FRAME_BYTES))
    assert server.stats()["held_bytes"] <= 16 * limits.KIB
    feed(connection, b"\x00" * 100_000, 16_384)
    assert server.stats()["held_bytes"] <= 256 * limits.KIB


def test_buffers_of_all_connections_have_one_budget(
    server: KafkaServer, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X9: over it, large frames wait; small requests get through; room that comes free is used."""
    monkeypatch.setattr(limits, "MAX_INFLIGHT_REQUEST_BYTES", 4 * limits.MIB)

    async def run() -> None:
        pairs = [connect(server) for _ in range(8)]
        body = b"y" * 900_000
        for connection, transport in pairs:
            data = framed(body)[:-1]
            while data and transport.reading:
                room = connection.get_buffer(-1)
                count = min(len(room), len(data))
                room[:count] = data[:count]
                data = data[count:]
                connection.buffer_updated(count)
        await asyncio.sleep(0)
        starving = [transport for _, transport in pairs if not transport.reading]
        assert 3 <= len(starving) < 8
        assert server.stats()["held_bytes"] <= 4 * limits.MIB
        small, small_transport = connect(server)
        feed(small, framed(b"z"))
        assert small_transport.sent == b"z;"
        for connection, transport in pairs:
            if transport.reading:
                connection.connection_lost(None)
        assert all(transport.reading for transport in starving), "they may go on"

    asyncio.run(run())


def test_an_empty_large_buffer_is_given_back(pair: Pair, server: KafkaServer, desk: Desk) -> None:
    connection, _ = pair
    desk.answer = lambda connection, frame: False
    feed(connection, framed(bytes(6 * limits.MIB)))
    assert server.stats()["held_bytes"] == 16 * limits.KIB
    connection.connection_lost(None)
    assert server.stats()["held_bytes"] == 0


def test_a_client_that_does_not_read_is_not_read_from(pair: Pair, desk: Desk) -> None:
    """X13: its requests wait where they are; what we hold for it stays bounded; it goes on when it reads again."""
    connection, transport = pair
    transport.peer_reads = False
    large = b"r" * limits.MIB
    desk.answer = lambda connection, frame: connection.open_slot().send((large,)) or False
    feed(connection, framed(*[b"%d" % number for number in range(60)]))
    assert len(desk.handled) <= 6 and not transport.reading
    transport.peer_reads = True
    transport.held = 0
    connection.resume_writing()
    assert len(desk.handled) == 60 and transport.reading


def test_answers_behind_a_long_poll_are_bounded_too(pair: Pair, desk: Desk) -> None:
    connection, transport = pair
    desk.answer = desk.later
    feed(connection, framed(b"poll"))
    desk.answer = lambda connection, frame: connection.open_slot().send((b"r" * limits.MIB,)) or False
    feed(connection, framed(*[b"%d" % number for number in range(60)]))
    assert len(desk.handled) <= 7 and not transport.reading
    desk.slots[0].send((b"polled",))
    assert len(desk.handled) == 61 and transport.reading
    assert len(transport.sent) == 60 * limits.MIB + 6


def test_a_lost_client_ends_its_long_polls(pair: Pair, desk: Desk) -> None:
    connection, _ = pair
    ended: list[str] = []
    desk.answer = desk.later
    feed(connection, framed(b"1", b"2"))
    for number, slot in enumerate(desk.slots):
        connection.park(slot, lambda number=number: ended.append(f"poll {number}"))  # type: ignore[misc]
    connection.connection_lost(None)
    assert ended == ["poll 0", "poll 1"] and desk.closed == [1]
    desk.slots[0].send((b"too late",))


@pytest.mark.parametrize(
    ("data", "after_ms", "verdict"),
    [
        (b"", limits.IDLE_CONNECTION_MS - 1, None),
        (b"", limits.IDLE_CONNECTION_MS + 1, "idle"),
        (b"\x00\x00", limits.PARTIAL_FRAME_MS - 1, None),
        (b"\x00\x00", limits.PARTIAL_FRAME_MS + 1, "a frame did not arrive whole in time"),
    ],
)
def test_stale_connections(pair: Pair, desk: Desk, data: bytes, after_ms: int, verdict: str | None) -> None:
    """X13."""
    connection, _ = pair
    feed(connection, data)
    assert connection.stale(after_ms) == verdict


def test_a_drip_does_not_keep_a_frame_alive(pair: Pair, desk: Desk) -> None:
    """X13: the limit runs from the frame's first byte, not from its last one."""
    connection, _ = pair
    for byte in framed(b"a frame that comes byte by byte"):
        feed(connection, bytes([byte]))
        desk.clock.ms += 2_000
        if desk.clock.ms > limits.PARTIAL_FRAME_MS + 2_000:
            break
    assert connection.stale(desk.clock.ms) == "a frame did not arrive whole in time"


def test_long_polls_are_not_stale_and_those_who_do_not_read_are(pair: Pair, desk: Desk) -> None:
    connection, transport = pair
    desk.answer = desk.later
    feed(connection, framed(b"poll"))
    assert connection.stale(limits.IDLE_CONNECTION_MS * 2) is None
    transport.peer_reads = False
    desk.slots[0].send((b"r" * (5 * limits.MIB),))
    assert connection.stale(limits.WRITE_STALL_MS + 1) == "it does not read its responses"
