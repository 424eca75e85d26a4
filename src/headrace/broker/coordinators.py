"""Driver: who coordinates a group, a transactional id or a share partition: the leader of the partition that has its state."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from headrace.broker.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, InternalTopics
from headrace.cluster.image import ClusterImage
from headrace.cluster.rows import BrokerNode as Node
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import shard_for
from headrace.core.units import is_digits

GROUP, TRANSACTION, SHARE = 0, 1, 2


class NodeAddress(NamedTuple):
    id: int
    host: str
    port: int


class Coordinators:
    def __init__(self, image: ClusterImage, internal_topics: InternalTopics) -> None:
        self._image = image
        self._internal_topics = internal_topics

    async def find(self, key: str, kind: int) -> NodeAddress:
        """Makes the internal topics that are missing. Raises HeadraceError."""
        if kind == GROUP:
            if not key:
                raise HeadraceError(ErrorKind.INVALID_GROUP_ID, "the group id is empty")
            topic = OFFSETS_TOPIC
        elif kind == TRANSACTION:
            if not key:
                raise HeadraceError(ErrorKind.INVALID_REQUEST, "the transactional id is empty")
            topic = TRANSACTIONS_TOPIC
        elif kind == SHARE:
            return self._share_coordinator(key)
        else:
            raise HeadraceError(ErrorKind.INVALID_REQUEST, f"coordinators of type {kind} are not served")
        await self._internal_topics.ensure(OFFSETS_TOPIC)
        await self._internal_topics.ensure(topic)
        node = self._leader(topic, key)
        if node is None or not node.live:
            raise HeadraceError(
                ErrorKind.COORDINATOR_NOT_AVAILABLE, f"the partition of {key!r} has no leader right now"
            )
        return NodeAddress(node.id, node.registration.host, node.registration.port)

    def of_transaction(self, transactional_id: str) -> Node:
        """The broker to ask as the image has it now. Raises COORDINATOR_NOT_AVAILABLE."""
        return self._need(TRANSACTIONS_TOPIC, transactional_id)

    def of_group(self, group_id: str) -> Node:
        """The same of a group."""
        return self._need(OFFSETS_TOPIC, group_id)

    def _need(self, topic: str, key: str) -> Node:
        node = self._leader(topic, key)
        if node is None:
            raise HeadraceError(ErrorKind.COORDINATOR_NOT_AVAILABLE, f"{key} has no coordinator")
        return node

    def _leader(self, topic: str, key: str) -> Node | None:
        count = self._internal_topics.partition_count(topic)
        return None if count is None else self._image.leader(topic, shard_for(key, count))

    def _share_coordinator(self, key: str) -> NodeAddress:
        """`group:topic id:partition`. The state of a share partition lies beside its data."""
        group, _, place = key.partition(":")
        topic_id, _, number = place.partition(":")
        try:
            raw = base64.urlsafe_b64decode(topic_id + "==")
        except (ValueError, binascii.Error):
            raw = b""
        topic = self._image.topic_by_id(raw) if len(raw) == 16 else None
        if not group or topic is None or not is_digits(number):
            raise HeadraceError(ErrorKind.INVALID_REQUEST, f"{key!r} does not name a share partition")
        node = self._image.leader(topic.name, int(number))
        if node is None or not node.live:
            raise HeadraceError(ErrorKind.COORDINATOR_NOT_AVAILABLE, f"{key!r} has no leader right now")
        return NodeAddress(node.id, node.registration.host, node.registration.port)
