"""Driver: the topics that coordinators keep their state in. They come into being on first use."""

from __future__ import annotations

from headrace.broker.topic_admin import TopicAdmin
from headrace.cluster.image import ClusterImage
from headrace.cluster.topics import CreateTopic

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"


class InternalTopics:
    def __init__(
        self, image: ClusterImage, topics: TopicAdmin, *, partitions: int, replication_factor: int
    ) -> None:
        self._image = image
        self._topics = topics
        self._partitions = partitions
        self._replication_factor = replication_factor

    def partition_count(self, name: str) -> int | None:
        """None while it does not exist."""
        topic = self._image.topic(name)
        return None if topic is None else len(topic.partitions)

    def offsets_partition_count(self) -> int:
        """As many as there are, or as there will be."""
        return self.partition_count(OFFSETS_TOPIC) or self._partitions

    async def ensure(self, name: str) -> None:
        if self._image.topic(name) is None:
            factor = min(self._replication_factor, len(self._image.live_brokers()))
            configs = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024)}
            if name == TRANSACTIONS_TOPIC and factor > 2:
                # As Kafka's transaction.state.log.min.isr: a decision that binds several partitions is never on one disk only.
                configs["min.insync.replicas"] = "2"
            await self._topics.ensure(CreateTopic(name, self._partitions, max(1, factor), configs=configs))
