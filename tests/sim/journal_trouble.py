"""What happens to journals of coordinators in particular: a full disk for a moment, and an ISR that comes and goes.

Each makes a coordinator doubt its memory; both together do it while it loads (F4, F18, F83).
"""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING

from cluster_invariants import Place

from headrace.testing.sim_disk import DiskFault

if TYPE_CHECKING:
    from cluster_sim import SimCluster

JOURNALS = ("__transaction_state", "__consumer_offsets")


class JournalTrouble:
    def __init__(self, cluster: SimCluster, journals: tuple[str, ...] = JOURNALS) -> None:
        self._cluster = cluster
        self._journals = journals
        self._dice = cluster.dice.fork("journals")

    async def run(self) -> None:
        shape, dice = self._cluster.shape, self._dice
        if not (shape.full_journals or shape.flaps):
            return
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        while loop.time() - begun_s < shape.seconds:
            await asyncio.sleep(dice.exponential(2 * shape.period_s))
            place = Place(dice.pick(self._journals), 0)
            if shape.full_journals:
                self._fill(place)
            if shape.flaps and dice.chance(0.5):
                await self._flap(place)

    def _leader(self, place: Place) -> int:
        state = self._cluster.invariants.states().get(place)
        return -1 if state is None else state.leader

    def _fill(self, place: Place) -> None:
        """No space for the next writes to the leader's journal, and often for a marker somewhere, too."""
        leader, dice = self._leader(place), self._dice
        if leader < 0:
            return
        disk = self._cluster.nodes[leader].disk
        for _ in range(dice.pick((1, 1, 2, 5))):
            disk.arm(DiskFault.APPEND_ERROR, f"/data/topics/{place.topic}@", error=errno.ENOSPC)
        if dice.chance(0.5):
            node = self._cluster.nodes[dice.pick(sorted(self._cluster.nodes))]
            for _ in range(dice.between(1, 3)):
                node.disk.arm(
                    DiskFault.APPEND_ERROR, f"/data/topics/{self._cluster.topic}@", error=errno.ENOSPC
                )

    async def _flap(self, place: Place) -> None:
        """Its followers are killed and started again, twice in short order."""
        leader = self._leader(place)
        followers = [node for number, node in sorted(self._cluster.nodes.items()) if number != leader]
        for _ in range(2):
            for node in followers:
                node.kill()
            await asyncio.sleep(self._dice.uniform(0.2, 3.0))
            self._fill(place)
            for node in followers:
                if not node.is_running:
                    node.start()
            await asyncio.sleep(self._dice.uniform(0.05, 2.0))
