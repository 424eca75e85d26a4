"""Which replica a queue's shard reads, and the numbers of its loads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.commit_listeners import CommitListeners
from headrace.broker.queueing.local import shards as hosting
from headrace.broker.queueing.local.shards import QueueShards
from headrace.core.ids import TopicPartition

DATA, JOURNAL = TopicPartition("q", 0), TopicPartition("__queue.q", 0)


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.data = replica()
        self.epochs: list[int] = []
        clock = SimpleNamespace(now_ms=lambda: 0, wall_ms=lambda: 0)
        runtime: Any = SimpleNamespace(clock=clock, spawn=lambda coroutine, name: None)
        self.shards = QueueShards(runtime, lambda *tp: self.data, lambda topic: [], lambda queue: None)
        self.journal: Any = SimpleNamespace(tp=JOURNAL, is_leader=True, leader_epoch=3, topic_id=bytes(16))
        monkeypatch.setattr(hosting, "Shard", self.make_shard)
        monkeypatch.setattr(
            hosting, "QueueShard", lambda lease_epoch, wall_offset_ms: self.epochs.append(lease_epoch)
        )

    def make_shard(self, runtime: Any, journal: Any, make_machine: Any, *_: Any, **__: Any) -> Any:
        make_machine()
        return SimpleNamespace(close=lambda: None, start=lambda: None, partition=journal)


def replica() -> Any:
    return SimpleNamespace(tp=DATA, on_commit=CommitListeners(SimpleNamespace(), DATA))


def test_a_replica_that_came_back_is_the_one_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was moved away and back while its journal stayed: the old one's log is closed and hears of nothing."""
    world = World(monkeypatch)
    world.shards.lead(world.journal)
    world.shards.data_opened(world.data, world.journal)
    assert len(world.epochs) == 1, "nothing is new"
    old, world.data = world.data, replica()
    world.shards.data_opened(world.data, world.journal)
    assert world.shards.hosted[DATA].data is world.data
    assert not old.on_commit and len(world.data.on_commit) == 1


def test_no_two_loads_have_the_same_lease_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """R56: or a receipt of the one would be good for a delivery of the other."""
    world = World(monkeypatch)
    for epoch in (3, 3, 4):
        world.journal.leader_epoch = epoch
        world.shards.lead(world.journal)
    # F1: the journal of a topic that was made again counts from the beginning.
    world.journal.leader_epoch, world.journal.topic_id = 3, bytes(range(16))
    world.shards.lead(world.journal)
    assert len(world.epochs) == len(set(world.epochs)) == 4
    assert all(0 <= epoch < 1 << 42 for epoch in world.epochs), (
        "a receipt has 64 bits, 20 of them the engine's"
    )


def test_a_journal_of_another_topic_is_not_hosted(monkeypatch: pytest.MonkeyPatch) -> None:
    """F1: it knows the places of a topic that was deleted."""
    world = World(monkeypatch)
    world.shards.belongs = lambda journal, data: False
    world.shards.lead(world.journal)
    assert not world.shards.hosted
    world.shards.belongs = lambda journal, data: True
    world.shards.data_opened(world.data, world.journal)
    assert DATA in world.shards.hosted
