"""What `headrace cluster` says of brokers that are not there, and how one of a dev cluster is started again."""

from __future__ import annotations

from headrace.cli.cluster.status import _words, status_of
from headrace.cli.cluster_view import ClusterView
from headrace.cli.dev_cluster import DevCluster
from headrace.node.settings import Settings
from headrace.wire.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from headrace.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def view(*brokers: tuple[int, bool], isr: list[int]) -> ClusterView:
    partition = MetadataResponsePartition(
        partition_index=0, leader_id=isr[0] if isr else -1, replica_nodes=[1, 2, 3], isr_nodes=isr
    )
    nodes = [DescribeClusterBroker(number, "h", 9092, None, fenced) for number, fenced in brokers]
    return ClusterView(
        DescribeClusterResponse(cluster_id="c", controller_id=1, brokers=nodes),
        MetadataResponse(topics=[MetadataResponseTopic(name="orders", partitions=[partition])]),
        {},
    )


def test_a_whole_cluster_is_healthy() -> None:
    row = status_of(view((1, False), (2, False), (3, False), isr=[1, 2, 3]))
    assert row.healthy and row.fenced == [] and row.brokers == 3


def test_a_broker_whose_lease_has_ended_is_still_missed() -> None:
    """It is no longer registered, so only the partitions that count on it tell of it."""
    looked = view((1, False), (3, True), isr=[1])
    assert looked.missing == {2}
    row = status_of(looked)
    assert not row.healthy and row.fenced == [2, 3] and row.brokers == 3
    words = _words(row)
    assert (
        "in trouble" in words and "headrace cluster drain 2" in words and "headrace cluster drain 3" in words
    )


def test_the_command_that_starts_one_broker_of_a_dev_cluster_again() -> None:
    cluster = DevCluster(Settings(data_dir="/data/dev", kafka_port=9092, http_port=9324), {}, 3)
    assert cluster.start_command(2) == (
        "headrace serve --node-id 2 --coordinator sqlite:///data/dev/coordinator.db "
        "--kafka-port 9093 --http-port 9325 --data-dir /data/dev/broker-2"
    )
