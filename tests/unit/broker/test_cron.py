"""Where a schedule's message goes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.queueing import names
from headrace.broker.queueing.cron import CronSchedules
from headrace.broker.queueing.specs import QueueSpec, with_config
from headrace.queues.config import QueueConfig
from headrace.records.build import Record


@pytest.mark.parametrize(
    ("fifo", "record", "group"),
    [
        (True, Record(None, b"x", ((names.GROUP, b"g"),), 0), "g"),
        (True, Record(b"k", b"x", (), 0), "k"),
        (True, Record(None, b"x", (), 0), None),
        (False, Record(b"k", b"x", (), 0), None),
    ],
)
def test_a_tick_joins_its_message_group(fifo: bool, record: Record, group: str | None) -> None:
    """R59: in a partition that the group does not belong to it would overtake, or be overtaken."""
    sent: list[tuple[str | None, Record]] = []

    async def send(topic: str, number: int, record: Record) -> None:
        sent.append((None, record))

    async def send_to_queue(spec: QueueSpec, record: Record, group: str) -> None:
        sent.append((group, record))

    spec = with_config(QueueSpec(name="q", id="1", topics=("q",)), QueueConfig(fifo=fifo))
    catalog: Any = SimpleNamespace(find=lambda name: spec)
    placement: Any = SimpleNamespace(send_to_partition=send, send=send_to_queue)
    broker: Any = SimpleNamespace(image=None)
    asyncio.run(CronSchedules(broker, catalog, placement)._send("q", record))
    assert sent[0][0] == group
    assert group is None or names.header(sent[0][1].headers, names.GROUP) == group.encode()
