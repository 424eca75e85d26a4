"""Port: everything a driver may do to the world, so that simulation can stand in for all of it.

Networking is not listed: drivers ask the running event loop for servers and connections, and the simulator's
loop answers with simulated ones.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Never, Protocol, TypeVar

from headrace.broker.supervision import RESTART, Factory, Policy, Supervised, Supervisor
from headrace.broker.threads import Threads
from headrace.core.ports import Clock, FileSystem, Stopwatch

T = TypeVar("T")

# Boot time goes on while the machine sleeps, so a lease can't look fresh after a suspend (R7).
_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


class Runtime(Protocol):
    clock: Clock
    lease_clock: Clock
    """What leases are measured with: whether a process lives is a question of real time, also where a test moves `clock`."""
    fs: FileSystem
    supervisor: Supervisor

    def run_blocking(self, fn: Callable[[], T]) -> Awaitable[T]:
        """Run a blocking call (fsync, SQLite) off the loop. Its exception is raised here."""
        ...

    def stopwatch(self) -> Stopwatch:
        """Started now. The only clock that work in a thread may look at: in a simulation it is drawn from the seed."""
        ...

    def random_bytes(self, count: int) -> bytes: ...

    def spawn(self, coro: Coroutine[object, Never, T], name: str) -> asyncio.Task[T]:
        """Start a task that has an end of its own: its failure is logged, and `close` ends it."""
        ...

    def supervise(self, name: str, factory: Factory, policy: Policy = RESTART) -> Supervised:
        """Start a task that must not end: it is started again, or ends the broker in order (see Supervisor)."""
        ...

    def unexpected(self, where: str, problem: BaseException, about: str = "") -> None:
        """Tell of an exception that was kept where it happened (see Supervisor)."""
        ...


class SystemClock:
    __slots__ = ()

    def now_ms(self) -> int:
        if _MONOTONIC is None:
            return int(time.monotonic() * 1000)
        return time.clock_gettime_ns(_MONOTONIC) // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class SystemStopwatch:
    __slots__ = ("_begun", "_never")

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._never = threading.Event()

    def elapsed_s(self) -> float:
        return time.perf_counter() - self._begun

    def cpu_s(self) -> float:
        return time.thread_time()

    def rest(self, seconds: float) -> None:
        self._never.wait(seconds)


class SystemRuntime:
    """The real world. Blocking work goes to a small bounded pool so that the loop never waits for a disk (S10)."""

    def __init__(self, fs: FileSystem, threads: int = 8, clock: Clock | None = None) -> None:
        self.lease_clock: Clock = SystemClock()
        self.clock: Clock = clock or self.lease_clock
        self.fs = fs
        self._threads = Threads(threads, "headrace-io")
        self._tasks: set[asyncio.Task[object]] = set()
        self.supervisor = Supervisor(self.clock, self.spawn)
        self.supervise = self.supervisor.supervise
        self.unexpected = self.supervisor.unexpected

    def run_blocking(self, fn: Callable[[], T]) -> Awaitable[T]:
        return self._threads.run(fn)

    def stopwatch(self) -> Stopwatch:
        return SystemStopwatch()

    def random_bytes(self, count: int) -> bytes:
        return secrets.token_bytes(count)

    def spawn(self, coro: Coroutine[object, Never, T], name: str) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            self.unexpected("task", problem, task.get_name())

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._threads.close()


async def happens(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, at most so long; whether it came."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
