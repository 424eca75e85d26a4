"""Codec: which topics a request names, by name or by id: the door reads the metadata again before it answers that it does not
know one of them (F34). Produce and Fetch are not here: their clients ask for Metadata when a topic is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from headrace.core.ids import ZERO_UUID
from headrace.wire.api import ApiKey

TOPIC_RESOURCE = 2

Named = Iterable[str | bytes]


def _topics(request: Any) -> Named:
    return [topic.name for topic in request.topics]


def _by_name_or_id(request: Any) -> Named:
    entries = request.topics or ()
    return [entry.topic_id if entry.topic_id != ZERO_UUID else entry.name or "" for entry in entries]


def _share_topics(request: Any) -> Named:
    return [topic.topic_name for topic in request.topics]


def _resources(request: Any) -> Named:
    return [entry.resource_name for entry in request.resources if entry.resource_type == TOPIC_RESOURCE]


NAMED: dict[int, Callable[[Any], Named]] = {
    ApiKey.LIST_OFFSETS: _topics,
    ApiKey.METADATA: _by_name_or_id,
    ApiKey.OFFSET_COMMIT: _by_name_or_id,
    ApiKey.OFFSET_FETCH: lambda request: [
        topic.topic_id
        for group in request.groups
        for topic in group.topics or ()
        if topic.topic_id != ZERO_UUID
    ],
    ApiKey.DELETE_TOPICS: lambda request: [*request.topic_names, *_by_name_or_id(request)],
    ApiKey.DELETE_RECORDS: _topics,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda request: [topic.topic for topic in request.topics],
    ApiKey.ADD_PARTITIONS_TO_TXN: lambda request: [
        topic.name
        for topics in (request.v3_and_below_topics, *(entry.topics for entry in request.transactions))
        for topic in topics
    ],
    ApiKey.TXN_OFFSET_COMMIT: _topics,
    ApiKey.ALTER_CONFIGS: _resources,
    ApiKey.CREATE_PARTITIONS: _topics,
    ApiKey.ELECT_LEADERS: lambda request: [entry.topic for entry in request.topic_partitions or ()],
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _resources,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _topics,
    ApiKey.DESCRIBE_PRODUCERS: _topics,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _topics,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _share_topics,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _share_topics,
}

ALWAYS_LATEST = frozenset((ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_CLIENT_QUOTAS))
"""What was set at another broker a moment ago is seen here: there is no absence that would tell that we are late."""
