"""Door: what requests have changed for everybody, in words for the audit (A64). What failed is not in it; what was denied is noted as that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol, TypeVar, cast

from headrace.wire.api import KEY_OF
from headrace.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from headrace.wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResponse
from headrace.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from headrace.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from headrace.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from headrace.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from headrace.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from headrace.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from headrace.wire.messages.incremental_alter_configs import AlterableConfig as IncrementalAlterableConfig
from headrace.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from headrace.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


class AnsweredRow(Protocol):
    @property
    def error_code(self) -> int: ...


Q = TypeVar("Q")
A = TypeVar("A")
R = TypeVar("R", bound=AnsweredRow)


class Act(NamedTuple):
    """As rights call it: what was done, to which kind of thing, to which."""

    operation: str
    resource: str
    name: str
    text: str = ""


_KINDS = {2: "Topic", 4: "Cluster", 8: "Cluster", 16: "Cluster", 32: "Group"}
_BROKER, _DELETE_CONFIG = 4, 1


def _created(request: CreateTopicsRequest, response: CreateTopicsResponse) -> Iterator[Act]:
    wanted = {topic.name: topic for topic in request.topics}
    for row in _done(request, response.topics):
        asked = wanted.get(row.name)
        configs = () if asked is None else asked.configs
        words = [f"{row.num_partitions} partitions"] if row.num_partitions > 0 else []
        yield Act(
            "Create", "Topic", row.name, ", ".join([*words, *(f"{one.name}={one.value}" for one in configs)])
        )


def _deleted(request: DeleteTopicsRequest, response: DeleteTopicsResponse) -> Iterator[Act]:
    return (Act("Delete", "Topic", row.name or "") for row in _done(request, response.responses))


def _trimmed(request: DeleteRecordsRequest, response: DeleteRecordsResponse) -> Iterator[Act]:
    for row in response.topics:
        ends = [
            f"{one.partition_index} to {one.low_watermark}" for one in row.partitions if not one.error_code
        ]
        if ends:
            yield Act("Delete", "Topic", row.name, f"records of partition {', '.join(ends)}")


def _widened(request: CreatePartitionsRequest, response: CreatePartitionsResponse) -> Iterator[Act]:
    counts = {topic.name: topic.count for topic in request.topics}
    for row in _done(request, response.results):
        yield Act("Alter", "Topic", row.name, f"{counts.get(row.name)} partitions")


def _configured(
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
    response: AlterConfigsResponse | IncrementalAlterConfigsResponse,
) -> Iterator[Act]:
    wanted = {(one.resource_type, one.resource_name): one.configs for one in request.resources}
    for row in response.responses:
        if row.error_code or request.validate_only:
            continue
        configs = wanted.get((row.resource_type, row.resource_name), ())
        # What a broker is configured with may be a secret one day; that it was changed never is.
        shown = (
            one.name if row.resource_type == _BROKER or _is_removed(one) else f"{one.name}={one.value}"
            for one in configs
        )
        name = row.resource_name if row.resource_type != _BROKER else ""
        words = f"broker {row.resource_name or 'defaults'}: " if row.resource_type == _BROKER else ""
        yield Act("AlterConfigs", _KINDS.get(row.resource_type, ""), name, words + ", ".join(shown))


def _is_removed(config: AlterableConfig | IncrementalAlterableConfig) -> bool:
    return config.value is None or getattr(config, "config_operation", 0) == _DELETE_CONFIG


def _groups_deleted(request: DeleteGroupsRequest, response: DeleteGroupsResponse) -> Iterator[Act]:
    return (Act("Delete", "Group", row.group_id) for row in _done(request, response.results))


def _offsets_deleted(request: OffsetDeleteRequest, response: OffsetDeleteResponse) -> Iterator[Act]:
    if not response.error_code:
        topics = [row.name for row in response.topics if any(not one.error_code for one in row.partitions)]
        if topics:
            yield Act("Delete", "Group", request.group_id, f"offsets of {', '.join(topics)}")


def _quotas(request: AlterClientQuotasRequest, response: AlterClientQuotasResponse) -> Iterator[Act]:
    for asked, row in zip(request.entries, response.entries, strict=False):
        if not row.error_code and not request.validate_only:
            whose = " ".join(f"{one.entity_type}={one.entity_name or 'default'}" for one in asked.entity)
            what = ", ".join(f"{op.key}={'none' if op.remove else op.value}" for op in asked.ops)
            yield Act("AlterConfigs", "Cluster", "", f"quota of {whose}: {what}")


def _moved(
    request: AlterPartitionReassignmentsRequest, response: AlterPartitionReassignmentsResponse
) -> Iterator[Act]:
    for row in () if response.error_code else response.responses:
        moved = [str(one.partition_index) for one in row.partitions if not one.error_code]
        if moved:
            yield Act("Alter", "Topic", row.name, f"replicas of partition {', '.join(moved)}")


def _unregistered(request: UnregisterBrokerRequest, response: UnregisterBrokerResponse) -> Iterator[Act]:
    if not response.error_code:
        yield Act("Alter", "Cluster", "", f"broker {request.broker_id} was taken out")


def _done(request: object, rows: Iterable[R]) -> Iterator[R]:
    if not getattr(request, "validate_only", False):
        yield from (row for row in rows if not row.error_code)


def _by(
    request: type[Q], response: type[A], tell: Callable[[Q, A], Iterator[Act]]
) -> tuple[type[Q], Callable[[object, object], Iterator[Act]]]:
    """The one place that forgets what a request and its answer are; the table remembers it."""
    return request, cast(Callable[[object, object], Iterator[Act]], tell)


_TELLERS = (
    _by(CreateTopicsRequest, CreateTopicsResponse, _created),
    _by(DeleteTopicsRequest, DeleteTopicsResponse, _deleted),
    _by(DeleteRecordsRequest, DeleteRecordsResponse, _trimmed),
    _by(CreatePartitionsRequest, CreatePartitionsResponse, _widened),
    _by(AlterConfigsRequest, AlterConfigsResponse, _configured),
    _by(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, _configured),
    _by(DeleteGroupsRequest, DeleteGroupsResponse, _groups_deleted),
    _by(OffsetDeleteRequest, OffsetDeleteResponse, _offsets_deleted),
    _by(AlterClientQuotasRequest, AlterClientQuotasResponse, _quotas),
    _by(AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, _moved),
    _by(UnregisterBrokerRequest, UnregisterBrokerResponse, _unregistered),
)

CHANGES: dict[int, Callable[[object, object], Iterator[Act]]] = {
    KEY_OF[request]: tell for request, tell in _TELLERS
}
"""Of a request and its answer. Users and rights are not here: what changes them writes it down itself."""
