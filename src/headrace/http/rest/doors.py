"""Door: all of REST: which doors there are, and in what order they are put up."""

from __future__ import annotations

from headrace.broker.services import Services
from headrace.http.forwarding import Forwarder, ForwardingRouter
from headrace.http.known import KnowingRouter
from headrace.http.rest.admin_queues import AdminQueueDoor
from headrace.http.rest.admin_topics import AdminTopicDoor
from headrace.http.rest.cluster import ClusterDoor
from headrace.http.rest.dead_letters import DeadLetterDoor
from headrace.http.rest.documentation import DocumentationDoor
from headrace.http.rest.explaining import ExplainDoor
from headrace.http.rest.exporting import ExportDoor
from headrace.http.rest.flow import FlowDoor
from headrace.http.rest.groups import GroupDoor
from headrace.http.rest.idempotency import Once
from headrace.http.rest.letters import LetterDoor
from headrace.http.rest.live import LiveDoor
from headrace.http.rest.looking import LookDoor
from headrace.http.rest.moves import MoveDoor
from headrace.http.rest.queue_stream import QueueStreamDoor
from headrace.http.rest.queues import QueueDoor
from headrace.http.rest.records import RecordReader
from headrace.http.rest.schedules import ScheduleDoor
from headrace.http.rest.settling import SettleDoor
from headrace.http.rest.topics import TopicDoor
from headrace.http.router import Router


def mount_rest(
    router: Router, services: Services, forwarder: Forwarder, receipt_key: bytes, version: str
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
        image,
        partitions,
        topics,
        services.views,
        rooms.placement,
        services.auto_creation,
        reader,
        forwarder,
        once,
    ).mount(router)
    QueueDoor(
        clock, image, broker.new_uuid, queues, rooms.catalog, services.auto_creation, receipt_key, once
    ).mount(forwarding)
    SettleDoor(queues, receipt_key).mount(forwarding)
    QueueStreamDoor(clock, queues, receipt_key).mount(router)
    AdminQueueDoor(clock, image, broker.new_uuid, queues, rooms.catalog).mount(forwarding)
    MoveDoor(rooms.catalog, rooms.moves).mount(forwarding)
    AdminTopicDoor(
        image, topics, peers, reader, services.sampler.lately, lambda name: queues.find(name) is not None
    ).mount(forwarding)
    LookDoor(clock, image, reader, services.sampler).mount(router)
    ExportDoor(clock, reader, queues, rooms.catalog).mount(router)
    LetterDoor(clock, queues, rooms.catalog).mount(router)
    LiveDoor(clock, image, services.sampler).mount(router)
    FlowDoor(image, services.sampler).mount(router)
    DeadLetterDoor(clock, image, services.sampler).mount(router)
    groups = GroupDoor(image, services.coordinators, peers, reader, services.sampler.lately)
    groups.mount(forwarding)
    ExplainDoor(clock, groups, services.sampler, services.troubles).mount(forwarding)
    ScheduleDoor(image, queues, rooms.catalog, services.cron).mount(forwarding)
    ClusterDoor(image).mount(router)
    DocumentationDoor(router, version).mount(router)
