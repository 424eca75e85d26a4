"""Driver: one queue on many brokers. What this broker does not lead is asked of whoever does, desk to desk (C6).

A question is answered from what the asked broker leads and never passed on, so two brokers with different news can not play
ball with it. A receive takes turns: mostly it begins here, now and then elsewhere, so that no partition starves when every
client talks to the same broker.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, assert_never

from headrace.broker.queueing.elsewhere import Elsewhere
from headrace.broker.queueing.news import News
from headrace.broker.queueing.questions import (
    AnyQuestion,
    AskMove,
    AskNews,
    AskPause,
    AskPeek,
    AskPurge,
    AskReceive,
    AskScheduled,
    AskSend,
    AskSettle,
    AskShareOffset,
    AskStanding,
    AskStrays,
    Delivery,
    MovedSome,
    Standing,
)
from headrace.broker.queueing.specs import QueueSpec
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.queues.commands import Source
from headrace.records.build import Record

if TYPE_CHECKING:
    from headrace.broker.hosts import QueueHost
    from headrace.broker.queueing.desk import QueueDesk

ASK_S = 10.0
LOOK_S = 2.0
"""For numbers that people look at: a broker that does not answer in time is left out."""
LOOK_AROUND_MS = 5_000
"""How often a long poll asks the others, whatever it hears of them (news.py)."""
ELSEWHERE_FIRST = 4
"""One receive in so many begins with another broker."""


class PeerDesks(Protocol):
    """Port: the way to another broker's desk."""

    async def ask(self, broker_id: int, question: AnyQuestion, timeout_s: float) -> Any:
        """Raises HeadraceError: what the other said, NOT_COORDINATOR when it was not reached, REQUEST_TIMED_OUT when
        nobody knows."""
        ...


