"""F34: before a name is refused the latest metadata is read, once for all who ask, and never so often that it hurts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.latest import Latest
from headrace.coordinator.port import CoordinatorUnavailable, Snapshot
from headrace.core.errors import ErrorKind, HeadraceError, Unknown
from headrace.testing.dice import Dice
from headrace.testing.virtual_loop import VirtualTimeLoop


class World:
    """A coordinator whose answer takes a while, and an image that hears of it by the watch or by reading everything."""

    def __init__(self, loop: VirtualTimeLoop, *, answer_s: float = 0.002, watch: bool = False) -> None:
        self.loop = loop
        self.answer_s = answer_s
        self.watch = watch
        self.stored = self.revision = 1
        self.is_away = False
        self.reads = self.loads = 0
        self.coordinator = self
        clock = SimpleNamespace(now_ms=lambda: int(loop.time() * 1000))
        runtime: Any = SimpleNamespace(clock=clock, spawn=self._spawn)
        metadata: Any = self
        self.latest = Latest(runtime, metadata, self._carried_out)

    def _spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        return self.loop.create_task(work, name=name)

    async def _carried_out(self) -> None:
        return None

    async def read(self, prefix: str) -> Snapshot:
        self.reads += 1
        found = self.stored
        await asyncio.sleep(self.answer_s)
        if self.is_away:
            raise CoordinatorUnavailable("away")
        return Snapshot(found, [])

    async def load(self) -> None:
        self.loads += 1
        self.revision = self.stored

    async def wait_until(self, condition: Callable[[], bool], seconds: float) -> None:
        if self.watch:
            self.revision = self.stored
        if not condition():
            await asyncio.sleep(seconds)
            raise HeadraceError(ErrorKind.REQUEST_TIMED_OUT)

    def look(self, made_at: int) -> Callable[[], Coroutine[Any, Any, str]]:
        """A use-case that needs something which was made at a revision."""

        async def attempt() -> str:
            if self.revision < made_at:
                raise Unknown(ErrorKind.NOT_FOUND, "there is no such queue")
            return "found"

        return attempt


def run(work: Callable[[VirtualTimeLoop], Coroutine[Any, Any, None]]) -> None:
    loop = VirtualTimeLoop(Dice(1))
    try:
        loop.run_until_complete(work(loop))
    finally:
        loop.close()


@pytest.mark.parametrize("watch", [True, False])
def test_f34_what_was_made_before_the_question_is_found(watch: bool) -> None:
    async def work(loop: VirtualTimeLoop) -> None:
        world = World(loop, watch=watch)
        world.stored = 2
        assert await world.latest.answer(world.look(2)) == "found"
        assert (world.reads, world.loads) == (1, 0 if watch else 1)
        with pytest.raises(Unknown):
            await world.latest.answer(world.look(3))
        assert world.loads == (0 if watch else 1), "nothing is new: one small read is enough"

    run(work)


def test_f34_a_read_that_began_before_the_question_is_not_its_answer() -> None:
    async def work(loop: VirtualTimeLoop) -> None:
        world = World(loop)
        first = asyncio.ensure_future(world.latest.answer(world.look(9)))
        await asyncio.sleep(0.001)  # the read is under way, and has seen revision 1
        world.stored = 2
        assert await world.latest.answer(world.look(2)) == "found"
        assert world.reads == 2
        with pytest.raises(Unknown):
            await first

    run(work)


def test_f34_names_that_nobody_has_made_do_not_wear_the_coordinator_down() -> None:
    """Ten thousand questions in ten seconds, and a slow coordinator: it is busy with them a tenth of the time."""

    async def work(loop: VirtualTimeLoop) -> None:
        world = World(loop, answer_s=0.05)
        began_s = loop.time()

        async def ask(after_s: float) -> None:
            await asyncio.sleep(after_s)
            with pytest.raises(Unknown):
                await world.latest.answer(world.look(9))

        await asyncio.gather(*(ask(number / 1000) for number in range(10_000)))
        assert world.reads * world.answer_s <= 0.11 * (loop.time() - began_s) + 2 * world.answer_s

    run(work)


def test_f34_when_the_coordinator_is_away_nobody_is_told_that_it_does_not_exist() -> None:
    async def work(loop: VirtualTimeLoop) -> None:
        world = World(loop)
        world.is_away = True
        with pytest.raises(HeadraceError) as refused:
            await world.latest.answer(world.look(2))
        assert refused.value.kind is ErrorKind.BROKER_NOT_AVAILABLE and not isinstance(refused.value, Unknown)
        assert await world.latest.answer(world.look(1)) == "found", "what is known needs nobody"

    run(work)


@pytest.mark.parametrize("is_away", [False, True])
def test_f34_a_request_of_many_rows_doubts_its_refusals_once(is_away: bool) -> None:
    """A thousand refused rows were a thousand reads, a minute at least, and a thousand time-outs without a coordinator (F20)."""

    async def work(loop: VirtualTimeLoop) -> None:
        world = World(loop)
        world.is_away = is_away
        latest, told = world.latest, 0
        since = latest.reads
        for _ in range(1_000):
            try:
                await latest.doubt(Unknown(ErrorKind.NOT_FOUND, "there is no such topic"), since)
            except HeadraceError:
                told += 1
        assert (world.reads, told) == (1, 1_000 if is_away else 0)
        world.is_away = False
        await latest.doubt(Unknown(ErrorKind.NOT_FOUND, "there is no such topic"), latest.reads)
        assert world.reads == 2, "the next request looks again"

    run(work)
