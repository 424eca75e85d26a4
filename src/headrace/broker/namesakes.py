"""Driver: a name is made again only when nobody serves the topic that had it before.

A client knows a topic by its name, and so does a broker that has not heard of a deletion: alone in sync it would acknowledge a message for the new
topic into the old one, and nobody could tell (F1). So whoever makes a name again that was deleted a moment ago asks the other brokers first
whether they still know the old topic, and waits for those that don't say until their lease is over: from then on they serve nothing (R7).
"""

from __future__ import annotations

import asyncio

from headrace.broker.metadata import Metadata
from headrace.broker.peer import PeerLost
from headrace.broker.peers import Peers
from headrace.broker.runtime import Runtime
from headrace.cluster.rows import Namesake
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.wire.api import ApiKey
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

HEARD_MS = 60_000
"""By then every broker that holds its lease has read everything again (R3), and those that did not have lost it."""
PATIENCE_MS = 15_000
"""More than a lease lasts."""
ANSWER_S = 1.0
AGAIN_S = 0.05


class Namesakes:
    def __init__(self, runtime: Runtime, metadata: Metadata, peers: Peers) -> None:
        self._runtime = runtime
        self._image = metadata.image
        self._metadata = metadata
        self._peers = peers

    async def are_gone(self, name: str, *, but: Namesake | None = None) -> Namesake | None:
        """Nobody serves an earlier topic of this name; `but` one that was asked about already. Returns the last of them. Raises
        REQUEST_TIMED_OUT while somebody may."""
        last = self._image.namesake(name)
        if last is not None and last != but and self._is_young(last):
            others = [node for node in self._image.brokers if node != self._image.broker_id]
            heard = await asyncio.gather(*(self._has_heard(node, last) for node in others))
            silent = ", ".join(str(node) for node, has in zip(others, heard, strict=True) if not has)
            if silent:
                raise HeadraceError(
                    ErrorKind.REQUEST_TIMED_OUT,
                    f'"{name}" was deleted a moment ago, and broker {silent} has not said that it has heard of it; try again',
                )
        return last

    def _is_young(self, last: Namesake) -> bool:
        return self._runtime.clock.wall_ms() - last.deleted_ms < HEARD_MS

    async def _has_heard(self, node: int, last: Namesake) -> bool:
        """Once it has, or is registered no more. False: neither in time."""
        clock = self._runtime.lease_clock
        until_ms = clock.now_ms() + PATIENCE_MS
        while self._is_young(last) and node in self._image.brokers:
            if await self._says_so(node, last.topic_id):
                return True
            if clock.now_ms() >= until_ms:
                return False
            await self._metadata.moves(AGAIN_S)
        return True

    async def _says_so(self, node: int, topic_id: bytes) -> bool:
        """By the topic's id, which nobody knows any more who has heard that it is deleted."""
        request = MetadataRequest([MetadataRequestTopic(topic_id, None)], False)
        try:
            answer: MetadataResponse = await self._peers.call(node, ApiKey.METADATA, 12, request, ANSWER_S)
        except PeerLost:
            return False
        return [topic.error_code for topic in answer.topics] == [ErrorKind.UNKNOWN_TOPIC_ID.kafka_code]
