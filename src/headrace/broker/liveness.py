"""Driver: who of the other brokers is still there. Whoever notices that a process is gone has it fenced, before its lease ends.

Suspicion comes from replication: a connection breaks (doubt), and a new one is refused (proof enough, since fencing is a
compared transaction and a wrong guess does no harm, R8; [decision 0010](../../../docs/decisions/0010-fencing-on-suspicion.md)).
"""

from __future__ import annotations

import logging

from headrace.broker.metadata import Metadata
from headrace.broker.peer import PeerConnection, PeerLost, PeerRefused
from headrace.broker.runtime import Runtime
from headrace.cluster.membership import fence_suspect
from headrace.core.errors import HeadraceError

log = logging.getLogger(__name__)

DOUBT_MS = 300


class Liveness:
    def __init__(self, runtime: Runtime, metadata: Metadata) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._image = metadata.image
        self._doubts: dict[int, int] = {}
        """Brokers that may be gone, and until when we think so."""
        self._replica_connections: dict[int, int] = {}
        self.is_stopping = False
        """This broker leaves: that connections break now says nothing about the others."""

    def suspect(self, broker_id: int) -> None:
        """A peer's process seems gone. Fencing it is a compared transaction, so a wrong guess does no harm (R8)."""
        if not self.is_stopping:
            self._runtime.spawn(self._fence(broker_id), f"fence broker {broker_id}")

    async def _fence(self, broker_id: int) -> None:
        controller = self._image.controller
        if controller is None:
            return
        change = fence_suspect(self._image, broker_id, controller.epoch)
        try:
            if change is not None and (await self._metadata.commit(change)).succeeded:
                log.warning("broker %d refuses connections: fenced", broker_id)
        except HeadraceError as problem:
            log.warning("broker %d refuses connections but can't be fenced: %s", broker_id, problem.detail)

    def doubt(self, broker_id: int, doubted: bool) -> None:
        """The connection to a leader broke, or there is a new one."""
        if doubted:
            self._doubts[broker_id] = self._runtime.clock.now_ms() + DOUBT_MS
        else:
            self._doubts.pop(broker_id, None)

    async def leaders_settled(self) -> None:
        """Clients ask for a new leader the moment the old one dies, some milliseconds before there is one. Told of the old
        one again, librdkafka waits a second before it asks the next time; so we wait those milliseconds for it.
        """
        now_ms = self._runtime.clock.now_ms()
        doubts = {broker: until_ms for broker, until_ms in self._doubts.items() if until_ms > now_ms}
        self._doubts = doubts
        if not doubts:
            return
        seconds = (max(doubts.values()) - now_ms) / 1000
        try:
            await self._metadata.wait_until(
                lambda: not any(state.leader in self._doubts for _, _, state in self._image.all_partitions()),
                seconds,
            )
        except HeadraceError:
            pass  # it was only the network, or the election takes longer

    def replica_connected(self, connection_id: int, replica_id: int) -> None:
        """A follower fetches over this connection: should it break, we look whether the follower is still there."""
        self._replica_connections[connection_id] = replica_id

    def connection_closed(self, connection_id: int) -> None:
        replica_id = self._replica_connections.pop(connection_id, None)
        if replica_id is not None and not self.is_stopping:
            self.doubt(replica_id, True)
            self._runtime.spawn(self._probe(replica_id), f"probe broker {replica_id}")

    async def _probe(self, broker_id: int) -> None:
        """A follower's connection broke. Whoever is really gone refuses a new one; acks=all waits for it until then."""
        node, me = self._image.broker(broker_id), self._image.broker_id
        if node is None or not node.live or broker_id == me:
            return
        try:
            registration = node.registration
            (await PeerConnection.open(registration.host, registration.port, f"broker-{me}")).close()
        except PeerRefused:
            await self._fence(broker_id)
        except PeerLost as problem:
            log.info("broker %d: %s", broker_id, problem.detail)
