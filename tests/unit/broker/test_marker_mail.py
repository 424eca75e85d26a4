"""Markers to other brokers: together while one request is under way, and nobody is told of a marker that was not written."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from headrace.broker import marker_mail
from headrace.broker.marker_mail import MarkerMail
from headrace.broker.peer import PeerLost
from headrace.core.errors import ErrorKind
from headrace.core.ids import TopicPartition
from headrace.transactions.commands import SendMarkers
from headrace.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def marker(producer_id: int, *partitions: TopicPartition) -> SendMarkers:
    return SendMarkers(f"x{producer_id}", producer_id, 0, True, 5, 1, partitions)


def accepted(request: WriteTxnMarkersRequest, code: int = 0) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        [
            WritableTxnMarkerResult(
                each.producer_id,
                [
                    WritableTxnMarkerTopicResult(
                        topic.name,
                        [
                            WritableTxnMarkerPartitionResult(number, code)
                            for number in topic.partition_indexes
                        ],
                    )
                    for topic in each.topics
                ],
            )
            for each in request.markers
        ]
    )


class World:
    """A runtime and a peer that answers when it is told to."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, WriteTxnMarkersRequest, asyncio.Future[Any]]] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.mail = MarkerMail(self, self, lambda tp, kind: kind is ErrorKind.NONE, 15.0)  # type: ignore[arg-type]

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        self.tasks.append(asyncio.get_running_loop().create_task(work))
        return self.tasks[-1]

    async def call(self, broker: int, key: int, version: int, request: Any, seconds: float) -> Any:
        self.requests.append((broker, request, asyncio.get_running_loop().create_future()))
        return await self.requests[-1][2]

    def send(self, broker: int, producer_id: int, *partitions: TopicPartition) -> asyncio.Task[Any]:
        return self.spawn(self.mail.send(broker, marker(producer_id, *partitions), partitions), "send")

    def carried(self, place: int) -> list[int]:
        return [each.producer_id for each in self.requests[place][1].markers]


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_waits_travels_together() -> None:
    world = World()
    first = world.send(2, 1, P0, P1)
    await turns()
    others = [world.send(2, producer_id, P0) for producer_id in (2, 3, 4)]
    elsewhere = world.send(3, 9, P0)
    await turns()
    assert [(broker, world.carried(place)) for place, (broker, *_) in enumerate(world.requests)] == [
        (2, [1]),
        (3, [9]),
    ], "one request to each broker at a time"
    world.requests[0][2].set_result(accepted(world.requests[0][1]))
    assert await first == [P0, P1]
    await turns()
    assert world.carried(2) == [2, 3, 4]
    for _, request, answer in world.requests[1:]:
        answer.set_result(accepted(request))
    assert [await each for each in (*others, elsewhere)] == [[P0]] * 4
    await turns()
    assert not world.mail._waiting, "nothing is kept for a broker nobody writes to"


async def test_a_lost_request_wrote_nothing_that_is_known() -> None:
    """R49: unknown is not written; the sender tries again."""
    world = World()
    first = world.send(2, 1, P0)
    await turns()
    sent = [first, world.send(2, 2, P0)]
    await turns()
    world.requests[0][2].set_exception(PeerLost("gone"))
    await turns()
    world.requests[1][2].set_result(WriteTxnMarkersResponse([]))
    assert [await each for each in sent] == [[], []], "nor where the receiver did not hear us (R47)"


async def test_refused_partitions_are_not_written() -> None:
    world = World()
    sent = world.send(2, 1, P0)
    await turns()
    _, request, answer = world.requests[0]
    answer.set_result(accepted(request, ErrorKind.NOT_LEADER_OR_FOLLOWER))
    assert await sent == []


async def test_a_request_has_a_bound(monkeypatch: Any) -> None:
    monkeypatch.setattr(marker_mail, "MAX_MARKERS", 2)
    world = World()
    sent = [world.send(2, producer_id, P0) for producer_id in range(5)]
    await turns()
    place = 0
    while place < len(world.requests):
        _, request, answer = world.requests[place]
        assert len(request.markers) <= 2
        answer.set_result(accepted(request))
        await turns()
        place += 1
    assert [await each for each in sent] == [[P0]] * 5
