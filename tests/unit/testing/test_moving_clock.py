"""The loop whose time a test moves: timers fire in order, the clock says what the loop says, and real things still happen."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import Any

from headrace.testing.moving_clock import MovingLoop

HOUR_MS = 3_600_000


def run(make: Any) -> Any:
    loop = MovingLoop()

    async def main() -> Any:
        return await make(loop)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main())


def test_timers_fire_in_their_order_and_the_clock_moves_with_them() -> None:
    async def story(loop: MovingLoop) -> list[tuple[str, int]]:
        began = loop.clock.now_ms()
        fired: list[tuple[str, int]] = []

        def note(name: str) -> None:
            fired.append((name, (loop.clock.now_ms() - began) // HOUR_MS))

        for name, hours in (("third", 9), ("first", 1), ("second", 5), ("never", 13)):
            loop.call_later(hours * 3600, note, name)
        await loop.advance(12 * HOUR_MS)
        return fired

    assert run(story) == [("first", 1), ("second", 5), ("third", 9)]


def test_what_follows_from_a_timer_happens_within_the_same_advance() -> None:
    async def story(loop: MovingLoop) -> int:
        count = 0

        async def every_hour() -> None:
            nonlocal count
            while True:
                await asyncio.sleep(3600)
                count += 1

        task = loop.create_task(every_hour())
        await loop.advance(10 * HOUR_MS + 60_000, strides=1000)
        task.cancel()
        return count

    assert run(story) == 10


def test_many_timers_cost_a_bounded_number_of_strides() -> None:
    async def story(loop: MovingLoop) -> int:
        count = 0

        async def every_second() -> None:
            nonlocal count
            while True:
                await asyncio.sleep(1)
                count += 1

        task = loop.create_task(every_second())
        await loop.advance(12 * HOUR_MS, strides=50)
        task.cancel()
        return count

    assert 50 <= run(story) < 1000  # of 43,200


def test_work_in_a_thread_is_waited_for() -> None:
    async def story(loop: MovingLoop) -> bool:
        done, may_go = False, threading.Event()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            jobs: list[asyncio.Future[Any]] = []
            loop.at_work.append(lambda: any(not job.done() for job in jobs))

            async def work() -> None:
                nonlocal done
                await asyncio.sleep(60)
                jobs.append(loop.run_in_executor(pool, may_go.wait))
                loop.call_soon(may_go.set)
                await jobs[0]
                done = True

            task = loop.create_task(work())
            await loop.advance(61_000)
            await task
        return done

    assert run(story)


def test_a_loop_that_is_never_quiet_does_not_hold_it_up() -> None:
    async def story(loop: MovingLoop) -> int:
        async def busy() -> None:
            while True:  # noqa: ASYNC110
                await asyncio.sleep(0)

        task = loop.create_task(busy())
        await loop.advance(1000, strides=1)
        task.cancel()
        return loop.clock.ahead_ms

    assert run(story) == 1000


def test_an_advance_from_another_thread() -> None:
    from headrace.testing.moving_clock import ClockHandle

    async def story(loop: MovingLoop) -> float:
        handle = ClockHandle(loop)
        await asyncio.to_thread(handle.advance, hours=1.5)
        return handle.ahead.total_seconds()

    assert run(story) == 5400
