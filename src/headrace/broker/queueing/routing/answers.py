"""Driver: what other brokers ask about queues, answered from what is led here and never passed on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from headrace.broker.queueing.catalog import QueueCatalog
from headrace.broker.queueing.local.local_queues import LocalQueues
from headrace.broker.queueing.local.shards import QueueShards
from headrace.broker.queueing.moves.move_tasks import MoveTasks
from headrace.broker.queueing.placement.placement import Placement
from headrace.broker.queueing.routing.peer_calls import (
    AnyQuestion,
    AskArrivals,
    AskLeftBehind,
    AskMove,
    AskPause,
    AskPeek,
    AskPurge,
    AskReceive,
    AskScheduled,
    AskSend,
    AskSettle,
    AskShareOffset,
    AskStats,
    QueueStats,
)
from headrace.broker.runtime import happens
from headrace.core.plan import Rejected
from headrace.queues.commands import Source


class PeerAnswers:
    def __init__(
        self,
        catalog: QueueCatalog,
        local: LocalQueues,
        placement: Placement,
        moves: MoveTasks,
        shards: QueueShards,
    ) -> None:
        self._catalog = catalog
        self._local = local
        self._placement = placement
        self._moves = moves
        self._shards = shards

    async def answer(self, question: AnyQuestion) -> object:
        local = self._local
        match question:
            case AskSettle():
                return await self._settle(question)
            case AskSend() if question.queue:
                return await self._placement.send_at_home(question)
            case AskSend():
                return await self._placement.send_for_another(question)
            case AskLeftBehind():
                return await self._placement.migration.left_behind(question)
            case AskScheduled():
                return await local.scheduled(question.source, question.from_offset, question.limit)
            case AskShareOffset():
                raise AssertionError("where share groups stand is no business of queues")
        spec = self._catalog.spec(question.queue)
        match question:
            case AskReceive():
                return await local.receive(
                    spec,
                    question.count,
                    visibility_ms=question.visibility_ms,
                    wait_ms=question.wait_ms,
                    owner=question.owner,
                    patient=question.patient,
                )
            case AskArrivals():
                return await self._arrivals(question)
            case AskStats():
                return QueueStats(local.counts(spec), local.oldest_age_ms(spec))
            case AskPurge():
                await local.purge(spec, question.min_interval_ms)
                return None
            case AskPause():
                await local.pause(spec, paused=question.paused)
                return None
            case AskPeek(source=Source() as source):
                return await local.peek_at(source, question.from_offset, question.limit)
            case AskPeek():
                return await local.peek(spec, question.limit)
            case AskMove():
                return await self._moves.move_for_another(spec, question)
            case _:
                assert_never(question)

    async def _settle(self, ask: AskSettle) -> Sequence[Rejected | None]:
        source, handles = ask.source, ask.handles
        match ask.how:
            case "ack":
                return await self._local.ack(source, handles)
            case "extend":
                return await self._local.extend(
                    source, handles, ask.amount_ms or 0, stale_may_prolong=ask.stale_may_prolong
                )
            case "release":
                return await self._local.release(source, handles, ask.amount_ms, ask.detail)
            case "reject":
                return await self._local.reject(source, handles, ask.detail)

    async def _arrivals(self, question: AskArrivals) -> int:
        shards = self._shards
        if shards.arrival_count(question.queue) == question.seen:
            await happens(shards.arrival(question.queue), question.wait_ms / 1000)
        return shards.arrival_count(question.queue)
