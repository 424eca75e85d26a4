"""Port: what the SQS door uses of the broker behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.broker.latest import Latest
from headrace.broker.queueing.catalog import QueueCatalog
from headrace.broker.queueing.moves.move_tasks import MoveTasks
from headrace.broker.queueing.queues import Queues
from headrace.broker.runtime import Runtime
from headrace.core.writers import Writers
from headrace.security.standing import StandingOrders


@dataclass(frozen=True, slots=True)
class SqsHost:
    runtime: Runtime
    node_id: int
    new_uuid: Callable[[], str]
    latest: Latest
    queues: Queues
    catalog: QueueCatalog
    moves: MoveTasks
    writers: Writers
    standing: StandingOrders
