"""A view through everything that befalls a cluster: failovers, power cuts, cut links, transactions, moved partitions.

Readers of the view must never be told two things about one offset (ConsistentRead), never stand still, and at the end have
seen exactly what a reader of the source sees that filters by itself.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cluster_client import ClusterClient, _committed
from cluster_sim import HEAL_S, PORT, Shape, SimCluster

from headrace.cluster.views import VIEW_SOURCE, VIEW_WHERE

VIEW = "some-orders"
WHERE = 'endswith(value, "3") or endswith(value, "7")'
STORM = Shape(seconds=20.0, pause_s=0.2, period_s=4.0, groups=False)


def is_wanted(value: str) -> bool:
    return value.endswith(("3", "7"))


class ViewReader:
    """Reads committed records of all partitions in order, and remembers every one of them."""

    def __init__(self, client: ClusterClient, partitions: int) -> None:
        self.client = client
        self.positions = dict.fromkeys(range(partitions), 0)
        self.seen: dict[tuple[int, int], str] = {}

    async def poll(self, partition: int) -> bool:
        row = await self.client.fetch(partition, self.positions[partition])
        if row is None:
            return False
        records, position = _committed(row, self.positions[partition])
        assert position >= self.positions[partition]
        self.positions[partition] = position
        for offset, value in records:
            assert self.seen.setdefault((partition, offset), value) == value, "one offset, two values"
        return True

    async def run(self, sim: ViewSim) -> None:
        while not sim.is_enough:
            for partition in self.positions:
                await self.poll(partition)
            await asyncio.sleep(0.2)

    async def read_past(self, ends: dict[int, int]) -> None:
        for partition, end in sorted(ends.items()):
            while self.positions[partition] < end:
                if not await self.poll(partition):
                    await asyncio.sleep(0.1)


class ViewSim(SimCluster):
    is_enough = False

    def _reader(self, topic: str, name: str) -> ViewReader:
        addresses = [(node.address, PORT) for node in self.nodes.values()]
        return ViewReader(ClusterClient(addresses, topic, self.dice.fork(name)), self.shape.partitions)

    async def _trouble(self) -> None:
        """While the faults go on: a view is made, and read by somebody who follows and by others who begin late."""
        first = self._reader(VIEW, "view/0")
        await first.client.create_topic(-1, -1, {VIEW_SOURCE: self.topic, VIEW_WHERE: WHERE})
        self.readers = [first, self._reader(VIEW, "view/1")]
        async with asyncio.TaskGroup() as tasks:
            for reader in self.readers:
                tasks.create_task(reader.run(self))
            await super()._trouble()
            self.is_enough = True

    async def _recovered(self) -> None:
        await super()._recovered()
        ends = self._ends()
        source, late = self._reader(self.topic, "source"), self._reader(VIEW, "view/late")
        async with asyncio.timeout(HEAL_S):
            await source.read_past(ends)
            for reader in (*self.readers, late):
                await reader.read_past(ends)
        expected = {place: value for place, value in source.seen.items() if is_wanted(value)}
        for reader in (*self.readers, late):
            assert reader.seen == expected
        self.found = len(expected)
        assert 0 < len(expected) < len(source.seen)


@pytest.mark.parametrize("seed", range(3))
def test_a_view_is_exact_through_a_storm(seed: int) -> None:
    """R19, R23, R48: leaders die, logs are cut, transactions abort, and the strips are never older than the log."""
    ViewSim(seed, STORM).run()


def test_a_seed_is_a_run_with_views_too() -> None:
    shape = Shape(seconds=6.0, pause_s=0.3, period_s=4.0, groups=False)
    assert ViewSim(5, shape).run().trace_hash == ViewSim(5, shape).run().trace_hash


def test_f43_a_busy_machine_does_not_change_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """F43: a filter ended its piece by the machine's clock, so the same seed went another way where that was late."""
    shape = Shape(seconds=6.0, pause_s=0.3, period_s=4.0, groups=False)
    calm = ViewSim(5, shape).run().trace_hash
    hours = itertools.count(step=3600.0)
    for clock in ("perf_counter", "thread_time", "monotonic", "time"):
        monkeypatch.setattr(time, clock, lambda: next(hours))
    assert ViewSim(5, shape).run().trace_hash == calm
