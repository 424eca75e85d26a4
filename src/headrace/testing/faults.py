"""Driver: what can go wrong between a client and a broker in a test, on command.

with broker.faults.refuse("kafka"):      # nobody gets in
    ...
broker.faults.lose_answers(1)            # the next one: carried out, and the client never hears of it
broker.faults.heal()

It is done where the broker's loop makes its connections and where its files are, so the broker's own code is untouched.
"""

from __future__ import annotations

import asyncio
from asyncio.selector_events import _SelectorSocketTransport  # type: ignore[attr-defined]
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal
from weakref import WeakSet

from headrace.log.memory_fs import MemoryFileSystem
from headrace.testing.moving_clock import MovingLoop
from headrace.testing.sends import http_request, kafka_request, without_answer

Door = Literal["kafka", "http"]
BOTH: tuple[Door, ...] = ("kafka", "http")


class Faults:
    def __init__(
        self, loop: LocalLoop, files: Sequence[LocalFiles], looks: Sequence[Callable[[], None]]
    ) -> None:
        """`looks`: whoever looks at the disks, called when one has changed."""
        self._loop = loop
        self._files = files
        self._looks = looks

    def refuse(self, door: Door | None = None) -> Healing:
        """Cut every connection, and each new one at once, until healed."""
        for one in _doors(door):
            self._loop.ways[one].refused = True
        self.cut(door)
        return Healing(self, door)

    def cut(self, door: Door | None = None) -> None:
        """Reset the connections there are. Clients may connect again."""
        self._do(lambda: self._loop.cut(_doors(door)))

    def delay(self, milliseconds: float, door: Door | None = None) -> Healing:
        """Every answer leaves so much later, in real time, until healed."""
        for one in _doors(door):
            self._loop.ways[one].delay_s = milliseconds / 1000
        return Healing(self, door)

    def lose_answers(self, count: int = 1, door: Door | None = None) -> Healing:
        """Instead of each of the next `count` answers the connection ends. The request was carried out; its sender can't know."""
        for one in _doors(door):
            self._loop.ways[one].to_lose = count
        return Healing(self, door)

    def repeat_sends(self, count: int = 1, door: Door | None = None) -> Healing:
        """Each of the next `count` requests that send messages arrives twice, as a network or a library may do it; its sender hears once."""
        for one in _doors(door):
            self._loop.ways[one].to_repeat = count
        return Healing(self, door)

    def fill_disk(self) -> Healing:
        """No room is left for what clients write, until healed; what there is can be read."""
        self._fill(True)
        return Healing(self, None)

    def heal(self, door: Door | None = None) -> None:
        """Everything works again; at one door, or everywhere."""
        for one in _doors(door):
            way = self._loop.ways[one]
            way.refused, way.delay_s, way.to_lose, way.to_repeat = False, 0.0, 0, 0
        if door is None:
            self._fill(False)

    def _fill(self, full: bool) -> None:
        for files in self._files:
            files.full = full
        for look in self._looks:
            self._do(look)

    def _do(self, act: Callable[[], None]) -> None:
        async def there() -> None:
            act()

        asyncio.run_coroutine_threadsafe(there(), self._loop).result()


class Healing:
    """`with faults.refuse():` ends the fault where the block ends; without `with`, `faults.heal()` does."""

    def __init__(self, faults: Faults, door: Door | None) -> None:
        self._faults = faults
        self._door: Door | None = door

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._faults.heal(self._door)


def _doors(door: Door | None) -> tuple[Door, ...]:
    if door is not None and door not in BOTH:
        raise ValueError(f'there is no door called {door!r}: "kafka" or "http", or both when it is left out')
    return BOTH if door is None else (door,)


class LocalFiles(MemoryFileSystem):
    """A disk in memory that a test can fill."""

    __slots__ = ("full",)

    def __init__(self) -> None:
        super().__init__()
        self.full = False

    def free_bytes(self, path: str) -> int:
        return 0 if self.full else super().free_bytes(path)


class Way:
    """What happens at one door."""

    def __init__(self) -> None:
        self.refused = False
        self.delay_s = 0.0
        self.to_lose = 0
        self.to_repeat = 0

    @property
    def is_disturbed(self) -> bool:
        return bool(self.to_lose or self.delay_s)


