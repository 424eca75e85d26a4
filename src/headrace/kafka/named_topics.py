"""Codec: which topics a request names, by name or by id: the door reads the metadata again before it answers that it does not
know one of them (F34). Produce and Fetch are not here: their clients ask for Metadata when a topic is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar, cast

from headrace.core.ids import ZERO_UUID
from headrace.wire.api import KEY_OF, ApiKey
from headrace.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from headrace.wire.messages.alter_configs import AlterConfigsRequest
from headrace.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from headrace.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from headrace.wire.messages.create_partitions import CreatePartitionsRequest
from headrace.wire.messages.delete_records import DeleteRecordsRequest
from headrace.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from headrace.wire.messages.delete_topics import DeleteTopicsRequest
from headrace.wire.messages.describe_producers import DescribeProducersRequest
from headrace.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from headrace.wire.messages.elect_leaders import ElectLeadersRequest
from headrace.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from headrace.wire.messages.list_offsets import ListOffsetsRequest
from headrace.wire.messages.metadata import MetadataRequest
from headrace.wire.messages.offset_commit import OffsetCommitRequest
from headrace.wire.messages.offset_fetch import OffsetFetchRequest
from headrace.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from headrace.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

TOPIC_RESOURCE = 2

Q = TypeVar("Q")
Named = Iterable[str | bytes]
Reader = Callable[[object], Named]


def _of(request: type[Q], read: Callable[[Q], Named]) -> tuple[type[Q], Reader]:
    """The one place that forgets which request a reader is for; the table remembers it."""
    return request, cast(Reader, read)


def _id_or(topic_id: bytes, name: str | None) -> str | bytes:
    return topic_id if topic_id != ZERO_UUID else name or ""


def _configured(request: AlterConfigsRequest | IncrementalAlterConfigsRequest) -> Named:
    return [entry.resource_name for entry in request.resources if entry.resource_type == TOPIC_RESOURCE]


_READERS = (
    _of(ListOffsetsRequest, lambda request: [topic.name for topic in request.topics]),
    _of(
        MetadataRequest,
        lambda request: [_id_or(topic.topic_id, topic.name) for topic in request.topics or ()],
    ),
    _of(
        OffsetCommitRequest, lambda request: [_id_or(topic.topic_id, topic.name) for topic in request.topics]
    ),
    _of(
        OffsetFetchRequest,
        lambda request: [
            topic.topic_id
            for group in request.groups
            for topic in group.topics or ()
            if topic.topic_id != ZERO_UUID
        ],
    ),
    _of(
        DeleteTopicsRequest,
        lambda request: [
            *request.topic_names,
            *(_id_or(topic.topic_id, topic.name) for topic in request.topics),
        ],
    ),
    _of(DeleteRecordsRequest, lambda request: [topic.name for topic in request.topics]),
    _of(OffsetForLeaderEpochRequest, lambda request: [topic.topic for topic in request.topics]),
    _of(
        AddPartitionsToTxnRequest,
        lambda request: [
            topic.name
            for topics in (request.v3_and_below_topics, *(entry.topics for entry in request.transactions))
            for topic in topics
        ],
    ),
    _of(TxnOffsetCommitRequest, lambda request: [topic.name for topic in request.topics]),
    _of(AlterConfigsRequest, _configured),
    _of(CreatePartitionsRequest, lambda request: [topic.name for topic in request.topics]),
    _of(ElectLeadersRequest, lambda request: [entry.topic for entry in request.topic_partitions or ()]),
    _of(IncrementalAlterConfigsRequest, _configured),
    _of(AlterPartitionReassignmentsRequest, lambda request: [topic.name for topic in request.topics]),
    _of(DescribeProducersRequest, lambda request: [topic.name for topic in request.topics]),
    _of(DescribeTopicPartitionsRequest, lambda request: [topic.name for topic in request.topics]),
    _of(AlterShareGroupOffsetsRequest, lambda request: [topic.topic_name for topic in request.topics]),
    _of(DeleteShareGroupOffsetsRequest, lambda request: [topic.topic_name for topic in request.topics]),
)

NAMED: dict[int, Reader] = {KEY_OF[request]: read for request, read in _READERS}

ALWAYS_LATEST = frozenset((ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_CLIENT_QUOTAS))
"""What was set at another broker a moment ago is seen here: there is no absence that would tell that we are late."""
