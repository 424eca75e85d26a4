"""Driver: a connection from this broker to another one, speaking the ordinary Kafka protocol.

Requests are answered in order. A connection that breaks fails everything that waits on it; whoever asked decides what
that means. Every call has a deadline.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

from headrace.core import limits
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ports import Buffer
from headrace.net.tls import certified_broker
from headrace.wire.api import API
from headrace.wire.codec import decode, encode
from headrace.wire.framing import RequestHeader, decode_response_header, encode_request_frame
from headrace.wire.primitives import ProtocolError

CONNECT_S = 2.0

SCRATCH_BYTES = 32 * 1024
"""Answers that fit come out of one small buffer. A longer one is received right where it will be read from."""

_frame_size = struct.Struct(">i").unpack_from


class PeerLost(HeadraceError):
    """The connection broke before the answer came: the request may or may not have been carried out."""

    def __init__(self, detail: str) -> None:
        super().__init__(ErrorKind.NETWORK_EXCEPTION, detail)


class PeerRefused(PeerLost):
    """Nobody listens there: the process is gone."""


class PeerConnection(asyncio.BufferedProtocol):
    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[int, asyncio.Future[memoryview]]] = deque()
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._filled = 0
        """Bytes in the scratch buffer that belong to no whole frame yet."""
        self._long: memoryview | None = None
        """A frame that does not fit into the scratch buffer, and how much of it is here."""
        self._long_filled = 0
        self._spare = bytearray()
        self._correlation = 0
        self.closed = asyncio.get_running_loop().create_future()
        """Done when the connection is gone, whoever ended it."""

    @classmethod
    async def open(
        cls, host: str, port: int, client_id: str, tls: ssl.SSLContext | None = None
    ) -> PeerConnection:
        try:
            async with asyncio.timeout(CONNECT_S):
                _, protocol = await asyncio.get_running_loop().create_connection(
                    lambda: cls(client_id), host, port, ssl=tls
                )
        except ConnectionRefusedError as problem:
            raise PeerRefused(f"{host}:{port} refuses connections") from problem
        except (OSError, TimeoutError) as problem:
            raise PeerLost(f"{host}:{port} can't be reached: {problem or 'no answer'}") from problem
        return protocol

    @property
    def certified_broker(self) -> int:
        """Which broker the other end's certificate is of; -1: none."""
        return -1 if self._transport is None else certified_broker(self._transport)

    async def call(self, key: int, version: int, request: object, seconds: float) -> Any:
        """Send one general message and decode its answer."""
        frame, position = await self.exchange(key, version, [encode(request, version)], seconds)
        try:
            return decode(API[key].response, version, frame, position)
        except ProtocolError as problem:
            raise self._unclear(problem) from problem

    async def exchange(
        self, key: int, version: int, body: Sequence[Buffer], seconds: float
    ) -> tuple[memoryview, int]:
        """Send a request; the answer's frame and where its body begins."""
        if self._transport is None:
            raise PeerLost("the connection is closed")
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        header = RequestHeader(key, version, self._correlation, self._client_id)
        future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._correlation, future))
        self._transport.writelines(encode_request_frame(header, body))
        # Each round of a follower comes here: a timer costs a third of what asyncio.timeout does.
        timer = asyncio.get_running_loop().call_later(seconds, self._time_up, future, seconds)
        try:
            frame = await future
        finally:
            timer.cancel()
        try:
            correlation, position = decode_response_header(frame, key, version)
        except ProtocolError as problem:
            raise self._unclear(problem) from problem
        if correlation != header.correlation_id:
            self.close()
            raise PeerLost("answers are out of order")
        return frame, position

    def _unclear(self, problem: ProtocolError) -> PeerLost:
        """An answer that makes no sense is none: nobody knows what the other side did (F17)."""
        self.close()
        return PeerLost(f"an answer that makes no sense: {problem}")

    def _time_up(self, future: asyncio.Future[memoryview], seconds: float) -> None:
        """Answers come in order, so nothing after this one can be trusted to arrive either."""
        if not future.done():
            future.set_exception(PeerLost(f"no answer within {seconds} s"))
            self.close()

    def recycle(self, frame: memoryview) -> None:
        """The caller is done with an answer and everything that was cut out of it: its memory may hold the next one."""
        if isinstance(frame.obj, bytearray) and len(frame.obj) > len(self._spare):
            self._spare = frame.obj

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio -------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._long is not None:
            return self._long[self._long_filled :]
        return self._scratch[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._long is not None:
            self._long_filled += nbytes
            if self._long_filled == len(self._long):
                frame, self._long = self._long, None
                self._arrived(frame)
            return
        self._filled += nbytes
        self._cut_frames()

    def _cut_frames(self) -> None:
        """Frames that are whole leave as copies; the beginning of a long one moves to where the rest will be received."""
        scratch, at = self._scratch, 0
        while self._filled - at >= 4:
            (size,) = _frame_size(scratch, at)
            if not 0 < size <= limits.MAX_FRAME_BYTES + limits.MIB:
                self.close()
                return
            if at + 4 + size > self._filled:
                if 4 + size > SCRATCH_BYTES:
                    self._begin_long(size, scratch[at + 4 : self._filled])
                    at = self._filled
                break
            self._arrived(memoryview(bytes(scratch[at + 4 : at + 4 + size])))
            at += 4 + size
        if at:
            rest = bytes(scratch[at : self._filled])
            scratch[: len(rest)] = rest
            self._filled = len(rest)

    def _begin_long(self, size: int, beginning: memoryview) -> None:
        memory, self._spare = self._spare, bytearray()
        if len(memory) < size:
            memory = bytearray(size)
        self._long = memoryview(memory)[:size]
        self._long[: len(beginning)] = beginning
        self._long_filled = len(beginning)

    def _arrived(self, frame: memoryview) -> None:
        if not self._waiting:
            self.close()
            return
        _, future = self._waiting.popleft()
        if not future.done():
            future.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(PeerLost(f"the connection broke: {exc or 'closed by the other side'}"))
        if not self.closed.done():
            self.closed.set_result(None)
