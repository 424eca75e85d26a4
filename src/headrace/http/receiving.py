"""Door: a long poll of a queue, for who may still have what comes of it (A9)."""

from __future__ import annotations

from headrace.broker.queueing.queues import Queues
from headrace.broker.queueing.routing.peer_calls import DeliveredMessage
from headrace.broker.queueing.specs import QueueSpec
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.security.access import Access
from headrace.security.rights import GROUP, TOPIC, Operation


async def receive_allowed(
    queues: Queues,
    spec: QueueSpec,
    access: Access | None,
    count: int,
    *,
    visibility_ms: int | None,
    wait_ms: int,
) -> list[DeliveredMessage]:
    """Raises QUEUE_DOES_NOT_EXIST or ACCESS_DENIED when the right was withdrawn while it waited; what had come goes back to the queue."""
    version = 0 if access is None else access.version
    found = await queues.receive(spec, count, visibility_ms=visibility_ms, wait_ms=wait_ms)
    if access is None or access.version == version:
        return found
    lacks = access.refuses(Operation.READ, GROUP, spec.name) or any(
        access.refuses(Operation.READ, TOPIC, topic) for topic in spec.topics
    )
    if not lacks:
        return found
    for one in found:
        await queues.release(one.source, [one.handle], 0)
    if not access.sees(GROUP, spec.name):
        raise HeadraceError(
            ErrorKind.QUEUE_DOES_NOT_EXIST,
            "The specified queue does not exist or you do not have access to it.",
        )
    raise HeadraceError(ErrorKind.ACCESS_DENIED, f"needs Read on group {spec.name} and its topics")
