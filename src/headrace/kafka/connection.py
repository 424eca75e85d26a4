"""Driver: one client connection. Cuts frames out of one reused buffer and sends responses in request order.

Frames are handled where they lie, without a copy, because Produce writes its batches to the file before the
handler returns. A frame that has to wait (an earlier request is still being decided) is copied out first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from headrace.core import limits
from headrace.core.ports import Buffer

if TYPE_CHECKING:
    from headrace.kafka.server import KafkaServer

log = logging.getLogger(__name__)

_INITIAL_BUFFER = 16 * limits.KIB
_KEPT_BUFFER = 4 * limits.MIB


class Slot:
    """The place of one response in its connection's queue; filled once, sent in order."""

    __slots__ = ("buffers", "connection", "filled")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.filled = False
        self.buffers: Sequence[Buffer] = ()

    def send(self, buffers: Sequence[Buffer]) -> None:
        if not self.filled:
            self.filled = True
            self.buffers = buffers
            self.connection.send_ready()


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_buffer", "_busy", "_closing", "_frame_started_ms", "_held_bytes", "_last_read_ms", "_parked", "_paused_writing",
        "_reading_paused", "_received", "_stalled_since_ms", "_view", "_waiting", "client_id", "host", "id", "server", "slots",
        "transport",
    )  # fmt: skip

    def __init__(self, server: KafkaServer, connection_id: int) -> None:
        self.server = server
        self.id = connection_id
        self.host = ""
        self.client_id = ""
        self.transport: asyncio.Transport | None = None
        self.slots: deque[Slot] = deque()
        self._buffer = bytearray(_INITIAL_BUFFER)
        self._view = memoryview(self._buffer)
        self._received = 0
        self._waiting: deque[bytearray] = deque()
        self._parked: dict[Slot, Callable[[], None]] = {}
        self._held_bytes = 0
        self._busy = False
        self._closing = False
        self._reading_paused = False
        self._paused_writing = False
        self._last_read_ms = self._frame_started_ms = self._stalled_since_ms = server.clock.now_ms()

    # -- asyncio ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.host = str(peer[0]) if peer else ""
        self.transport.set_write_buffer_limits(high=4 * limits.MIB, low=limits.MIB)
        if not self.server.admit(self):
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self.transport = None
        self.server.forget(self, self._held_bytes)
        self._held_bytes = 0
        self._waiting.clear()
        self.slots.clear()
        for cancel in self._parked.values():
            cancel()
        self._parked.clear()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._received == len(self._buffer):
            # Only a frame that is still arriving fills the buffer, so growing follows bytes that really came:
            # a claim of 100 MB with nothing behind it costs nothing (X8).
            self._resize(min(2 * len(self._buffer), limits.MAX_FRAME_BYTES + 4))
        return self._view[self._received :]

    def buffer_updated(self, nbytes: int) -> None:
        self._last_read_ms = self.server.clock.now_ms()
        if self._received == 0:
            self._frame_started_ms = self._last_read_ms
        self._received += nbytes
        self._cut_frames()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._paused_writing = True
        self._stalled_since_ms = self.server.clock.now_ms()
        self._throttle_reading()

    def resume_writing(self) -> None:
        self._paused_writing = False
        self.send_ready()
        self._throttle_reading()

    # -- frames ----------------------------------------------------------------------------------------------

    def _cut_frames(self) -> None:
        position = 0
        view = self._view
        received = self._received
        while received - position >= 4 and not self._closing:
            size = int.from_bytes(view[position : position + 4], "big", signed=True)
            if size <= 0 or size > self.server.max_frame_bytes:
                self.fail(f"frame of {size} bytes; the limit is {self.server.max_frame_bytes}")
                return
            if received - position - 4 < size:
                break
            self._accept(view[position + 4 : position + 4 + size])
            position += 4 + size
        rest = received - position
        if position and rest:
            # bytes() first: the regions may overlap, and a partial frame is short compared with what was handled.
            view[:rest] = bytes(view[position:received])
        self._received = rest
        if position:
            self._frame_started_ms = self._last_read_ms
            if rest == 0 and len(self._buffer) > _KEPT_BUFFER:
                self._resize(_INITIAL_BUFFER)

    def _resize(self, size: int) -> None:
        buffer = bytearray(size)
        buffer[: self._received] = self._view[: self._received]
        self._buffer = buffer
        self._view = memoryview(buffer)

    def _accept(self, frame: memoryview) -> None:
        if self._busy or self._waiting:
            self._waiting.append(bytearray(frame))
            self._held_bytes += len(frame)
            self.server.hold(len(frame))
            self._throttle_reading()
        else:
            self._execute(frame)

    def _execute(self, frame: memoryview) -> None:
        """Handle one request. `_busy` means that it is still deciding and the next one must wait its turn."""
        self._busy = self.server.handle(self, frame)

    def request_done(self) -> None:
        """The deciding request has answered: go on with those that wait."""
        self._busy = False
        while self._waiting and not self._busy and not self._closing:
            frame = self._waiting.popleft()
            self._held_bytes -= len(frame)
            self.server.hold(-len(frame))
            self._execute(memoryview(frame))
        self._throttle_reading()

    def _throttle_reading(self) -> None:
        """Stop reading while this client is far ahead of us, or we are far ahead of it (X9, X13)."""
        if self.transport is None or self._closing:
            return
        crowded = (
            self._held_bytes > limits.MIB
            or len(self._waiting) > limits.MAX_PARKED_REQUESTS_PER_CONNECTION
            or len(self.slots) > limits.MAX_PARKED_REQUESTS_PER_CONNECTION
            or self._paused_writing
            or (self._held_bytes > 0 and self.server.over_budget)
        )
        if crowded != self._reading_paused:
            self._reading_paused = crowded
            if crowded:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    # -- responses -------------------------------------------------------------------------------------------

    def park(self, slot: Slot, cancel: Callable[[], None]) -> None:
        """A long poll waits for data; when the client goes away, so does it."""
        self._parked = {waiting: end for waiting, end in self._parked.items() if not waiting.filled}
        self._parked[slot] = cancel

    def open_slot(self) -> Slot:
        slot = Slot(self)
        self.slots.append(slot)
        return slot

    def send_ready(self) -> None:
        slots = self.slots
        transport = self.transport
        while slots and slots[0].filled and not self._paused_writing and transport is not None:
            transport.writelines(slots.popleft().buffers)
        if self._reading_paused:
            self._throttle_reading()

    def fail(self, reason: str) -> None:
        """X16: a malformed frame closes this connection with one line in the log, and nothing else happens."""
        self.server.warn(f"closing {self.host or 'connection'}: {reason}")
        self.close()

    def close(self) -> None:
        self._closing = True
        if self.transport is not None:
            self.transport.abort()

    def stale(self, now_ms: int) -> str | None:
        """Why this connection should be closed (X13), or None. Parked requests keep it alive."""
        if self._paused_writing and now_ms - self._stalled_since_ms > limits.WRITE_STALL_MS:
            return "it does not read its responses"
        if self._reading_paused or self.slots or self._busy:
            return None
        if self._received and now_ms - self._frame_started_ms > limits.PARTIAL_FRAME_MS:
            return "a frame did not arrive whole in time"
        if now_ms - self._last_read_ms > limits.IDLE_CONNECTION_MS:
            return "idle"
        return None
