"""Blocking work off the loop: what it returns and raises comes back, whoever gave up waiting changes nothing, a stop waits."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from headrace.broker.threads import Threads


async def test_what_a_call_returns_and_raises_comes_back_to_the_loop() -> None:
    threads = Threads(2, "test")
    assert await threads.run(threading.get_ident) != threading.get_ident()
    with pytest.raises(OSError, match="gone"):
        await threads.run(_fail)
    assert await threads.run(lambda: 7) == 7, "the thread has outlived what was raised in it"
    threads.close()


def _fail() -> None:
    raise OSError("gone")


async def test_there_are_as_many_threads_as_calls_at_one_time_and_no_more_than_allowed() -> None:
    threads = Threads(2, "test")
    for _ in range(5):
        await threads.run(lambda: None)
    assert len(threads._threads) == 1
    go = threading.Event()
    calls = [threads.run(go.wait) for _ in range(5)]
    assert len(threads._threads) == 2
    go.set()
    assert await asyncio.gather(*calls) == [True] * 5
    threads.close()


async def test_a_call_whose_waiter_has_gone_is_carried_out_all_the_same() -> None:
    threads = Threads(1, "test")
    go, trail = threading.Event(), list[str]()

    def work() -> None:
        go.wait()
        trail.append("done")

    call = threads.run(work)
    call.cancel()
    go.set()
    await threads.run(lambda: None)
    assert trail == ["done"]
    assert call.cancelled()
    threads.close()


async def test_a_stop_waits_for_what_was_asked_for_and_begins_nothing_else() -> None:
    threads = Threads(1, "test")
    trail: list[int] = []
    calls = [threads.run(partial(trail.append, number)) for number in range(3)]
    threads.close()
    assert trail == [0, 1, 2]
    await asyncio.gather(*calls)
    with pytest.raises(RuntimeError, match="stops"):
        threads.run(lambda: None)
