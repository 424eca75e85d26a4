"""Driver: who gets what. The services of one broker, built once, each from what it uses; what is missing is a type error here."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace.broker.auto_creation import AutoCreation
from headrace.broker.batch_opening import Opener
from headrace.broker.broker import Broker
from headrace.broker.client_brokers import ClientBrokers
from headrace.broker.connections import Connections
from headrace.broker.coordinators import Coordinators
from headrace.broker.fetch_sessions import FetchSessions
from headrace.broker.groups import Groups
from headrace.broker.hanging import HangingTransactions
from headrace.broker.history import QueueLook, Sampler
from headrace.broker.hosts import QueueHost
from headrace.broker.internal_topics import InternalTopics
from headrace.broker.latest import Latest
from headrace.broker.leading import Leading
from headrace.broker.markers import Markers, MarkerSender
from headrace.broker.namesakes import Namesakes
from headrace.broker.partition_admin import PartitionAdmin
from headrace.broker.peers import Peers
from headrace.broker.producer_ids import ProducerIds
from headrace.broker.queueing.cron import CronSchedules
from headrace.broker.queueing.placement.upkeep import QueueUpkeep
from headrace.broker.queueing.queues import Queues
from headrace.broker.queueing.rooms import QueueRooms
from headrace.broker.queueing.specs import QueueSpec
from headrace.broker.quota_admin import QuotaAdmin
from headrace.broker.schema_registry import SchemaRegistry
from headrace.broker.services import Failures, Services
from headrace.broker.share_groups import ShareGroups
from headrace.broker.share_offsets import ShareOffsets
from headrace.broker.throttles import ReplicationThrottle
from headrace.broker.topic_admin import TopicAdmin
from headrace.broker.transactions import Transactions
from headrace.broker.txn_client import TransactionClient
from headrace.broker.views.views import Views
from headrace.cluster.broker_configs import LEADER_THROTTLED_RATE
from headrace.groups.config import GroupConfig
from headrace.queues.commands import Lock, MessageGroup, MessageStatus, Source


class ServiceOptions(NamedTuple):
    auto_create_topics: bool = True
    offsets_partitions: int = 8
    internal_replication_factor: int = 1
    groups: GroupConfig = GroupConfig()
    connection_fencing: bool = True


def queue_look(rooms: QueueRooms) -> QueueLook:
    local = rooms.local

    def locks(spec: QueueSpec, limit: int) -> list[tuple[Source, Lock]]:
        return [
            (source, lock)
            for source, hosted in rooms.layouts.of(spec).local
            for lock in hosted.machine.locks(source, limit)
        ]

    def groups(spec: QueueSpec, limit: int) -> list[tuple[Source, MessageGroup]]:
        return [
            (source, group)
            for source, hosted in rooms.layouts.of(spec).local
            for group in hosted.machine.groups(source, limit)
        ]

    def status(spec: QueueSpec, topic: str, partition: int, offset: int) -> MessageStatus | None:
        for source, hosted in rooms.layouts.of(spec).local:
            if (source.topic, source.partition) == (topic, partition):
                return hosted.machine.status(source, offset)
        return None

    async def waiting(spec: QueueSpec) -> int:
        return sum(count.visible for _, count in (await rooms.router.stats(spec)).counts)

    return QueueLook(
        rooms.catalog.all,
        local.counts,
        local.oldest_age_ms,
        locks,
        groups,
        status,
        waiting,
        rooms.router.peek,
    )


def build_services(broker: Broker, options: ServiceOptions, troubles: Callable[[], list[str]]) -> Services:
    runtime, metadata, image, replicas = broker.runtime, broker.metadata, broker.image, broker.replicas
    connections = Connections(fencing=options.connection_fencing)
    client_brokers = ClientBrokers(image, runtime.clock, broker.liveness)
    latest = Latest(runtime, metadata, replicas.caught_up)
    peers = Peers(image, broker.introductions)
    topics = TopicAdmin(runtime, metadata, latest, Namesakes(runtime, metadata, peers), replicas.caught_up)
    partition_admin = PartitionAdmin(metadata)
    quota_admin = QuotaAdmin(metadata)
    internal_topics = InternalTopics(
        image,
        topics,
        partitions=options.offsets_partitions,
        replication_factor=options.internal_replication_factor,
    )
    coordinators = Coordinators(image, internal_topics)
    groups = Groups(runtime, options.groups, metadata, internal_topics)
    producer_ids = ProducerIds(runtime, metadata, broker.node_id)
    markers = Markers(runtime.clock, connections, groups)
    sender = MarkerSender(broker, broker.introductions, markers)
    transactions = Transactions(runtime, image, internal_topics, connections, peers, sender)
    queue_host = _queue_host(
        broker,
        topics,
        partition_admin,
        lambda identifier: TransactionClient(image, peers, coordinators, identifier),
    )
    rooms = QueueRooms(queue_host)
    share_groups = ShareGroups(broker, rooms, replicas.caught_up)
    views = Views(runtime, image, broker.find_partition)
    schemas = SchemaRegistry(runtime, metadata)
    sampler = Sampler(runtime, broker.partitions, groups, queue_look(rooms), replicas.room)
    services = Services(
        broker=broker,
        connections=connections,
        failures=Failures(),
        troubles=troubles,
        latest=latest,
        client_brokers=client_brokers,
        auto_creation=AutoCreation(options.auto_create_topics),
        topics=topics,
        partition_admin=partition_admin,
        quota_admin=quota_admin,
        quotas=quota_admin.quotas,
        peers=peers,
        coordinators=coordinators,
        groups=groups,
        producer_ids=producer_ids,
        transactions=transactions,
        markers=markers,
        hanging=HangingTransactions(runtime.clock, image, transactions, markers, producer_ids, peers),
        queues=Queues(rooms),
        queue_rooms=rooms,
        queue_upkeep=QueueUpkeep(queue_host, rooms.catalog, rooms.layouts, rooms.router, rooms.placement),
        cron=CronSchedules(queue_host, rooms.catalog, rooms.placement),
        share_groups=share_groups,
        share_offsets=ShareOffsets(image, groups, rooms, share_groups),
        opener=Opener(runtime),
        schemas=schemas,
        views=views,
        sampler=sampler,
        writers=sampler.lately.writers,
        fetch_sessions=FetchSessions(),
        throttle=ReplicationThrottle(runtime, image, LEADER_THROTTLED_RATE),
    )
    _let_hear(services)
    return services


def _queue_host(
    broker: Broker,
    topics: TopicAdmin,
    partition_admin: PartitionAdmin,
    transaction: Callable[[str], TransactionClient],
) -> QueueHost:
    return QueueHost(
        broker.runtime,
        broker.metadata,
        broker.image,
        broker.node_id,
        broker.partitions,
        broker.find_partition,
        broker.new_uuid,
        broker.replicas.caught_up,
        topics,
        partition_admin,
        transaction,
    )


def _let_hear(services: Services) -> None:
    """Who hears of what happens in the cluster and on this broker."""
    broker, rooms = services.broker, services.queue_rooms
    # In this order: whoever hears of a change may rest on what those before have made of it.
    broker.metadata.listeners += [
        services.client_brokers.heard,
        broker.replicas.heard,
        rooms.heard,
        services.groups.heard,
        services.share_groups.heard,
        services.quota_admin.heard,
        services.views.heard,
        services.schemas.heard,
    ]
    leading = Leading(services.connections, services.groups, services.transactions, rooms.shards)
    broker.replicas.on_open += [rooms.opened, services.schemas.opened]
    broker.replicas.on_lead.append(leading.began)
    broker.replicas.on_lead.append(lambda partition: broker.metadata.look_again())
    broker.replicas.on_resign.append(leading.ended)
