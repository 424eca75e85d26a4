"""Driver: the rooms of queueing, built once and given what they use of each other. Doors see queues.py, and nothing of this."""

from __future__ import annotations

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
from headrace.broker.queueing.routing.lives import Lives
from headrace.broker.queueing.routing.router import QueueRouter
from headrace.cluster.deltas import Delta, OpaqueChanged, TopicConfigChanged


class QueueRooms:
    def __init__(self, host: QueueHost) -> None:
        runtime, partitions = host.runtime, host.partitions
        self.catalog = catalog = QueueCatalog(host)
        self.shards = shards = QueueShards(
            runtime, lambda topic, number: partitions.get((topic, number)), catalog.over, catalog.reader
        )
        self.layouts = layouts = Layouts(host.image, host.node_id, shards.hosted)
        self.lives = Lives(host.image, catalog)
        self.caller = PeerCaller(host.node_id, self.lives)
        self.placement = Placement(host, catalog, layouts, shards, self.caller)
        transfers = Transfers(host)
        dead_letters = DeadLetters(host, catalog, self.placement, transfers)
        self.local = LocalQueues(runtime, catalog, layouts, shards, dead_letters)
        self.router = QueueRouter(runtime, host.node_id, catalog, layouts, self.local, shards, self.caller)
        self.moves = MoveTasks(host, catalog, layouts, self.local, self.router, self.placement, transfers)
        self.answers = PeerAnswers(catalog, self.local, self.placement, self.moves, shards)
        shards.on_delays = DueRecords(runtime, self.local, transfers).watch
        shards.on_dead = dead_letters.move
        shards.on_hosted = layouts.forget
        shards.settle = transfers.settle
        shards.belongs = catalog.belongs
        catalog.on_change = shards.specs_changed
        self._partitions = partitions
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
