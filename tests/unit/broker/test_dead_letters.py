"""A dead letter that can not be read yet is asked for again, and never settled without having been written (R60)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from headrace.broker.queueing.dead_letters import DeadLetters
from headrace.core.ids import TopicPartition
from headrace.queues.commands import DeathReason, MoveFailed, MoveToDeadLetter, Source
from headrace.records.build import Record

SOURCE = Source("q", "q", 0)


def test_what_a_new_leader_can_not_read_yet_is_no_gap() -> None:
    """Its journal knows of a death at offset 5; its high watermark has not got there (R12). Seeds 105 and 400 lost it."""
    told: list[Any] = []
    transfers: list[Any] = []

    async def transfer(hosted: Any, letters: Any, make_command: Any) -> None:
        transfers.append(letters)

    data = SimpleNamespace(tp=TopicPartition("q", 0), last_stable_offset=5)
    payloads = SimpleNamespace(
        get=lambda offsets: {o: Record(None, b"x", (), 1, o) for o in offsets if o < data.last_stable_offset}
    )
    hosted: Any = SimpleNamespace(data=data, payloads=payloads, shard=SimpleNamespace(tell=told.append))
    queues = SimpleNamespace(find_spec=lambda name: None, choose_partition=lambda topic, group: 0)
    broker: Any = SimpleNamespace(queues=queues, image=SimpleNamespace(topic=lambda name: object()))
    letters = DeadLetters(broker, SimpleNamespace(transfer=transfer))  # type: ignore[arg-type]
    death = MoveToDeadLetter(SOURCE, "dead", 5, DeathReason.MAX_DELIVERIES, 3, "")

    asyncio.run(letters._move(hosted, SOURCE, "dead", [death]))
    assert not transfers
    assert isinstance(told[0], MoveFailed)
    assert told[0].offsets == (5,)

    data.last_stable_offset = 6
    asyncio.run(letters._move(hosted, SOURCE, "dead", [death]))
    assert [[record.value for record in records] for records in transfers[0].values()] == [[b"x"]]
