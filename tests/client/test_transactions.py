"""K9: transactions as real clients use them, and the requests no client would send but a slow network does (R41-R51)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from raw_client import RawClient
from raw_transactions import RawProducer, fetch_committed, retried

from headrace.core.errors import ErrorKind
from headrace.testing.broker_process import BrokerProcess
from headrace.wire.api import ApiKey
from headrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from headrace.wire.messages.describe_transactions import DescribeTransactionsRequest
from headrace.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.wire.messages.list_transactions import ListTransactionsRequest
from headrace.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

sys.path.insert(0, str(Path(__file__).parents[1] / "eos"))
from eos_torture import CLIENTS, ENVIRONMENT, Torture

pytestmark = pytest.mark.client

QUIET = {"log_level": 0}


def read_all(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    consumer = ck.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False,
         "enable.partition.eof": True, "isolation.level": isolation, **QUIET}
    )  # fmt: skip
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.5):
            if message.error() is None:
                found.append(message.value())
            else:
                assert message.error().code() == ck.KafkaError._PARTITION_EOF
                consumer.close()
                return found
    raise AssertionError(f"the end was not reached; {len(found)} came")


def transactional(bootstrap: str, transactional_id: str, **more: object) -> ck.Producer:
    config = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 1, **QUIET}
    producer = ck.Producer({**config, **more})
    producer.init_transactions(20)
    return producer


# -- commit, abort, read_committed, with each client -----------------------------------------------------------------


def test_confluent_commits_and_aborts(broker: BrokerProcess, topic: str) -> None:
    producer = transactional(broker.bootstrap, topic)
    for number in range(6):
        producer.begin_transaction()
        for letter in "abc":
            producer.produce(topic, f"{number}{letter}")
        if number % 2:
            producer.flush(120)
            producer.abort_transaction(120)
        else:
            producer.commit_transaction(120)
    expected = [f"{number}{letter}".encode() for number in (0, 2, 4) for letter in "abc"]
    assert read_all(broker.bootstrap, topic) == expected
    assert len(read_all(broker.bootstrap, topic, "read_uncommitted")) == 18


def test_aiokafka_commits_and_aborts(broker: BrokerProcess, topic: str) -> None:
    async def talk() -> list[bytes]:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=topic)
        await producer.start()
        for number in range(4):
            await producer.begin_transaction()
            for letter in "ab":
                await producer.send_and_wait(topic, f"{number}{letter}".encode())
            await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
        await producer.stop()
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        found = [(await consumer.getone()).value for _ in range(4)]
        await consumer.stop()
        return found

    assert asyncio.run(talk()) == [b"0a", b"0b", b"2a", b"2b"]
    assert read_all(broker.bootstrap, topic) == [b"0a", b"0b", b"2a", b"2b"]


def test_kafka_python_commits_and_aborts(broker: BrokerProcess, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=topic)
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        for letter in "ab":
            producer.send(topic, f"{number}{letter}".encode()).get(10)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        consumer_timeout_ms=3000,
    )
    found = []
    for record in consumer:
        found.append(record.value)
        if len(found) == 4:
            break
    consumer.close()
    assert found == read_all(broker.bootstrap, topic) == [b"0a", b"0b", b"2a", b"2b"]


def test_kafkajs_consumes_transforms_and_produces(broker: BrokerProcess, topic: str, kafkajs: Path) -> None:
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic)
        raw.create_topic(f"{topic}-out")
    feeder = ck.Producer({"bootstrap.servers": broker.bootstrap, **QUIET})
    for number in range(20):
        feeder.produce(topic, str(number))
    feeder.flush(120)
    command = ["node", "transactions.js", broker.bootstrap, topic, f"{topic}-out", "20"]
    subprocess.run(command, cwd=kafkajs, check=True, timeout=60)
    assert read_all(broker.bootstrap, f"{topic}-out") == [f"js-{number}".encode() for number in range(20)]


# -- fencing ---------------------------------------------------------------------------------------------------------


def test_a_second_producer_with_the_same_id_fences_the_first(broker: BrokerProcess, topic: str) -> None:
    """R51: what the zombie has open is aborted, and nothing it does afterwards is seen."""
    zombie = transactional(broker.bootstrap, topic)
    zombie.begin_transaction()
    zombie.produce(topic, "zombie, before")
    zombie.flush(120)
    successor = transactional(broker.bootstrap, topic)
    with pytest.raises(ck.KafkaException) as fenced:
        zombie.produce(topic, "zombie, after")
        zombie.flush(120)
        zombie.commit_transaction(120)
    assert fenced.value.args[0].code() in (ck.KafkaError._FENCED, ck.KafkaError._STATE)
    successor.begin_transaction()
    successor.produce(topic, "successor")
    successor.commit_transaction(120)
    assert read_all(broker.bootstrap, topic) == [b"successor"]


def test_aiokafka_zombie_is_fenced(broker: BrokerProcess, topic: str) -> None:
    """Trap 4: old versions are told INVALID_PRODUCER_EPOCH, not PRODUCER_FENCED, which they do not know."""

    async def talk() -> None:
        zombie = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=topic)
        await zombie.start()
        await zombie.begin_transaction()
        await zombie.send_and_wait(topic, b"zombie")
        successor = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=topic)
        await successor.start()
        from aiokafka.errors import ProducerFenced

        with pytest.raises(ProducerFenced):
            await zombie.commit_transaction()
        async with successor.transaction():
            await successor.send_and_wait(topic, b"successor")
        await successor.stop()
        try:
            await zombie.stop()
        except ProducerFenced:
            pass

    asyncio.run(talk())
    assert read_all(broker.bootstrap, topic) == [b"successor"]


def test_an_id_is_used_again_and_again(broker: BrokerProcess, topic: str) -> None:
    for number in range(5):
        producer = transactional(broker.bootstrap, topic)
        producer.begin_transaction()
        producer.produce(topic, str(number))
        producer.commit_transaction(120)
        del producer
    assert read_all(broker.bootstrap, topic) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_transaction_nobody_ends_is_aborted(broker: BrokerProcess, topic: str) -> None:
    """R51: readers wait for it until its own timeout, and not longer."""
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic)
        lost = RawProducer(raw, topic, timeout_ms=1_000)
        assert lost.init() is ErrorKind.NONE
        assert lost.add(topic) is ErrorKind.NONE
        assert lost.produce(topic, b"never ended").error_code == 0
        plain = ck.Producer({"bootstrap.servers": broker.bootstrap, **QUIET})
        plain.produce(topic, "behind it")
        plain.flush(120)
        assert fetch_committed(raw, topic).last_stable_offset == 0
        deadline = time.monotonic() + 240
        while fetch_committed(raw, topic).last_stable_offset == 0:
            assert time.monotonic() < deadline, "it still hangs"
            time.sleep(0.05)
        assert lost.produce(topic, b"too late").error_code == ErrorKind.INVALID_PRODUCER_EPOCH
        assert lost.end().error_code == ErrorKind.PRODUCER_FENCED
    assert read_all(broker.bootstrap, topic) == [b"behind it"]


# -- the last stable offset, and what is shown of it -----------------------------------------------------------------


def test_an_open_transaction_holds_the_last_stable_offset(broker: BrokerProcess, topic: str) -> None:
    """R48: fetches and ListOffsets of read_committed readers end where the earliest open transaction begins."""
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic)
        first, second = RawProducer(raw, f"{topic}-1"), RawProducer(raw, f"{topic}-2")
        for producer in (first, second):
            assert producer.init() is ErrorKind.NONE
            assert producer.add(topic) is ErrorKind.NONE
        assert first.produce(topic, b"1", b"2").base_offset == 0
        assert second.produce(topic, b"3").base_offset == 2

        def latest(isolation: int) -> int:
            wanted = ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, -1)])
            response = raw.call(ApiKey.LIST_OFFSETS, 5, ListOffsetsRequest(-1, isolation, [wanted]))
            offset: int = response.topics[0].partitions[0].offset
            return offset

        assert (latest(1), latest(0)) == (0, 3)
        second.end(commit=True)
        row = retried_lso(raw, topic, 0)
        assert row.last_stable_offset == 0 and not row.records
        first.end(commit=False)
        row = retried_lso(raw, topic, 5)
        assert [(entry.producer_id, entry.first_offset) for entry in row.aborted_transactions] == [
            (first.producer_id, 0)
        ]
        assert (latest(1), latest(0)) == (5, 5)
    assert read_all(broker.bootstrap, topic) == [b"3"]


def retried_lso(raw: RawClient, topic: str, wanted: int) -> Any:
    """EndTxn is answered before the markers are written."""
    deadline = time.monotonic() + 240
    while (row := fetch_committed(raw, topic)).last_stable_offset != wanted:
        assert time.monotonic() < deadline, row
        time.sleep(0.02)
    return row


def test_offsets_of_an_open_transaction_are_unstable(broker: BrokerProcess, topic: str) -> None:
    """R50: neither visible nor stable before the marker; gone after an abort."""
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic)
        producer = RawProducer(raw, topic)
        assert producer.init() is ErrorKind.NONE
        group = f"g-{topic}"

        def fetched(*, stable: bool) -> tuple[int, int]:
            request = OffsetFetchRequest(group, [OffsetFetchRequestTopic(topic, [0])], require_stable=stable)
            response = retried(
                lambda: raw.call(ApiKey.OFFSET_FETCH, 7, request), lambda answer: answer.error_code
            )
            row = response.topics[0].partitions[0]
            return row.error_code, row.committed_offset

        def commit_offset(offset: int) -> None:
            assert producer.commit_offset(group, topic, offset) is ErrorKind.NONE

        def until(wanted: tuple[int, int]) -> None:
            deadline = time.monotonic() + 240
            while fetched(stable=True) != wanted:
                assert time.monotonic() < deadline, fetched(stable=True)
                time.sleep(0.02)

        assert fetched(stable=True) == (0, -1)
        commit_offset(7)
        assert fetched(stable=False) == (0, -1)
        assert fetched(stable=True) == (ErrorKind.UNSTABLE_OFFSET_COMMIT, -1)
        producer.end(commit=True)
        until((0, 7))
        commit_offset(9)
        assert fetched(stable=False) == (0, 7)
        producer.end(commit=False)
        until((0, 7))


def test_what_admins_are_shown(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic)
        producer = RawProducer(raw, topic, timeout_ms=54_321)
        producer.init()
        producer.add(topic)
        producer.produce(topic, b"a", b"b")

        def described() -> tuple[str, list[tuple[str, list[int]]]]:
            request = DescribeTransactionsRequest([topic])
            (state,) = raw.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, request).transaction_states
            assert (state.producer_id, state.producer_epoch) == (producer.producer_id, producer.epoch)
            assert state.transaction_timeout_ms == 54_321
            return state.transaction_state, [(entry.topic, entry.partitions) for entry in state.topics]

        assert described() == ("Ongoing", [(topic, [0])])
        listed = raw.call(ApiKey.LIST_TRANSACTIONS, 1, ListTransactionsRequest(["Ongoing"], []))
        assert (topic, producer.producer_id, "Ongoing") in [
            (entry.transactional_id, entry.producer_id, entry.transaction_state)
            for entry in listed.transaction_states
        ]
        asked = DescribeProducersRequest([TopicRequest(topic, [0])])
        (row,) = raw.call(ApiKey.DESCRIBE_PRODUCERS, 0, asked).topics[0].partitions
        (active,) = row.active_producers
        assert (active.producer_id, active.last_sequence, active.current_txn_start_offset) == (
            producer.producer_id,
            1,
            0,
        )
        producer.end()
        deadline = time.monotonic() + 240
        while described() != ("CompleteCommit", []):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        missing = raw.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, DescribeTransactionsRequest(["nobody"]))
        assert missing.transaction_states[0].error_code == ErrorKind.TRANSACTIONAL_ID_NOT_FOUND
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    assert topic in str(admin.list_transactions()) if hasattr(admin, "list_transactions") else True
    admin.close()


# -- late and repeated requests --------------------------------------------------------------------------------------


def test_a_strangers_marker_does_not_end_a_transaction(broker: BrokerProcess, topic: str) -> None:
    """R47, A1: the marker of a transaction that is over, from somebody who is no broker, after the producer has gone on."""
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic)
        producer = RawProducer(raw, topic)
        producer.init()
        producer.add(topic)
        producer.produce(topic, b"first")
        marker = producer.marker(topic, commit=True)
        producer.end(commit=True)
        producer.add(topic)
        open_since = producer.produce(topic, b"second").base_offset
        answer = raw.call(ApiKey.WRITE_TXN_MARKERS, 1, marker).markers[0].topics[0].partitions[0]
        assert answer.error_code == ErrorKind.CLUSTER_AUTHORIZATION_FAILED
        assert fetch_committed(raw, topic).last_stable_offset == open_since
        producer.end(commit=False)
    assert read_all(broker.bootstrap, topic) == [b"first"]


def test_a_late_produce_does_not_join_the_next_transaction(broker: BrokerProcess, topic: str) -> None:
    """KAFKA-17754 for clients that do not bump epochs (R47)."""
    with RawClient(broker.kafka_port) as old, RawClient(broker.kafka_port) as new:
        new.create_topic(topic)
        producer = RawProducer(new, topic)
        producer.init()
        producer.add(topic)
        late = producer.produce_request(topic, b"late")
        producer.end(commit=False)
        producer.add(topic)
        assert producer.produce(topic, b"second").error_code == 0
        old.send(ApiKey.PRODUCE, 9, late)
        assert old.is_closed_by_broker()
        producer.end(commit=True)
    assert read_all(broker.bootstrap, topic) == [b"second"]


def test_a_late_produce_does_not_come_before_the_first_of_the_next_transaction(
    broker: BrokerProcess, topic: str
) -> None:
    """R47: the partition is in the next transaction, and its client has not written there yet."""
    with RawClient(broker.kafka_port) as left, RawClient(broker.kafka_port) as new:
        new.create_topic(topic)
        producer = RawProducer(new, topic)
        producer.init()
        producer.add(topic)
        late = producer.produce_request(topic, b"late")
        producer.end(commit=False)
        producer.add(topic)
        row = left.call(ApiKey.PRODUCE, 9, late).topics[0].partitions[0]
        assert row.error_code == ErrorKind.NOT_ENOUGH_REPLICAS, (
            "again, please: but nobody is there to hear it"
        )
        assert producer.produce(topic, b"second").error_code == 0, "said twice, over the connection it has"
        producer.end(commit=True)
    assert read_all(broker.bootstrap, topic) == [b"second"]


def test_a_late_offset_commit_does_not_take_a_group_back(broker: BrokerProcess, topic: str) -> None:
    """R47 for TxnOffsetCommit: over an older connection, after two more transactions; and the first one after an abort."""
    group = f"g-{topic}"
    with RawClient(broker.kafka_port) as old, RawClient(broker.kafka_port) as new:
        new.create_topic(topic, partitions=2)
        producer = RawProducer(new, topic)
        producer.init()
        late = producer.offset_request(group, topic, 5)
        for offset in (5, 20):
            assert producer.commit_offset(group, topic, offset) is ErrorKind.NONE
            producer.end(commit=True)
        assert producer.commit_offset(group, topic, 7, partition=1) is ErrorKind.NONE
        old.send(ApiKey.TXN_OFFSET_COMMIT, 3, late)
        assert old.is_closed_by_broker()
        given_up = producer.offset_request(group, topic, 30)
        producer.end(commit=False)
        add = AddOffsetsToTxnRequest(topic, producer.producer_id, producer.epoch, group)
        with RawClient(broker.kafka_port) as next_one:
            retried(
                lambda: next_one.call(ApiKey.ADD_OFFSETS_TO_TXN, 3, add), lambda answer: answer.error_code
            )
            new.send(ApiKey.TXN_OFFSET_COMMIT, 3, given_up)
            new.close()
            producer.client = next_one
            assert producer.commit_offset(group, topic, 8, partition=1) is ErrorKind.NONE
            producer.end(commit=True)
            request = OffsetFetchRequest(group, [OffsetFetchRequestTopic(topic, [0, 1])], require_stable=True)

            def rows() -> list[Any]:
                found: list[Any] = next_one.call(ApiKey.OFFSET_FETCH, 7, request).topics[0].partitions
                return found

            settled = retried(rows, lambda found: 51 if any(row.error_code for row in found) else 0)
    assert [row.committed_offset for row in settled] == [20, 8]


def test_the_defence_can_be_switched_off(fresh_broker: Callable[..., BrokerProcess]) -> None:
    """R47: off, an older connection is heard as in Kafka; its sequence is all that is left to tell that it is late."""
    broker = fresh_broker(environment={"HEADRACE_TRANSACTION_CONNECTION_FENCING": "false"})
    with RawClient(broker.kafka_port) as old, RawClient(broker.kafka_port) as new:
        new.create_topic("t")
        producer = RawProducer(new, "x")
        producer.init()
        producer.add("t")
        late = producer.produce_request("t", b"late")
        producer.end(commit=False)
        producer.add("t")
        second = producer.produce("t", b"second")
        old.send(ApiKey.PRODUCE, 9, late)
        row = old.answer(ApiKey.PRODUCE, 9).topics[0].partitions[0]
        assert (row.error_code, row.base_offset) == (0, second.base_offset), "taken for a repetition"
        producer.end(commit=True)
    assert read_all(broker.bootstrap, "t") == [b"second"]


def test_a_produce_outside_of_any_transaction_is_refused(broker: BrokerProcess, topic: str) -> None:
    """R45: nobody can leave a transaction hanging on a partition that its coordinator does not know about."""
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic)
        producer = RawProducer(raw, topic)
        producer.init()
        assert producer.produce(topic, b"never added").error_code == ErrorKind.INVALID_TXN_STATE
        assert fetch_committed(raw, topic).high_watermark == 0


def test_version_2_adds_partitions_by_itself_and_bumps_the_epoch(broker: BrokerProcess, topic: str) -> None:
    """R46: a repeated EndTxn is recognised; a Produce of the epoch before is refused."""
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic)
        producer = RawProducer(raw, topic)
        producer.init()
        assert producer.produce(topic, b"first", version=12).error_code == 0
        before = (producer.producer_id, producer.epoch)
        late = producer.produce_request(topic, b"late")
        producer.end(version=5)
        assert (producer.producer_id, producer.epoch) == (before[0], before[1] + 1)
        after = (producer.producer_id, producer.epoch)
        producer.producer_id, producer.epoch = before
        producer.end(version=5)
        assert (producer.producer_id, producer.epoch) == after, "the repetition gets the same answer"
        response = raw.call(ApiKey.PRODUCE, 12, late)
        assert response.topics[0].partitions[0].error_code == ErrorKind.INVALID_PRODUCER_EPOCH
    assert read_all(broker.bootstrap, topic) == [b"first"]


# -- crashes ---------------------------------------------------------------------------------------------------------


def test_a_transaction_survives_a_broker_that_is_killed(fresh_broker: Callable[..., BrokerProcess]) -> None:
    """R44: open before the crash, it goes on after it; ended, it stays ended."""
    broker = fresh_broker()
    producer = transactional(
        broker.bootstrap, "x", **{"metadata.recovery.strategy": "none", "reconnect.backoff.max.ms": 200}
    )
    for number in range(3):
        producer.begin_transaction()
        producer.produce("t", f"{number}a")
        producer.flush(120)
        broker.kill()
        broker.start()
        producer.produce("t", f"{number}b")
        if number == 1:
            producer.flush(120)
            producer.abort_transaction(120)
        else:
            producer.commit_transaction(120)
    broker.kill()
    broker.start()
    assert read_all(broker.bootstrap, "t") == [b"0a", b"0b", b"2a", b"2b"]


def test_a_decision_is_carried_out_after_a_crash(fresh_broker: Callable[..., BrokerProcess]) -> None:
    """R49: EndTxn is answered when the decision is durable; kill -9 right then, and the markers still come."""
    broker = fresh_broker()
    for number in range(5):
        with RawClient(broker.kafka_port) as raw:
            if number == 0:
                raw.create_topic("t")
            producer = RawProducer(raw, "x")
            assert producer.init() is ErrorKind.NONE
            producer.add("t")
            producer.produce("t", b"%d" % number)
            assert producer.end(commit=number % 2 == 0).error_code == 0
            broker.kill()
        broker.start()
    deadline = time.monotonic() + 240
    while (found := read_all(broker.bootstrap, "t")) != [b"0", b"2", b"4"]:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("client", CLIENTS)
def test_exactly_once_through_kills(client: str, fresh_broker: Callable[..., BrokerProcess]) -> None:
    """`make eos KILLS=200` runs the same for longer."""
    Torture(client, fresh_broker(environment=ENVIRONMENT), seed=11).run(9)
