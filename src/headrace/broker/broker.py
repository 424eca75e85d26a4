"""Driver: one broker: its replicas, its coordinators, and what the doors ask of them."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from typing import NamedTuple

from headrace.broker.auto_creation import AutoCreation
from headrace.broker.batch_opening import Opener
from headrace.broker.client_brokers import ClientBrokers
from headrace.broker.coordinators import Coordinators
from headrace.broker.disk_room import AUTOMATIC
from headrace.broker.fetch_sessions import FetchSessions
from headrace.broker.flusher import Flusher
from headrace.broker.groups import Groups
from headrace.broker.hosts import QueueHost
from headrace.broker.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, InternalTopics
from headrace.broker.introductions import Introductions
from headrace.broker.latest import Latest
from headrace.broker.metadata import Metadata
from headrace.broker.partition import Partition
from headrace.broker.partition_admin import PartitionAdmin
from headrace.broker.peer import PeerConnection, PeerLost, PeerRefused
from headrace.broker.peers import Peers
from headrace.broker.producer_ids import ProducerIds
from headrace.broker.queueing.cron import CronSchedules
from headrace.broker.queueing.desk import QueueDesk
from headrace.broker.queueing.keeper import QueueKeeper
from headrace.broker.queueing.names import data_topic, journal_topic
from headrace.broker.quota_admin import QuotaAdmin
from headrace.broker.replicas import Replicas
from headrace.broker.replicator import Replicator
from headrace.broker.runtime import Runtime
from headrace.broker.share_groups import ShareGroups
from headrace.broker.share_offsets import ShareOffsets
from headrace.broker.throttles import ReplicationThrottle
from headrace.broker.topic_admin import TopicAdmin
from headrace.broker.transactions import Transactions
from headrace.broker.txn_client import TransactionClient
from headrace.broker.views.desk import Views
from headrace.cluster.broker_configs import LEADER_THROTTLED_RATE
from headrace.cluster.image import Broker as Node
from headrace.cluster.image import (
    BrokerConfigChanged,
    Delta,
    OpaqueChanged,
    PartitionChanged,
    Topic,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
)
from headrace.cluster.membership import fence_suspect
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import is_internal
from headrace.core.plan import Rejected
from headrace.groups.config import GroupConfig
from headrace.groups.topics import TopicInfo
from headrace.transactions.connections import Leaderships, MarkerSenders, NewestConnections

log = logging.getLogger(__name__)

TOPICS_SETTLE_S = 0.05
"""Groups are told of all topics at once, so many that are made one after the other are told together (F27)."""

DOUBT_MS = 300


DELETE_RECORDS_MS = 30_000


class BrokerOptions(NamedTuple):
    log_dir: str
    cluster_key: bytes
    """What brokers of the cluster have and nobody else (A27, A49)."""
    ephemeral: bool = False
    repair: bool = False
    auto_create_topics: bool = True
    offsets_partitions: int = 8
    internal_replication_factor: int = 1
    groups: GroupConfig = GroupConfig()
    connection_fencing: bool = True
    disk_reserve_bytes: int = AUTOMATIC


class Broker:
    def __init__(self, runtime: Runtime, metadata: Metadata, options: BrokerOptions) -> None:
        self.runtime = runtime
        self.metadata = metadata
        self.image = metadata.image
        self.node_id = metadata.image.broker_id
        self.auto_create_topics = options.auto_create_topics
        self.auto_creation = AutoCreation()
        self.log_dir = options.log_dir
        self._options = options
        self.opener = Opener(runtime)
        self.flusher = Flusher(runtime, self._disk_failed)
        self.introductions = Introductions(runtime, metadata, options.cluster_key)
        self.replicator = Replicator(runtime, self.image, self.introductions, self._suspect)
        self.replicas = Replicas(
            runtime,
            metadata,
            self.flusher,
            options.log_dir,
            self.replicator,
            ephemeral=options.ephemeral,
            repair=options.repair,
            disk_reserve_bytes=options.disk_reserve_bytes,
        )
        self.partitions = self.replicas.partitions
        self.latest = Latest(runtime, metadata, self.replicas.caught_up)
        self.topics = TopicAdmin(runtime, metadata, self._serves)
        self.partition_admin = PartitionAdmin(metadata)
        self.quota_admin = QuotaAdmin(metadata)
        self.quotas = self.quota_admin.quotas
        self.throttle = ReplicationThrottle(runtime, self.image, LEADER_THROTTLED_RATE)
        self.peers = Peers(self.image, self.introductions)
        internal = InternalTopics(
            self.image,
            self.topics,
            partitions=options.offsets_partitions,
            replication_factor=options.internal_replication_factor,
        )
        self.coordinators = Coordinators(self.image, internal)
        self.offsets_partition_count = internal.offsets_partition_count
        self.groups = Groups(
            runtime, options.groups, metadata, lambda: internal.partition_count(OFFSETS_TOPIC)
        )
        self.newest_connection_id = 0
        """Connection ids rise with every connection this broker accepts (R47)."""
        self.connection_fencing = options.connection_fencing
        self.newest_connections = NewestConnections()
        self.newest_offset_connections = NewestConnections()
        """The same for TxnOffsetCommit: clients may have one connection for records and another for offsets."""
        self.marker_senders = MarkerSenders()
        self.leaderships = Leaderships()
        self.close_connection: Callable[[int], None] = lambda connection_id: None
        self.is_connected: Callable[[int], bool] = lambda connection_id: True
        self.on_disk_failed: Callable[[], None] = lambda: None
        self.troubles: Callable[[], list[str]] = list
        """What is not as it should be with this broker, in words (node.health)."""
        self.is_stopping = False
        self._replica_connections: dict[int, int] = {}
        self.transactions = Transactions(self, lambda: internal.partition_count(TRANSACTIONS_TOPIC))
        queue_host = self._queue_host()
        self.queues = QueueDesk(queue_host)
        self.queue_keeper = QueueKeeper(queue_host, self.queues)
        self.share_groups = ShareGroups(self)
        self.share_offsets = ShareOffsets(self)
        self.cron = CronSchedules(queue_host, self.queues)
        self.producer_ids = ProducerIds(runtime, metadata, self.node_id)
        self.fetch_sessions = FetchSessions()
        self.views = Views(runtime, self.image, self.find_partition)
        self.api_versions: list[tuple[int, int, int]] = []
        self.feature_levels: dict[str, int] = {
            "group.version": 1,
            "share.version": 1,
            "transaction.version": 2,
        }
        self.failed_produces = self.failed_fetches = 0
        self.unreadable_elsewhere = 0
        """Batches of other leaders that we could not open when we read them for somebody."""
        self._topics_moved = False
        self._doubts: dict[int, int] = {}
        self.replicator.on_doubt = self._doubt
        self._client_brokers = ClientBrokers(self.image, runtime.clock)
        metadata.listeners.append(self._client_brokers.heard)
        metadata.listeners.append(self.replicas.heard)
        metadata.listeners.append(self._heard)
        metadata.listeners.append(self.views.heard)
        self.replicas.on_open.append(self._opened)
        self.replicas.on_lead.append(self._leads)
        self.replicas.on_resign.append(self._resigned)

    def _heard(self, deltas: list[Delta]) -> None:
        if any(isinstance(delta, OpaqueChanged) and delta.key.startswith("queues/") for delta in deltas):
            self.queues.load_specs()
        for delta in deltas:
            if isinstance(delta, TopicDeleted):
                self.groups.topic_deleted(delta.name, delta.topic_id)
        changed = {delta.topic.name for delta in deltas if isinstance(delta, TopicConfigChanged)}
        if changed:
            self.queues.shards.specs_changed(changed)
        if any(isinstance(delta, OpaqueChanged) and delta.key.startswith("quotas/") for delta in deltas):
            self.quota_admin.load()
        self._tell_groups_of_configs(deltas)
        moved = any(
            isinstance(delta, (TopicCreated, TopicDeleted))
            or (isinstance(delta, PartitionChanged) and delta.old is None)
            for delta in deltas
        )
        if moved and not self._topics_moved:
            # Many changes may come in one go; the groups look at the outcome once.
            self._topics_moved = True
            asyncio.get_running_loop().call_later(TOPICS_SETTLE_S, self.tell_groups_of_topics)

    def _tell_groups_of_configs(self, deltas: list[Delta]) -> None:
        prefix = "groups/"
        groups = {
            delta.key.removeprefix(prefix)
            for delta in deltas
            if isinstance(delta, OpaqueChanged) and delta.key.startswith(prefix)
        }
        of_all = any(isinstance(delta, BrokerConfigChanged) for delta in deltas)
        if groups or of_all:
            self.groups.configs_changed(None if of_all else groups)
            self.share_groups.configs_changed()

    def tell_groups_of_topics(self) -> None:
        self._topics_moved = False
        racks = {node.id: node.rack for node in self.image.brokers.values() if node.rack is not None}
        self.groups.topics_changed(
            {
                topic.name: TopicInfo(topic.id, len(topic.partitions), _racks(topic, racks))
                for topic in self.image.topics.values()
            }
        )

    # -- leadership --------------------------------------------------------------------------------------------

    def _opened(self, partition: Partition) -> None:
        """A queue's journal may have been led before its data was opened here."""
        journal = self.partitions.get((journal_topic(partition.tp.topic), partition.tp.partition))
        self.queues.shards.data_opened(partition, journal)

    def _leads(self, partition: Partition) -> None:
        self.leaderships.began(partition.tp, partition.leader_epoch, self.newest_connection_id)
        if partition.tp.topic == OFFSETS_TOPIC:
            self.groups.lead(partition)
        elif partition.tp.topic == TRANSACTIONS_TOPIC:
            self.transactions.lead(partition)
        elif data_topic(partition.tp.topic) is not None:
            self.queues.shards.lead(partition)

    def _resigned(self, partition: Partition) -> None:
        self.leaderships.ended(partition.tp)
        if partition.tp.topic == OFFSETS_TOPIC:
            self.groups.resign(partition)
        elif partition.tp.topic == TRANSACTIONS_TOPIC:
            self.transactions.resign(partition)
        elif data_topic(partition.tp.topic) is not None:
            self.queues.shards.resign(partition)

    def _disk_failed(self, problem: OSError) -> None:
        """S7: every log in this directory is out of service until a restart scans it."""
        for partition in list(self.partitions.values()):
            partition.mark_failed()
        self.on_disk_failed()

    def _suspect(self, broker_id: int) -> None:
        """A peer's process seems gone. Fencing it is a compared transaction, so a wrong guess does no harm (R8)."""
        if not self.is_stopping:
            self.runtime.spawn(self._fence(broker_id), f"fence broker {broker_id}")

    async def _fence(self, broker_id: int) -> None:
        controller = self.image.controller
        if controller is None:
            return
        change = fence_suspect(self.image, broker_id, controller.epoch)
        try:
            if change is not None and (await self.metadata.commit(change)).succeeded:
                log.warning("broker %d refuses connections: fenced", broker_id)
        except HeadraceError as problem:
            log.warning("broker %d refuses connections but can't be fenced: %s", broker_id, problem.detail)

    def _doubt(self, broker_id: int, doubted: bool) -> None:
        if doubted:
            self._doubts[broker_id] = self.runtime.clock.now_ms() + DOUBT_MS
        else:
            self._doubts.pop(broker_id, None)

    async def leaders_settled(self) -> None:
        """Clients ask for a new leader the moment the old one dies, some milliseconds before there is one. Told of the old
        one again, librdkafka waits a second before it asks the next time; so we wait those milliseconds for it.
        """
        now_ms = self.runtime.clock.now_ms()
        doubts = {broker: until_ms for broker, until_ms in self._doubts.items() if until_ms > now_ms}
        self._doubts = doubts
        if not doubts:
            return
        seconds = (max(doubts.values()) - now_ms) / 1000
        try:
            await self.metadata.wait_until(
                lambda: not any(state.leader in self._doubts for _, _, state in self.image.all_partitions()),
                seconds,
            )
        except HeadraceError:
            pass  # it was only the network, or the election takes longer

    def replica_connected(self, connection_id: int, replica_id: int) -> None:
        """A follower fetches over this connection: should it break, we look whether the follower is still there."""
        self._replica_connections[connection_id] = replica_id

    async def _probe(self, broker_id: int) -> None:
        """A follower's connection broke. Whoever is really gone refuses a new one; acks=all waits for it until then."""
        node = self.image.broker(broker_id)
        if node is None or not node.live or broker_id == self.node_id:
            return
        try:
            registration = node.registration
            (
                await PeerConnection.open(registration.host, registration.port, f"broker-{self.node_id}")
            ).close()
        except PeerRefused:
            await self._fence(broker_id)
        except PeerLost as problem:
            log.info("broker %d: %s", broker_id, problem.detail)

    async def _serves(self, topic: str) -> None:
        await self.replicas.caught_up()

    # -- lookups -----------------------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        cluster = self.image.cluster
        return "" if cluster is None else cluster.cluster_id

    def client_brokers(self) -> list[Node]:
        """What clients are told: every live broker, in a stable order, so that none is dropped and re-added; never nobody."""
        return self._client_brokers.now(is_stopping=self.is_stopping)

    def find_partition(self, topic: str, number: int) -> tuple[Partition | None, ErrorKind]:
        """The replica here, or what a client is told instead."""
        partition = self.partitions.get((topic, number))
        if partition is not None:
            return partition, ErrorKind.NONE
        if self.image.partition(topic, number) is None:
            return None, ErrorKind.UNKNOWN_TOPIC_OR_PARTITION
        if self.image.view(topic) is not None:
            return None, ErrorKind.INVALID_TOPIC_EXCEPTION
        if (topic, number) in self.replicas.offline:
            return None, ErrorKind.KAFKA_STORAGE_ERROR
        return None, ErrorKind.NOT_LEADER_OR_FOLLOWER

    def find_readable(self, topic: str, number: int) -> tuple[Partition | None, ErrorKind]:
        """The replica here whose offsets a topic or a view has."""
        partition = self.partitions.get((topic, number))
        if partition is not None:
            return partition, ErrorKind.NONE
        view = self.image.view(topic)
        return self.find_partition(topic if view is None else view.source, number)

    def produce_refusal(self, topic: str) -> Rejected | None:
        """Internal topics are written by the broker alone (X17), views by nobody."""
        if is_internal(topic):
            return Rejected(ErrorKind.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
        return self.views.write_refusal(topic)

    def new_uuid(self) -> str:
        return str(uuid.UUID(bytes=self.runtime.random_bytes(16), version=4))

    def disk_space(self) -> tuple[int, int]:
        """Total is unknown behind the file-system port; what is free is what people ask for."""
        if self._options.ephemeral:
            return -1, -1
        return -1, self.runtime.fs.free_bytes(self.log_dir)

    def _queue_host(self) -> QueueHost:
        return QueueHost(
            self.runtime,
            self.metadata,
            self.image,
            self.node_id,
            self.partitions,
            self.find_partition,
            self.new_uuid,
            self.replicas.caught_up,
            self.topics,
            self.partition_admin,
            lambda identifier: TransactionClient(self.image, self.peers, self.coordinators, identifier),
        )

    def near_replica(self, partition: Partition, rack: str) -> int:
        """KIP-392: an in-sync replica in the consumer's own rack, when the leader is not; else -1."""
        me = self.image.broker(self.node_id)
        if me is None or me.rack == rack:
            return -1
        for member in partition.isr:
            node = self.image.broker(member)
            if node is not None and node.live and node.rack == rack:
                return member
        return -1

    # -- maintenance -------------------------------------------------------------------------------------------

    async def delete_records(
        self, partition: Partition, offset: int, timeout_ms: int = DELETE_RECORDS_MS
    ) -> int:
        """Forget everything below `offset` (-1: all that is committed), here and on every live replica; the new first
        offset. REQUEST_TIMED_OUT: it is gone here, and will be elsewhere."""
        if not partition.is_leader:
            raise HeadraceError(ErrorKind.NOT_LEADER_OR_FOLLOWER)
        await partition.settle_own_writes()
        wanted = partition.high_watermark if offset == -1 else offset
        if wanted < 0 or wanted > partition.high_watermark:
            raise HeadraceError(ErrorKind.OFFSET_OUT_OF_RANGE, f"{wanted} is above the high watermark")
        start = partition.delete_records(wanted)
        if isinstance(start, Rejected):
            raise HeadraceError(start.kind, start.detail)

        def live_followers() -> list[int]:
            return [
                node.id
                for node in self.image.live_brokers()
                if node.id in partition.replicas and node.id != self.node_id
            ]

        if not await partition.low_watermark.reach(start, live_followers, timeout_ms / 1000):
            raise HeadraceError(ErrorKind.REQUEST_TIMED_OUT, "some replicas have not deleted them yet")
        return start

    def connection_closed(self, connection_id: int) -> None:
        """A client is gone. Members leave by their session; only for replicas do we look after them."""
        self.fetch_sessions.connection_closed(connection_id)
        self.share_groups.connection_closed(connection_id)
        replica_id = self._replica_connections.pop(connection_id, None)
        if replica_id is not None and not self.is_stopping:
            self._doubt(replica_id, True)
            self.runtime.spawn(self._probe(replica_id), f"probe broker {replica_id}")


def _racks(topic: Topic, racks: dict[int, str]) -> tuple[frozenset[str], ...]:
    if not racks:
        return ()
    return tuple(
        frozenset(racks[replica] for replica in state.replicas if replica in racks) if state else frozenset()
        for state in topic.partitions
    )
