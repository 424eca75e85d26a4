"""Door: all of REST: which doors there are, and in what order they are put up."""

from __future__ import annotations

from headrace.broker.happenings import Observer
from headrace.broker.services import Services
from headrace.http.forwarding import Forwarder, ForwardingRouter
from headrace.http.known import KnowingRouter
from headrace.http.rest.admin_queues import AdminQueueDoor
from headrace.http.rest.admin_topics import AdminTopicDoor
from headrace.http.rest.auditing import AuditDoor
from headrace.http.rest.cluster import ClusterDoor
from headrace.http.rest.dead_letters import DeadLetterDoor
from headrace.http.rest.documentation import DocumentationDoor
from headrace.http.rest.explaining import ExplainDoor
from headrace.http.rest.exporting import ExportDoor
from headrace.http.rest.flow import FlowDoor
from headrace.http.rest.groups import GroupDoor
from headrace.http.rest.happenings import HappeningDoor
from headrace.http.rest.idempotency import Once
from headrace.http.rest.letters import LetterDoor
from headrace.http.rest.live import LiveDoor
from headrace.http.rest.locks import LockDoor
from headrace.http.rest.looking import LookDoor
from headrace.http.rest.moves import MoveDoor
from headrace.http.rest.pipelines import PipelineDoor
from headrace.http.rest.queue_stream import QueueStreamDoor
from headrace.http.rest.queues import QueueDoor
from headrace.http.rest.records import RecordReader
from headrace.http.rest.schedules import ScheduleDoor
from headrace.http.rest.settling import SettleDoor
from headrace.http.rest.topics import TopicDoor
from headrace.http.rest.tracing import TraceDoor
from headrace.http.router import Router
from headrace.http.whole import Whole
from headrace.security.standing import StandingOrders


def mount_rest(
    router: Router,
    services: Services,
    forwarder: Forwarder,
    whole: Whole,
    receipt_key: bytes,
    version: str,
    standing: StandingOrders,
    observer: Observer,
) -> None:
    broker = services.broker
    clock, image, partitions = broker.runtime.clock, broker.image, broker.partitions
    topics, queues, peers, rooms = services.topics, services.queues, services.peers, services.queue_rooms
    router = KnowingRouter(router, services.latest)
    forwarding = ForwardingRouter(router, forwarder)
    once = Once(clock, image, partitions, rooms.placement)
    reader = RecordReader(clock, image, partitions, peers, services.failures)
    TopicDoor(
        clock,
        broker.metadata,
        partitions,
        topics,
        services.views,
        rooms.placement,
        services.auto_creation,
        reader,
        forwarder,
        once,
        services.writers,
    ).mount(router)
    QueueDoor(
        clock,
        image,
        broker.new_uuid,
        queues,
        rooms.catalog,
        services.auto_creation,
        receipt_key,
        once,
        services.writers,
    ).mount(forwarding)
    SettleDoor(queues, receipt_key).mount(forwarding)
    QueueStreamDoor(clock, queues, receipt_key).mount(router)
    AdminQueueDoor(clock, image, broker.new_uuid, queues, rooms.catalog, whole).mount(forwarding)
    MoveDoor(rooms.catalog, rooms.moves, standing).mount(forwarding)
    AdminTopicDoor(image, topics, peers, reader, whole, lambda name: queues.find(name) is not None).mount(
        forwarding
    )
    LookDoor(clock, image, reader, services.sampler, whole).mount(router)
    ExportDoor(clock, image, reader, queues, rooms.catalog).mount(router)
    LetterDoor(clock, image, queues, rooms.catalog).mount(router)
    LiveDoor(clock, image, services.sampler, whole, observer.happenings).mount(router)
    HappeningDoor(image, observer, whole).mount(router)
    AuditDoor(clock, image, reader).mount(router)
    pipelines = PipelineDoor(clock, image, reader, peers, services.coordinators)
    pipelines.mount(router)
    FlowDoor(image, services.sampler, whole, pipelines.rows).mount(router)
    TraceDoor(clock, reader, services.sampler, whole).mount(router)
    DeadLetterDoor(services.sampler).mount(router)
    LockDoor(clock, services.sampler, whole, queues, receipt_key).mount(forwarding)
    groups = GroupDoor(clock, image, services.coordinators, peers, reader, whole)
    groups.mount(forwarding)
    ExplainDoor(clock, groups, whole, services.troubles).mount(forwarding)
    ScheduleDoor(image, queues, rooms.catalog, services.cron, standing).mount(forwarding)
    ClusterDoor(image, whole).mount(router)
    DocumentationDoor(router, version).mount(router)
