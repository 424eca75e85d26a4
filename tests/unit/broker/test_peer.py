"""A connection to a peer: frames in any pieces, answers in order, memory that is used again."""

from __future__ import annotations

import asyncio
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.peer import SCRATCH_BYTES, PeerConnection, PeerLost
from headrace.wire.api import ApiKey


class Transport:
    def __init__(self) -> None:
        self.closed = False

    def writelines(self, pieces: list[bytes]) -> None:
        pass

    def abort(self) -> None:
        self.closed = True


def answer(correlation: int, body: bytes) -> bytes:
    return struct.pack(">iiB", len(body) + 5, correlation, 0) + body


def receive(connection: PeerConnection, data: bytes) -> None:
    """As a transport does: never more than fits into the buffer it was given."""
    while data:
        buffer = connection.get_buffer(-1)
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        connection.buffer_updated(size)
        data = data[size:]


SIZES = st.sampled_from([0, 1, 100, SCRATCH_BYTES - 9, SCRATCH_BYTES - 8, SCRATCH_BYTES, 3 * SCRATCH_BYTES])


@given(st.lists(SIZES, min_size=1, max_size=5), st.lists(st.integers(1, 40_000), max_size=20), st.booleans())
def test_frames_arrive_whole_however_they_are_cut(sizes: list[int], cuts: list[int], recycles: bool) -> None:
    async def scenario() -> None:
        connection = PeerConnection("test")
        connection.connection_made(Transport())  # type: ignore[arg-type]
        bodies = [bytes([index + 1]) * size for index, size in enumerate(sizes)]
        calls = [asyncio.ensure_future(connection.exchange(ApiKey.FETCH, 17, [b""], 5.0)) for _ in bodies]
        await asyncio.sleep(0)
        stream = b"".join(answer(index + 1, body) for index, body in enumerate(bodies))
        at = 0
        for cut in [*cuts, len(stream)]:
            receive(connection, stream[at : at + cut])
            at += cut
        for call, body in zip(calls, bodies, strict=True):
            frame, position = await call
            assert bytes(frame[position:]) == body
            if recycles and call is calls[-1]:
                connection.recycle(frame)

    asyncio.run(scenario())


def test_memory_that_was_given_back_holds_the_next_long_answer() -> None:
    async def scenario() -> None:
        connection = PeerConnection("test")
        connection.connection_made(Transport())  # type: ignore[arg-type]
        memories = []
        for number, size in enumerate((200_000, 150_000), 1):
            call = asyncio.ensure_future(connection.exchange(ApiKey.FETCH, 17, [b""], 5.0))
            await asyncio.sleep(0)
            receive(connection, answer(number, b"x" * size))
            frame, position = await call
            assert len(frame) - position == size
            memories.append(frame.obj)
            connection.recycle(frame)
        assert memories[0] is memories[1]

    asyncio.run(scenario())


def test_nonsense_and_unasked_answers_end_the_connection() -> None:
    async def scenario() -> None:
        for data in (b"\xff\xff\xff\xff", answer(1, b"nobody asked")):
            connection, transport = PeerConnection("test"), Transport()
            connection.connection_made(transport)  # type: ignore[arg-type]
            receive(connection, data)
            assert transport.closed

    asyncio.run(scenario())


def test_a_broken_connection_fails_everything_that_waits() -> None:
    async def scenario() -> None:
        connection = PeerConnection("test")
        connection.connection_made(Transport())  # type: ignore[arg-type]
        call = asyncio.ensure_future(connection.exchange(ApiKey.FETCH, 17, [b""], 5.0))
        await asyncio.sleep(0)
        connection.connection_lost(None)
        with pytest.raises(PeerLost):
            await call
        with pytest.raises(PeerLost):
            await connection.exchange(ApiKey.FETCH, 17, [b""], 5.0)

    asyncio.run(scenario())
