"""Machine: one direction of a simulated TCP connection, as the two kernels and the wire see it.

Bytes are never reordered, duplicated or changed: TCP. Everything else is drawn: how they are cut, how long they
travel, how much fits. While the link is cut they wait (a retransmission brings them after it heals) until the
sender's kernel gives up. The process on either side may be paused or dead; the kernels go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from headrace.testing.dice import Dice

MAX_SEGMENT_BYTES = 64 * 1024
_SPLIT_CHANCE = 0.2
_SPIKE_CHANCE = 0.01
_SPIKE_FACTOR = 20


class Link:
    """From one host to another, one way. Changing it changes every connection that uses it."""

    __slots__ = ("bytes_per_s", "is_cut", "latency_s", "next_delay_s", "refuses")

    def __init__(self, latency_s: tuple[float, float]) -> None:
        self.latency_s = latency_s
        self.bytes_per_s: float | None = None
        self.is_cut = False
        self.refuses = False
        """New connections are answered with a reset."""
        self.next_delay_s = 0.0
        """Extra time for the next segment only: a request that arrives after its client gave up (KAFKA-17754)."""

    def draw_delay_s(self, dice: Dice, byte_count: int) -> float:
        low, high = self.latency_s
        delay = dice.uniform(low, high)
        if dice.chance(_SPIKE_CHANCE):
            delay *= _SPIKE_FACTOR
        if self.bytes_per_s is not None:
            delay += byte_count / self.bytes_per_s
        return delay

    def take_next_delay_s(self) -> float:
        extra, self.next_delay_s = self.next_delay_s, 0.0
        return extra


class Kernel(Protocol):
    """What a pipe needs from the network: time and timers outside of every process."""

    dice: Dice
    give_up_s: float

    def now_s(self) -> float: ...

    def at(self, when_s: float, callback: Callable[[], None]) -> None: ...


class PipeEnd(Protocol):
    """One socket. It may be gone while segments for it are still on their way."""

    def is_known(self) -> bool:
        """The host is up and its kernel knows this connection."""
        ...

    def is_reachable(self) -> bool:
        """The host is up."""
        ...

    def arrived(self) -> None: ...

    def eof_arrived(self) -> None: ...

    def reset_arrived(self) -> None: ...

    def room_made(self) -> None: ...

    def gave_up(self) -> None: ...


class _Segment(NamedTuple):
    data: bytes
    is_fin: bool = False
    is_reset: bool = False


class Pipe:
    __slots__ = (
        "_ack_link", "_capacity", "_fin_wanted", "_flight", "_flight_bytes", "_free_at_s", "_is_dead", "_kernel",
        "_last_arrival_s", "_link", "_send_buffer", "_stalled_since_s", "_window", "received", "source", "target",
    )  # fmt: skip

    def __init__(self, kernel: Kernel, link: Link, ack_link: Link) -> None:
        self._kernel = kernel
        self._link = link
        self._ack_link = ack_link
        self._capacity = kernel.dice.pick((4 * 1024, 64 * 1024, 256 * 1024))
        self._window = kernel.dice.pick((2 * 1024, 64 * 1024, 512 * 1024))
        self._send_buffer = bytearray()
        self._flight: deque[tuple[float, _Segment]] = deque()
        self._flight_bytes = 0
        self._last_arrival_s = 0.0
        self._free_at_s = 0.0
        self._fin_wanted = False
        self._is_dead = False
        self._stalled_since_s: float | None = None
        self.received = bytearray()
        """Arrived and not yet read by the program."""
        self.source: PipeEnd
        self.target: PipeEnd

    # --- the sender's side ---

    @property
    def room(self) -> int:
        return 0 if self._is_dead else self._capacity - len(self._send_buffer)

    @property
    def is_over(self) -> bool:
        """Nothing will move here any more."""
        is_empty = not self._send_buffer and not self._flight and not self._fin_wanted
        return is_empty and not self.source.is_known() and not self.target.is_known()

    def push(self, data: bytes | bytearray | memoryview) -> int:
        """Into the kernel's send buffer, as much as fits."""
        count = min(len(data), self.room)
        if count:
            self._send_buffer += data[:count]
            self.pump()
        return count

    def finish(self) -> None:
        """FIN, behind everything that was sent."""
        self._fin_wanted = True
        self.pump()

    def reset(self, *, keep_sent: bool = False) -> None:
        """RST. What was not on the wire yet is lost, unless the dying kernel still got it out."""
        if self._is_dead:
            return
        if keep_sent:
            self._transmit(everything=True)
        self._send_buffer.clear()
        self._is_dead = True
        self._launch(_Segment(b"", is_reset=True))

    def vanish(self) -> None:
        """The sending host lost power: nothing more comes, not even a goodbye."""
        self._send_buffer.clear()
        self._fin_wanted = False
        self._is_dead = True

    def pump(self) -> None:
        """Send what the link and the receiver's window let through; called again when either changes."""
        if self._link.is_cut or not self.target.is_reachable():
            self._notice_stall()
        else:
            self._transmit(everything=False)
        self._deliver()

    def _transmit(self, *, everything: bool) -> None:
        sent_any = False
        while self._send_buffer:
            open_window = self._window - self._flight_bytes - len(self.received)
            if open_window <= 0 and not everything:
                break
            size = min(len(self._send_buffer), MAX_SEGMENT_BYTES)
            if not everything:
                size = min(size, open_window)
            if size > 1 and self._kernel.dice.chance(_SPLIT_CHANCE):
                size = self._kernel.dice.between(1, min(size, self._kernel.dice.pick((4, 100, size))))
            data = bytes(self._send_buffer[:size])
            del self._send_buffer[:size]
            self._launch(_Segment(data))
            sent_any = True
        if self._fin_wanted and not self._send_buffer:
            self._fin_wanted = False
            self._launch(_Segment(b"", is_fin=True))
        if sent_any and not self._is_dead:
            self.source.room_made()

    def _launch(self, segment: _Segment) -> None:
        kernel = self._kernel
        now_s = kernel.now_s()
        # A slow link is busy while it sends: segments queue behind one another.
        start_s = max(now_s, self._free_at_s)
        delay_s = self._link.draw_delay_s(kernel.dice, len(segment.data))
        if segment.data:
            delay_s += self._link.take_next_delay_s()
        arrival_s = max(start_s + delay_s, self._last_arrival_s)
        if self._link.bytes_per_s is not None:
            self._free_at_s = start_s + len(segment.data) / self._link.bytes_per_s
        self._last_arrival_s = arrival_s
        self._flight.append((arrival_s, segment))
        self._flight_bytes += len(segment.data)
        kernel.at(arrival_s, self._deliver)

    def _notice_stall(self) -> None:
        waiting = self._send_buffer or self._flight or self._fin_wanted
        if waiting and self._stalled_since_s is None and not self._is_dead:
            self._stalled_since_s = self._kernel.now_s()
            self._kernel.at(self._stalled_since_s + self._kernel.give_up_s, self._check_stall)

    def _check_stall(self) -> None:
        since = self._stalled_since_s
        if since is None or self._is_dead:
            return
        if self._kernel.now_s() >= since + self._kernel.give_up_s - 1e-9:
            self._is_dead = True
            self._send_buffer.clear()
            self._flight.clear()
            self.source.gave_up()

    # --- the wire and the receiver's side ---

    def _deliver(self) -> None:
        now_s = self._kernel.now_s()
        while self._flight and self._flight[0][0] <= now_s:
            if self._link.is_cut or not self.target.is_reachable():
                self._notice_stall()
                return
            self._stalled_since_s = None
            _, segment = self._flight.popleft()
            self._flight_bytes -= len(segment.data)
            if segment.is_reset:
                self.target.reset_arrived()
            elif not self.target.is_known():
                # A kernel that does not know the connection answers with a reset.
                self._kernel.at(
                    now_s + self._ack_link.draw_delay_s(self._kernel.dice, 0), self.source.reset_arrived
                )
            elif segment.is_fin:
                self.target.eof_arrived()
            else:
                self.received += segment.data
                self.target.arrived()

    def healed(self) -> None:
        """The link or the host is back: what waited is sent again."""
        self._stalled_since_s = None
        now_s = self._kernel.now_s()
        if self._flight and self._flight[0][0] <= now_s:
            self._kernel.at(now_s + self._link.draw_delay_s(self._kernel.dice, 0), self._deliver)
        self.pump()

    def consumed(self, byte_count: int) -> None:
        """The program read; the sender hears of the open window after the way back, if there is one."""
        del self.received[:byte_count]
        if not self._ack_link.is_cut:
            delay = self._ack_link.draw_delay_s(self._kernel.dice, 0)
            self._kernel.at(self._kernel.now_s() + delay, self.pump)
