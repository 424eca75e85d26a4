"""Driver: a blocking client of a whole cluster: who leads what, offsets, groups, topics. No threads, no background work.

Requests go to the leader or coordinator that metadata names; an answer that says "not me" refreshes it and asks again,
until the deadline. What a caller gets is a result or a HeadraceError with the broker's own kind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import ZERO_UUID, TopicPartition
from headrace.spark.connection import BlockingConnection, ClusterAccess, ConnectionLost
from headrace.wire.api import ApiKey
from headrace.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

T = TypeVar("T")

EARLIEST = -2
LATEST = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
GROUP, TRANSACTION = 0, 1
CALLS, FETCHES, PRODUCES = "calls", "fetches", "produces"

_PAUSE_SECONDS = 0.05
_SETTLING = {ErrorKind.CONCURRENT_TRANSACTIONS, ErrorKind.UNSTABLE_OFFSET_COMMIT}
_SETTLING_SECONDS = 0.002
"""The markers of the transaction before are being written: they are there after a disk's moment."""
_STALE = {
    ErrorKind.NOT_LEADER_OR_FOLLOWER,
    ErrorKind.LEADER_NOT_AVAILABLE,
    ErrorKind.FENCED_LEADER_EPOCH,
    ErrorKind.UNKNOWN_LEADER_EPOCH,
    ErrorKind.REPLICA_NOT_AVAILABLE,
    ErrorKind.OFFSET_NOT_AVAILABLE,
    ErrorKind.NETWORK_EXCEPTION,
    ErrorKind.BROKER_NOT_AVAILABLE,
    ErrorKind.NOT_COORDINATOR,
    ErrorKind.COORDINATOR_NOT_AVAILABLE,
    ErrorKind.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorKind.KAFKA_STORAGE_ERROR,
    ErrorKind.UNSTABLE_OFFSET_COMMIT,
    ErrorKind.CONCURRENT_TRANSACTIONS,
    ErrorKind.NOT_CONTROLLER,
    ErrorKind.REQUEST_TIMED_OUT,
    ErrorKind.NOT_ENOUGH_REPLICAS,
    ErrorKind.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}
"""Asking again, perhaps somebody else, may help."""


_TOPIC_RESOURCE = 2
_SET_FOR_THE_TOPIC = 1


class TopicLeaders(NamedTuple):
    name: str
    topic_id: bytes
    leaders: dict[int, int]
    """Partition -> broker id; -1 when nobody leads."""


class GroupOffset(NamedTuple):
    offset: int
    metadata: str


def pause(seconds: float = _PAUSE_SECONDS) -> None:
    """Before asking again. A blocking client in a Spark task has nothing better to do."""
    time.sleep(seconds)  # noqa: TID251 - a task is a thread of its own, and real time passes


def error_of(code: int) -> ErrorKind:
    try:
        return ErrorKind(code)
    except ValueError:
        return ErrorKind.UNKNOWN_SERVER_ERROR


def check(code: int, subject: str) -> None:
    if code:
        kind = error_of(code)
        raise HeadraceError(kind, f"{subject}: {kind.name.lower().replace('_', ' ')}")


