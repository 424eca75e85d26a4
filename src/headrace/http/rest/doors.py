"""Door: all of REST: which doors there are, and in what order they are put up."""

from __future__ import annotations

from headrace.broker.broker import Broker
from headrace.http.forwarding import Forwarder, ForwardingRouter
from headrace.http.known import KnowingRouter
from headrace.http.rest.admin_queues import AdminQueueDoor
from headrace.http.rest.admin_topics import AdminTopicDoor
from headrace.http.rest.cluster import ClusterDoor
from headrace.http.rest.documentation import DocumentationDoor
from headrace.http.rest.groups import GroupDoor
from headrace.http.rest.idempotency import Once
from headrace.http.rest.queue_stream import QueueStreamDoor
from headrace.http.rest.queues import QueueDoor
from headrace.http.rest.schedules import ScheduleDoor
from headrace.http.rest.settling import SettleDoor
from headrace.http.rest.topics import TopicDoor
from headrace.http.router import Router


def mount_rest(
    router: Router, broker: Broker, forwarder: Forwarder, receipt_key: bytes, version: str
) -> None:
    router = KnowingRouter(router, broker)
    forwarding = ForwardingRouter(router, forwarder)
    once = Once(broker)
    TopicDoor(broker, forwarder, once).mount(router)
    QueueDoor(broker, receipt_key, once).mount(forwarding)
    SettleDoor(broker, receipt_key).mount(forwarding)
    QueueStreamDoor(broker, receipt_key).mount(router)
    AdminQueueDoor(broker).mount(forwarding)
    AdminTopicDoor(broker).mount(forwarding)
    GroupDoor(broker).mount(forwarding)
    ScheduleDoor(broker).mount(forwarding)
    ClusterDoor(broker).mount(router)
    DocumentationDoor(router, version).mount(router)
