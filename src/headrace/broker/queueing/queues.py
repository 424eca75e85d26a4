"""Driver: queues, as doors see them: send, receive, ack, extend, release, reject, peek, purge, stats. Knows no SQS and no HTTP.

What this broker has it does itself (local/), and that is the short way; what another has is asked of that one (routing/); where a
new message belongs, and how many partitions a queue has, is a matter of its own (placement/). Messages go from one queue to
another in transactions (moves/). Which queues there are is in the catalog.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence

from headrace.broker.hosts import QueueHost
from headrace.broker.partition import Partition
from headrace.broker.queueing import names
from headrace.broker.queueing.catalog import QueueCatalog
from headrace.broker.queueing.layout import Layouts
from headrace.broker.queueing.local.due_records import DueRecords
from headrace.broker.queueing.local.local_queues import LocalQueues
from headrace.broker.queueing.local.shards import QueueShards
from headrace.broker.queueing.moves.dead_letters import DeadLetters
from headrace.broker.queueing.moves.move_tasks import MoveTasks
from headrace.broker.queueing.moves.transfers import Transfers
from headrace.broker.queueing.placement.placement import Placement
from headrace.broker.queueing.routing.answers import PeerAnswers
from headrace.broker.queueing.routing.caller import PeerCaller
from headrace.broker.queueing.routing.peer_calls import AskReceive, Delivery
from headrace.broker.queueing.routing.router import QueueRouter
from headrace.broker.queueing.specs import QueueSpec
from headrace.cluster.image import Delta, OpaqueChanged, TopicConfigChanged
from headrace.core.plan import Rejected
from headrace.queues.commands import Handle, Source
from headrace.records.build import Record

Settled = Awaitable[Sequence[Rejected | None]]
"""For each handle None, or why it was refused."""


class Queues:
    def __init__(self, host: QueueHost) -> None:
        runtime, partitions = host.runtime, host.partitions
        self.catalog = catalog = QueueCatalog(host)
        self.shards = shards = QueueShards(
            runtime, lambda topic, number: partitions.get((topic, number)), catalog.over, catalog.reader
        )
        self.layouts = layouts = Layouts(host.image, host.node_id, shards.hosted)
        self.caller = PeerCaller(host.node_id)
        self.placement = Placement(host, catalog, layouts, shards, self.caller)
        transfers = Transfers(host)
        dead_letters = DeadLetters(host, catalog, self.placement, transfers)
        self.local = LocalQueues(runtime, catalog, layouts, shards, dead_letters)
        self.router = QueueRouter(runtime, host.node_id, layouts, self.local, shards, self.caller)
        self.moves = MoveTasks(host, catalog, layouts, self.local, self.router, self.placement, transfers)
        self.answers = PeerAnswers(catalog, self.local, self.placement, self.moves, shards)
        shards.on_delays = DueRecords(runtime, self.local, transfers).watch
        shards.on_dead = dead_letters.move
        shards.on_hosted = layouts.forget
        shards.settle = transfers.settle
        shards.belongs = catalog.belongs
        catalog.on_change = shards.specs_changed
        self._partitions = partitions
        self._hosted = shards.hosted
        self.find = catalog.find
        self.send = self.placement.send
        self.send_group = self.placement.send_group
        self.peek = self.router.peek
        self.purge = self.router.purge
        self.pause = self.router.pause
        self.stats = self.router.stats
        catalog.load()

    def heard(self, deltas: list[Delta]) -> None:
        self.layouts.forget()
        if any(isinstance(delta, OpaqueChanged) and delta.key.startswith("queues/") for delta in deltas):
            self.catalog.load()
        changed = {delta.topic.name for delta in deltas if isinstance(delta, TopicConfigChanged)}
        if changed:
            self.shards.specs_changed(changed)

    def opened(self, partition: Partition) -> None:
        """A queue's journal may have been led before its data was opened here."""
        topic, number = partition.tp
        self.shards.data_opened(partition, self._partitions.get((names.journal_topic(topic), number)))

    def receive(
        self,
        spec: QueueSpec,
        max_messages: int,
        *,
        visibility_ms: int | None = None,
        wait_ms: int = 0,
        owner: str = "",
    ) -> Awaitable[list[Delivery]]:
        """Up to `max_messages`, waiting for the first if there is none."""
        if not self.layouts.of(spec).others or self.caller.peers is None:
            return self.local.receive(
                spec, max_messages, visibility_ms=visibility_ms, wait_ms=wait_ms, owner=owner
            )
        ask = AskReceive(
            queue=spec.name, count=max_messages, visibility_ms=visibility_ms, wait_ms=wait_ms, owner=owner
        )
        return self.router.receive(spec, ask)

    def ack(self, source: Source, handles: Iterable[Handle]) -> Settled:
        if source[1:] in self._hosted:
            return self.local.ack(source, handles)
        return self.router.settle(source, "ack", handles)

    def extend(
        self,
        source: Source,
        handles: Iterable[Handle],
        visibility_ms: int,
        *,
        stale_may_prolong: bool = False,
    ) -> Settled:
        if source[1:] in self._hosted:
            return self.local.extend(source, handles, visibility_ms, stale_may_prolong=stale_may_prolong)
        return self.router.settle(
            source, "extend", handles, visibility_ms, stale_may_prolong=stale_may_prolong
        )

    def release(
        self, source: Source, handles: Iterable[Handle], delay_ms: int | None = None, detail: str = ""
    ) -> Settled:
        """`detail` is kept with the dead letter if this was the last attempt."""
        if source[1:] in self._hosted:
            return self.local.release(source, handles, delay_ms, detail)
        return self.router.settle(source, "release", handles, delay_ms, detail)

    def reject(self, source: Source, handles: Iterable[Handle], detail: str = "") -> Settled:
        if source[1:] in self._hosted:
            return self.local.reject(source, handles, detail)
        return self.router.settle(source, "reject", handles, detail=detail)

    def scheduled(self, source: Source, from_offset: int, limit: int) -> Awaitable[list[tuple[int, Record]]]:
        """(due time, message) of messages that wait for their time, in log order."""
        if source[1:] in self._hosted:
            return self.local.scheduled(source, from_offset, limit)
        return self.router.scheduled(source, from_offset, limit)