class Anywhere:
    def __init__(self, broker: QueueHost, desk: QueueDesk) -> None:
        self._broker = broker
        self._desk = desk
        self._turns: dict[str, int] = {}
        self._news = News(broker, self)
        desk.shards.on_wake = self._news.wake_all
        self.peers: PeerDesks | None = None

    async def ask(self, broker_id: int, question: AnyQuestion, timeout_s: float = ASK_S) -> Any:
        if self.peers is None or broker_id == self._broker.node_id:
            raise Elsewhere(broker_id, question.queue)
        if broker_id < 0:
            raise HeadraceError(ErrorKind.NOT_COORDINATOR, f"nobody leads {question.queue} right now")
        return await self.peers.ask(broker_id, question, timeout_s)

    def others(self, spec: QueueSpec) -> list[int]:
        """The other brokers that lead a part of a queue."""
        if self.peers is None:
            return []
        homes = {self._desk.home_of(source) for source in self._desk.sources(spec)}
        return sorted(homes - {-1, self._broker.node_id})

    # -- receiving -----------------------------------------------------------------------------------------------------

    async def receive(self, spec: QueueSpec, ask: AskReceive) -> list[Delivery]:
        """Up to `count` messages from one of the brokers; waits for the first if there is none anywhere."""
        clock = self._broker.runtime.clock
        deadline_ms = clock.now_ms() + ask.wait_ms
        while True:
            arrival = self._desk.shards.arrival(spec.name)
            problem: HeadraceError | None = None
            places = self._places(spec)
            answered = not places
            for place in places:
                try:
                    found = await self._receive_at(place, spec, ask)
                except HeadraceError as refusal:
                    problem = refusal
                    continue
                answered = True
                if found:
                    self._news.wake_one(spec.name)  # there may be more for the next
                    return found
            left_ms = deadline_ms - clock.now_ms()
            if left_ms <= 0:
                if problem is not None and not answered:
                    raise problem
                return []
            await self._news.wait(spec.name, self.others(spec), arrival, min(left_ms, LOOK_AROUND_MS))

    def _places(self, spec: QueueSpec) -> list[int]:
        """Where to look, in order."""
        others = self.others(spec)
        here = [self._broker.node_id] if self._desk.local_sources(spec) else []
        if not others:
            return here
        turn = self._turns[spec.name] = self._turns.get(spec.name, -1) + 1
        first = (turn // ELSEWHERE_FIRST) % len(others)
        others = others[first:] + others[:first]
        return here + others if turn % ELSEWHERE_FIRST else others + here

    async def _receive_at(self, place: int, spec: QueueSpec, ask: AskReceive) -> list[Delivery]:
        if place == self._broker.node_id:
            return await self._desk.receive_here(
                spec, ask.count, visibility_ms=ask.visibility_ms, owner=ask.owner
            )
        at_once = AskReceive(
            queue=ask.queue, count=ask.count, visibility_ms=ask.visibility_ms, wait_ms=0, owner=ask.owner
        )
        found: list[Delivery] = await self.ask(place, at_once)
        return found

    # -- the whole queue -----------------------------------------------------------------------------------------------

    async def standing(self, spec: QueueSpec) -> Standing:
        counts = list(self._desk.counts(spec))
        oldest_ms = self._desk.oldest_age_ms(spec)
        question = AskStanding(queue=spec.name)
        asked = [self.ask(broker_id, question, LOOK_S) for broker_id in self.others(spec)]
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, Standing):
                counts += answer.counts
                oldest_ms = max(oldest_ms, answer.oldest_age_ms)
            elif not isinstance(answer, HeadraceError):
                raise answer
        return Standing(counts, oldest_ms)

    async def purge(self, spec: QueueSpec, min_interval_ms: int) -> None:
        await self._desk.purge_here(spec, min_interval_ms)
        for broker_id in self.others(spec):
            await self.ask(broker_id, AskPurge(queue=spec.name, min_interval_ms=min_interval_ms))

    async def pause(self, spec: QueueSpec, *, paused: bool) -> None:
        await self._desk.pause_here(spec, paused=paused)
        for broker_id in self.others(spec):
            await self.ask(broker_id, AskPause(queue=spec.name, paused=paused))

    async def peek(self, spec: QueueSpec, limit: int) -> list[tuple[Source, Record]]:
        found = await self._desk.peek_here(spec, limit)
        for broker_id in self.others(spec):
            if len(found) >= limit:
                break
            found += await self.ask(broker_id, AskPeek(queue=spec.name, limit=limit - len(found)))
        return found

    # -- what others ask of us -----------------------------------------------------------------------------------------

    async def answer(self, question: AnyQuestion) -> Any:
        """From what is led here."""
        desk = self._desk
        match question:
            case AskSettle():
                return await desk.settle_here(question)
            case AskSend() if question.queue:
                return await desk.placing.send_at_home(question)
            case AskSend():
                return await desk.placing.send_for_another(question)
            case AskStrays():
                return await desk.placing.moving.strays(question)
            case AskScheduled():
                return await desk.scheduled_here(question)
            case AskShareOffset():
                raise AssertionError("where share groups stand is no business of queues")
        spec = desk.spec(question.queue)
        match question:
            case AskReceive():
                return await desk.receive_here(
                    spec,
                    question.count,
                    visibility_ms=question.visibility_ms,
                    wait_ms=question.wait_ms,
                    owner=question.owner,
                )
            case AskNews():
                return await self._news_here(question)
            case AskStanding():
                return Standing(desk.counts(spec), desk.oldest_age_ms(spec))
            case AskPurge():
                return await desk.purge_here(spec, question.min_interval_ms)
            case AskPause():
                return await desk.pause_here(spec, paused=question.paused)
            case AskPeek():
                return await desk.peek_here(spec, question.limit)
            case AskMove():
                return await self._move(spec, question)
            case _:
                assert_never(question)

    async def _news_here(self, question: AskNews) -> int:
        shards = self._desk.shards
        if shards.news(question.queue) == question.seen:
            try:
                async with asyncio.timeout(question.wait_ms / 1000):
                    await shards.arrival(question.queue).wait()
            except TimeoutError:
                pass
        return shards.news(question.queue)

    async def _move(self, spec: QueueSpec, question: AskMove) -> MovedSome:
        return await self._desk.moves.move_for_another(spec, question)
