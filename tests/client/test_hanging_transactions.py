"""F37: an administrator ends a transaction with WriteTxnMarkers, as kafka-transactions.sh does (decision 0027)."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest
from hanging import PRODUCER, hang
from raw_client import RawClient
from raw_transactions import RawProducer, fetch_committed
from webhook_endpoint import until

from headrace.core.errors import ErrorKind
from headrace.records.build import Record, build_batch
from headrace.testing.broker_process import BrokerProcess
from headrace.wire.api import ApiKey
from headrace.wire.messages.api_versions import ApiVersionsRequest
from headrace.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from headrace.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

pytestmark = pytest.mark.client


def administer(
    raw: RawClient,
    topic: str,
    producer_id: int,
    epoch: int,
    coordinator_epoch: int = 0,
    *,
    commit: bool = False,
) -> ErrorKind:
    marker = WritableTxnMarker(
        producer_id, epoch, commit, [WritableTxnMarkerTopic(topic, [0])], coordinator_epoch
    )
    answer = raw.call(ApiKey.WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest([marker]))
    return ErrorKind(answer.markers[0].topics[0].partitions[0].error_code)


def test_f37_a_hanging_transaction_is_ended(fresh_broker: Callable[..., BrokerProcess], topic: str) -> None:
    broker = fresh_broker()
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic)
        plain = build_batch([Record(None, b"before")], wall_ms=int(time.time() * 1000))
        assert raw.produce(topic, bytearray(plain), acks=-1).error_code == 0
    hang(broker, topic, 1)
    with RawClient(broker.kafka_port) as raw:
        offered = {
            row.api_key for row in raw.call(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("t", "1")).api_keys
        }
        assert ApiKey.WRITE_TXN_MARKERS in offered, "Kafka's tools ask only for what is on offer"
        until(lambda: raw.produce(topic, bytearray(plain), acks=-1).error_code == 0, 60)
        stuck = fetch_committed(raw, topic)
        assert (stuck.last_stable_offset, stuck.high_watermark) == (1, 3)
        asked = DescribeProducersRequest([TopicRequest(topic, [0])])
        (found,) = raw.call(ApiKey.DESCRIBE_PRODUCERS, 0, asked).topics[0].partitions[0].active_producers
        assert (found.producer_id, found.producer_epoch, found.current_txn_start_offset) == (PRODUCER, 3, 1)

        refused = {
            "a commit": administer(raw, topic, PRODUCER, 3, commit=True),
            "another producer": administer(raw, topic, PRODUCER + 1, 3),
            "an older epoch": administer(raw, topic, PRODUCER, 2),
            "a later epoch": administer(raw, topic, PRODUCER, 4),
            "an older coordinator": administer(raw, topic, PRODUCER, 3, -2),
            "another topic": administer(raw, topic + "x", PRODUCER, 3),
        }
        assert refused == {
            "a commit": ErrorKind.CLUSTER_AUTHORIZATION_FAILED,
            "another producer": ErrorKind.INVALID_TXN_STATE,
            "an older epoch": ErrorKind.INVALID_PRODUCER_EPOCH,
            "a later epoch": ErrorKind.INVALID_PRODUCER_EPOCH,
            "an older coordinator": ErrorKind.TRANSACTION_COORDINATOR_FENCED,
            "another topic": ErrorKind.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert fetch_committed(raw, topic).high_watermark == 3, "nothing was written"

        assert administer(raw, topic, PRODUCER, 3, 2**31 - 1) is ErrorKind.NONE
        ended = fetch_committed(raw, topic)
        assert (ended.last_stable_offset, ended.high_watermark) == (4, 4)
        assert [(each.producer_id, each.first_offset) for each in ended.aborted_transactions] == [
            (PRODUCER, 1)
        ]
        (after,) = raw.call(ApiKey.DESCRIBE_PRODUCERS, 0, asked).topics[0].partitions[0].active_producers
        assert (after.current_txn_start_offset, after.coordinator_epoch) == (-1, 0), (
            "an administrator does not shut out the next coordinator"
        )
        assert administer(raw, topic, PRODUCER, 3) is ErrorKind.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [3, 5], ids=["v1", "v2"])
def test_f37_a_transaction_that_its_coordinator_knows_is_not_torn(
    broker: BrokerProcess, topic: str, version: int
) -> None:
    """The administrator names one partition; the transaction is aborted on all of them, and its producer hears so."""
    with RawClient(broker.kafka_port) as raw, RawClient(broker.kafka_port) as admin:
        raw.create_topic(topic, 2)
        producer = RawProducer(raw, topic)
        producer.init()
        for partition in range(2):
            producer.add(topic, partition)
            producer.sequence = 0
            assert producer.produce(topic, b"open", partition=partition).error_code == 0
        assert administer(admin, topic, producer.producer_id, producer.epoch) is ErrorKind.NONE
        assert producer.end(commit=True, version=version).error_code == ErrorKind.PRODUCER_FENCED

        def is_stable(partition: int) -> bool:
            return fetch_committed(raw, topic, partition=partition).last_stable_offset == 2

        for partition in range(2):
            until(partial(is_stable, partition), 60)
            ended = fetch_committed(raw, topic, partition=partition)
            assert [each.first_offset for each in ended.aborted_transactions] == [0]
        again = RawProducer(raw, topic)
        assert again.init() is ErrorKind.NONE
        assert again.epoch > producer.epoch
