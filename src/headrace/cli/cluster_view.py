"""Command: the cluster as the `cluster` commands see it, and the moves they ask for.

What is asked for goes through the ordinary Kafka APIs (Metadata, DescribeCluster, AlterPartitionReassignments,
ListPartitionReassignments, ElectLeaders), so it works against any broker of the cluster. librdkafka does not offer the
reassignment calls, so they are made with our own connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.broker.peer import PeerConnection, PeerLost
from headrace.cli.addresses import split_address
from headrace.cli.broker_link import BrokerLink
from headrace.cli.failure import failure_of
from headrace.cli.peer_login import open_connection
from headrace.cluster import keys
from headrace.cluster.image import ClusterImage
from headrace.cluster.reassignment import Reassignment
from headrace.cluster.state import BrokerRegistration, PartitionState, TopicState, encode
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.wire.api import ApiKey
from headrace.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from headrace.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResult
from headrace.wire.messages.describe_quorum import DescribeQuorumRequest
from headrace.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from headrace.wire.messages.metadata import MetadataRequest, MetadataResponse
from headrace.wire.messages.unregister_broker import UnregisterBrokerRequest

BROKER_RESOURCE = 4


class ClusterView(NamedTuple):
    cluster: DescribeClusterResponse
    metadata: MetadataResponse
    moving: dict[tuple[str, int], Any]

    def partitions(self) -> Iterable[tuple[str, Any]]:
        for topic in sorted(self.metadata.topics, key=lambda topic: topic.name or ""):
            for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index):
                yield topic.name or "", partition

    @property
    def missing(self) -> set[int]:
        """Brokers that have left, though partitions still count on them."""
        named = {member for _, partition in self.partitions() for member in partition.replica_nodes}
        return named - {node.broker_id for node in self.cluster.brokers}


class _Item(NamedTuple):
    key: str
    value: bytes | None
    mod_revision: int = 1


class ClusterLink:
    """Questions to the cluster: to the first of the bootstrap addresses that answers, or to each broker for itself."""

    def __init__(self, link: BrokerLink) -> None:
        link.reach()
        self._addresses = [split_address(one.strip()) for one in link.profile.bootstrap.split(",")]
        self._seconds = link.timeout_s
        self._profile = link.profile

    def view(self) -> ClusterView:
        cluster, metadata, moves = self.ask(
            (ApiKey.DESCRIBE_CLUSTER, 2, DescribeClusterRequest(False, 1, True)),
            (ApiKey.METADATA, 9, MetadataRequest(None, False)),
            (ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, ListPartitionReassignmentsRequest()),
        )
        return ClusterView(cluster, metadata, _moving(moves))

    def troubles(self, view: ClusterView) -> list[str]:
        """What each broker that should be there says of itself (DescribeQuorum), and those that do not answer."""

        async def ask(node: Any) -> list[str]:
            name = f"broker {node.broker_id}"
            try:
                connection = await open_connection(self._profile, node.host, node.port)
                try:
                    request = DescribeQuorumRequest([])
                    answer = await connection.call(ApiKey.DESCRIBE_QUORUM, 2, request, self._seconds)
                finally:
                    connection.close()
            except HeadraceError as problem:
                return [f"{name}: {problem.detail}"]
            return [f"{name}: {text}" for text in (answer.error_message or "").split("; ") if text]

        async def ask_all() -> list[list[str]]:
            nodes = [node for node in view.cluster.brokers if not node.is_fenced]
            return await asyncio.gather(*map(ask, nodes))

        return [trouble for found in asyncio.run(ask_all()) for trouble in found]

    def log_directory(self) -> DescribeLogDirsResult:
        """Of the broker that answers first."""
        (answer,) = self.ask((ApiKey.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest([])))
        found: DescribeLogDirsResult = answer.results[0]
        return found

    def moving(self) -> dict[tuple[str, int], Any]:
        (moves,) = self.ask((ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, ListPartitionReassignmentsRequest()))
        return _moving(moves)

    def start(self, plan: Iterable[Reassignment]) -> None:
        topics: dict[str, ReassignableTopic] = {}
        for topic, number, target in plan:
            entry = topics.setdefault(topic.name, ReassignableTopic(topic.name, []))
            entry.partitions.append(ReassignablePartition(number, list(target)))
        request = AlterPartitionReassignmentsRequest(topics=list(topics.values()))
        (answer,) = self.ask((ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, request))
        for entry in answer.responses:
            for row in entry.partitions:
                if row.error_code:
                    problem = HeadraceError(ErrorKind(row.error_code), row.error_message or "")
                    raise failure_of(problem, f"{entry.name}-{row.partition_index}")

    def elect(self, places: dict[str, list[int]] | None, *, unclean: bool) -> list[tuple[str, int, str]]:
        """Topic, partition, and what became of it."""
        wanted = (
            None if places is None else [TopicPartitions(name, numbers) for name, numbers in places.items()]
        )
        (answer,) = self.ask((ApiKey.ELECT_LEADERS, 2, ElectLeadersRequest(int(unclean), wanted)))
        if answer.error_code:
            raise failure_of(HeadraceError(ErrorKind(answer.error_code)))
        return [
            (topic.topic, row.partition_id, _elected(row))
            for topic in answer.replica_election_results
            for row in topic.partition_result
        ]

    def alter_broker(self, name: str, changes: list[tuple[str, str | None]], *, dry_run: bool) -> None:
        """Configs of one broker, or (no name) of all, which librdkafka has no word for. None: back to the default."""
        configs = [AlterableConfig(key, int(value is None), value) for key, value in changes]
        request = IncrementalAlterConfigsRequest(
            [AlterConfigsResource(BROKER_RESOURCE, name, configs)], dry_run
        )
        (answer,) = self.ask((ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request))
        for row in answer.responses:
            if row.error_code:
                raise failure_of(HeadraceError(ErrorKind(row.error_code), row.error_message or ""))

    def unregister(self, broker: int) -> None:
        (answer,) = self.ask((ApiKey.UNREGISTER_BROKER, 0, UnregisterBrokerRequest(broker)))
        if answer.error_code:
            problem = HeadraceError(ErrorKind(answer.error_code), answer.error_message or "")
            raise failure_of(problem, f"broker {broker}")

    def ask_coordinator(self, group: str, api: int, version: int, request: object) -> Any:
        """A question to the broker that keeps a group."""
        (found,) = self.ask((ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest("", 0, [group])))
        (keeper,) = found.coordinators
        if keeper.error_code:
            raise failure_of(HeadraceError(ErrorKind(keeper.error_code)), f'group "{group}"')

        async def ask() -> Any:
            connection = await open_connection(self._profile, keeper.host, keeper.port)
            try:
                return await connection.call(api, version, request, self._seconds)
            finally:
                connection.close()

        try:
            return asyncio.run(ask())
        except HeadraceError as problem:
            raise failure_of(problem, f"{keeper.host}:{keeper.port}") from None

    def elect_preferred(self) -> int:
        """Leaderships go back to the first replica wherever that can lead; how many were moved."""
        (answer,) = self.ask((ApiKey.ELECT_LEADERS, 2, ElectLeadersRequest(0, None)))
        return sum(
            not row.error_code for topic in answer.replica_election_results for row in topic.partition_result
        )

    def ask(self, *questions: tuple[int, int, object]) -> list[Any]:
        async def ask() -> list[Any]:
            connection = await self._open()
            try:
                return [await connection.call(*question, self._seconds) for question in questions]
            finally:
                connection.close()

        try:
            return asyncio.run(ask())
        except HeadraceError as problem:
            raise failure_of(problem, ", ".join(f"{host}:{port}" for host, port in self._addresses)) from None

    async def _open(self) -> PeerConnection:
        *others, last = self._addresses
        for address in others:
            try:
                return await open_connection(self._profile, *address)
            except PeerLost:
                continue
        return await open_connection(self._profile, *last)


def _elected(row: Any) -> str:
    if not row.error_code:
        return "elected"
    if row.error_code == ErrorKind.ELECTION_NOT_NEEDED:
        return "not needed"
    return row.error_message or ErrorKind(row.error_code).name.lower().replace("_", " ")


def _moving(answer: Any) -> dict[tuple[str, int], Any]:
    return {
        (topic.name, entry.partition_index): entry for topic in answer.topics for entry in topic.partitions
    }


def image_of(view: ClusterView) -> ClusterImage:
    """What planning needs of a ClusterImage, from what any broker tells its clients."""
    items = [
        _Item(
            keys.broker(node.broker_id),
            encode(BrokerRegistration(node.host, node.port, node.host, 0, "cli", node.rack)),
        )
        for node in view.cluster.brokers
        if not node.is_fenced
    ]
    for number, topic in enumerate(view.metadata.topics, 1):
        if not topic.name or not topic.partitions:
            continue
        topic_id = number.to_bytes(16, "big")
        items.append(
            _Item(keys.topic(topic.name), encode(TopicState(topic_id.hex(), len(topic.partitions), {}, 0)))
        )
        for partition in topic.partitions:
            moving = view.moving.get((topic.name, partition.partition_index))
            state = PartitionState(
                tuple(partition.replica_nodes),
                partition.leader_id,
                0,
                0,
                tuple(partition.isr_nodes),
                adding=tuple(moving.adding_replicas) if moving else (),
                removing=tuple(moving.removing_replicas) if moving else (),
            )
            items.append(_Item(keys.partition(topic_id, partition.partition_index), encode(state)))
    image = ClusterImage()
    image.resync(items, 1)
    return image
