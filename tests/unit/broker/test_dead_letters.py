"""A dead letter that can not be read yet is asked for again, and never settled without having been written (R60)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.queueing import names
from headrace.broker.queueing.moves.dead_letters import DeadLetters
from headrace.broker.queueing.placement.placement import Placement
from headrace.broker.queueing.specs import QueueSpec, with_config
from headrace.core.ids import TopicPartition, shard_for
from headrace.queues.commands import DeathReason, MoveFailed, MoveToDeadLetter, Source
from headrace.queues.config import QueueConfig
from headrace.records.build import Record

SOURCE = Source("q", "q", 0)


class _Load:
    def __init__(self, tell: Callable[[Any], None]) -> None:
        self.tell = tell


def test_what_a_new_leader_can_not_read_yet_is_no_gap() -> None:
    """Its journal knows of a death at offset 5; its high watermark has not got there (R12). Seeds 105 and 400 lost it."""
    told: list[Any] = []
    transfers: list[Any] = []

    async def transfer(load: Any, letters: Any, make_command: Any) -> None:
        transfers.append(letters)

    data = SimpleNamespace(tp=TopicPartition("q", 0), topic_id=bytes(16), last_stable_offset=5)
    payloads = SimpleNamespace(
        get=lambda offsets: {o: Record(None, b"x", (), 1, o) for o in offsets if o < data.last_stable_offset}
    )
    hosted: Any = SimpleNamespace(data=data, payloads=payloads)
    load: Any = _Load(told.append)
    placement: Any = SimpleNamespace(choose_partition=lambda topic, group: 0)
    catalog: Any = SimpleNamespace(find=lambda name: None)
    broker: Any = SimpleNamespace(image=SimpleNamespace(topic=lambda name: object()))
    letters = DeadLetters(broker, catalog, placement, SimpleNamespace(transfer=transfer))  # type: ignore[arg-type]
    death = MoveToDeadLetter(SOURCE, "dead", 5, DeathReason.MAX_DELIVERIES, 3, "")

    asyncio.run(letters._move(hosted, load, [death]))
    assert not transfers
    assert isinstance(told[0], MoveFailed)
    assert told[0].offsets == (5,)

    data.last_stable_offset = 6
    asyncio.run(letters._move(hosted, load, [death]))
    assert [[record.value for record in records] for records in transfers[0].values()] == [[b"x"]]


@pytest.mark.parametrize("moving_from", [0, 1])
def test_letters_of_a_group_lie_in_one_partition_of_a_fifo_queue(moving_from: int) -> None:
    """R59. While that queue gets another number of partitions, only the group's old one could tell where it is: they wait."""
    told: list[Any] = []
    transfers: list[Any] = []

    async def transfer(load: Any, letters: Any, make_command: Any) -> None:
        transfers.append(letters)

    groups = ["a", "b", "c", "d"]
    records = {
        offset: Record(None, name.encode(), ((names.GROUP, name.encode()),), 1, offset)
        for offset, name in enumerate(groups * 2)
    }
    spec = with_config(
        QueueSpec(name="dead", id="1", topics=("dead",), active=2, moving_from=moving_from),
        QueueConfig(fifo=True),
    )
    topic = SimpleNamespace(partitions=(None, None))
    catalog: Any = SimpleNamespace(find=lambda name: spec)
    broker: Any = SimpleNamespace(image=SimpleNamespace(topic=lambda name: topic), partitions={})
    nobody: Any = None
    placement = Placement(broker, catalog, nobody, nobody, nobody)
    hosted: Any = SimpleNamespace(
        data=SimpleNamespace(tp=TopicPartition("q", 0), topic_id=bytes(16), last_stable_offset=99),
        payloads=SimpleNamespace(get=lambda offsets: records),
    )
    load: Any = _Load(told.append)
    deaths = [MoveToDeadLetter(SOURCE, "dead", o, DeathReason.MAX_DELIVERIES, 3, "") for o in records]
    moves: Any = SimpleNamespace(transfer=transfer)
    asyncio.run(DeadLetters(broker, catalog, placement, moves)._move(hosted, load, deaths))
    if moving_from:
        assert not transfers and isinstance(told[0], MoveFailed)
        return
    for tp, letters in transfers[0].items():
        assert [one.value for one in letters] == [
            name.encode() for name in groups * 2 if shard_for(name, 2) == tp.partition
        ]
    assert len(transfers[0]) == 2