class SyncClient:
    def __init__(self, access: ClusterAccess) -> None:
        self.access = access
        self._connections: dict[tuple[str, int, str], BlockingConnection] = {}
        self._nodes: dict[int, tuple[str, int]] = {}
        self._topics: dict[str, TopicLeaders] = {}
        self._coordinators: dict[tuple[int, str], tuple[str, int]] = {}
        self._controller = -1

    def __enter__(self) -> SyncClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # -- connections ---------------------------------------------------------------------------------------------

    def _connect(self, address: tuple[str, int], purpose: str = CALLS) -> BlockingConnection:
        """Answers come in order, so those who keep requests on the way have a connection for themselves."""
        connection = self._connections.get((*address, purpose))
        if connection is None or connection.closed:
            connection = self._connections[*address, purpose] = BlockingConnection(*address, self.access)
        return connection

    def drop(self, connection: BlockingConnection) -> None:
        connection.close()
        self._connections = {a: c for a, c in self._connections.items() if c is not connection}

    def _bootstrap(self) -> BlockingConnection:
        """A connection to anybody: a known broker, else one of the bootstrap addresses."""
        reasons = []
        known = [(host, port) for host, port, purpose in self._connections if purpose == CALLS]
        for address in [*known, *self._nodes.values(), *_addresses(self.access.bootstrap)]:
            try:
                return self._connect(address)
            except ConnectionLost as problem:
                reasons.append(problem.detail)
        raise ConnectionLost("; ".join(dict.fromkeys(reasons)) or "no bootstrap address is given")

    def patiently(self, attempt: Callable[[], T], seconds: float | None = None) -> T:
        """Run `attempt` until it works, fails for good, or the time is over."""
        deadline = time.monotonic() + (seconds or self.access.request_seconds)
        wait = _SETTLING_SECONDS
        while True:
            try:
                return attempt()
            except HeadraceError as problem:
                if problem.kind not in _STALE or time.monotonic() + wait > deadline:
                    raise
                if problem.kind not in _SETTLING:
                    # Whoever we believed in is in doubt now.
                    self._topics.clear()
                    self._coordinators.clear()
                    wait = max(wait, _PAUSE_SECONDS)
            pause(wait)
            wait = min(wait * 2, 1.0)

    def _call(self, address: tuple[str, int], key: ApiKey, request: object) -> Any:
        connection = self._connect(address)
        try:
            return connection.call(key, request)
        except ConnectionLost:
            self.drop(connection)
            raise

    def call_any(self, key: ApiKey, request: object) -> Any:
        connection = self._bootstrap()
        try:
            return connection.call(key, request)
        except ConnectionLost:
            self.drop(connection)
            raise

    # -- metadata ------------------------------------------------------------------------------------------------

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicLeaders]:
        """What exists now; None: every topic. Topics that do not exist are left out."""
        wanted = None if names is None else [MetadataRequestTopic(ZERO_UUID, name) for name in names]

        def ask() -> dict[str, TopicLeaders]:
            request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
            answer = self.call_any(ApiKey.METADATA, request)
            self._nodes = {node.node_id: (node.host, node.port) for node in answer.brokers}
            self._controller = answer.controller_id
            found = {}
            for topic in answer.topics:
                if topic.error_code == ErrorKind.UNKNOWN_TOPIC_OR_PARTITION:
                    continue
                check(topic.error_code, f'topic "{topic.name}"')
                leaders = {row.partition_index: row.leader_id for row in topic.partitions}
                found[topic.name] = TopicLeaders(topic.name, topic.topic_id, dict(sorted(leaders.items())))
            return found

        found = self.patiently(ask)
        self._topics.update(found)
        return found

    def rights(self, names: Iterable[str]) -> dict[str, frozenset[int]]:
        """What this client may do with topics, as numbers of Kafka's operations. Those that it may not see are not there."""

        def ask() -> dict[str, frozenset[int]]:
            request = MetadataRequest(
                topics=[MetadataRequestTopic(ZERO_UUID, name) for name in names],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=True,
            )
            answer = self.call_any(ApiKey.METADATA, request)
            return {
                topic.name: frozenset(
                    bit for bit in range(1, 31) if topic.topic_authorized_operations >> bit & 1
                )
                for topic in answer.topics
                if not topic.error_code
            }

        return self.patiently(ask)

    def cluster_id(self) -> str | None:
        answer = self.call_any(ApiKey.METADATA, MetadataRequest(topics=[], allow_auto_topic_creation=False))
        found: str | None = answer.cluster_id
        return found

    def knows(self, name: str) -> bool:
        """Heard of it before, at whatever time that was."""
        return name in self._topics

    def topic(self, name: str) -> TopicLeaders:
        """One topic, from memory where possible."""
        if name not in self._topics and name not in self.topics([name]):
            raise HeadraceError(
                ErrorKind.UNKNOWN_TOPIC_OR_PARTITION,
                f'topic "{name}" does not exist on {self.access.bootstrap}',
            )
        return self._topics[name]

    def leader(self, tp: TopicPartition, purpose: str = CALLS) -> BlockingConnection:
        node = self.topic(tp.topic).leaders.get(tp.partition)
        if node is None:
            # The topic may have grown since this long-lived process looked.
            self.topics([tp.topic])
            node = self.topic(tp.topic).leaders.get(tp.partition)
        if node is None:
            raise HeadraceError(ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, f"partition {tp} does not exist")
        if node not in self._nodes:
            raise HeadraceError(ErrorKind.LEADER_NOT_AVAILABLE, f"partition {tp} has no leader now")
        return self._connect(self._nodes[node], purpose)

    def forget_leaders(self) -> None:
        self._topics.clear()

    def _controller_address(self) -> tuple[str, int]:
        if self._controller not in self._nodes:
            self.topics([])
        if self._controller not in self._nodes:
            raise HeadraceError(ErrorKind.NOT_CONTROLLER, "the cluster has no controller now")
        return self._nodes[self._controller]

    def create_topic(
        self, name: str, partitions: int = -1, configs: Mapping[str, str] | None = None, replicas: int = -1
    ) -> bool:
        """True when it was made now, False when it was there already."""
        entry = CreatableTopic(
            name, partitions, replicas, [], [CreatableTopicConfig(*pair) for pair in (configs or {}).items()]
        )

        def ask() -> bool:
            answer = self._call(
                self._controller_address(), ApiKey.CREATE_TOPICS, CreateTopicsRequest([entry])
            )
            result = answer.topics[0]
            if result.error_code == ErrorKind.TOPIC_ALREADY_EXISTS:
                return False
            if result.error_code:
                raise HeadraceError(error_of(result.error_code), result.error_message or f'topic "{name}"')
            return True

        made = self.patiently(ask)
        self._topics.pop(name, None)
        return made

    def grow_topic(self, name: str, partitions: int) -> None:
        """At least so many partitions; somebody else may do the same at the same time."""

        def ask() -> None:
            if len(self.topics([name])[name].leaders) >= partitions:
                return
            entry = CreatePartitionsTopic(name, partitions, None)
            request = CreatePartitionsRequest([entry], timeout_ms=int(self.access.request_seconds * 1000))
            self._call(self._controller_address(), ApiKey.CREATE_PARTITIONS, request)
            if len(self.topics([name])[name].leaders) < partitions:
                raise HeadraceError(ErrorKind.LEADER_NOT_AVAILABLE, f'topic "{name}" has not grown yet')

        self.patiently(ask)

    def topic_configs(self, name: str) -> dict[str, str]:
        """What somebody has set for the topic; nothing of what is a default."""
        request = DescribeConfigsRequest([DescribeConfigsResource(_TOPIC_RESOURCE, name, None)])

        def ask() -> dict[str, str]:
            result = self.call_any(ApiKey.DESCRIBE_CONFIGS, request).results[0]
            if result.error_code:
                raise HeadraceError(error_of(result.error_code), result.error_message or f'topic "{name}"')
            return {
                one.name: one.value
                for one in result.configs
                if one.config_source == _SET_FOR_THE_TOPIC and one.value is not None and not one.is_sensitive
            }

        return self.patiently(ask)

    # -- offsets of partitions -----------------------------------------------------------------------------------

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: int = READ_COMMITTED
    ) -> dict[TopicPartition, int]:
        """For each partition the offset at a timestamp (ms), EARLIEST or LATEST; -1 when no record is that young."""
        return self.patiently(lambda: self._list_offsets(wanted, isolation))

    def _list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: int
    ) -> dict[TopicPartition, int]:
        missing = {tp.topic for tp in wanted} - self._topics.keys()
        if missing:
            self.topics(missing)
        by_node: dict[str, tuple[BlockingConnection, list[TopicPartition]]] = {}
        for tp in wanted:
            connection = self.leader(tp)
            by_node.setdefault(connection.address, (connection, []))[1].append(tp)
        found = {}
        for connection, group in by_node.values():
            topics: dict[str, list[ListOffsetsPartition]] = {}
            for tp in group:
                topics.setdefault(tp.topic, []).append(ListOffsetsPartition(tp.partition, -1, wanted[tp]))
            request = ListOffsetsRequest(-1, isolation, [ListOffsetsTopic(*row) for row in topics.items()])
            try:
                answer = connection.call(ApiKey.LIST_OFFSETS, request)
            except ConnectionLost:
                self.drop(connection)
                raise
            for topic in answer.topics:
                for row in topic.partitions:
                    tp = TopicPartition(topic.name, row.partition_index)
                    check(row.error_code, f"offsets of {tp}")
                    found[tp] = row.offset
        return found

    def log_sizes(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """Bytes on disk of each partition's leader."""
        sizes: dict[TopicPartition, int] = {}
        wanted = set(topics)
        self.topics(wanted)
        for node, address in self._nodes.items():
            answer = self._call(address, ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(None))
            for result in answer.results:
                for topic in result.topics:
                    for row in topic.partitions:
                        tp = TopicPartition(topic.name, row.partition_index)
                        if (
                            topic.name in wanted
                            and self._topics[topic.name].leaders.get(tp.partition) == node
                        ):
                            sizes[tp] = row.partition_size
        return sizes

    def log_dirs(self) -> list[str]:
        """Where the brokers say their data is; of use only to somebody on the same machine."""
        self.topics([])
        found: list[str] = []
        for address in self._nodes.values():
            answer = self._call(address, ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(None))
            found += [result.log_dir for result in answer.results]
        return list(dict.fromkeys(found))

    # -- groups --------------------------------------------------------------------------------------------------

    def coordinator(self, kind: int, name: str) -> tuple[str, int]:
        known = self._coordinators.get((kind, name))
        if known is None:
            answer = self.call_any(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(name, kind))
            check(answer.error_code, f'coordinator of "{name}"')
            known = self._coordinators[kind, name] = (answer.host, answer.port)
        return known

    def ask_coordinator(self, kind: int, name: str, key: ApiKey, request: object) -> Any:
        return self._call(self.coordinator(kind, name), key, request)

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, GroupOffset]) -> None:
        """As a simple consumer: the group has no members, so nobody can be in the way."""
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for tp, (offset, metadata) in offsets.items():
            row = OffsetCommitRequestPartition(tp.partition, offset, -1, metadata)
            topics.setdefault(tp.topic, []).append(row)
        rows = [OffsetCommitRequestTopic(name, ZERO_UUID, parts) for name, parts in topics.items()]

        def ask() -> None:
            request = OffsetCommitRequest(group_id=group, topics=rows)
            answer = self.ask_coordinator(GROUP, group, ApiKey.OFFSET_COMMIT, request)
            for topic in answer.topics:
                for row in topic.partitions:
                    check(row.error_code, f'group "{group}", {topic.name}-{row.partition_index}')

        if rows:
            self.patiently(ask)

    def committed_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, GroupOffset]:
        """What the group has committed, for these partitions or all. An open transaction on named ones is waited for."""
        topics: dict[str, list[int]] | None = None
        if partitions is not None:
            topics = {}
            for tp in partitions:
                topics.setdefault(tp.topic, []).append(tp.partition)
        rows = None if topics is None else [OffsetFetchRequestTopic(*row) for row in topics.items()]

        def ask() -> dict[TopicPartition, GroupOffset]:
            request = OffsetFetchRequest(group_id=group, topics=rows, require_stable=True)
            answer = self.ask_coordinator(GROUP, group, ApiKey.OFFSET_FETCH, request)
            check(answer.error_code, f'group "{group}"')
            found = {}
            for topic in answer.topics:
                for row in topic.partitions:
                    check(row.error_code, f'group "{group}", {topic.name}-{row.partition_index}')
                    if row.committed_offset >= 0:
                        tp = TopicPartition(topic.name, row.partition_index)
                        found[tp] = GroupOffset(row.committed_offset, row.metadata or "")
            return found

        return self.patiently(ask)


def _addresses(bootstrap: str) -> list[tuple[str, int]]:
    found = []
    for text in bootstrap.split(","):
        host, _, port = text.strip().rpartition(":")
        if not host or not port.isdecimal():
            raise HeadraceError(
                ErrorKind.INVALID_PARAMETER,
                f'"{text.strip()}" is not an address',
                "write bootstrap=localhost:9092",
            )
        found.append((host.strip("[]"), int(port)))
    return found
