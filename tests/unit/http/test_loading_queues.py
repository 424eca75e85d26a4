"""F34: a queue whose journal is still being read is waited for, at every door, and not for ever."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.load import Load
from headrace.broker.queueing.local import hosted

sys.path.insert(0, str(Path(__file__).parents[2] / "models"))
from walks import a_broker

LETTER = {"MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "d"}


class Gate:
    """No journal is read until somebody waits for one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._open = asyncio.Event()
        self.waited = 0
        self.opens = True
        load, loaded = Load.load, hosted.Hosted.loaded

        async def held(one: Load[Any, Any]) -> None:
            if one.shard.partition.tp.topic.startswith("__queue."):
                await self._open.wait()
            await load(one)

        async def waiting(one: hosted.Hosted) -> None:
            self.waited += 1
            if self.opens:
                self._open.set()
            await loaded(one)

        monkeypatch.setattr(Load, "load", held)
        monkeypatch.setattr(hosted.Hosted, "loaded", waiting)


@pytest.mark.parametrize(
    "use",
    [
        lambda http: http.rest("POST", "/queues/new.fifo/receive"),
        lambda http: http.rest("GET", "/api/v1/queues/new.fifo/letters"),
        lambda http: http.rest("GET", "/queues/new.fifo/left"),
        lambda http: http.rest("POST", "/api/v1/queues/new.fifo/purge"),
        lambda http: http.sqs("ReceiveMessage", QueueUrl="new.fifo"),
        lambda http: http.sqs("SendMessage", QueueUrl="new.fifo", **LETTER),
        lambda http: http.sqs("SendMessageBatch", QueueUrl="new.fifo", Entries=[{"Id": "1", **LETTER}]),
        lambda http: http.sqs("PurgeQueue", QueueUrl="new.fifo"),
    ],
    ids=["REST receive", "REST letters", "REST left", "REST purge", "receive", "send", "send batch", "purge"],
)
async def test_what_is_asked_of_a_queue_that_loads_is_answered_when_it_has(
    use: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_broker() as (http, _):
        gate = Gate(monkeypatch)
        await http.sqs("CreateQueue", QueueName="new.fifo", Attributes={"FifoQueue": "true"})
        answer = await use(http)
        assert gate.waited >= 1
        assert "Failed" not in answer


async def test_a_journal_that_takes_too_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_broker() as (http, _):
        gate = Gate(monkeypatch)
        gate.opens = False
        monkeypatch.setattr(hosted, "PATIENCE_S", 0.01)
        await http.sqs("CreateQueue", QueueName="new")
        with pytest.raises(AssertionError, match=r"503.*coordinator-load-in-progress"):
            await http.rest("POST", "/queues/new/receive")
        assert gate.waited == 1


async def test_what_was_sent_before_the_journal_is_read_is_received(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_broker() as (http, _):
        gate = Gate(monkeypatch)
        await http.sqs("CreateQueue", QueueName="new")
        await http.sqs("SendMessage", QueueUrl="new", MessageBody="x")
        found = await http.sqs("ReceiveMessage", QueueUrl="new")
        assert [one["Body"] for one in found["Messages"]] == ["x"]
        assert gate.waited >= 1
