"""Driver: one HTTP connection. Requests are answered in the order they came, one at a time.

A handler that returns its answer at once is served without a task; one that returns an awaitable owns a task that
dies with the connection. Input stops while answers wait (pipelining), while the client does not read, and while
the server holds too many body bytes (X9), so a connection costs bounded memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Coroutine
from typing import NamedTuple, cast

from headrace.core.errors import HeadraceError
from headrace.core.principals import USER, Principal
from headrace.http.admission import BudgetTicket
from headrace.http.listening import Listener
from headrace.http.messages import (
    CONTINUE,
    LAST_CHUNK,
    Answer,
    Handler,
    Peer,
    Request,
    Response,
    StreamingResponse,
    encode_chunk,
    encode_response,
    encode_stream_head,
)
from headrace.http.problem import problem, problem_of
from headrace.http.reader import SLICE_BYTES, RequestReader
from headrace.net.tls import certified_broker, shown_certificate
from headrace.security.logins import LoginFailed

_log = logging.getLogger("headrace.http")

_CORK_BYTES = 64 * 1024
_MAX_DISCARDED_BYTES = 64 * 1024 * 1024
"""Of a body that was refused and is on its way all the same: a reset before the client has sent it would take the answer with
it. They cost no memory, and `linger_ms` bounds the time."""


class _Waiting(NamedTuple):
    """A request that is whole and has to wait for the answers before it."""

    request: Request
    handler: Handler
    keep_alive: bool
    held_bytes: int


class _Running:
    """The request whose answer is being made by a task."""

    __slots__ = ("is_expired", "is_streaming", "keep_alive", "pending", "request", "task")

    def __init__(
        self, request: Request, keep_alive: bool, pending: StreamingResponse | Awaitable[Answer]
    ) -> None:
        self.request = request
        self.keep_alive = keep_alive
        self.pending: StreamingResponse | Awaitable[Answer] | None = pending
        """Until the task has begun: one that is cancelled before never will, and nobody would end what it waits for."""
        self.is_expired = False
        self.is_streaming = False
        self.task: asyncio.Task[None] | None = None


class HttpConnection(asyncio.Protocol):
    def __init__(self, server: Listener[HttpConnection]) -> None:
        self._server = server
        self._loop = server.loop
        self._transport: asyncio.Transport | None = None
        self._reader: RequestReader | None = None
        self.peer = Peer("", 0, False)
        self._waiting: deque[_Waiting] = deque()
        self._running: _Running | None = None
        self._unparsed = b""
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._is_corked = False
        self._is_write_paused = False
        self._is_read_paused = False
        self._is_closing = False
        self._writable: asyncio.Future[None] | None = None
        self._owes_continue = False
        self._served = 0
        self._expected_bytes = 0
        """Reserved from the budget for the request that is being read."""
        self._held_bytes = 0
        """Reserved for whole requests that are not answered yet."""
        self._ticket: BudgetTicket | None = None
        self._now_ms = 0
        self._received_s = 0.0
        self._idle_since_ms = 0
        self._partial_since_ms: int | None = None
        self._linger_since_ms: int | None = None
        self._discarded_bytes = 0
        self._sent_bytes = 0
        self._taken_bytes = 0
        self._taken_at_ms = 0

    # --- asyncio.Protocol ---

    def _recognize(self, transport: asyncio.BaseTransport) -> None:
        if self.peer.certified_broker < 0:
            try:
                user = self._server.recognize(shown_certificate(transport), self.peer.host)
            except LoginFailed:
                transport.abort()  # type: ignore[attr-defined]
            else:
                self.peer = self.peer._replace(certified_user=user)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername") or ("", 0)
        is_tls = transport.get_extra_info("sslcontext") is not None
        # A UNIX socket's peer name is a string; it counts as loopback.
        self.peer = Peer("", 0, is_tls) if isinstance(address, str) else Peer(address[0], address[1], is_tls)
        if is_tls:
            self.peer = self.peer._replace(certified_broker=certified_broker(transport))
            self._recognize(transport)
        self._now_ms = self._idle_since_ms = self._taken_at_ms = self._server.clock.now_ms()
        server = self._server
        self._reader = RequestReader(self, server.router, server.read_limits, self.peer, server.browsers)
        if not self._server.opened(self):
            self._reader.is_ended = True
            self._write(
                encode_response(_TOO_MANY, fixed=self._server.fixed_lines, keep_alive=False, with_body=True)
            )
            self._close(linger=False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        if self._running is not None and self._running.task is not None:
            self._running.task.cancel()
            if isinstance(self._running.pending, Coroutine):
                self._running.pending.close()
        if self._writable is not None and not self._writable.done():
            self._writable.cancel()
        self._waiting.clear()
        self._unparsed = b""
        self._stop_expecting()
        self._release(self._held_bytes)
        self._server.closed(self)
        self._transport = None

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            self._discard(len(data))
            return
        if self._unparsed:
            self._unparsed += data
            return
        server, reader = self._server, self._reader
        assert reader is not None
        self._now_ms = server.clock.now_ms()
        self._received_s = self._loop.time()
        server.received_bytes += len(data)
        self._is_corked = True
        try:
            if len(data) <= SLICE_BYTES:
                reader.feed(data)
            else:
                self._feed_slices(reader, data)
        finally:
            self._is_corked = False
            if self._out:
                self._flush()
        if not reader.is_partial:
            self._partial_since_ms = None
        elif self._partial_since_ms is None:
            self._partial_since_ms = self._now_ms
        if self._is_read_paused or self._waiting or self._is_write_paused or self._ticket is not None:
            self._regulate()

    def eof_received(self) -> bool:
        # Closing a socket looks like this too. A long poll of a client that is gone must not take messages, so a
        # half-closed connection counts as closed.
        return False

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._regulate()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._advance()

    # --- reading ---

    def _feed_slices(self, reader: RequestReader, data: bytes) -> None:
        view = memoryview(data)
        for start in range(0, len(data), SLICE_BYTES):
            if not self._wants_input():
                self._unparsed = bytes(view[start:])
                return
            reader.feed(view[start : start + SLICE_BYTES])

    def _wants_input(self) -> bool:
        return (
            not self._is_write_paused
            and self._ticket is None
            and len(self._waiting) < self._server.settings.max_pipelined
        )

    def _regulate(self) -> None:
        """Read from the socket exactly while this connection can take more."""
        transport = self._transport
        if transport is None or self._is_closing:
            return
        wanted = self._wants_input() and not self._unparsed
        if wanted == self._is_read_paused:
            self._is_read_paused = not wanted
            if wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def body_expected(self, byte_count: int, wants_continue: bool) -> None:
        if self._server.body_budget.reserve(byte_count):
            self._expected_bytes = byte_count
        else:
            self._ticket = self._server.body_budget.wait(byte_count, self._budget_granted)
        if wants_continue:
            self._owes_continue = True
            self._send_continue()

    def _budget_granted(self) -> None:
        if self._ticket is None:
            return
        self._expected_bytes = self._ticket.byte_count
        self._ticket = None
        if self._partial_since_ms is not None:
            self._partial_since_ms = self._server.clock.now_ms()  # the wait was ours, not the client's
        self._send_continue()
        # Not from inside the other connection's release: parse in a turn of our own.
        self._loop.call_soon(self._advance)

    def _send_continue(self) -> None:
        """Only once every earlier answer is out, and only when there is room for the body."""
        if self._owes_continue and self._running is None and not self._waiting and self._ticket is None:
            self._owes_continue = False
            self._write(CONTINUE)

    def _stop_expecting(self) -> None:
        if self._ticket is not None:
            self._server.body_budget.cancel(self._ticket)
            self._ticket = None
        if self._expected_bytes:
            self._server.body_budget.release(self._expected_bytes)
            self._expected_bytes = 0
        self._owes_continue = False

    def request_complete(self, request: Request, handler: Handler, keep_alive: bool) -> None:
        server = self._server
        self._partial_since_ms = None
        self._served += 1
        settings = server.settings
        if server.is_draining or self._served >= settings.max_requests_per_connection:
            keep_alive = False
        server.request_count += 1
        request.own_request_id = f"{server.request_id_prefix}{server.request_count:x}"
        request.received_s = self._received_s
        request.received_ms = self._now_ms
        request.deadline_ms = self._now_ms + settings.request_timeout_ms
        refused = server.judge_peer(request)
        if refused is not None:
            handler = _answering(refused)
        if self._expected_bytes or self._ticket is not None:
            self._stop_expecting()
        # A chunked body reserved its cap; from here on its real size counts. A request that slipped in with its headers may
        # overrun the budget by one read.
        held = len(request.body)
        self._held_bytes += held
        server.body_budget.used_bytes += held
        if self._running is None and not self._waiting and not self._is_write_paused:
            self._start(_Waiting(request, handler, keep_alive, held))
        else:
            self._waiting.append(_Waiting(request, handler, keep_alive, held))

    def is_of_user(self, name: str, credential: str) -> bool:
        """Whether this user's request is being answered; with a credential: one that came with it."""
        access = None if self._running is None else self._running.request.access
        return (
            access is not None
            and not access.is_nameless
            and access.principal == Principal(USER, name)
            and credential in ("", access.credential)
        )

    def _release(self, byte_count: int) -> None:
        byte_count = min(byte_count, self._held_bytes)  # a lost connection has released everything already
        if byte_count:
            self._held_bytes -= byte_count
            budget = self._server.body_budget
            if budget.waiting:
                budget.release(byte_count)
            else:
                budget.used_bytes -= byte_count

    def refused(self, response: Response) -> None:
        self._server.note_refusal(self.peer, response)
        self._stop_expecting()
        self._partial_since_ms = None
        self._unparsed = b""
        refusal = _Waiting(_NO_REQUEST, lambda _request: response, False, 0)
        if self._running is None and not self._waiting and not self._is_write_paused:
            self._start(refusal)
        else:
            self._waiting.append(refusal)

    # --- answering ---

    def _start(self, item: _Waiting) -> None:
        request = item.request
        try:
            answer = item.handler(request)
        except Exception as error:
            answer = self._answer_of(error, request)
        if isinstance(answer, Response):
            self._release(item.held_bytes)
            self._respond(request, answer, item.keep_alive)
            return
        running = _Running(request, item.keep_alive, answer)
        self._running = running
        running.task = self._loop.create_task(
            self._run(running, answer, item.held_bytes), name=f"http {request.method} {request.route}"
        )

    def _answer_of(self, error: BaseException, request: Request) -> Response:
        if isinstance(error, HeadraceError):
            return problem_of(error, request_id=request.request_id, instance=request.path)
        _log.error(
            "http: %s %s failed, request %s",
            request.method,
            request.route,
            request.request_id,
            exc_info=error,
        )
        return problem(
            500, "UNKNOWN_SERVER_ERROR", "the server failed on this request",
            hint="This is a bug; the broker's log has the request id.",
            request_id=request.request_id, instance=request.path,
        )  # fmt: skip

    async def _run(
        self, running: _Running, pending: StreamingResponse | Awaitable[Answer], held: int
    ) -> None:
        request = running.request
        running.pending = None
        try:
            answer: Answer
            try:
                answer = pending if isinstance(pending, StreamingResponse) else await pending
            except asyncio.CancelledError:
                if not running.is_expired:
                    raise
                answer = problem(
                    504, "REQUEST_TIMED_OUT", "the request was not finished within its deadline",
                    hint="What it asked for may or may not have happened.",
                    request_id=request.request_id, instance=request.path,
                )  # fmt: skip
            except Exception as error:
                answer = self._answer_of(error, request)
            if held:
                self._release(held)
            if isinstance(answer, StreamingResponse):
                await self._stream(running, answer)
            elif self._transport is not None:
                self._respond(request, answer, running.keep_alive)
        except asyncio.CancelledError:
            if self._transport is not None:
                self._transport.abort()
        finally:
            self._running = None
            if self._waiting or self._unparsed or self._owes_continue or self._is_read_paused:
                self._advance()

    def _respond(self, request: Request, answer: Response, keep_alive: bool) -> None:
        server = self._server
        keep_alive = keep_alive and not server.is_draining
        given_id = request.client_request_id if b"x-request-id" in request.headers else ""
        if given_id and not any(name == "x-request-id" for name, _ in answer.headers):
            answer = Response(
                answer.body, answer.status, answer.content_type, (*answer.headers, ("x-request-id", given_id))
            )
        if b"origin" in request.headers:
            shared = server.browsers.answer_headers(request.method, request.headers)
            answer = Response(answer.body, answer.status, answer.content_type, (*answer.headers, *shared))
        fixed = server.fixed_lines if request.method == "POST" else server.read_lines
        try:
            data = encode_response(
                answer, fixed=fixed, keep_alive=keep_alive, with_body=request.method != "HEAD"
            )
        except ValueError as error:
            answer = self._answer_of(error, request)
            data = encode_response(answer, fixed=server.fixed_lines, keep_alive=keep_alive, with_body=True)
        self._write(data)
        self._answered(request, answer.status, keep_alive)

    def _answered(self, request: Request, status: int, keep_alive: bool) -> None:
        self._server.note_answer(request.route, status, self._loop.time() - request.received_s)
        self._idle_since_ms = self._now_ms = self._server.clock.now_ms()
        if not keep_alive:
            reader = self._reader
            assert reader is not None
            # An answer before the end of the request (413, 408) must survive the bytes still on their way.
            linger = request is _NO_REQUEST
            reader.is_ended = True
            self._waiting.clear()
            self._close(linger)

    async def _stream(self, running: _Running, answer: StreamingResponse) -> None:
        request = running.request
        running.is_streaming = True
        is_chunked = request.http_version == "1.1"
        keep_alive = running.keep_alive and is_chunked and not self._server.is_draining
        chunks = answer.chunks
        try:
            answer.headers = (
                *answer.headers,
                *self._server.browsers.answer_headers(request.method, request.headers),
            )
            self._write(
                encode_stream_head(
                    answer, fixed=self._server.read_lines, keep_alive=keep_alive, chunked=is_chunked
                )
            )
            if request.method != "HEAD":
                await self._send_chunks(running, answer, is_chunked)
                if is_chunked:
                    self._write(LAST_CHUNK)
        except Exception as error:
            # The status line is gone; a cut chunked body is the only way left to say that it failed.
            self._answer_of(error, request)
            if self._transport is not None:
                self._transport.abort()
            return
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()
        self._answered(request, answer.status, keep_alive and not self._server.is_draining)

    async def _send_chunks(self, running: _Running, answer: StreamingResponse, is_chunked: bool) -> None:
        try:
            async for chunk in answer.chunks:
                if chunk:
                    self._write(encode_chunk(chunk) if is_chunked else chunk)
                if self._is_write_paused:
                    self._writable = self._loop.create_future()
                    await self._writable
        except asyncio.CancelledError:
            # Draining ends a stream cleanly; a lost connection does not get here with is_expired set.
            if not running.is_expired:
                raise

    def _advance(self) -> None:
        """Start what waits, then read on."""
        if self._is_closing or self._transport is None:
            return
        self._now_ms = self._server.clock.now_ms()
        self._idle_since_ms = self._now_ms
        while self._waiting and self._running is None and not self._is_write_paused and not self._is_closing:
            self._start(self._waiting.popleft())
        self._send_continue()
        if self._unparsed and self._wants_input() and not self._is_closing:
            data, self._unparsed = self._unparsed, b""
            self.data_received(data)
        self._regulate()

    # --- writing and closing ---

    def _write(self, data: bytes) -> None:
        if self._transport is None:
            return
        if not self._is_corked:
            self._sent_bytes += len(data)
            self._transport.write(data)
            return
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes >= _CORK_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._out and self._transport is not None:
            out = self._out
            data = out[0] if len(out) == 1 else b"".join(out)
            self._sent_bytes += len(data)
            self._out = []
            self._out_bytes = 0
            self._transport.write(data)

    def _close(self, linger: bool) -> None:
        transport = self._transport
        if transport is None or self._is_closing:
            return
        self._flush()
        self._is_closing = True
        if self._is_read_paused:
            self._is_read_paused = False
            transport.resume_reading()
        if linger and transport.can_write_eof():
            # A close with unread input is a reset, which can destroy the answer on its way.
            transport.write_eof()
            self._linger_since_ms = self._now_ms
        else:
            transport.close()

    def _discard(self, byte_count: int) -> None:
        self._discarded_bytes += byte_count
        if self._discarded_bytes > _MAX_DISCARDED_BYTES and self._transport is not None:
            self._transport.abort()

    def drain(self) -> None:
        """The server stops: end streams, close when idle; a request in progress is answered first."""
        running = self._running
        if running is not None:
            if running.is_streaming and running.task is not None:
                running.is_expired = True
                running.task.cancel()
        elif not self._waiting and not (self._reader is not None and self._reader.is_partial):
            self._close(linger=False)

    @property
    def idle_since_ms(self) -> int | None:
        """None while a request is arriving or to be answered, or the last answer leaves."""
        if self._running is not None or self._waiting or self._partial_since_ms is not None:
            return None
        if self._is_closing or self._transport is None or self._transport.get_write_buffer_size():
            return None
        return self._idle_since_ms

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def sweep(self, now_ms: int) -> None:
        """The limits of time (X13), looked at a few times per limit instead of with a timer per request."""
        transport = self._transport
        if transport is None:
            return
        settings = self._server.settings
        taken = self._sent_bytes - transport.get_write_buffer_size()
        if taken != self._taken_bytes or taken == self._sent_bytes:
            self._taken_bytes = taken
            self._taken_at_ms = now_ms
        elif now_ms - self._taken_at_ms >= settings.write_stall_ms:
            self._server.note_timeout("write_stall", self.peer)
            transport.abort()
            return
        if self._linger_since_ms is not None:
            if now_ms - self._linger_since_ms >= settings.linger_ms:
                transport.close()
            return
        running = self._running
        if running is not None:
            if (
                now_ms >= running.request.deadline_ms
                and not running.is_streaming
                and running.task is not None
                and running.pending is None
            ):
                if not running.is_expired:
                    running.is_expired = True
                    self._server.note_timeout("request", self.peer)
                running.task.cancel()
            return
        if self._partial_since_ms is not None and self._ticket is None:
            if now_ms - self._partial_since_ms >= settings.partial_request_ms:
                self._server.note_timeout("partial_request", self.peer)
                self._now_ms = now_ms
                assert self._reader is not None
                self._reader.refuse(408, "REQUEST_TIMEOUT", "the request did not arrive in time")
        elif not self._waiting and now_ms - self._idle_since_ms >= settings.idle_connection_ms:
            self._server.note_timeout("idle", self.peer)
            self._close(linger=False)


_NO_REQUEST = Request("", "")
_TOO_MANY = problem(503, "TOO_MANY_CONNECTIONS", "this broker has as many connections as it takes")


def _answering(response: Response) -> Handler:
    return lambda _request: response
