"""F25 (KAFKA-18464): commit, begin, send, abort at once. The coordinator is still busy with the commit: early, not fenced."""

from __future__ import annotations

import confluent_kafka as ck
import pytest
from raw_client import RawClient
from raw_transactions import RawProducer

from headrace.core.errors import ErrorKind
from headrace.testing.broker_process import BrokerProcess
from headrace.wire.api import ApiKey
from headrace.wire.messages.end_txn import EndTxnRequest

pytestmark = pytest.mark.client

ROUNDS = 20


def test_an_abort_behind_a_commit_is_early_and_not_fenced(broker: BrokerProcess, topic: str) -> None:
    """F25: both requests are on the wire before the first is answered, so the second one meets a decision whose markers
    are not written yet. Java and franz-go take CONCURRENT_TRANSACTIONS for "ask again" and everything else for the end."""
    met: set[ErrorKind] = set()
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic, 8)
        producer = RawProducer(raw, topic)
        producer.init()
        for _ in range(ROUNDS):
            for partition in range(8):
                producer.sequence = 0
                assert producer.produce(topic, b"kept", partition=partition, version=12).error_code == 0
            for epoch, commit in ((producer.epoch, True), (producer.epoch + 1, False)):
                raw.send(ApiKey.END_TXN, 5, EndTxnRequest(topic, producer.producer_id, epoch, commit))
            committed = raw.answer(ApiKey.END_TXN, 5)
            aborted = raw.answer(ApiKey.END_TXN, 5)
            assert committed.error_code == 0
            met.add(ErrorKind(aborted.error_code))
            producer.epoch = committed.producer_epoch
            if aborted.error_code:
                assert producer.end(commit=False, version=5).error_code == 0, "it is early, and asks again"
            else:
                producer.epoch = aborted.producer_epoch
            producer.sequence = 0
    assert met <= {ErrorKind.CONCURRENT_TRANSACTIONS, ErrorKind.NONE}, met
    assert ErrorKind.CONCURRENT_TRANSACTIONS in met, "no abort came while the markers were on their way"


def test_librdkafka_aborts_at_once_after_a_commit(broker: BrokerProcess, topic: str) -> None:
    """F25, with a client that does not bump epochs: it never was fenced, and stays so."""
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic, 8)
    producer = ck.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "linger.ms": 0, "log_level": 0}
    )
    producer.init_transactions(60)
    for _ in range(ROUNDS):
        producer.begin_transaction()
        for partition in range(8):
            producer.produce(topic, b"kept", partition=partition)
        producer.commit_transaction(60)
        producer.begin_transaction()
        producer.produce(topic, b"changed my mind", partition=0)
        producer.abort_transaction(60)
