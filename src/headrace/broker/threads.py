"""Driver: a few threads for blocking work, with as little as possible between the loop and the call.

An executor makes a second future with a lock of its own for each call, and chains the two. A sync of one small batch is called once for
each request of a client that waits for every answer, so here a call is a queue's entry on the way there and one wake-up of the loop on the way back.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

_Job = tuple[Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class Threads:
    """At most `most` of them, started when they are needed. A call that has begun is never undone: who waits for it may go away."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._threads: list[threading.Thread] = []
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._open = 0
        """Calls that have not come back; only the loop counts them."""
        self._closed = False

    def run(self, fn: Callable[[], T]) -> asyncio.Future[T]:
        if self._closed:
            raise RuntimeError("the broker stops: nothing is begun any more")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._open += 1
        if self._open > len(self._threads) and len(self._threads) < self._most:
            self._start()
        self._jobs.put((fn, done, loop))
        return done

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, name=f"{self._name}_{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        get = self._jobs.get
        while (job := get()) is not None:
            fn, done, loop = job
            result: Any = None
            problem: BaseException | None = None
            try:
                result = fn()
            except BaseException as raised:
                problem = raised
            try:
                loop.call_soon_threadsafe(self._settle, done, result, problem)
            except RuntimeError:
                pass  # the loop is closed: nobody is left who could be told
            del job, fn, done, loop, result, problem  # a thread that waits keeps nothing alive

    def _settle(self, done: asyncio.Future[Any], result: Any, problem: BaseException | None) -> None:
        self._open -= 1
        if done.cancelled():
            return
        if problem is None:
            done.set_result(result)
        else:
            done.set_exception(problem)

    def close(self) -> None:
        """Wait for what was asked for."""
        self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
