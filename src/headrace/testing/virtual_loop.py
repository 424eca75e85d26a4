"""Driver: an asyncio event loop in which time is a number and every order is drawn.

When nothing is ready the clock jumps to the next timer, so an hour of timeouts takes no time. Ready tasks run in
an order drawn from the seed; plain callbacks of one process keep their order, as asyncio documents. With `io_first`
time also passes while somebody is busy, and what arrives meanwhile is handled before what is ready: uvloop polls between
`sleep(0)` and the next step, where asyncio's own loop does not (F5). What would
leave the simulation (threads, signals, real sockets) raises EscapedSimulation. The same seed gives the same run:
`trace_hash` is the proof.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import hashlib
import heapq
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from headrace.testing.dice import Dice

T = TypeVar("T")


class LoopNetwork(Protocol):
    """Port: the simulated network that a loop's programs reach."""

    async def create_server(self, *args: Any, **kwargs: Any) -> Any: ...

    async def create_connection(self, *args: Any, **kwargs: Any) -> Any: ...


_HASH_AT_ONCE = 1_000
IO_FIRST_ODDS = 0.1
BUSY_S = 0.02
"""So much time passes at most while somebody is busy: replaying a chunk of a journal takes that long."""
MAX_STEPS_AT_ONE_TIME = 200_000
"""Loop turns without time moving; more is a livelock."""


class EscapedSimulation(RuntimeError):
    """Code under simulation reached for the real world."""


class SimulationDeadlock(RuntimeError):
    """Nothing is ready and no timer is set: what is awaited can never happen."""


class SimulationLivelock(RuntimeError):
    """The loop is busy for ever at one moment."""


class ProcessKilled(BaseException):
    """Raised into code whose process is dead, at the moment it touches the world. Nobody may catch it and go on."""


class Process:
    """One life of a simulated program: its tasks, and whether they may run.

    The loop holds back what belongs to a paused process and drops what belongs to a dead one, keeping references:
    a coroutine that is collected runs its `finally`, and the dead do not clean up.
    """

    def __init__(self, name: str, host: str) -> None:
        self.name = name
        self.host = host
        self.is_dead = False
        self.is_paused = False
        self.held: list[asyncio.Handle] = []
        self.abandoned: list[asyncio.Handle] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._prune_at = 64
        self.context = contextvars.copy_context()
        self.context.run(CURRENT_PROCESS.set, self)

    def own(self, task: asyncio.Task[Any]) -> None:
        self._tasks.append(task)
        if len(self._tasks) >= self._prune_at:
            self._tasks = [known for known in self._tasks if not known.done()]
            self._prune_at = max(64, 2 * len(self._tasks))

    def pending_tasks(self) -> list[asyncio.Task[Any]]:
        return [task for task in self._tasks if not task.done()]

    def check_alive(self) -> None:
        if self.is_dead:
            raise ProcessKilled(self.name)

    def bury(self) -> None:
        """After the run: end the coroutines of the dead where their `finally` can reach nothing any more."""
        for task in self.pending_tasks():
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            if coroutine is None or not hasattr(coroutine, "close"):
                continue
            try:
                self.context.run(coroutine.close)
            except BaseException:  # noqa: S110 - a `finally` that awaits, or that meets ProcessKilled
                pass
        self._tasks.clear()
        self.held.clear()
        self.abandoned.clear()


CURRENT_PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar(
    "headrace_process", default=None
)


def current_process() -> Process | None:
    return CURRENT_PROCESS.get()


class SimFuture(asyncio.Future[Any]):
    """Hashes by its number in the run. asyncio keeps futures and tasks in sets, whose order would else be that of
    memory addresses: a task group cancels its children in it."""

    number: int

    def __new__(cls, *args: Any, **kwargs: Any) -> SimFuture:
        future = super().__new__(cls)
        future.number = kwargs["loop"].next_number()
        return future

    def __hash__(self) -> int:
        return self.number


class SimTask(asyncio.Task[Any]):
    number: int

    def __new__(cls, *args: Any, **kwargs: Any) -> SimTask:
        task = super().__new__(cls)
        task.number = kwargs["loop"].next_number()
        return task

    def __hash__(self) -> int:
        return self.number


def _escape(name: str) -> Any:
    def refuse(self: object, *args: object, **kwargs: object) -> Any:
        raise EscapedSimulation(f"loop.{name} was called: simulated code may not reach the real world")

    refuse.__name__ = name
    return refuse


