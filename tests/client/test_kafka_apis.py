"""F37: every API of Kafka 4.3 at its newest version, or docs/to-the-letter.md says why not; and what the newest versions brought."""

from __future__ import annotations

import re
import time
from pathlib import Path

import kafka
import pytest
from kafka_apis import KAFKA_4_3
from raw_client import RawClient
from raw_transactions import RawProducer

from headrace.core.errors import ErrorKind
from headrace.records.build import Record, build_batch
from headrace.testing.broker_process import BrokerProcess
from headrace.wire.api import ApiKey
from headrace.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.wire.messages.api_versions import ApiVersionsRequest
from headrace.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from headrace.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.wire.messages.list_transactions import ListTransactionsRequest

pytestmark = pytest.mark.client

PAGE = Path(__file__).parents[2] / "docs" / "to-the-letter.md"
EARLIEST_TO_BE_TIERED = -6


def explained() -> dict[int, str]:
    """Key and what is said of it, of the page's table of APIs."""
    found: dict[int, str] = {}
    for keys, why in re.findall(r"^\| ([\d, ]+) \| [^|]+ \| ([^|]+) \|$", PAGE.read_text(), re.M):
        found |= dict.fromkeys(map(int, keys.split(",")), why)
    return found


def test_f37_every_api_of_kafka_4_3_at_its_newest_version(broker: BrokerProcess) -> None:
    with RawClient(broker.kafka_port) as raw:
        answer = raw.call(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("t", "1"))
    offered = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    less = {key for key, (_, newest) in KAFKA_4_3.items() if key not in offered or offered[key][1] < newest}
    assert less == explained().keys() - {0}, "each has its row, and no row is out of date"
    assert offered.keys() <= KAFKA_4_3.keys()
    older = {key for key in offered if offered[key][0] != KAFKA_4_3[key][0]}
    assert older == {0} <= explained().keys(), "librdkafka looks for Produce 0 to see whether it may compress"


def test_f37_kafka_python_takes_us_for_the_newest_kafka_that_it_knows(broker: BrokerProcess) -> None:
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap)
    try:
        assert consumer.config["api_version"] >= (4, 2)
    finally:
        consumer.close()


def test_f37_what_the_newest_versions_brought(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic)
        batch = build_batch([Record(None, b"value")], wall_ms=int(time.time() * 1000))
        assert raw.produce(topic, bytearray(batch), acks=-1).error_code == 0
        wanted = [ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, EARLIEST_TO_BE_TIERED)])]
        (found,) = raw.call(ApiKey.LIST_OFFSETS, 11, ListOffsetsRequest(topics=wanted)).topics[0].partitions
        assert (found.error_code, found.offset, found.leader_epoch) == (0, -1, -1), "nothing is tiered"
        (place,) = raw.call(ApiKey.DESCRIBE_LOG_DIRS, 5, DescribeLogDirsRequest(None)).results
        assert (place.error_code, place.is_cordoned) == (0, False)
        for keep in (False, True):
            stay = ReassignableTopic(topic, [ReassignablePartition(0, [1])])
            request = AlterPartitionReassignmentsRequest(60_000, not keep, [stay])
            answer = raw.call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, request)
            assert answer.allow_replication_factor_change is not keep
            assert answer.responses[0].partitions[0].error_code == 0


def test_f37_transactions_are_listed_by_an_expression(broker: BrokerProcess, topic: str) -> None:
    ids = [f"{topic}-pay", f"{topic}-ship", f"{topic}:pay/é"]
    with RawClient(broker.kafka_port) as raw:
        for name in ids:
            assert RawProducer(raw, name).init() is ErrorKind.NONE

        def listed(expression: str | None) -> list[str] | ErrorKind:
            request = ListTransactionsRequest(transactional_id_pattern=expression)
            answer = raw.call(ApiKey.LIST_TRANSACTIONS, 2, request)
            if answer.error_code:
                return ErrorKind(answer.error_code)
            every = {state.transactional_id for state in answer.transaction_states}
            return [name for name in ids if name in every]

        assert listed(None) == listed("") == listed(f"{topic}.*") == ids
        assert listed(f"{topic}[-:]pay.*") == [ids[0], ids[2]]
        assert listed(f"{topic}-pay|{topic}-ship") == ids[:2]
        assert listed("pay") == [], "the whole id"
        assert listed("(") is listed("(?=a)") is listed("é") is ErrorKind.INVALID_REGULAR_EXPRESSION
        assert listed(f"(?i){topic.upper()}-PAY") == ids[:1]
