"""Driver: one queue on many brokers. What this broker does not lead is asked of whoever does, router to router (C6).

A question is answered from what the asked broker leads and never passed on (answers.py), so two brokers with different news can not
play ball with it. A receive takes turns: mostly it begins here, now and then elsewhere, so that no partition starves when every
client talks to the same broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Literal

import msgspec

from headrace.broker.queueing.catalog import QueueCatalog
from headrace.broker.queueing.layout import Layouts
from headrace.broker.queueing.local.local_queues import LocalQueues
from headrace.broker.queueing.local.shards import QueueShards
from headrace.broker.queueing.routing.caller import PeerCaller
from headrace.broker.queueing.routing.long_polls import LongPolls
from headrace.broker.queueing.routing.peer_calls import (
    AskPause,
    AskPeek,
    AskPurge,
    AskReceive,
    AskScheduled,
    AskSettle,
    AskStats,
    DeliveredMessage,
    QueueStats,
)
from headrace.broker.queueing.specs import QueueSpec
from headrace.broker.runtime import Runtime
from headrace.core.errors import ErrorKind, HeadraceError, Unknown
from headrace.core.plan import Rejected
from headrace.queues.commands import Handle, Source
from headrace.records.build import Record

LOOK_S = 2.0
"""For numbers that people look at: a broker that does not answer in time is left out."""
WALK_STEP = 1_000
LOOK_AROUND_MS = 5_000
"""How often a long poll asks the others, whatever it hears of them (long_polls.py)."""
OTHERS_FIRST = 4
"""One receive in so many begins with another broker."""


class QueueRouter:
    def __init__(
        self,
        runtime: Runtime,
        node_id: int,
        catalog: QueueCatalog,
        layouts: Layouts,
        local: LocalQueues,
        shards: QueueShards,
        caller: PeerCaller,
    ) -> None:
        self._clock = runtime.clock
        self._node_id = node_id
        self._catalog = catalog
        self._layouts = layouts
        self._local = local
        self._shards = shards
        self._caller = caller
        self.ask = caller.ask
        self._turns: dict[str, int] = {}
        self._long_polls = LongPolls(runtime, caller)
        shards.on_wake = self._long_polls.wake_all

    def others(self, spec: QueueSpec) -> list[int]:
        """The other brokers that lead a part of a queue."""
        return [] if self._caller.peers is None else self._layouts.of(spec).others

    # -- receiving -----------------------------------------------------------------------------------------------------

    async def receive(self, spec: QueueSpec, ask: AskReceive) -> list[DeliveredMessage]:
        """Up to `count` messages from one of the brokers; waits for the first if there is none anywhere."""
        clock = self._clock
        deadline_ms = clock.now_ms() + ask.wait_ms
        while True:
            arrival = self._shards.arrival(spec.name)
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
                    self._long_polls.wake_one(spec.name)  # there may be more for the next
                    return found
            left_ms = deadline_ms - clock.now_ms()
            if left_ms <= 0:
                if problem is None or answered:
                    return []
                if ask.patient or problem.kind is not ErrorKind.COORDINATOR_LOAD_IN_PROGRESS:
                    raise problem
                ask = msgspec.structs.replace(ask, patient=True)  # nobody has anything else to offer
                continue
            await self._long_polls.wait(spec.name, self.others(spec), arrival, min(left_ms, LOOK_AROUND_MS))
            self._catalog.require(spec)

    def _places(self, spec: QueueSpec) -> list[int]:
        """Where to look, in order."""
        others = self.others(spec)
        here = [self._node_id] if self._layouts.of(spec).local else []
        if not others:
            return here
        turn = self._turns[spec.name] = self._turns.get(spec.name, -1) + 1
        first = (turn // OTHERS_FIRST) % len(others)
        others = others[first:] + others[:first]
        return here + others if turn % OTHERS_FIRST else others + here

    async def _receive_at(self, place: int, spec: QueueSpec, ask: AskReceive) -> list[DeliveredMessage]:
        if place == self._node_id:
            return await self._local.receive(
                spec,
                ask.count,
                visibility_ms=ask.visibility_ms,
                owner=ask.owner,
                patient=ask.patient,
            )
        return await self.ask(place, msgspec.structs.replace(ask, wait_ms=0))

    # -- what is done with a delivery ----------------------------------------------------------------------------------

    async def settle(
        self,
        source: Source,
        how: Literal["ack", "extend", "release", "reject"],
        handles: Iterable[Handle],
        amount_ms: int | None = None,
        detail: str = "",
        stale_may_prolong: bool = False,
    ) -> Sequence[Rejected | None]:
        """At the broker that has it."""
        ask = AskSettle(
            queue=source.queue,
            source=source,
            how=how,
            handles=tuple(handles),
            amount_ms=amount_ms,
            detail=detail,
            stale_may_prolong=stale_may_prolong,
        )
        return await self.ask(self._layouts.home_of(source), ask)

    async def scheduled(self, source: Source, from_offset: int, limit: int) -> list[tuple[int, Record]]:
        ask = AskScheduled(queue=source.queue, source=source, from_offset=from_offset, limit=limit)
        return await self.ask(self._layouts.home_of(source), ask)

    # -- the whole queue -----------------------------------------------------------------------------------------------

    async def stats(self, spec: QueueSpec) -> QueueStats:
        counts = self._local.counts(spec)
        oldest_ms = self._local.oldest_age_ms(spec)
        question = AskStats(queue=spec.name, queue_id=spec.id)
        asked = [self.ask(broker_id, question, LOOK_S) for broker_id in self.others(spec)]
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, QueueStats):
                counts += answer.counts
                oldest_ms = max(oldest_ms, answer.oldest_age_ms)
            elif not isinstance(answer, HeadraceError):
                raise answer
        return QueueStats(counts, oldest_ms)

    async def purge(self, spec: QueueSpec, min_interval_ms: int) -> None:
        await self._local.purge(spec, min_interval_ms)
        await self._ask_others(
            spec, AskPurge(queue=spec.name, queue_id=spec.id, min_interval_ms=min_interval_ms)
        )

    async def pause(self, spec: QueueSpec, *, paused: bool) -> None:
        await self._local.pause(spec, paused=paused)
        await self._ask_others(spec, AskPause(queue=spec.name, queue_id=spec.id, paused=paused))

    async def _ask_others(self, spec: QueueSpec, question: AskPurge | AskPause) -> None:
        for broker_id in self.others(spec):
            try:
                await self.ask(broker_id, question)
            except (
                Unknown
            ) as refusal:  # the others before it have done it, so this is not asked again from here
                raise HeadraceError(ErrorKind.NOT_COORDINATOR, refusal.detail) from refusal

    async def peek(self, spec: QueueSpec, limit: int) -> list[tuple[Source, Record]]:
        found = await self._local.peek(spec, limit)
        for broker_id in self.others(spec):
            if len(found) >= limit:
                break
            ask = AskPeek(queue=spec.name, queue_id=spec.id, limit=limit - len(found))
            found += await self.ask(broker_id, ask)
        return found

    async def walk(
        self, spec: QueueSpec, limit: int, place: int = 0, position: int = 0
    ) -> AsyncIterator[list[tuple[Source, Record]]]:
        """All that a receive could hand out, some at a time, at most so many: for who looks through a whole queue. From an offset of
        one of its sources on, when they have seen the others."""
        layout = self._layouts.of(spec)
        here = {source for source, _ in layout.local}
        for source in layout.sources[place:]:
            while limit > 0:
                found = await self._peek_at(source, position, min(limit, WALK_STEP), here=source in here)
                if not found:
                    break
                yield found
                limit -= len(found)
                position = found[-1][1].offset + 1
            position = 0

    async def _peek_at(
        self, source: Source, position: int, limit: int, *, here: bool
    ) -> list[tuple[Source, Record]]:
        if here:
            return await self._local.peek_at(source, position, limit)
        ask = AskPeek(queue=source.queue, limit=limit, source=source, from_offset=position)
        return await self.ask(self._layouts.home_of(source), ask)
