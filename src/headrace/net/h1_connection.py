"""Driver: one HTTP/1.1 client connection: a request at a time, its response whole or as a stream.

What arrives is untrusted: the parser is llhttp in its strict mode, headers and buffered body are capped, and anything
out of order closes the connection. Reading pauses when a stream's reader is slow, so memory stays bounded.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import NamedTuple, cast

import httptools

from headrace.core.limits import KIB

MAX_HEADER_BYTES = 64 * KIB
STREAM_BUFFER_BYTES = 256 * KIB

KEEPALIVE_IDLE_S = 5
KEEPALIVE_INTERVAL_S = 2
KEEPALIVE_PROBES = 3
USER_TIMEOUT_MS = 10_000


class HttpFailure(Exception):
    """No complete response. `sent` says whether the peer may have seen (and acted on) the request."""

    def __init__(self, detail: str, *, sent: bool) -> None:
        super().__init__(detail)
        self.sent = sent


class HttpTimeout(HttpFailure):
    pass


class ResponseTooLarge(HttpFailure):
    """`status` is what the peer said before it said too much; 0 when its headers were too large already."""

    status = 0


class ClientResponse(NamedTuple):
    status: int
    headers: dict[str, str]
    """Names in lower case; of a repeated header the last."""
    body: bytes


def notice_dead_peers(sock: socket.socket) -> None:
    """A peer that vanished without a FIN shows within about ten seconds, idle or not (etcd rule 6)."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
        ("TCP_USER_TIMEOUT", USER_TIMEOUT_MS),
    ):
        option = getattr(socket, name, None)  # TCP_USER_TIMEOUT is Linux only
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


class H1Connection(asyncio.Protocol):
    """Owned by one caller between `send` and the end of the response; idle connections sit in the client's pool."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._busy = False
        self._waiter: asyncio.Future[None] | None = None
        self.failure: HttpFailure | None = None
        self.idle_since = 0.0
        self._reset(max_body_bytes=0)

    def _reset(self, *, max_body_bytes: int | None) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._header_bytes = 0
        self._max_body_bytes = max_body_bytes  # None: a stream, held back by flow control instead
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._headers_done = False
        self._complete = False
        self._reusable = False
        self._paused = False

    # What a caller does.

    def send(self, request: bytes, *, max_body_bytes: int | None) -> None:
        assert self._transport is not None and not self._busy
        self._reset(max_body_bytes=max_body_bytes)
        self._busy = True
        self._transport.write(request)

    async def wait_headers(self) -> None:
        while not self._headers_done:
            await self._wait()

    async def wait_body(self) -> bytes:
        while not self._complete:
            await self._wait()
        return b"".join(self._chunks)

    async def next_chunk(self) -> bytes:
        """What has arrived of a streamed body; empty at its end."""
        while not self._chunks:
            if self._complete:
                return b""
            await self._wait()
        data = b"".join(self._chunks)
        self._chunks.clear()
        self._buffered = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    @property
    def reusable(self) -> bool:
        return self._complete and self._reusable and self.is_open

    @property
    def is_open(self) -> bool:
        return self.failure is None and self._transport is not None and not self._transport.is_closing()

    def release(self, now_s: float) -> None:
        self._busy = False
        self.idle_since = now_s

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def _wait(self) -> None:
        if self.failure is not None:
            raise self.failure
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, failure: HttpFailure) -> None:
        if self.failure is None:
            self.failure = failure
        self.abort()
        self._wake()

    # What the transport does.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not subclasses
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            notice_dead_peers(sock)

    def data_received(self, data: bytes) -> None:
        if not self._busy or self._complete:
            self._fail(HttpFailure("the server spoke out of turn", sent=True))
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(HttpFailure(f"not HTTP: {error}", sent=True))

    def connection_lost(self, error: Exception | None) -> None:
        until_close = not {"content-length", "transfer-encoding"} & self.headers.keys()
        if error is None and self._headers_done and until_close and not self._complete:
            self._complete = True  # a body without a length ends with the connection
        if self.failure is None:
            self.failure = HttpFailure(f"connection lost: {error or 'closed by the server'}", sent=True)
        self._wake()

    # What the parser finds.

    def on_message_begin(self) -> None:
        if self._complete:
            self._fail(HttpFailure("the server answered twice", sent=True))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > MAX_HEADER_BYTES:
            self._fail(ResponseTooLarge("response headers too large", sent=True))
        else:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self.status >= 200 and self.failure is None:
            self._headers_done = True
            self._reusable = self._parser.should_keep_alive()
            self._wake()

    def on_body(self, body: bytes) -> None:
        self._buffered += len(body)
        if self._max_body_bytes is not None and self._buffered > self._max_body_bytes:
            failure = ResponseTooLarge(f"response above {self._max_body_bytes} bytes", sent=True)
            failure.status = self.status
            self._fail(failure)
            return
        self._chunks.append(body)
        if self._max_body_bytes is None:
            if self._buffered > STREAM_BUFFER_BYTES and not self._paused and self._transport is not None:
                self._paused = True
                self._transport.pause_reading()
            self._wake()

    def on_message_complete(self) -> None:
        if self.status < 200:  # 1xx: the answer is still to come
            self.headers.clear()
        elif self.failure is None:  # what was too large may end within the same bytes
            self._complete = True
            self._wake()
