"""When a change of the partitions of a FIFO queue is over (R59), and who leads what until then."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.queueing.placement.upkeep import QueueUpkeep
from headrace.broker.queueing.specs import QueueSpec, with_config
from headrace.cluster.election import ElectionType
from headrace.queues.commands import Source
from headrace.queues.config import QueueConfig

WINDOW_MS = 300_000
NOW_MS = 1_000_000


class Cluster:
    """Two old partitions, led beside their journals unless a test says otherwise."""

    def __init__(self, strays: list[int], now_ms: int = NOW_MS) -> None:
        self.changes: list[dict[str, Any]] = []
        self.elected: list[tuple[str, int]] = []
        self.asked: list[int] = []
        self.strays = strays
        self.leaders = {"q": [1, 1], "__queue.q": [1, 1]}
        clock = SimpleNamespace(wall_ms=lambda: now_ms)
        sources = [Source("q", "q", number) for number in range(4)]
        self.catalog: Any = SimpleNamespace(change=self.change)
        self.layouts: Any = SimpleNamespace(
            of=lambda spec: SimpleNamespace(sources=sources),
            is_here=lambda source: source.partition == 0,
            home_of=lambda source: 2,
        )
        self.placement: Any = SimpleNamespace(migration=SimpleNamespace(left_behind=self.answer))
        self.router: Any = SimpleNamespace(ask=lambda broker_id, ask: self.answer(ask))
        self.broker: Any = SimpleNamespace(
            image=SimpleNamespace(topic=self.topic),
            runtime=SimpleNamespace(clock=clock),
            partition_admin=SimpleNamespace(elect=self.elect),
        )

    def topic(self, name: str) -> Any:
        states = [SimpleNamespace(leader=leader, target=(1, 2)) for leader in self.leaders[name]]
        return SimpleNamespace(partitions=states)

    async def change(self, name: str, *, seen: QueueSpec, **changes: Any) -> None:
        self.changes.append(changes)

    async def answer(self, ask: Any) -> int:
        assert ask.era == 7
        self.asked.append(ask.source.partition)
        return self.strays[ask.source.partition]

    async def elect(self, topic: str, number: int, election: ElectionType) -> None:
        self.elected.append((topic, number))

    def upkeep(self) -> QueueUpkeep:
        return QueueUpkeep(self.broker, self.catalog, self.layouts, self.router, self.placement)

    def look(self, moved_ms: int = 0) -> list[dict[str, Any]]:
        spec = with_config(
            QueueSpec(name="q", id="1", topics=("q",), active=4, moving_from=2, moved_ms=moved_ms, era=7),
            QueueConfig(fifo=True, dedup_window_ms=WINDOW_MS),
        )
        asyncio.run(self.upkeep()._end_move(spec))
        return self.changes


def test_groups_have_moved_when_no_old_partition_has_any_that_belong_elsewhere() -> None:
    assert Cluster([0, 1]).look() == []
    cluster = Cluster([0, 0])
    assert cluster.look() == [{"moved_ms": NOW_MS}]
    assert cluster.asked == [0, 1], "the old ones"


def test_the_change_is_over_a_deduplication_window_later() -> None:
    assert Cluster([0, 0]).look(NOW_MS - WINDOW_MS + 1) == []
    assert Cluster([0, 0]).look(NOW_MS - WINDOW_MS) == [{"moving_from": 0, "moved_ms": 0, "era": 8}]
    assert Cluster([1, 0]).look(NOW_MS - WINDOW_MS) == []


def test_a_clock_that_was_set_back_makes_it_later_and_not_ten_years() -> None:
    assert Cluster([0, 0]).look(NOW_MS + 10**12) == [{"moved_ms": NOW_MS}]


@pytest.mark.parametrize(
    ("data", "journal", "elected"), [(1, 1, []), (2, 2, []), (2, 1, ["q"]), (1, 2, ["__queue.q"])]
)
def test_a_partition_and_its_journal_are_brought_together(
    data: int, journal: int, elected: list[str]
) -> None:
    """Only who leads both can tell what is in it (migration.py)."""
    cluster = Cluster([0, 0])
    cluster.leaders["q"][0], cluster.leaders["__queue.q"][0] = data, journal
    cluster.look()
    assert cluster.elected == [(name, 0) for name in elected]
