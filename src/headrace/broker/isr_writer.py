"""Driver: writes a leader's ISR proposals and tells it how they ended (R1, R5, R13, R16)."""

from __future__ import annotations

import logging

from headrace.broker.metadata import Metadata
from headrace.broker.partition import Partition
from headrace.broker.runtime import Runtime
from headrace.cluster import keys
from headrace.cluster.election import alter_isr, isr_change
from headrace.cluster.rows import Topic
from headrace.cluster.state import InvalidState, PartitionState, decode
from headrace.coordinator.port import CoordinatorError, OutcomeUnknown
from headrace.coordinator.resolve import ResolvingWriter
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.plan import Rejected
from headrace.replication.events import (
    IsrCommitted,
    IsrRejected,
    IsrUnknown,
    PartitionRead,
    ProposeIsr,
    Resign,
)

log = logging.getLogger(__name__)


class IsrWriter:
    def __init__(self, runtime: Runtime, metadata: Metadata) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._image = metadata.image
        # Its own writer: an ISR change must not wait behind an administrator's long transaction.
        key = f"writers/{self._image.broker_id}/isr"
        self._writer = ResolvingWriter(metadata.coordinator, key, runtime.random_bytes)

    async def propose(self, partition: Partition, proposal: ProposeIsr) -> None:
        topic = self._image.topic_by_id(partition.topic_id)
        node = self._image.broker(self._image.broker_id)
        held = None if topic is None else self._held(topic, partition, proposal)
        if topic is None or node is None or held is None:
            partition.tell_leader(IsrRejected(proposal.revision))
            return
        new = alter_isr(
            held,
            leader=self._image.broker_id,
            leader_epoch=partition.leader_epoch,
            isr=proposal.isr,
            min_isr=topic.config.min_insync_replicas,
        )
        if isinstance(new, Rejected):
            fenced = new.kind is ErrorKind.FENCED_LEADER_EPOCH
            partition.tell_leader(Resign() if fenced else IsrRejected(proposal.revision))
            return
        change = isr_change(
            topic.id,
            partition.tp.partition,
            revision=proposal.revision,
            new=new,
            broker_epoch=node.epoch,
            joining=proposal.joining,
        )
        log.info("%s: ISR %s -> %s (%s)", partition.tp, held.isr, new.isr, proposal.change.value)
        try:
            result = await self._metadata.commit(change, self._writer, wait=False)
        except HeadraceError as problem:
            unknown = isinstance(problem.__cause__, OutcomeUnknown)
            partition.tell_leader(
                IsrUnknown(proposal.revision) if unknown else IsrRejected(proposal.revision)
            )
            return
        if result.succeeded:
            partition.tell_leader(IsrCommitted(result.revision, new.isr, new.elr))
        else:
            partition.tell_leader(IsrRejected(proposal.revision))

    def _held(self, topic: Topic, partition: Partition, proposal: ProposeIsr) -> PartitionState | None:
        """The partition as of the revision the proposal compares; None when the image has moved on already."""
        key = keys.partition(topic.id, partition.tp.partition)
        if self._image.mod_revision(key) != proposal.revision:
            return None
        return topic.partitions[partition.tp.partition]

    async def read_again(self, partition: Partition) -> bool | None:
        """R2: a linearizable look: whether we still lead in the epoch we did; None when the coordinator does not say."""
        refused, epoch = partition.doubts.until_now(), partition.leader_epoch
        try:
            found = await self._metadata.coordinator.get(
                keys.partition(partition.topic_id, partition.tp.partition)
            )
        except CoordinatorError as problem:
            log.info("%s: can't be read again yet: %s", partition.tp, problem)
            return None
        if found is None:
            return False
        try:
            state = decode(PartitionState, found.value)
        except InvalidState as problem:
            log.error("%s: %s", partition.tp, problem)
            return None
        leads = (
            state.leader == self._image.broker_id and state.leader_epoch == epoch == partition.leader_epoch
        )
        if leads:
            partition.doubts.settle(refused)
        partition.tell_leader(
            PartitionRead(found.mod_revision, state.leader_epoch, state.replicas, state.isr, state.elr)
        )
        return leads
