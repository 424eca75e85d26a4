"""Driver: one client connection. Cuts frames out of one reused buffer and sends responses in request order.

Frames are handled where they lie, without a copy, because Produce writes its batches to the file before the
handler returns. A frame that has to wait is copied out first: an earlier request is still being decided, or the
client does not take the responses it already has (X13). Responses to frames that came together leave together. What lies
in a file goes from there to the socket (Outlet); until it has left, what comes after it waits.

Invariants: a response never overtakes an earlier one (trap 13); what one client can make us hold is bounded, whatever
it sends and however little it reads (X8, X9).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Protocol, cast

from headrace.core import limits
from headrace.core.ports import Buffer, Clock
from headrace.core.principals import Principal
from headrace.core.stored import Piece
from headrace.kafka.outlet import Outlet, in_memory, own_descriptor
from headrace.kafka.session import Session
from headrace.net.tls import certified_broker

_INITIAL_BUFFER = 16 * limits.KIB
_KEPT_BUFFER = 4 * limits.MIB
_UNBUDGETED_BUFFER = 64 * limits.KIB
"""Buffers up to here grow even when the server is over its budget, so that small requests always get through."""
_CORK_BYTES = 64 * limits.KIB
_MAX_UNSENT_BYTES = 4 * limits.MIB

_frame_size = Struct(">i").unpack_from


class ConnectionServer(Protocol):
    """What a connection has to know of the server it belongs to (server.KafkaServer)."""

    @property
    def clock(self) -> Clock: ...

    @property
    def max_frame_bytes(self) -> int: ...

    @property
    def idle_ms(self) -> int: ...

    @property
    def over_budget(self) -> bool: ...

    @property
    def handle(self) -> Callable[[Connection, memoryview], bool]: ...

    def admit(self, connection: Connection) -> bool: ...

    def forget(self, connection: Connection, held_bytes: int) -> None: ...

    def hold(self, size: int) -> None: ...

    def has_room(self, size: int) -> bool: ...

    def starve(self, connection: Connection) -> None: ...

    def warn(self, message: str) -> None: ...

    def needs_login(self, connection: Connection) -> bool: ...


class Slot:
    """The place of one response in its connection's queue; filled once, sent in order."""

    __slots__ = ("connection", "filled", "is_lent", "pieces", "size")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.filled = False
        self.is_lent = False
        """Some of it lies in a file."""
        self.pieces: Sequence[Piece] = ()
        self.size = 0

    def send(self, pieces: Sequence[Piece], *, is_lent: bool = False) -> None:
        if not self.filled:
            self.filled = True
            self.is_lent = is_lent
            self.pieces = pieces
            self.size = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
            self.connection.slot_filled(self.size)


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_buffer", "_busy", "_closing", "_corked", "_descriptor", "_draining", "_frame_started_ms", "_held_bytes",
        "_last_read_ms", "_muted", "_outlet", "_parked", "_paused_writing", "_reading_paused", "_ready", "_received",
        "_stalled_since_ms", "_starved", "_unsent_bytes", "_view", "_waiting", "client_id", "end_wait", "host", "id", "opened_ms",
        "server", "session", "slots", "transport",
    )  # fmt: skip

    def __init__(self, server: ConnectionServer, connection_id: int) -> None:
        self.server = server
        self.id = connection_id
        self.host = ""
        self.client_id = ""
        self.session = Session()
        self.transport: asyncio.Transport | None = None
        self.slots: deque[Slot] = deque()
        self.end_wait: Callable[[], None] | None = None
        """Answers the long poll of a follower now, if it still waits."""
        self._descriptor = -1
        """Of the socket, where answers can go to it from a file."""
        self._outlet: Outlet | None = None
        self._ready: list[Piece] = []
        """Responses that come before those of all slots."""
        self._buffer = bytearray(_INITIAL_BUFFER)
        self._view = memoryview(self._buffer)
        self._received = 0
        self._waiting: deque[bytearray] = deque()
        self._parked: dict[Slot, Callable[[], None]] = {}
        self._held_bytes = 0
        self._unsent_bytes = 0
        self._busy = False
        self._corked = False
        self._draining = False
        self._starved = False
        self._muted: asyncio.TimerHandle | None = None
        self._closing = False
        self._reading_paused = False
        self._paused_writing = False
        self.opened_ms = server.clock.now_ms()
        self._last_read_ms = self._frame_started_ms = self._stalled_since_ms = self.opened_ms

    # -- asyncio ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.host = str(peer[0]) if peer else ""
        self.session.is_tls = transport.get_extra_info("sslcontext") is not None
        if self.session.is_tls:
            self.session.certified_broker = certified_broker(transport)
        self._descriptor = own_descriptor(transport)
        self.transport.set_write_buffer_limits(high=4 * limits.MIB, low=limits.MIB)
        self.server.hold(len(self._buffer))
        if not self.server.admit(self):
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self.transport = None
        if self._outlet is not None:
            self._outlet.close()
        self.server.forget(self, self._held_bytes + len(self._buffer))
        self._held_bytes = self._unsent_bytes = 0
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)
        self._received = 0
        self._waiting.clear()
        self.slots.clear()
        self._ready.clear()
        if self._muted is not None:
            self._muted.cancel()
        for cancel in self._parked.values():
            cancel()
        self._parked.clear()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._received :]

    def buffer_updated(self, nbytes: int) -> None:
        self._last_read_ms = self.server.clock.now_ms()
        if self._received == 0:
            self._frame_started_ms = self._last_read_ms
        self._received += nbytes
        self._cut_frames()

    def eof_received(self) -> bool:
        """The client says no more. It still gets what was on its way to it."""
        self._closing = self._closing or self.is_sending
        return self.is_sending

    def pause_writing(self) -> None:
        self._paused_writing = True
        self._stalled_since_ms = self.server.clock.now_ms()
        self._throttle_reading()

    def resume_writing(self) -> None:
        self._paused_writing = False
        self.send_ready()
        self._drain()

    # -- frames ----------------------------------------------------------------------------------------------

    def _cut_frames(self) -> None:
        position = 0
        view = self._view
        received = self._received
        limit = self.server.max_frame_bytes
        handle = self.server.handle
        self._corked = True
        while received - position >= 4 and not self._closing:
            (size,) = _frame_size(view, position)
            if size <= 0 or size > limit:
                self.fail(f"frame of {size} bytes; the limit is {limit}")
                break
            if size > limits.MAX_FIRST_FRAME_BYTES and self.server.needs_login(self):
                self.fail(f"frame of {size} bytes before authentication")
                break
            if size > limits.MAX_REQUEST_BYTES:
                if received - position < 6:
                    break
                if view[position + 4] or view[position + 5]:
                    # A3: record data is appended as it is, and everything else has to be decoded.
                    self.fail(
                        f"frame of {size} bytes; the limit of all but Produce is {limits.MAX_REQUEST_BYTES}"
                    )
                    break
            end = position + 4 + size
            if received < end:
                break
            frame = view[position + 4 : end]
            position = end
            if (
                self._busy
                or self._waiting
                or self._paused_writing
                or self._muted is not None
                or self._unsent_bytes > _MAX_UNSENT_BYTES
            ):
                self._keep_for_later(frame)
            else:
                self._busy = handle(self, frame)
        self._corked = False
        if self._closing:
            return
        if self._unsent_bytes:
            self.send_ready()
        self._keep_rest(position)

    def _keep_rest(self, position: int) -> None:
        """Make room behind the bytes of a frame that is still arriving."""
        rest = self._received - position
        if position and rest:
            # bytes() first: the regions may overlap, and a partial frame is short compared with what was handled.
            self._view[:rest] = bytes(self._view[position : self._received])
        self._received = rest
        if position:
            self._frame_started_ms = self._last_read_ms
            if rest == 0 and (len(self._buffer) > _KEPT_BUFFER or self.server.over_budget):
                self.shrink()
        if rest == len(self._buffer):
            self._grow()

    def _grow(self) -> None:
        """Only a frame that is still arriving fills the buffer, so growing follows bytes that really came: a claim of
        100 MB with nothing behind it costs nothing (X8). Over the budget of all connections, this one waits (X9)."""
        size = min(2 * len(self._buffer), limits.MAX_FRAME_BYTES + 4)
        if size > _UNBUDGETED_BUFFER and not self.server.has_room(size - len(self._buffer)):
            self._starved = True
            self.server.starve(self)
            self._throttle_reading()
        else:
            self._resize(size)

    def feed(self) -> None:
        """There may be room again for a frame that could not go on arriving."""
        if self._starved and not self._closing:
            self._starved = False
            self._grow()
            self._throttle_reading()

    def shrink(self) -> None:
        """Give back a buffer that nothing lies in."""
        if self._received == 0 and len(self._buffer) > _INITIAL_BUFFER:
            self._resize(_INITIAL_BUFFER)

    def _resize(self, size: int) -> None:
        buffer = bytearray(size)
        buffer[: self._received] = self._view[: self._received]
        self.server.hold(size - len(self._buffer))
        self._buffer = buffer
        self._view = memoryview(buffer)

    def _keep_for_later(self, frame: memoryview) -> None:
        """An earlier request is still deciding (`_busy`) or waiting, or the client does not take its answers (X13)."""
        self._waiting.append(bytearray(frame))
        self._held_bytes += len(frame)
        self.server.hold(len(frame))
        self._throttle_reading()

    def request_done(self) -> None:
        """The deciding request has answered: go on with those that wait."""
        self._busy = False
        self._drain()

    def _drain(self) -> None:
        if self._draining:
            return
        self._draining = True
        waiting = self._waiting
        while (
            waiting
            and not (self._busy or self._closing or self._paused_writing or self._muted is not None)
            and self._unsent_bytes <= _MAX_UNSENT_BYTES
        ):
            frame = waiting.popleft()
            self._held_bytes -= len(frame)
            self.server.hold(-len(frame))
            self._busy = self.server.handle(self, memoryview(frame))
        self._draining = False
        self._throttle_reading()

    def _throttle_reading(self) -> None:
        """Stop reading while this client is far ahead of us, or we are far ahead of it (X9, X13)."""
        if self.transport is None or self._closing:
            return
        crowded = (
            self._starved
            or self._held_bytes > limits.MIB
            or len(self._waiting) > limits.MAX_PARKED_REQUESTS_PER_CONNECTION
            or len(self.slots) > limits.MAX_PARKED_REQUESTS_PER_CONNECTION
            or self._paused_writing
            or self._muted is not None
            or self._unsent_bytes > _MAX_UNSENT_BYTES
            or (self._held_bytes > 0 and self.server.over_budget)
        )
        if crowded != self._reading_paused:
            self._reading_paused = crowded
            if crowded:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def mute(self, milliseconds: int) -> None:
        """KIP-219: over its quota. The answer leaves at once and says how long; until then no request is heard."""
        if self._closing:
            return
        loop = asyncio.get_running_loop()
        until_s = loop.time() + milliseconds / 1000
        if self._muted is not None:
            if self._muted.when() >= until_s:
                return
            self._muted.cancel()
        self._muted = loop.call_at(until_s, self._unmute)
        self._throttle_reading()

    def _unmute(self) -> None:
        self._muted = None
        self._drain()

    # -- responses -------------------------------------------------------------------------------------------

    def park(self, slot: Slot, cancel: Callable[[], None]) -> None:
        """A long poll waits for data; when the client goes away, so does it."""
        self._parked = {waiting: end for waiting, end in self._parked.items() if not waiting.filled}
        self._parked[slot] = cancel

    def open_slot(self) -> Slot:
        slot = Slot(self)
        self.slots.append(slot)
        return slot

    def answer(self, frame: bytes) -> None:
        """Send the response to the request that is being handled right now. Costs no slot when nothing is before it."""
        if self.slots:
            self.open_slot().send((frame,))
        else:
            self._ready.append(frame)
            self.slot_filled(len(frame))

    def slot_filled(self, size: int) -> None:
        self._unsent_bytes += size
        if not self._corked or self._unsent_bytes > _CORK_BYTES:
            self.send_ready()

    def send_ready(self) -> None:
        """Write what is ready, in order, in one go."""
        slots = self.slots
        transport = self.transport
        if transport is None:
            return
        while (self._ready or (slots and slots[0].filled)) and not (
            self._paused_writing or self.is_sending or self._closing
        ):
            pieces, self._ready = self._ready, []
            size, is_lent = sum(map(len, pieces)), False
            while slots and slots[0].filled and size <= _CORK_BYTES:
                slot = slots.popleft()
                size += slot.size
                pieces += slot.pieces
                is_lent = is_lent or slot.is_lent
            self._unsent_bytes -= size
            if is_lent:
                self._send_lent(transport, pieces)
            elif len(pieces) == 1:
                transport.write(cast(Buffer, pieces[0]))
            else:
                transport.writelines(cast(list[Buffer], pieces))
        if self._waiting:
            self._drain()
        elif self._reading_paused:
            self._throttle_reading()

    # -- straight from files (decision 0050) --------------------------------------------------------------------

    @property
    def takes_files(self) -> bool:
        return self._descriptor >= 0

    @property
    def is_sending(self) -> bool:
        return self._outlet is not None and self._outlet.is_busy

    def _send_lent(self, transport: asyncio.Transport, pieces: list[Piece]) -> None:
        outlet = self._outlet or self._open_outlet()
        if outlet is not None and not transport.get_write_buffer_size():
            outlet.send(pieces)
            return
        try:
            transport.writelines(in_memory(pieces))
        except OSError as problem:
            self.fail(str(problem))

    def _open_outlet(self) -> Outlet | None:
        try:
            self._outlet = Outlet(self._descriptor, self.server.clock, self._all_sent, self.close)
        except OSError:
            return None  # there are no more descriptors
        return self._outlet

    def _all_sent(self) -> None:
        if self._closing and self.transport is not None:
            self.transport.close()
        else:
            self.send_ready()

    def fail(self, reason: str) -> None:
        """X16: a malformed frame closes this connection with one line in the log, and nothing else happens."""
        self.server.warn(f"closing {self.host or 'connection'}: {reason}")
        self.close()

    @property
    def is_open(self) -> bool:
        """False: nobody is there to be answered, and what is left of its requests is not carried out (R47)."""
        return not self._closing

    def close(self) -> None:
        self._closing = True
        if self.transport is not None:
            self.transport.abort()

    def end(self) -> None:
        """Close once what was said has left."""
        self._closing = True
        if self.transport is not None and not self.is_sending:
            self.transport.close()

    def stale(self, now_ms: int) -> str | None:
        """Why this connection should be closed (X13), or None. Parked requests keep it alive."""
        if now_ms - self.opened_ms > limits.LOGIN_MS and self.server.needs_login(self):
            return "it has not said who it is"
        if self._paused_writing and now_ms - self._stalled_since_ms > limits.WRITE_STALL_MS:
            return "it does not read its responses"
        if self._outlet is not None and self._outlet.is_stalled(now_ms):
            return "it does not read its responses"
        if self._starved and now_ms - self._frame_started_ms > limits.PARTIAL_FRAME_MS:
            return "there was no memory for its frame"
        if self._reading_paused or self.slots or self._busy or self.is_sending:
            return None
        if self._received and now_ms - self._frame_started_ms > limits.PARTIAL_FRAME_MS:
            return "a frame did not arrive whole in time"
        idle_ms = self.server.idle_ms
        if 0 <= idle_ms < now_ms - self._last_read_ms:
            return "idle"
        return None

    @property
    def principal(self) -> Principal:
        return self.session.principal

    @property
    def credential(self) -> str:
        return self.session.credential

    @property
    def is_broker(self) -> bool:
        """It has proved to be one."""
        return self.session.principal.is_broker

    @property
    def idle_since_ms(self) -> int | None:
        """When it last said something; None while it has something to be answered, or does not take its answers."""
        if self._reading_paused or self.slots or self._busy or self.is_sending:
            return None
        return self._last_read_ms
