"""Driver: while this broker is the controller, it brings the partitions in line with how the brokers stand.

What has to be done is decided anew from the image each time (cluster.controller), and proposed as compared transactions
(R1): one that was decided from an old image is refused by the coordinator, and the next round decides again. So a
controller that was paused for an hour is harmless.
"""

from __future__ import annotations

import asyncio
import logging

from headrace.broker.metadata import Metadata
from headrace.broker.runtime import Runtime
from headrace.cluster.changes import batched
from headrace.cluster.controller import DataLoss, rebalance_leaders, reconcile
from headrace.cluster.deltas import (
    BrokerDown,
    BrokerRegistered,
    BrokerUp,
    ControllerChanged,
    Delta,
    PartitionChanged,
    TopicConfigChanged,
    TopicCreated,
)
from headrace.cluster.membership import become_controller
from headrace.cluster.state import FenceReason
from headrace.cluster.topics import leftovers
from headrace.coordinator.port import CoordinatorError
from headrace.core.errors import HeadraceError

log = logging.getLogger(__name__)

RETRY_S = 0.5
LOOK_S = 5.0
"""Nothing may depend on having heard an event, so the controller looks by itself now and then."""

BALANCE_MS = 15_000
"""R32: leaderships drift back to their preferred replicas a few at a time, not all when a broker returns."""

LEFTOVERS_MS = 60_000
_OF_ALL = (BrokerUp, BrokerDown, BrokerRegistered, ControllerChanged)
_OF_ONE = (TopicCreated, TopicConfigChanged)


class Controller:
    def __init__(self, runtime: Runtime, metadata: Metadata, broker_id: int) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._image = metadata.image
        self._broker_id = broker_id
        self._wake = asyncio.Event()
        self._wake.set()
        self._lease = 0
        self._broker_epoch = 0
        self._balance_at_ms = 0
        self._tidy_at_ms = 0
        self.losses: list[DataLoss] = []
        """R27: every unclean election this controller has carried out; also logged and counted."""
        self._everything = True
        self._changed: set[str] = set()
        """Unless it is `everything`: the topics to look at (F27). Thousands stand still while one is made."""
        self._settled_version = -1
        """The image in which nothing was left to do."""
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
        for delta in deltas:
            if isinstance(delta, _OF_ALL):
                self._everything = True
                self._wake.set()
            elif isinstance(delta, _OF_ONE) or (
                isinstance(delta, PartitionChanged) and _needs_controller(delta)
            ):
                self._changed.add(delta.topic.name)
                self._wake.set()

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._wake.wait()
            except TimeoutError:
                # Decisions depend on the image alone, so one that is the same needs no second look.
                self._everything = self._everything or self._image.version != self._settled_version
            self._wake.clear()
            try:
                await self._round()
            except (HeadraceError, CoordinatorError) as problem:
                log.warning("controller: %s", problem)
                self._everything = True
                await asyncio.sleep(RETRY_S)
                self._wake.set()

    async def _round(self) -> None:
        if self._image.controller is None and self._lease:
            change = become_controller(self._image, self._broker_id, self._broker_epoch, self._lease)
            if change is not None:
                taken = await self._metadata.commit(change)
                if taken.succeeded:
                    log.info("broker %d is the controller", self._broker_id)
                    self._balance_at_ms = self._runtime.clock.now_ms() + BALANCE_MS
        if not self.is_active or self._image.controller is None:
            return
        epoch = self._image.controller.epoch
        if self._somebody_waits_to_be_let_in():
            # R2, R4: whether somebody still counts on its earlier life is decided from a fresh, linearizable look.
            await self._metadata.load()
            self._everything = True
        decisions = reconcile(self._image, epoch, None if self._everything else self._changed)
        if not decisions.changes:
            if self._everything:
                self._settled_version = self._image.version
            self._everything = False
            self._changed.clear()
        else:
            done = await self._metadata.commit_all(decisions.changes)
            if done:
                self._report(decisions.losses)
            else:
                self._everything = True
            # Something moved under us, or one change made the next possible: decide again from what is true now.
            self._wake.set()
            return
        await self._now_and_then(epoch)

    def _somebody_waits_to_be_let_in(self) -> bool:
        return any(
            broker.fence is not None and broker.fence.reason is FenceReason.STARTING
            for broker in self._image.brokers.values()
        )

    def _report(self, losses: list[DataLoss]) -> None:
        for loss in losses:
            self.losses.append(loss)
            log.critical(
                "%s-%d: unclean election, broker %d leads instead of %d; acknowledged records may be lost (R27)",
                loss.topic,
                loss.partition,
                loss.new_leader,
                loss.old_leader,
            )

    async def _now_and_then(self, epoch: int) -> None:
        """What is better done slowly: leaderships back to where they belong, and leftovers away."""
        now_ms = self._runtime.clock.now_ms()
        if now_ms >= self._balance_at_ms:
            self._balance_at_ms = now_ms + BALANCE_MS
            moves = rebalance_leaders(self._image, epoch)
            if moves:
                log.info("%d leaderships go back to their preferred replicas", len(moves))
                await self._metadata.commit_all(batched(moves))
        if now_ms >= self._tidy_at_ms:
            self._tidy_at_ms = now_ms + LEFTOVERS_MS
            wall_ms = self._runtime.clock.wall_ms()
            old = leftovers(self._image, wall_ms=wall_ms, controller_epoch=epoch)
            await self._metadata.commit_all(batched(old))


def _needs_controller(delta: PartitionChanged) -> bool:
    """A move that may be complete now, or a partition that somebody left without a leader."""
    return delta.new.reassigning or delta.new.leader < 0
