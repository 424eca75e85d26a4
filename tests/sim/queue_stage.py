"""Three brokers on virtual time, all well, and a play of a test's own with a queue on them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from cluster_sim import HEAL_S
from queue_sim import QueueCluster, QueueShape

from headrace.testing.simulation import Simulation

CALM = QueueShape(seconds=10.0, hostile=False, disk_faults=False, outages=False, partitions=3)
CONFIGS = {"min.insync.replicas": "2", "retention.ms": "-1"}


class Stage(QueueCluster):
    """Three brokers that live, and a play of the test's own."""

    def __init__(self, seed: int, play: Callable[[Stage], Awaitable[None]]) -> None:
        super().__init__(seed, CALM)
        self._play = play
        self.seconds = HEAL_S

    async def _scenario(self, simulation: Simulation) -> None:
        for node in self.nodes.values():
            node.start()
        supervisor = asyncio.get_running_loop().create_task(self._supervise())
        await self._brokers_live()
        async with asyncio.timeout(self.seconds):
            await self._play(self)
        self._over = True
        await supervisor

    def perform(self) -> None:
        self.simulation.run(self._scenario, limit_s=HEAL_S + self.seconds)
