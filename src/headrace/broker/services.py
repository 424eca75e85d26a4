"""Port: the services of one broker, as the doors are given them. Built once, in `node/services.py`.

A record, not a locator: everything in it was handed what it uses when it was built, nothing is filled in later, and nothing below
the doors takes it ([decision 0030](../../../docs/decisions/0030-children-get-what-they-use.md)).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.broker.auto_creation import AutoCreation
from headrace.broker.batch_opening import Opener
from headrace.broker.broker import Broker
from headrace.broker.client_brokers import ClientBrokers
from headrace.broker.connections import Connections
from headrace.broker.coordinators import Coordinators
from headrace.broker.fetch_sessions import FetchSessions
from headrace.broker.groups import Groups
from headrace.broker.hanging import HangingTransactions
from headrace.broker.history import Sampler
from headrace.broker.latest import Latest
from headrace.broker.markers import Markers
from headrace.broker.partition_admin import PartitionAdmin
from headrace.broker.peers import Peers
from headrace.broker.producer_ids import ProducerIds
from headrace.broker.queueing.cron import CronSchedules
from headrace.broker.queueing.placement.upkeep import QueueUpkeep
from headrace.broker.queueing.queues import Queues
from headrace.broker.queueing.rooms import QueueRooms
from headrace.broker.quota_admin import QuotaAdmin
from headrace.broker.schema_registry import SchemaRegistry
from headrace.broker.share_groups import ShareGroups
from headrace.broker.share_offsets import ShareOffsets
from headrace.broker.throttles import ReplicationThrottle
from headrace.broker.topic_admin import TopicAdmin
from headrace.broker.transactions import Transactions
from headrace.broker.views.views import Views
from headrace.cluster.quotas import Quotas
from headrace.core.writers import Writers


@dataclass(slots=True)
class Failures:
    """What went wrong at the doors, counted for metrics."""

    produces: int = 0
    fetches: int = 0
    unreadable_elsewhere: int = 0
    """Batches of other leaders that we could not open when we read them for somebody."""


@dataclass(frozen=True, slots=True)
class Services:
    broker: Broker
    connections: Connections
    failures: Failures
    troubles: Callable[[], list[str]]
    """What is not as it should be with this broker, in words (node.health)."""
    # Metadata and its administration.
    latest: Latest
    client_brokers: ClientBrokers
    auto_creation: AutoCreation
    topics: TopicAdmin
    partition_admin: PartitionAdmin
    quota_admin: QuotaAdmin
    quotas: Quotas
    peers: Peers
    # Coordinators.
    coordinators: Coordinators
    groups: Groups
    producer_ids: ProducerIds
    transactions: Transactions
    markers: Markers
    hanging: HangingTransactions
    # Queues.
    queues: Queues
    """As doors see them."""
    queue_rooms: QueueRooms
    queue_upkeep: QueueUpkeep
    cron: CronSchedules
    share_groups: ShareGroups
    share_offsets: ShareOffsets
    # Reading and writing.
    opener: Opener
    schemas: SchemaRegistry
    views: Views
    sampler: Sampler
    writers: Writers
    """The sampler's, for those who write."""
    fetch_sessions: FetchSessions
    throttle: ReplicationThrottle
