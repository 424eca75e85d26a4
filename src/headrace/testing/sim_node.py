"""Driver: a simulated machine that runs one program, and the Runtime that program sees.

A life is one Process. Killing it drops its tasks without their `finally` reaching anything, closes its sockets as a
kernel would, and leaves the disk's cache; a power cut takes the cache too and says no goodbye on the network. Pausing
holds back everything the program would do, while its kernel goes on receiving.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from headrace.broker.supervision import Supervisor
from headrace.core.ports import Clock, FileSystem, Stopwatch
from headrace.testing.dice import Dice
from headrace.testing.sim_disk import SimDisk
from headrace.testing.sim_network import SimNetwork
from headrace.testing.virtual_loop import Process, ProcessKilled, VirtualTimeLoop

T = TypeVar("T")

WALL_START_MS = 1_750_000_000_000


class SimClock:
    """A machine's clocks: both may run fast or slow, and the wall clock may jump. The monotonic one never goes back."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop
        self._rate = 1.0
        self._since_s = loop.time()
        self._elapsed_s = 0.0
        self._boot_s = loop.time()
        self._wall_offset_ms = WALL_START_MS

    def _monotonic_s(self) -> float:
        return self._boot_s + self._elapsed_s + (self._loop.time() - self._since_s) * self._rate

    def now_ms(self) -> int:
        return int(self._monotonic_s() * 1000)

    def wall_ms(self) -> int:
        return self._wall_offset_ms + int((self._monotonic_s() - self._boot_s) * 1000)

    def set_rate(self, rate: float) -> None:
        self._elapsed_s += (self._loop.time() - self._since_s) * self._rate
        self._since_s = self._loop.time()
        self._rate = rate

    def jump_wall(self, by_ms: int) -> None:
        self._wall_offset_ms += by_ms


class SimStopwatch:
    """Work takes as long as the dice say: now and then so long that a piece of it ends early."""

    __slots__ = ("_dice", "_elapsed_s", "_step_s")

    def __init__(self, dice: Dice) -> None:
        self._dice = dice
        self._elapsed_s = 0.0
        self._step_s = 0.02 if dice.chance(0.02) else 0.0001

    def elapsed_s(self) -> float:
        self._elapsed_s += self._dice.uniform(0.0, self._step_s)
        return self._elapsed_s

    def cpu_s(self) -> float:
        return self._elapsed_s

    def rest(self, seconds: float) -> None:
        self._elapsed_s += seconds