class LocalLoop(MovingLoop):
    """Whoever connects to a server of this loop goes a way that can be disturbed."""

    def __init__(self) -> None:
        self.ways: dict[Door, Way] = {"kafka": Way(), "http": Way()}
        self.http_ports: set[int] = set()
        self._open: WeakSet[DisturbedTransport] = WeakSet()
        super().__init__()

    def _make_socket_transport(
        self,
        sock: Any,
        protocol: Any,
        waiter: Any = None,
        *,
        extra: Any = None,
        server: Any = None,
        **more: Any,
    ) -> Any:
        if server is None:  # one of the broker's own, to another broker
            return super()._make_socket_transport(  # type: ignore[misc]
                sock, protocol, waiter, extra=extra, server=server, **more
            )
        transport = DisturbedTransport(self, sock, protocol, waiter, extra, server, **more)
        self._open.add(transport)
        if self.ways[transport.door].refused:
            self.call_soon(transport.abort)
        return transport

    def cut(self, doors: Sequence[Door]) -> None:
        for transport in list(self._open):
            if transport.door in doors:
                transport.abort()


class DisturbedTransport(_SelectorSocketTransport):  # type: ignore[misc]
    def __init__(self, loop: LocalLoop, sock: Any, *arguments: Any, **more: Any) -> None:
        self.door: Door = "http" if sock.getsockname()[1] in loop.http_ports else "kafka"
        self._way = loop.ways[self.door]
        self._late: deque[bytes] = deque()
        self._ends = False
        self._gathered = bytearray()
        """What came and was not passed on yet, while sends are to be repeated."""
        self._again = b""
        """A send that has been passed on once, and will be again when it has been answered."""
        self._correlation = 0
        super().__init__(loop, sock, *arguments, **more)

    # -- what comes --------------------------------------------------------------------------------------------

    def _read_ready(self) -> None:
        if not (self._way.to_repeat or self._gathered or self._again):
            super()._read_ready()
            return
        try:
            data = self._sock.recv(self.max_size)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as problem:
            self._fatal_error(problem, "a read failed")
            return
        if not data:
            self._read_ready__on_eof()
            return
        self._gathered += data
        self._pass_on()

    def _pass_on(self) -> None:
        look = http_request if self.door == "http" else kafka_request
        while self._gathered and not self._again and not self.is_closing():
            found = look(self._gathered) if self._way.to_repeat else "unknown"
            if found == "incomplete":
                return
            length = len(self._gathered) if found == "unknown" else found.length
            request = bytes(self._gathered[:length])
            del self._gathered[:length]
            self._feed(request)
            if found != "unknown" and found.sends:
                self._way.to_repeat -= 1
                if found.answered:
                    self._again, self._correlation = request, found.correlation
                else:
                    self._feed(request)

    def _feed(self, data: bytes) -> None:
        if not isinstance(self._protocol, asyncio.BufferedProtocol):
            self._protocol.data_received(data)
            return
        while data:
            buffer = memoryview(self._protocol.get_buffer(len(data)))
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            self._protocol.buffer_updated(count)
            data = data[count:]

    def _feed_again(self) -> None:
        again, self._again = self._again, b""
        if not self.is_closing():
            self._feed(again)
            self._pass_on()

    # -- what leaves -------------------------------------------------------------------------------------------

    def _unheard(self, data: bytes) -> bytes:
        """Without the answer to a send that is to come again; the second one is heard."""
        left = b"" if self.door == "http" else without_answer(data, self._correlation)
        if left is None:
            return data
        self._correlation = -1
        self._loop.call_soon(self._feed_again)
        return left

    def write(self, data: Any) -> None:
        way = self._way
        if self._again and self._correlation >= 0:
            data = self._unheard(bytes(data))
            if not data:
                return
        if way.to_lose:
            way.to_lose -= 1
            self.abort()
        elif way.delay_s or self._late:
            self._late.append(bytes(data))
            self._loop.call_later(way.delay_s, self._send_one)
        else:
            super().write(data)

    def writelines(self, list_of_data: Any) -> None:
        if self._way.is_disturbed or self._late or self._again:
            self.write(b"".join(list_of_data))
        else:
            super().writelines(list_of_data)

    def _send_one(self) -> None:
        if self._late:
            super().write(self._late.popleft())
            if self._ends and not self._late:
                super().close()

    def close(self) -> None:
        """Once what is late has left."""
        if self._late:
            self._ends = True
        else:
            super().close()

    def abort(self) -> None:
        self._late.clear()
        super().abort()
