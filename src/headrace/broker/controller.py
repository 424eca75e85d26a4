"""Driver: while this broker is the controller, it brings the partitions in line with how the brokers stand.

It only ever proposes compared transactions (R1): one that was decided from an old image is refused by the
coordinator, and the next round decides again. So a controller that was paused for an hour is harmless.
"""

from __future__ import annotations

import asyncio
import logging

from headrace.broker.metadata import Metadata
from headrace.cluster.changes import Change, batched
from headrace.cluster.election import Standing, partition_change, settle
from headrace.cluster.image import (
    BrokerDown,
    BrokerRegistered,
    BrokerUp,
    ControllerChanged,
    Delta,
    TopicConfigChanged,
    TopicCreated,
)
from headrace.cluster.membership import become_controller, loses, unfence
from headrace.core.errors import HeadraceError

log = logging.getLogger(__name__)

RETRY_S = 0.5
_REASONS = (BrokerUp, BrokerDown, BrokerRegistered, ControllerChanged, TopicCreated, TopicConfigChanged)


class Controller:
    def __init__(self, metadata: Metadata, broker_id: int) -> None:
        self._metadata = metadata
        self._image = metadata.image
        self._broker_id = broker_id
        self._wake = asyncio.Event()
        self._wake.set()
        self._lease = 0
        self._broker_epoch = 0
        metadata.listeners.append(self._heard)

    @property
    def is_active(self) -> bool:
        controller = self._image.controller
        return controller is not None and controller.broker_id == self._broker_id

    def registered(self, broker_epoch: int, lease: int) -> None:
        """This broker has a new life in the cluster, and may stand for controller with its lease."""
        self._broker_epoch, self._lease = broker_epoch, lease
        self._wake.set()

    def _heard(self, deltas: list[Delta]) -> None:
        if any(isinstance(delta, _REASONS) for delta in deltas):
            self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._round()
            except HeadraceError as problem:
                log.warning("controller: %s", problem.detail)
                await asyncio.sleep(RETRY_S)
                self._wake.set()

    async def _round(self) -> None:
        if self._image.controller is None and self._lease:
            change = become_controller(self._image, self._broker_id, self._broker_epoch, self._lease)
            if change is not None:
                await self._metadata.commit(change)
        controller = self._image.controller
        if controller is None or controller.broker_id != self._broker_id:
            return
        epoch = controller.epoch
        settled = await self._metadata.commit_all(batched(self._settlements(epoch)))
        let_in = [
            change
            for node in self._image.brokers
            if (change := unfence(self._image, node, epoch)) is not None
        ]
        if not await self._metadata.commit_all(let_in) or not settled or let_in:
            # Something moved under us, or a broker came in that can lead now: decide again from what is true now.
            self._wake.set()

    def _settlements(self, controller_epoch: int) -> list[Change]:
        image = self._image
        live = {node.id for node in image.live_brokers()}
        found: list[Change] = []
        for topic in image.topics.values():
            lost = {
                node.id
                for node in image.brokers.values()
                if node.fence and loses(topic.config, node.fence.loss)
            }
            standing = Standing(live, lost)
            for number, partition in enumerate(topic.partitions):
                if partition is None:
                    continue
                elected = settle(
                    partition,
                    standing,
                    topic.config.min_insync_replicas,
                    allow_unclean=topic.config.unclean_leader_election_enable,
                )
                if elected.unclean:
                    log.critical(
                        "%s-%d: unclean election; acknowledged records may be lost (R27)", topic.name, number
                    )
                if elected.state != partition:
                    why = f"leader {elected.state.leader}, ISR {list(elected.state.isr)}"
                    found.append(partition_change(image, topic, number, elected.state, controller_epoch, why))
        return found
