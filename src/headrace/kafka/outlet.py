"""Driver: what leaves for a client from a file, without passing through this process (decision 0050).

The outlet has a descriptor of its own for the connection's socket, and its readiness: uvloop has no `sendfile`, and lets nobody watch the
descriptor of a transport. It is given the socket when the transport has nothing left to write, and has it until all that it was given has
left; then the connection goes on. Only for plain connections: what is encrypted has to pass through us.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from headrace.core.limits import KIB, MIB, WRITE_STALL_MS
from headrace.core.ports import Buffer, Clock
from headrace.core.stored import Piece, Stored

_TURN_BYTES = 4 * MIB
"""After so much others have their turn."""
_JOINED_BYTES = 16 * KIB
_PROGRESS_BYTES = MIB
"""A client that takes less than this in WRITE_STALL_MS does not read (X13)."""


def own_descriptor(transport: asyncio.BaseTransport) -> int:
    """Of a transport that an outlet can stand beside; -1: of none."""
    if sys.platform != "linux" or transport.get_extra_info("sslcontext") is not None:
        return -1
    found = transport.get_extra_info("socket")
    return -1 if found is None else int(found.fileno())


class Outlet:
    __slots__ = (
        "_at", "_clock", "_failed", "_is_watching", "_moved_bytes", "_moved_ms", "_pieces", "_sent", "_socket",
    )  # fmt: skip

    def __init__(
        self, descriptor: int, clock: Clock, sent: Callable[[], None], failed: Callable[[], None]
    ) -> None:
        """`sent` is called when what did not leave at once has left, `failed` when it never will."""
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._socket.setblocking(False)
        self._clock = clock
        self._sent = sent
        self._failed = failed
        self._pieces: deque[Piece] = deque()
        self._at = 0
        """So much of the first piece has left."""
        self._is_watching = False
        self._moved_bytes = self._moved_ms = 0

    @property
    def is_busy(self) -> bool:
        return bool(self._pieces)

    def is_stalled(self, now_ms: int) -> bool:
        return self.is_busy and now_ms - self._moved_ms > WRITE_STALL_MS

    def send(self, pieces: Sequence[Piece]) -> None:
        self._pieces.extend(_joined(pieces))
        self._go_on()
        if self._pieces:
            self._moved_ms, self._moved_bytes = self._clock.now_ms(), 0
            self._is_watching = True
            asyncio.get_running_loop().add_writer(self._socket, self._writable)

    def _writable(self) -> None:
        moved = self._go_on()
        self._moved_bytes += moved
        if self._moved_bytes >= _PROGRESS_BYTES:
            self._moved_ms, self._moved_bytes = self._clock.now_ms(), 0
        if self._is_watching and not self._pieces:
            self._stop_watching()
            self._sent()

    def _go_on(self) -> int:
        """As much as the socket takes, for one turn. Returns how much that was."""
        pieces, moved = self._pieces, 0
        try:
            while pieces and moved < _TURN_BYTES:
                count = self._send_some(pieces[0], _TURN_BYTES - moved)
                moved += count
                self._at += count
                if self._at == len(pieces[0]):
                    pieces.popleft()
                    self._at = 0
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.close()
            self._failed()
        return moved

    def _send_some(self, piece: Piece, most: int) -> int:
        at = self._at
        if isinstance(piece, Stored):
            source, position = piece.descriptor.number, piece.position + at
            count = os.sendfile(self._socket.fileno(), source, position, min(len(piece) - at, most))
            if not count:
                raise OSError("a file is shorter than what was promised of it")
            return count
        more = socket.MSG_MORE if len(self._pieces) > 1 else 0
        return self._socket.send(memoryview(piece)[at:], more)

    def _stop_watching(self) -> None:
        if self._is_watching:
            self._is_watching = False
            asyncio.get_running_loop().remove_writer(self._socket)

    def close(self) -> None:
        self._stop_watching()
        self._pieces.clear()
        self._socket.close()


def _joined(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Small buffers that follow each other become one: a system call costs more than a copy of them."""
    run: list[Buffer] = []
    for piece in pieces:
        if isinstance(piece, Stored) or len(piece) > _JOINED_BYTES:
            if run:
                yield b"".join(run)
                run = []
            yield piece
        elif piece:
            run.append(piece)
    if run:
        yield b"".join(run)


def in_memory(pieces: Iterable[Piece]) -> list[Buffer]:
    """The same bytes for a transport that has others to write first. Raises OSError."""
    return [_read(piece) if isinstance(piece, Stored) else piece for piece in pieces]


def _read(piece: Stored) -> bytes:
    data = os.pread(piece.descriptor.number, piece.size, piece.position)
    if len(data) != piece.size:
        raise OSError("a file is shorter than what was promised of it")
    return data