class SimRuntime:
    """broker.runtime.Runtime for one life of one node."""

    def __init__(
        self,
        loop: VirtualTimeLoop,
        process: Process,
        clock: SimClock,
        disk: SimDisk,
        dice: Dice,
        *,
        threads: int = 4,
        blocking_s: tuple[float, float] = (0.00005, 0.003),
    ) -> None:
        self.clock: Clock = clock
        self.lease_clock: Clock = clock
        self.fs: FileSystem = disk.mount(process.check_alive)
        self.process = process
        self._loop = loop
        self._disk = disk
        self._dice = dice
        self._work_dice = dice.fork("work")
        self._idle_threads = threads
        self._blocking_s = blocking_s
        self._jobs: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self.supervisor = Supervisor(clock, self.spawn, self._alarm)
        self.supervise = self.supervisor.supervise
        self.unexpected = self.supervisor.unexpected

    async def run_blocking(self, fn: Callable[[], T]) -> T:
        """Like a thread pool: the call happens some time later and is not undone when its waiter is cancelled."""
        done: asyncio.Future[T] = self._loop.create_future()
        self._jobs.append((fn, done))
        self._start_jobs()
        return await done

    def _start_jobs(self) -> None:
        while self._jobs and self._idle_threads:
            self._idle_threads -= 1
            fn, done = self._jobs.popleft()
            delay = self._dice.uniform(*self._blocking_s)
            self._loop.call_later(delay, self._execute, fn, done, context=self.process.context)

    def _execute(self, fn: Callable[[], Any], done: asyncio.Future[Any]) -> None:
        if self._loop.time() < self._disk.hang_until_s:
            self._loop.call_at(self._disk.hang_until_s, self._execute, fn, done, context=self.process.context)
            return
        result: Any = None
        problem: Exception | None = None
        try:
            result = fn()
        except Exception as error:
            problem = error
        delay = self._dice.uniform(0.0, self._blocking_s[0])
        self._loop.call_later(delay, self._report, done, result, problem, context=self.process.context)

    def _report(self, done: asyncio.Future[Any], result: Any, problem: Exception | None) -> None:
        self._idle_threads += 1
        if not done.done():
            if problem is None:
                done.set_result(result)
            else:
                done.set_exception(problem)
        self._start_jobs()

    def stopwatch(self) -> Stopwatch:
        return SimStopwatch(self._work_dice)

    def random_bytes(self, count: int) -> bytes:
        return self._dice.random_bytes(count)

    def spawn(self, coro: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = self._loop.create_task(coro, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (problem := task.exception()) is not None:
            self.unexpected("task", problem, task.get_name())

    def _alarm(self, where: str, problem: BaseException) -> None:
        """What a broker survives is a bug all the same: the run fails."""
        self._loop.call_exception_handler(
            {"message": f"{where} of {self.process.name} failed", "exception": problem}
        )

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


Program = Callable[["SimNode", SimRuntime], Coroutine[Any, Any, Any]]


class SimNode:
    def __init__(
        self,
        loop: VirtualTimeLoop,
        network: SimNetwork,
        dice: Dice,
        name: str,
        program: Program,
        capacity_bytes: int,
    ) -> None:
        self._loop = loop
        self._network = network
        self.name = name
        self.address = network.host(name).address
        self._program = program
        self._dice = dice
        self.disk = SimDisk(self._dice.fork("disk"), capacity_bytes)
        self.disk.crash = self._crash
        self.clock = SimClock(loop)
        self.process: Process | None = None
        self.lives = 0
        self.buried: list[Process] = []
        self.service: Any = None
        """Whatever the program wants a test to see of its current life."""

    @property
    def is_running(self) -> bool:
        return self.process is not None

    def start(self) -> asyncio.Task[Any]:
        if self.process is not None:
            raise RuntimeError(f"{self.name} is running")
        loop = self._loop
        loop.trace(f"start {self.name}")
        self._network.host_has_power(self.name)
        self.lives += 1
        process = Process(f"{self.name}.{self.lives}", self.name)
        self.process = process
        runtime = SimRuntime(loop, process, self.clock, self.disk, self._dice.fork(f"life/{self.lives}"))
        main: asyncio.Task[Any] = loop.create_task(
            self._program(self, runtime), name=self.name, context=process.context.copy()
        )
        main.add_done_callback(lambda task: self._exited(process, task))
        return main

    def _exited(self, process: Process, main: asyncio.Task[Any]) -> None:
        if process is not self.process:
            return
        problem = None if main.cancelled() else main.exception()
        if problem is not None:
            self._loop.call_exception_handler(
                {"message": f"the program of {self.name} failed", "exception": problem}
            )
        self.kill()

    def kill(self) -> None:
        """kill -9. The kernel closes the sockets; what was written to files stays in the cache."""
        process = self._end_life("kill")
        if process is not None:
            self._network.process_died(process)

    def cut_power(self) -> None:
        """The machine goes dark; `start` brings it back with what the disk kept."""
        process = self._end_life("power cut")
        if process is not None:
            self._network.host_lost_power(self.name)
        self.disk.power_cut()

    def _end_life(self, how: str) -> Process | None:
        process = self.process
        if process is not None:
            self._loop.trace(f"{how} {self.name}")
            process.is_dead = True
            process.abandoned.extend(process.held)
            process.held.clear()
            self.buried.append(process)
            self.process = None
            self.service = None
        return process

    def _crash(self) -> None:
        self.kill()
        raise ProcessKilled(self.name)

    def pause(self) -> None:
        """SIGSTOP."""
        if self.process is not None:
            self._loop.trace(f"pause {self.name}")
            self.process.is_paused = True

    def resume(self) -> None:
        if self.process is not None and self.process.is_paused:
            self._loop.trace(f"resume {self.name}")
            self._loop.resume(self.process)

    def hang_disk(self, seconds: float) -> None:
        """Blocking calls wait; calls on the loop would block it, so drivers must not make any that can (S10)."""
        self._loop.trace(f"hang disk {self.name} {seconds}")
        self.disk.hang_until_s = self._loop.time() + seconds
