"""Codec: a transaction as Kafka's own `__transaction_state` record, so that tools which read that topic understand ours.

    key    int16 version = 0, transactional id
    value  int16 version = 0 or 1, then TransactionLogValue; 1 is written: flexible, with tagged fields

Kafka does not journal the epoch before the current one, so there a retry that meets a new coordinator fails. It is kept
here, in a tagged field of our own that Kafka's readers skip. Unknown kinds and versions are skipped, never fatal.
"""

from __future__ import annotations

from itertools import groupby
from struct import Struct

from headrace.core.ids import TopicPartition
from headrace.core.plan import JournalRecord
from headrace.transactions.state import NO_EPOCH, NO_PRODUCER_ID, Transaction, TransactionState
from headrace.wire.primitives import ProtocolError, Reader, Writer

_INT16 = Struct(">h")
_INT64 = Struct(">q")

_PREVIOUS_PRODUCER_ID = 0
_NEXT_PRODUCER_ID = 1
_CLIENT_VERSION = 2
_LAST_EPOCH = 10_000
"""Far from the tags that Kafka may come to use."""

_EPOCH_BUMP_SINCE = 2
"""The transaction version whose clients take a new epoch with every EndTxn."""


def transaction_record(transaction: Transaction) -> JournalRecord:
    return JournalRecord(_key(transaction.transactional_id), _value(transaction))


def tombstone(transactional_id: str) -> JournalRecord:
    return JournalRecord(_key(transactional_id), None)


def _key(transactional_id: str) -> bytes:
    writer = Writer(flexible=False)
    writer.int16(0)
    writer.string(transactional_id)
    return writer.join()


def _value(transaction: Transaction) -> bytes:
    writer = Writer()
    writer.int16(1)
    writer.int64(transaction.producer_id)
    writer.int16(transaction.producer_epoch)
    writer.int32(transaction.timeout_ms)
    writer.int8(transaction.state)
    topics = [
        (topic, list(group)) for topic, group in groupby(sorted(transaction.partitions), lambda tp: tp.topic)
    ]
    writer.count(len(topics))
    for topic, partitions in topics:
        writer.string(topic)
        writer.count(len(partitions))
        for partition in partitions:
            writer.int32(partition.partition)
        writer.tags()
    writer.int64(transaction.updated_wall_ms)
    writer.int64(transaction.start_wall_ms)
    writer.tags(_tags(transaction))
    return writer.join()


def _tags(transaction: Transaction) -> list[tuple[int, bytes]]:
    """Only those that are not at their default, as Kafka writes them."""
    tags = []
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        tags.append((_PREVIOUS_PRODUCER_ID, _INT64.pack(transaction.previous_producer_id)))
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tags.append((_NEXT_PRODUCER_ID, _INT64.pack(transaction.next_producer_id)))
    if transaction.epoch_bump:
        tags.append((_CLIENT_VERSION, _INT16.pack(_EPOCH_BUMP_SINCE)))
    if transaction.last_epoch != NO_EPOCH:
        tags.append((_LAST_EPOCH, _INT16.pack(transaction.last_epoch)))
    return tags


def decode(record: JournalRecord) -> tuple[str, Transaction | None] | None:
    """(id, what is known of it or None for a tombstone); None for what this broker does not understand."""
    try:
        key = Reader(record.key, flexible=False)
        if key.int16() != 0:
            return None
        transactional_id = key.string()
        if record.value is None:
            return transactional_id, None
        return transactional_id, _read_value(transactional_id, record.value)
    except (ProtocolError, ValueError):
        return None


def _read_value(transactional_id: str, data: bytes) -> Transaction:
    version = Reader(data).int16()
    if version not in (0, 1):
        raise ProtocolError(f"version {version} of a transaction")
    reader = Reader(data, 2, flexible=version == 1)
    producer_id, epoch, timeout_ms = reader.int64(), reader.int16(), reader.int32()
    state = TransactionState(reader.int8())
    partitions: set[TopicPartition] = set()
    for _ in range(reader.count(3)):  # null (-1) is no partitions, too
        topic = reader.string()
        partitions.update(TopicPartition(topic, index) for index in reader.array(4, Reader.int32))
        reader.tags()
    updated_wall_ms, start_wall_ms = reader.int64(), reader.int64()
    tagged: dict[int, int] = {}
    reader.tags(
        {
            _PREVIOUS_PRODUCER_ID: lambda field: tagged.update({_PREVIOUS_PRODUCER_ID: field.int64()}),
            _NEXT_PRODUCER_ID: lambda field: tagged.update({_NEXT_PRODUCER_ID: field.int64()}),
            _CLIENT_VERSION: lambda field: tagged.update({_CLIENT_VERSION: field.int16()}),
            _LAST_EPOCH: lambda field: tagged.update({_LAST_EPOCH: field.int16()}),
        }
    )
    reader.finish()
    return Transaction(
        transactional_id, producer_id, epoch, state, timeout_ms, frozenset(partitions),
        tagged.get(_LAST_EPOCH, NO_EPOCH),
        tagged.get(_PREVIOUS_PRODUCER_ID, NO_PRODUCER_ID),
        tagged.get(_NEXT_PRODUCER_ID, NO_PRODUCER_ID),
        tagged.get(_CLIENT_VERSION, 0) >= _EPOCH_BUMP_SINCE,
        start_wall_ms, updated_wall_ms,
    )  # fmt: skip
