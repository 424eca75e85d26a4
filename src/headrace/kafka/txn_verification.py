"""Door: asking the transaction coordinator about the first batch of a transaction on a partition (R45, KIP-890)."""

from __future__ import annotations

from typing import NamedTuple

from headrace.broker.services import Services
from headrace.core.errors import ErrorKind
from headrace.core.ids import TopicPartition
from headrace.records.batch import CorruptBatch, read_header
from headrace.transactions.versions import IMPLICIT_ADD_SINCE_PRODUCE, PRODUCE, error_for_version
from headrace.wire.produce import ProduceRequest


class Unverified(NamedTuple):
    """A partition where this producer has no open transaction yet."""

    tp: TopicPartition
    producer_id: int
    producer_epoch: int
    ticket: int
    heard: bool
    """False: an abort has just been here, and the client has to say it again (R47)."""


class TxnVerdict(NamedTuple):
    error: ErrorKind
    ticket: int = 0


Verdicts = dict[tuple[str, int], TxnVerdict]
NOT_ASKED = TxnVerdict(ErrorKind.NONE)


def spoken_over(services: Services, request: ProduceRequest, version: int, connection_id: int) -> bool:
    """R47: a newer connection writes for the same old producer, or somebody else led the partition since this one was
    opened: what it carries comes from the past."""
    if version >= IMPLICIT_ADD_SINCE_PRODUCE or not services.connections.fencing:
        return False
    for topic in request.topics:
        for index, records in topic.partitions:
            if records is None:
                continue
            try:
                header = read_header(records)
            except CorruptBatch:
                continue
            if not header.is_transactional:
                continue
            tp = TopicPartition(topic.name, index)
            if not services.connections.leaderships.admits(
                tp, connection_id
            ) or not services.connections.producers.admit(
                header.producer_id, header.producer_epoch, connection_id
            ):
                return True
    return False


def unverified_partitions(
    services: Services, request: ProduceRequest, version: int, connection_id: int
) -> list[Unverified]:
    """Which of the request's partitions the coordinator has to be asked about, each with its ticket."""
    found: list[Unverified] = []
    connections_tell = version < IMPLICIT_ADD_SINCE_PRODUCE and services.connections.fencing
    for topic in request.topics:
        for index, records in topic.partitions:
            partition, _ = services.broker.find_partition(topic.name, index)
            if partition is None or records is None or not partition.is_leader:
                continue
            try:
                header = read_header(records)
            except CorruptBatch:
                continue
            producer_id, epoch = header.producer_id, header.producer_epoch
            if header.is_transactional and not partition.log.producers.has_open_transaction(
                producer_id, epoch
            ):
                heard = not connections_tell or partition.verifications.hearings.admits(
                    producer_id, epoch, connection_id, header.base_sequence
                )
                ticket = partition.verifications.begin(producer_id, epoch)
                tp = TopicPartition(topic.name, index)
                found.append(Unverified(tp, producer_id, epoch, ticket, heard))
    return found


async def verify(
    services: Services, transactional_id: str, unverified: list[Unverified], version: int
) -> Verdicts:
    by_producer: dict[tuple[int, int], list[Unverified]] = {}
    for entry in unverified:
        if entry.heard:
            by_producer.setdefault((entry.producer_id, entry.producer_epoch), []).append(entry)
    verdicts: Verdicts = {}
    for entry in unverified:
        if not entry.heard:
            verdicts[entry.tp] = TxnVerdict(
                ErrorKind.NOT_ENOUGH_REPLICAS
            )  # what producers of every age retry
    for (producer_id, epoch), entries in by_producer.items():
        error = await services.transactions.confirm(
            transactional_id,
            producer_id,
            epoch,
            [entry.tp for entry in entries],
            add=version >= IMPLICIT_ADD_SINCE_PRODUCE,
        )
        # Produce never says "fenced": the partition speaks of epochs.
        error = ErrorKind.INVALID_PRODUCER_EPOCH if error is ErrorKind.PRODUCER_FENCED else error
        for entry in entries:
            verdicts[entry.tp] = TxnVerdict(error_for_version(PRODUCE, version, error), entry.ticket)
    return verdicts
