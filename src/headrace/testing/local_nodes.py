"""Driver: brokers inside this process: real ones, on a loop in a thread of its own, in memory and on free ports."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from headrace.broker.runtime import SystemRuntime
from headrace.coordinator.memory import MemoryCoordinator
from headrace.coordinator.store import RevisionedStore
from headrace.node.node import Node
from headrace.node.settings import load_settings
from headrace.testing.faults import LocalFiles, LocalLoop

T = TypeVar("T")


class StandingClock:
    """For the lease of a broker that is alone: nobody waits to take over, however long a busy machine lets it starve."""

    def now_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return 0


class LocalRuntime(SystemRuntime):
    """Knows whether its threads are at work."""

    def __init__(self, files: LocalFiles, loop: LocalLoop) -> None:
        super().__init__(files, clock=loop.clock)
        self.files = files
        self._jobs = 0
        loop.at_work.append(lambda: self._jobs > 0)

    def run_blocking(self, fn: Callable[[], T]) -> Awaitable[T]:
        job = asyncio.ensure_future(super().run_blocking(fn))
        self._jobs += 1
        job.add_done_callback(self._done)
        return job

    def _done(self, job: asyncio.Future[Any]) -> None:
        self._jobs -= 1


class LocalNodes:
    """`count` brokers of one cluster, from `start` to `stop`."""

    loop: LocalLoop

    def __init__(self, count: int, settings: dict[str, Any]) -> None:
        self._count = count
        # Checked here, so that a mistake is an error of the line that made it.
        self._settings = {
            number: load_settings(
                {**settings, "data_dir": "/headrace", "node_id": number, "kafka_port": 0, "http_port": 0}
            ).settings
            for number in range(1, count + 1)
        }
        self._store = RevisionedStore()
        self.nodes: dict[int, Node] = {}
        self.files = {number: LocalFiles() for number in self._settings}
        self._runtimes: dict[int, LocalRuntime] = {}
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._work, name="headrace-broker", daemon=True)
        self._ready: Future[None] = Future()

    def start(self) -> None:
        self.loop = LocalLoop()
        self._thread.start()
        try:
            self._ready.result()
        except BaseException:
            self._thread.join()
            raise

    def stop(self) -> None:
        if self._stop is not None and self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """In the brokers' loop, from another thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def _work(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        self._stop = asyncio.Event()
        try:
            await asyncio.gather(*map(self.start_node, self._settings))
        except BaseException as problem:
            self._ready.set_exception(problem)
        else:
            self._ready.set_result(None)
            await self._stop.wait()
        for number in reversed(list(self._runtimes)):
            await self.stop_node(number)

    async def start_node(self, number: int) -> None:
        runtime = self._runtimes[number] = LocalRuntime(self.files[number], self.loop)
        if self._count == 1:
            runtime.lease_clock = StandingClock()
        node = Node(self._settings[number], runtime, MemoryCoordinator(runtime.lease_clock, self._store))
        await node.start()
        self.nodes[number] = node
        self.loop.http_ports.add(node.http_port)

    async def stop_node(self, number: int) -> None:
        """In order: it hands over what it leads."""
        node = self.nodes.pop(number, None)
        if node is not None:
            await node.stop()
        await self._runtimes.pop(number).close()
