"""Placement of messages: what is fenced off is not written (R59), and a send looks through no backlog."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.produce import TakenBatch
from headrace.broker.queueing.local import sender as sending
from headrace.broker.queueing.local.sender import Sender
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.records.batch import read_header
from headrace.records.build import Record


def test_a_record_is_written_only_if_its_fence_still_holds_when_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fence is asked in the turn in which the batch is written, not when the record was handed in."""
    written: list[int] = []

    def take(partition: Any, batch: memoryview, **_: Any) -> TakenBatch:
        written.append(read_header(batch).record_count)
        return SimpleNamespace(error=ErrorKind.NONE, base_offset=7, commit_offset=8)  # type: ignore[return-value]

    monkeypatch.setattr(sending, "take", take)
    clock = SimpleNamespace(now_ms=lambda: 0, wall_ms=lambda: 0)
    partition = SimpleNamespace(
        when_committed=lambda offset, deadline, done: done(ErrorKind.NONE),
        opens_batches=False,
        config=SimpleNamespace(message_timestamp_type="CreateTime"),
    )

    async def play() -> None:
        sender = Sender(SimpleNamespace(clock=clock), partition, lambda *_: None, lambda *_: None)  # type: ignore[arg-type]
        holds = {"b": True}
        futures = [
            sender.send(Record(None, b"a", (), 0)),
            sender.send(Record(None, b"b", (), 0), lambda: holds["b"]),
            sender.send(Record(None, b"c", (), 0), lambda: True),
        ]
        holds["b"] = False
        assert await futures[0] == 7
        with pytest.raises(HeadraceError) as refused:
            await futures[1]
        assert refused.value.kind is ErrorKind.NOT_COORDINATOR
        assert await futures[2] == 8
        with pytest.raises(HeadraceError):
            await sender.send(Record(None, b"d", (), 0), lambda: False)

    asyncio.run(play())
    assert written == [2], "one batch, and none for nothing"
