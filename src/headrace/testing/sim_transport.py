"""Adapter: an asyncio transport over two simulated pipes.

Behaves as asyncio's own socket transport: a write buffer with water marks in the program, connection_lost exactly
once, nothing delivered after it. All calls into the protocol run in the context of the process that owns it, so
they wait while it is paused and never happen once it is dead.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import socket
from collections.abc import Callable
from typing import Any, Protocol

from headrace.testing.dice import Dice
from headrace.testing.sim_pipe import Pipe
from headrace.testing.virtual_loop import Process, VirtualTimeLoop

_HIGH_WATER = 64 * 1024
_WHOLE_READ_CHANCE = 0.8
_MAX_READ_BYTES = 256 * 1024


class PoweredHost(Protocol):
    name: str
    is_up: bool


class Carrier(Protocol):
    """Port: the network as one of its connections sees it."""

    loop: VirtualTimeLoop
    dice: Dice

    def register(self, transport: SimTransport) -> None: ...

    def unregister(self, transport: SimTransport) -> None: ...


class SimSocket:
    """What `get_extra_info("socket")` gives: names, and options that do nothing."""

    family = socket.AF_INET
    type = socket.SOCK_STREAM

    def __init__(self, name: tuple[str, int], peer: tuple[str, int] | None = None) -> None:
        self._name = name
        self._peer = peer

    def getsockname(self) -> tuple[str, int]:
        return self._name

    def getpeername(self) -> tuple[str, int]:
        if self._peer is None:
            raise OSError(errno.ENOTCONN, "not connected")
        return self._peer

    def setsockopt(self, *_options: object) -> None: ...

    def getsockopt(self, *_options: object) -> int:
        return 0

    def fileno(self) -> int:
        return -1


class SimTransport(asyncio.Transport):
    def __init__(
        self,
        network: Carrier,
        host: PoweredHost,
        process: Process | None,
        name: tuple[str, int],
        peer: tuple[str, int],
        outgoing: Pipe,
        incoming: Pipe,
    ) -> None:
        super().__init__({"peername": peer, "sockname": name, "socket": SimSocket(name, peer)})
        self._network = network
        self.host = host
        self.process = process
        self.name = name
        self.peer = peer
        self._context = contextvars.copy_context() if process is None else process.context.copy()
        self._out = outgoing
        self._in = incoming
        outgoing.source = self
        incoming.target = self
        self._protocol: asyncio.BaseProtocol | None = None
        self._buffer = bytearray()
        self._high = _HIGH_WATER
        self._low = _HIGH_WATER // 4
        self._is_write_paused = False
        self._is_reading = True
        self._is_closing = False
        self._is_lost = False
        self._problem: Exception | None = None
        """Why the connection was lost, when that happened before the program had it."""
        self._is_forgotten = False
        """The kernel does not know this socket any more."""
        self._eof_wanted = False
        self._eof_pending = False
        self._is_read_scheduled = False
        self._is_flush_scheduled = False
        network.register(self)

    def __repr__(self) -> str:
        return f"<SimTransport {self.name[0]}:{self.name[1]} -> {self.peer[0]}:{self.peer[1]}>"

    def _call(self, callback: Callable[..., object], *args: object) -> None:
        self._network.loop.call_soon(callback, *args, context=self._context)

    # --- opened by the network ---

    def open(self, protocol: asyncio.BaseProtocol) -> None:
        """In the owner's context: the program has the connection now."""
        self._protocol = protocol
        protocol.connection_made(self)
        if self._is_lost:
            self._call(protocol.connection_lost, self._problem)
        elif self.received_bytes or self._eof_pending:
            self._schedule_read()

    @property
    def received_bytes(self) -> int:
        return len(self._in.received)

    # --- asyncio.Transport: writing ---

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._eof_wanted:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._is_lost or self._is_forgotten or not data:
            return
        if self.process is not None:
            self.process.check_alive()
        view = memoryview(data).cast("B")
        while view and not self._buffer and (count := self._out.push(view)):
            view = view[count:]
        if view:
            self._buffer += view
            self._regulate_writer()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        if self._is_closing or self._eof_wanted:
            return
        self._eof_wanted = True
        if not self._buffer:
            self._out.finish()

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _HIGH_WATER if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high = high
        self._low = low
        self._regulate_writer()

    def _regulate_writer(self) -> None:
        assert self._protocol is not None
        if not self._is_write_paused and len(self._buffer) > self._high:
            self._is_write_paused = True
            self._protocol.pause_writing()
        elif self._is_write_paused and len(self._buffer) <= self._low:
            self._is_write_paused = False
            self._protocol.resume_writing()

    def _flush(self) -> None:
        self._is_flush_scheduled = False
        if self._is_lost:
            return
        while self._buffer and (count := self._out.push(self._buffer)):
            del self._buffer[:count]
        if not self._buffer:
            if self._is_closing:
                self._lose(None)
                return
            if self._eof_wanted:
                self._out.finish()
        self._regulate_writer()

    # --- asyncio.Transport: reading ---

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading and not self._is_closing:
            self._is_reading = True
            self._schedule_read()

    def _schedule_read(self) -> None:
        if not self._is_read_scheduled and self._protocol is not None:
            self._is_read_scheduled = True
            self._call(self._read)

    def _read(self) -> None:
        self._is_read_scheduled = False
        if self._is_closing or self._is_lost or not self._is_reading:
            return
        received = self._in.received
        if not received:
            if self._eof_pending:
                self._eof_pending = False
                assert isinstance(self._protocol, (asyncio.Protocol, asyncio.BufferedProtocol))
                if not self._protocol.eof_received():
                    self.close()
            return
        size = min(len(received), _MAX_READ_BYTES)
        if size > 1 and not self._network.dice.chance(_WHOLE_READ_CHANCE):
            size = self._network.dice.between(1, size)
        self._hand_over(size)
        if not self._is_lost and (self.received_bytes or self._eof_pending):
            self._schedule_read()

    def _hand_over(self, size: int) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            buffer = memoryview(protocol.get_buffer(-1))
            if not len(buffer):
                raise RuntimeError("get_buffer() returned an empty buffer")
            size = min(size, len(buffer))
            buffer[:size] = self._in.received[:size]
            self._in.consumed(size)
            protocol.buffer_updated(size)
        else:
            assert isinstance(protocol, asyncio.Protocol)
            data = bytes(self._in.received[:size])
            self._in.consumed(size)
            protocol.data_received(data)

    # --- asyncio.Transport: the rest ---

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if not self._buffer:
            self._call(self._lose, None)

    def abort(self) -> None:
        if self._is_lost:
            return
        self._is_closing = True
        self._buffer.clear()
        self._forget()
        self._out.reset()
        self._call(self._lose, None)

    def _lose(self, problem: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._is_closing = True
        self._problem = problem
        self._buffer.clear()
        if not self._is_forgotten:
            # A close with unread input is a reset, as on Linux.
            if self._in.received:
                self._out.reset()
            else:
                self._out.finish()
            self._forget()
        if self._protocol is not None:
            self._protocol.connection_lost(problem)

    def _forget(self) -> None:
        if not self._is_forgotten:
            self._is_forgotten = True
            self._network.unregister(self)

    # --- the kernel's side (sim_pipe.Endpoint) ---

    def is_known(self) -> bool:
        return not self._is_forgotten and self.host.is_up

    def is_reachable(self) -> bool:
        return self.host.is_up

    def arrived(self) -> None:
        if self._is_reading:
            self._schedule_read()

    def eof_arrived(self) -> None:
        self._eof_pending = True
        if self._is_reading:
            self._schedule_read()

    def reset_arrived(self) -> None:
        self._fail(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def gave_up(self) -> None:
        self._fail(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))

    def room_made(self) -> None:
        if self._buffer and not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._call(self._flush)

    def _fail(self, problem: Exception) -> None:
        if self._is_forgotten:
            return
        self._forget()
        self._in.received.clear()
        self._out.vanish()
        self._is_closing = True
        self._call(self._lose, problem)

    # --- done to it by the simulation ---

    def process_died(self, *, politely: bool) -> None:
        """The kernel closes what the dead process left open; what the process had not handed over is gone."""
        if self._is_forgotten:
            return
        self._forget()
        self._is_lost = True
        if politely and not self._in.received:
            self._out.finish()
        else:
            self._out.reset(keep_sent=politely)

    def host_lost_power(self) -> None:
        if not self._is_forgotten:
            self._forget()
            self._is_lost = True
            self._out.vanish()

    def forget_silently(self) -> None:
        """Half open: this end is gone and the other does not know until it sends."""
        if not self._is_forgotten:
            self._forget()
            self._out.vanish()
            self._is_closing = True
            self._call(
                self._lose, ConnectionAbortedError(errno.ECONNABORTED, "Software caused connection abort")
            )

    def reset_by_network(self) -> None:
        """A middlebox resets the connection: this end hears it now; the network tells the other end too."""
        self._fail(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
