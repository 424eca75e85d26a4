"""The largest request of each API that a broker has to take (A3), and a broker in this process to send it to."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from raw_client import RawClient

from headrace.broker.runtime import SystemRuntime
from headrace.core import limits
from headrace.core.ids import ZERO_UUID
from headrace.log.memory_fs import MemoryFileSystem
from headrace.node.node import Node
from headrace.node.settings import Settings
from headrace.records.build import Record, build_batch
from headrace.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_partition_reassignments,
    consumer_group_describe,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    share_group_describe,
    streams_group_describe,
    sync_group,
    txn_offset_commit,
)
from headrace.wire.produce import ProducePartition, ProduceRequest, ProduceTopic

ENTRIES = limits.MAX_REQUEST_ENTRIES - 1
NAMES = limits.MAX_NAMES_DESCRIBED


class Case(NamedTuple):
    key: int
    version: int
    request: Callable[[], object]
    entries: int


class Broker:
    """A node in memory, on the standard library's event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self._runtime = SystemRuntime(MemoryFileSystem())
        self.node = Node(Settings(kafka_port=0, http_port=0, ephemeral=True), self._runtime)
        self.wait(self.node.start())

    def close(self) -> None:
        self.wait(self.node.stop())
        self.wait(self._runtime.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()

    def prepare(self, partitions: int) -> int:
        """The topic `wide` and the coordinators of group `g` and transaction `t`, whose producer id is returned."""
        with RawClient(self.node.kafka_port, 600) as client:
            client.create_topic("wide", partitions)
            for key, kind in (("g", 0), ("t", 1)):
                request = find_coordinator.FindCoordinatorRequest(key, kind)
                while client.call(10, 3, request).error_code:
                    time.sleep(0.1)
            answer: Any = client.call(22, 3, init_producer_id.InitProducerIdRequest("t", 60_000))
            while answer.error_code:
                time.sleep(0.1)
                answer = client.call(22, 3, init_producer_id.InitProducerIdRequest("t", 60_000))
            client.call(25, 3, add_offsets_to_txn.AddOffsetsToTxnRequest("t", answer.producer_id, 0, "g"))
            producer_id: int = answer.producer_id
            return producer_id

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(600)


def cases(partitions: int, producer_id: int) -> dict[str, Case]:
    """Everything names things that exist where that costs more than a name that does not."""
    wide = "wide"
    numbers = [index % partitions for index in range(ENTRIES)]
    names = [f"name-{index:07}" for index in range(ENTRIES)]
    half = names[: ENTRIES // 2]
    batch = build_batch([Record(b"k", b"v")], wall_ms=int(time.time() * 1000))
    fetched = limits.MAX_REQUEST_PARTITIONS
    rows = [FetchPartition(index % partitions, -1, 0, -1, -1, 1 << 20) for index in range(fetched)]
    return {
        "Produce": Case(0, 9, lambda: ProduceRequest(None, -1, 60_000, [ProduceTopic(wide, ZERO_UUID, [
            ProducePartition(index % partitions, batch) for index in range(fetched)])]), fetched),
        "Fetch": Case(1, 11, lambda: FetchRequest(-1, -1, 0, 1, 1 << 25, 0, 0, -1, [FetchTopic(wide, ZERO_UUID, rows)]), fetched),
        "Fetch, new session": Case(1, 11, lambda: FetchRequest(-1, -1, 0, 1, 1 << 25, 0, 0, 0, [FetchTopic(wide, ZERO_UUID, rows)]), fetched),
        "Fetch, long poll": Case(1, 11, lambda: FetchRequest(-1, -1, 200, 1 << 24, 1 << 25, 0, 0, -1, [
            FetchTopic(wide, ZERO_UUID, [row._replace(fetch_offset=1) for row in rows])]), fetched),
        "ListOffsets": Case(2, 5, lambda: list_offsets.ListOffsetsRequest(topics=[list_offsets.ListOffsetsTopic(
            wide, [list_offsets.ListOffsetsPartition(index, -1, -1) for index in numbers])]), ENTRIES),
        "ListOffsets by time": Case(2, 5, lambda: list_offsets.ListOffsetsRequest(topics=[list_offsets.ListOffsetsTopic(
            wide, [list_offsets.ListOffsetsPartition(index, -1, 1) for index in numbers])]), ENTRIES),
        "Metadata of unknown names": Case(3, 9, lambda: metadata.MetadataRequest(
            [metadata.MetadataRequestTopic(name=name) for name in names], False), ENTRIES),
        "Metadata of everything": Case(3, 9, lambda: metadata.MetadataRequest(None, False), partitions),
        "OffsetCommit": Case(8, 7, lambda: offset_commit.OffsetCommitRequest("g", topics=[offset_commit.OffsetCommitRequestTopic(
            wide, partitions=[offset_commit.OffsetCommitRequestPartition(index, 1) for index in numbers])]), ENTRIES),
        "OffsetFetch": Case(9, 7, lambda: offset_fetch.OffsetFetchRequest("g", [
            offset_fetch.OffsetFetchRequestTopic(wide, numbers)]), ENTRIES),
        "OffsetFetch of everything": Case(9, 7, lambda: offset_fetch.OffsetFetchRequest("g", None), partitions),
        "FindCoordinator": Case(10, 4, lambda: find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=names), ENTRIES),
        "LeaveGroup": Case(13, 4, lambda: leave_group.LeaveGroupRequest(
            "g", members=[leave_group.MemberIdentity(name) for name in names]), ENTRIES),
        "SyncGroup": Case(14, 3, lambda: sync_group.SyncGroupRequest(
            "g", 1, "m", assignments=[sync_group.SyncGroupRequestAssignment(name, b"x") for name in names]), ENTRIES),
        "DescribeGroups": Case(15, 5, lambda: describe_groups.DescribeGroupsRequest(names[:NAMES]), NAMES),
        "ListGroups": Case(16, 4, lambda: list_groups.ListGroupsRequest(names), ENTRIES),
        "CreateTopics": Case(19, 5, lambda: create_topics.CreateTopicsRequest(
            [create_topics.CreatableTopic(name, 1, 9) for name in names]), ENTRIES),
        "DeleteTopics": Case(20, 5, lambda: delete_topics.DeleteTopicsRequest(topic_names=names[:NAMES]), NAMES),
        "DeleteRecords": Case(21, 1, lambda: delete_records.DeleteRecordsRequest([delete_records.DeleteRecordsTopic(
            wide, [delete_records.DeleteRecordsPartition(index, 0) for index in numbers])], 1000), ENTRIES),
        "OffsetForLeaderEpoch": Case(23, 3, lambda: offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            topics=[offset_for_leader_epoch.OffsetForLeaderTopic(
                wide, [offset_for_leader_epoch.OffsetForLeaderPartition(index, -1, 0) for index in numbers])]), ENTRIES),
        "AddPartitionsToTxn": Case(24, 3, lambda: add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t", v3_and_below_producer_id=producer_id, v3_and_below_producer_epoch=0,
            v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(wide, numbers)]), ENTRIES),
        "TxnOffsetCommit": Case(28, 3, lambda: txn_offset_commit.TxnOffsetCommitRequest(
            "t", "g", producer_id, 0, topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(
                wide, [txn_offset_commit.TxnOffsetCommitRequestPartition(index, 1) for index in numbers])]), ENTRIES),
        "DescribeConfigs": Case(32, 4, lambda: describe_configs.DescribeConfigsRequest(
            [describe_configs.DescribeConfigsResource(2, wide), *(
                describe_configs.DescribeConfigsResource(32, name) for name in names[1:])], True, True), ENTRIES),
        "DescribeLogDirs": Case(35, 1, lambda: describe_log_dirs.DescribeLogDirsRequest(
            [describe_log_dirs.DescribableLogDirTopic(wide, numbers)]), ENTRIES),
        "CreatePartitions": Case(37, 1, lambda: create_partitions.CreatePartitionsRequest(
            [create_partitions.CreatePartitionsTopic(name, 2) for name in names]), ENTRIES),
        "DeleteGroups": Case(42, 1, lambda: delete_groups.DeleteGroupsRequest(names), ENTRIES),
        "ElectLeaders": Case(43, 1, lambda: elect_leaders.ElectLeadersRequest(
            0, [elect_leaders.TopicPartitions(wide, numbers)]), ENTRIES),
        "IncrementalAlterConfigs": Case(44, 0, lambda: incremental_alter_configs.IncrementalAlterConfigsRequest(
            [incremental_alter_configs.AlterConfigsResource(2, name, [
                incremental_alter_configs.AlterableConfig("retention.ms", 0, "1")]) for name in half]), 2 * len(half)),
        "AlterPartitionReassignments": Case(45, 0, lambda: alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            topics=[alter_partition_reassignments.ReassignableTopic(wide, [
                alter_partition_reassignments.ReassignablePartition(index, None) for index in numbers])]), ENTRIES),
        "ListPartitionReassignments": Case(46, 0, lambda: list_partition_reassignments.ListPartitionReassignmentsRequest(
            topics=[list_partition_reassignments.ListPartitionReassignmentsTopics(wide, numbers)]), ENTRIES),
        "OffsetDelete": Case(47, 0, lambda: offset_delete.OffsetDeleteRequest("g", [offset_delete.OffsetDeleteRequestTopic(
            wide, [offset_delete.OffsetDeleteRequestPartition(index) for index in numbers])]), ENTRIES),
        "AlterClientQuotas": Case(49, 0, lambda: alter_client_quotas.AlterClientQuotasRequest([
            alter_client_quotas.EntryData(
                [alter_client_quotas.EntityData("client-id", name)],
                [alter_client_quotas.OpData("producer_byte_rate", 1e6, False)]) for name in names[: ENTRIES // 3]], False), ENTRIES),
        "DescribeProducers": Case(61, 0, lambda: describe_producers.DescribeProducersRequest(
            [describe_producers.TopicRequest(wide, numbers)]), ENTRIES),
        "DescribeTransactions": Case(65, 0, lambda: describe_transactions.DescribeTransactionsRequest(names), ENTRIES),
        "ConsumerGroupDescribe": Case(69, 0, lambda: consumer_group_describe.ConsumerGroupDescribeRequest(names[:NAMES]), NAMES),
        "DescribeTopicPartitions": Case(75, 0, lambda: describe_topic_partitions.DescribeTopicPartitionsRequest(
            [describe_topic_partitions.TopicRequest(name) for name in names]), ENTRIES),
        "StreamsGroupDescribe": Case(89, 0, lambda: streams_group_describe.StreamsGroupDescribeRequest(names[:NAMES]), NAMES),
        "ShareGroupDescribe": Case(77, 1, lambda: share_group_describe.ShareGroupDescribeRequest(names[:NAMES]), NAMES),
    }  # fmt: skip