class VirtualTimeLoop(asyncio.BaseEventLoop):
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _timer_cancelled_count: int

    def __init__(
        self,
        dice: Dice,
        *,
        shuffle: bool = True,
        io_first: bool = False,
        start_s: float = 1_000.0,
        keep_trace: bool = False,
    ) -> None:
        super().__init__()
        self._dice = dice
        self.io_first = io_first
        self._shuffle = shuffle
        self._now_s = start_s
        self._thread = threading.get_ident()
        self._number = 0
        self._turns_at_this_time = 0
        self._hash = hashlib.blake2b(digest_size=16)
        self._unhashed: list[str] = []
        self._traced_s = -1.0
        self.trace_lines: list[str] | None = [] if keep_trace else None
        self.step_count = 0
        self.network: LoopNetwork | None = None
        self.after_turn: Callable[[], None] | None = None
        """Called after every turn of the loop: standing invariants."""
        self.failures: list[dict[str, Any]] = []
        """What reached the exception handler; a run with failures is a failed run."""
        self.set_exception_handler(_remember_failure)

    def __del__(self) -> None:
        """asyncio warns about a loop that was not closed; this one holds nothing of the system's."""

    # --- time ---

    def time(self) -> float:
        return self._now_s

    # --- trace ---

    def trace(self, line: str) -> None:
        """Mix an event into the hash of the run."""
        if self._now_s != self._traced_s:
            self._traced_s = self._now_s
            self._unhashed.append(repr(self._now_s))
        self._unhashed.append(line)
        if len(self._unhashed) > _HASH_AT_ONCE:
            self._hash_lines()

    def _hash_lines(self) -> None:
        self._hash.update("\n".join([*self._unhashed, ""]).encode("utf-8", "backslashreplace"))
        if self.trace_lines is not None:
            self.trace_lines.extend(self._unhashed)
        self._unhashed.clear()

    @property
    def trace_hash(self) -> str:
        self._hash_lines()
        return self._hash.hexdigest()

    # --- scheduling ---

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        self._check_closed()  # type: ignore[attr-defined]
        # asyncio numbers tasks per interpreter; the trace needs numbers per run.
        task = SimTask(coro, loop=self, name=f"{name or 'task'}#{self._number + 1}", context=context)
        process = CURRENT_PROCESS.get() if context is None else context.get(CURRENT_PROCESS)
        if process is not None:
            process.own(task)
        return task

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if threading.get_ident() != self._thread:
            raise EscapedSimulation("call_soon_threadsafe came from another thread")
        return self.call_soon(callback, *args, context=context)

    def _run_once(self) -> None:
        self._drop_cancelled_timers()
        if not self._ready:
            if not self._scheduled:
                raise SimulationDeadlock(self._describe_wait())
            due = self._scheduled[0].when()
            if due > self._now_s:
                self._now_s = due
                self._turns_at_this_time = 0
        batch = self._arrived_meanwhile() or self._all_ready()
        self._turns_at_this_time += 1
        if self._turns_at_this_time > MAX_STEPS_AT_ONE_TIME:
            raise SimulationLivelock(f"time stands still at {self._now_s}: {self._describe_wait()}")
        for handle in self._in_drawn_order(batch) if len(batch) > 1 else batch:
            if handle.cancelled():
                continue
            process = _process_of(handle)
            if process is not None and (process.is_dead or process.is_paused):
                (process.abandoned if process.is_dead else process.held).append(handle)
                continue
            self.step_count += 1
            self.trace(f"{process.name if process else '-'} {_label(handle)}")
            handle._run()
        if self.after_turn is not None:
            self.after_turn()

    def _arrived_meanwhile(self) -> list[asyncio.Handle]:
        """What comes next by the clock, before what is ready now; mostly nothing."""
        if not (self.io_first and self._ready and self._scheduled and self._dice.chance(IO_FIRST_ODDS)):
            return []
        due = self._scheduled[0].when()
        if not self._now_s < due <= self._now_s + BUSY_S:
            return []
        self._now_s = due
        self._turns_at_this_time = 0
        return self._due()

    def _all_ready(self) -> list[asyncio.Handle]:
        batch = [*self._ready, *self._due()]
        self._ready.clear()
        return batch

    def _due(self) -> list[asyncio.Handle]:
        due: list[asyncio.Handle] = []
        while self._scheduled and self._scheduled[0].when() <= self._now_s:
            timer = heapq.heappop(self._scheduled)
            timer._scheduled = False  # type: ignore[attr-defined]
            due.append(timer)
        return due

    def _drop_cancelled_timers(self) -> None:
        while self._scheduled and self._scheduled[0].cancelled():
            timer = heapq.heappop(self._scheduled)
            timer._scheduled = False  # type: ignore[attr-defined]
            self._timer_cancelled_count -= 1
        if self._timer_cancelled_count > 100 and 2 * self._timer_cancelled_count > len(self._scheduled):
            # A timeout that is not reached leaves a cancelled timer behind, far in the future.
            self._scheduled = [timer for timer in self._scheduled if not timer.cancelled()]
            heapq.heapify(self._scheduled)
            self._timer_cancelled_count = 0

    def _in_drawn_order(self, batch: list[asyncio.Handle]) -> list[asyncio.Handle]:
        if not self._shuffle:
            return batch
        order = list(range(len(batch)))
        self._dice.shuffle(order)
        # Task steps stay where the dice put them. The places that plain callbacks of one process got are filled
        # with those callbacks in their own order.
        places: dict[Process | None, list[int]] = {}
        for place, index in enumerate(order):
            if not _is_task_step(batch[index]):
                places.setdefault(_process_of(batch[index]), []).append(place)
        for taken in places.values():
            for place, index in zip(taken, sorted(order[place] for place in taken), strict=True):
                order[place] = index
        return [batch[index] for index in order]

    def resume(self, process: Process) -> None:
        """What a paused process would have done meanwhile happens now, in its order."""
        process.is_paused = False
        held, process.held = process.held, []
        self._ready.extend(held)

    def _describe_wait(self) -> str:
        waiting = sorted(task.get_name() for task in asyncio.all_tasks(self))
        return f"at {self._now_s:.6f} s, waiting: {', '.join(waiting[:20]) or 'nobody'}"

    # --- network ---

    async def create_server(self, *args: Any, **kwargs: Any) -> Any:
        return await self._network("create_server").create_server(*args, **kwargs)

    async def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        return await self._network("create_connection").create_connection(*args, **kwargs)

    def _network(self, name: str) -> LoopNetwork:
        if self.network is None:
            raise EscapedSimulation(f"loop.{name} was called without a simulated network")
        return self.network

    # --- the real world ---

    def _process_events(self, event_list: Any) -> None:
        raise EscapedSimulation("the virtual loop has no selector")

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector that would have to be woken."""

    run_in_executor = _escape("run_in_executor")
    add_reader = _escape("add_reader")
    remove_reader = _escape("remove_reader")
    add_writer = _escape("add_writer")
    remove_writer = _escape("remove_writer")
    add_signal_handler = _escape("add_signal_handler")
    remove_signal_handler = _escape("remove_signal_handler")
    sock_recv = _escape("sock_recv")
    sock_recv_into = _escape("sock_recv_into")
    sock_recvfrom = _escape("sock_recvfrom")
    sock_recvfrom_into = _escape("sock_recvfrom_into")
    sock_sendall = _escape("sock_sendall")
    sock_sendto = _escape("sock_sendto")
    sock_connect = _escape("sock_connect")
    sock_accept = _escape("sock_accept")
    sock_sendfile = _escape("sock_sendfile")
    sendfile = _escape("sendfile")
    start_tls = _escape("start_tls")
    connect_accepted_socket = _escape("connect_accepted_socket")
    create_datagram_endpoint = _escape("create_datagram_endpoint")
    create_unix_server = _escape("create_unix_server")
    create_unix_connection = _escape("create_unix_connection")
    connect_read_pipe = _escape("connect_read_pipe")
    connect_write_pipe = _escape("connect_write_pipe")
    subprocess_exec = _escape("subprocess_exec")
    subprocess_shell = _escape("subprocess_shell")
    getaddrinfo = _escape("getaddrinfo")
    getnameinfo = _escape("getnameinfo")


def _process_of(handle: asyncio.Handle) -> Process | None:
    context: contextvars.Context = handle._context  # type: ignore[attr-defined]
    return context.get(CURRENT_PROCESS)


def _is_task_step(handle: asyncio.Handle) -> bool:
    return isinstance(getattr(handle._callback, "__self__", None), asyncio.Task)  # type: ignore[attr-defined]


def _label(handle: asyncio.Handle) -> str:
    """A name that is the same in every run: no address, no process-wide counter."""
    callback: Any = handle._callback  # type: ignore[attr-defined]
    while isinstance(callback, functools.partial):
        callback = callback.func
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return owner.get_name()
    return getattr(callback, "__qualname__", None) or type(callback).__name__


def _remember_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    process = current_process()
    if isinstance(context.get("exception"), ProcessKilled) or (process is not None and process.is_dead):
        return
    assert isinstance(loop, VirtualTimeLoop)
    loop.failures.append(context)
