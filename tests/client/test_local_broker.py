"""headrace.testing as somebody who tests a service of their own meets it: the broker in the process, its clock, its faults.

No client of these tests waits for a timer: the clock is moved instead (decision 0056).
"""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from typing import Any

import boto3
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from botocore.config import Config
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.testing import LocalBroker, LocalCluster, eventually, received_exactly

pytestmark = pytest.mark.client

ONCE = Config(retries={"total_max_attempts": 1})


def sqs_of(broker: LocalCluster, **options: Any) -> Any:
    return boto3.client("sqs", **broker.aws, **options)


def received(sqs: Any, url: str) -> list[str]:
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
    return [message["Body"] for message in found]


def produce(broker: LocalCluster, topic: str, *values: str, **options: Any) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, **options})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0


# -- the clock -------------------------------------------------------------------------------------------------------


def test_a_visibility_timeout_of_twelve_hours(headrace: LocalBroker) -> None:
    url = headrace.queue_url(headrace.create_queue("jobs", visibility_ms=12 * 3_600_000))
    sqs = sqs_of(headrace)
    sqs.send_message(QueueUrl=url, MessageBody="work")
    assert received(sqs, url) == ["work"]
    headrace.clock.advance(hours=11, minutes=59)
    assert received(sqs, url) == []
    headrace.clock.advance(minutes=1)
    assert received(sqs, url) == ["work"]
    assert headrace.clock.ahead == timedelta(hours=12)


@pytest.mark.headrace(retention_ms=-1)
def test_a_message_that_is_due_in_a_year(headrace: LocalBroker) -> None:
    headrace.create_queue("later")
    headrace.ask("POST", "/queues/later/messages", {"value": "birthday", "delay": "365d"})
    headrace.clock.advance(days=364)
    assert headrace.messages("later") == []
    headrace.clock.advance(days=1)
    assert headrace.messages("later") == ["birthday"]


def test_a_record_that_waits_in_a_topic(headrace: LocalBroker) -> None:
    """What a Kafka client reads is the copy that is written when it is due: the record itself is hidden from it."""
    headrace.create_topic("reminders", headrace_delay_enabled="true")
    producer = Producer({"bootstrap.servers": headrace.bootstrap, "log_level": 0})
    producer.produce("reminders", "call back", headers={"headrace-delay-ms": str(90 * 60_000)})
    assert producer.flush(60) == 0
    headrace.clock.advance(minutes=90)
    consumer = Consumer({"bootstrap.servers": headrace.bootstrap, "group.id": "g", "log_level": 0})
    consumer.assign([TopicPartition("reminders", 0, 0)])
    message = eventually(lambda: consumer.poll(0.1), within=60)
    assert (message.value(), message.offset()) == (b"call back", 1)
    consumer.close()


def test_a_schedule_by_the_calendar(headrace: LocalBroker) -> None:
    headrace.create_topic("reports")
    headrace.ask(
        "POST", "/api/v1/schedules", {"name": "daily", "cron": "0 3 * * *", "topic": "reports", "value": "go"}
    )
    headrace.clock.advance(days=3, strides=300)
    assert headrace.records("reports") == ["go"] * 3


def test_retention(headrace: LocalBroker) -> None:
    topic = headrace.create_topic("news", retention_ms=3_600_000)
    produce(headrace, topic, "yesterday's")
    headrace.clock.advance(minutes=50)
    assert headrace.records(topic) == ["yesterday's"]
    headrace.clock.advance(hours=2)
    assert headrace.records(topic) == []


def test_the_session_of_a_member_that_is_silent(headrace: LocalBroker, headrace_topic: str) -> None:
    """Its heartbeats are 25 minutes apart by its own clock, so none of them comes in this test."""
    consumer = Consumer(
        {
            "bootstrap.servers": headrace.bootstrap,
            "group.id": "billing",
            "session.timeout.ms": 1_700_000,
            "heartbeat.interval.ms": 1_500_000,
            "max.poll.interval.ms": 3_600_000,
            "log_level": 0,
        }
    )
    consumer.subscribe([headrace_topic])

    def members() -> int:
        return len(headrace.ask("GET", "/api/v1/groups/billing")["members"])

    def joined() -> bool:
        consumer.poll(0.05)
        return bool(consumer.assignment())

    eventually(joined, within=60)
    assert members() == 1
    headrace.clock.advance(minutes=29)
    assert members() == 0
    consumer.close()


def test_a_transaction_that_is_left_open(headrace: LocalBroker, headrace_topic: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": headrace.bootstrap,
            "transactional.id": "orders",
            "transaction.timeout.ms": 900_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(headrace_topic, "never")
    producer.flush(60)
    produce(headrace, headrace_topic, "after it")
    assert headrace.records(headrace_topic) == []  # nobody knows yet how the first one ends
    headrace.clock.advance(minutes=16)
    eventually(lambda: received_exactly(headrace.records(headrace_topic), ["after it"]), within=60)


def test_time_does_not_go_back_and_leases_do_not_notice(headrace: LocalBroker) -> None:
    before = headrace.clock.now()
    headrace.clock.advance(days=30)
    assert headrace.clock.now() - before >= timedelta(days=30)
    with pytest.raises(ValueError, match="does not go back"):
        headrace.clock.advance(hours=-1)
    cluster = headrace.ask("GET", "/api/v1/cluster")
    assert [broker["id"] for broker in cluster["brokers"]] == [1]
    produce(headrace, headrace.create_topic("still-here"), "yes")


# -- faults ------------------------------------------------------------------------------------------------------------


def test_a_door_that_refuses(headrace: LocalBroker, headrace_queue: str) -> None:
    sqs = sqs_of(headrace, config=ONCE)
    url = headrace.queue_url(headrace_queue)
    sqs.send_message(QueueUrl=url, MessageBody="before")
    with headrace.faults.refuse("http"):
        with pytest.raises(Exception, match=r"(?i)connect"):
            sqs.send_message(QueueUrl=url, MessageBody="never")
        produce(headrace, headrace_queue, "over kafka")  # the other one is open
    assert headrace.messages(headrace_queue) == ["before", "over kafka"]


def test_an_answer_that_is_lost(headrace: LocalBroker, headrace_queue: str) -> None:
    """The classic: it was done, and the client does it again."""
    url = headrace.queue_url(headrace_queue)
    headrace.faults.lose_answers(1, "http")
    with pytest.raises(Exception, match=r"(?i)connect"):
        sqs_of(headrace, config=ONCE).send_message(QueueUrl=url, MessageBody="once")
    assert headrace.messages(headrace_queue) == ["once"]
    headrace.faults.lose_answers(1, "http")
    sqs_of(headrace).send_message(QueueUrl=url, MessageBody="twice")
    assert headrace.messages(headrace_queue) == ["once", "twice", "twice"]


def test_an_idempotent_producer_does_not_mind_cuts(headrace: LocalBroker, headrace_topic: str) -> None:
    producer = Producer({"bootstrap.servers": headrace.bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(40):
        if number % 10 == 5:
            headrace.faults.cut("kafka")
        producer.produce(headrace_topic, str(number))
        producer.poll(0)
    assert producer.flush(60) == 0
    received_exactly(map(str, headrace.records(headrace_topic)), map(str, range(40)), in_order=True)


def test_answers_that_are_late(headrace: LocalBroker, headrace_topic: str) -> None:
    with headrace.faults.delay(30_000, "kafka"):
        impatient = Producer(
            {"bootstrap.servers": headrace.bootstrap, "message.timeout.ms": 200, "log_level": 0}
        )
        told: list[Any] = []
        impatient.produce(headrace_topic, "late", on_delivery=lambda error, _: told.append(error))
        assert impatient.flush(60) == 0
        assert told[0] is not None
    produce(headrace, headrace_topic, "in time")
    assert "in time" in headrace.records(headrace_topic)


def test_a_full_disk(headrace: LocalBroker, headrace_topic: str) -> None:
    produce(headrace, headrace_topic, "before")
    with headrace.faults.fill_disk():
        told: list[Any] = []
        producer = Producer(
            {
                "bootstrap.servers": headrace.bootstrap,
                "message.timeout.ms": 2_000,
                "retries": 0,
                "log_level": 0,
            }
        )
        producer.produce(headrace_topic, "no room", on_delivery=lambda error, _: told.append(error))
        producer.flush(60)
        assert told[0] is not None
        assert headrace.records(headrace_topic) == ["before"]  # reading goes on
    produce(headrace, headrace_topic, "after")
    assert headrace.records(headrace_topic) == ["before", "after"]


def test_a_door_that_is_not_there(headrace: LocalBroker) -> None:
    with pytest.raises(ValueError, match="there is no door called"):
        headrace.faults.cut("amqp")  # type: ignore[arg-type]


# -- the rest of it ----------------------------------------------------------------------------------------------------


async def test_in_an_async_test_with_aiokafka() -> None:
    async with LocalBroker() as broker:
        topic = broker.create_topic("events", partitions=2)
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            for number in range(10):
                await producer.send_and_wait(topic, str(number).encode())
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=broker.bootstrap, group_id="readers", auto_offset_reset="earliest"
        ) as consumer:
            got = [(await consumer.getone()).value for _ in range(10)]
            await consumer.commit()
        received_exactly(got, [str(number).encode() for number in range(10)])
        assert broker.lag("readers") == 0


def test_lag(headrace: LocalBroker, headrace_topic: str) -> None:
    produce(headrace, headrace_topic, "a", "b", "c")
    consumer = Consumer({"bootstrap.servers": headrace.bootstrap, "group.id": "slow"})
    consumer.commit(offsets=[TopicPartition(headrace_topic, 0, 1)], asynchronous=False)
    consumer.close()
    assert headrace.lag("slow") == 2


@pytest.mark.headrace(num_partitions=3)
def test_settings_by_a_marker(headrace: LocalBroker) -> None:
    headrace.ask("POST", "/api/v1/topics", {"name": "wide"})
    assert len(headrace.ask("GET", "/api/v1/topics/wide")["partitions"]) == 3


def test_a_setting_that_is_not_there_is_told_at_once() -> None:
    with pytest.raises(Exception, match="did you mean 'num_partitions'"):
        LocalBroker(num_partition=3)


def test_two_brokers_at_once_know_nothing_of_each_other() -> None:
    with LocalBroker() as one, LocalBroker() as other:
        one.create_topic("mine")
        one.clock.advance(hours=1)
        assert other.clock.ahead == timedelta()
        with pytest.raises(AssertionError, match="no topic called"):
            other.records("mine")


def test_a_cluster_of_three(headrace_cluster: LocalCluster) -> None:
    headrace_cluster.create_topic("orders", partitions=3)
    produce(headrace_cluster, "orders", *map(str, range(30)), acks="all")
    headrace_cluster.stop_broker(2)
    assert headrace_cluster.brokers == [1, 3]
    produce(headrace_cluster, "orders", *map(str, range(30, 60)), acks="all")
    eventually(
        lambda: received_exactly(map(str, headrace_cluster.records("orders")), map(str, range(60))), within=60
    )
    headrace_cluster.start_broker(2)
    eventually(lambda: all_in_sync(headrace_cluster), within=60)


def test_the_clock_of_a_cluster(headrace_cluster: LocalCluster) -> None:
    """Whoever leads the queue, whoever is asked; and nobody is taken for dead meanwhile."""
    url = headrace_cluster.queue_url(headrace_cluster.create_queue("jobs", visibility_ms=300_000))
    sqs = sqs_of(headrace_cluster)
    sqs.send_message(QueueUrl=url, MessageBody="work")
    assert received(sqs, url) == ["work"]
    headrace_cluster.clock.advance(minutes=4)
    assert received(sqs, url) == []
    headrace_cluster.clock.advance(minutes=1)
    assert received(sqs, url) == ["work"]
    assert len(headrace_cluster.ask("GET", "/api/v1/cluster")["brokers"]) == 3


def all_in_sync(cluster: LocalCluster) -> bool:
    found = cluster.ask("GET", "/api/v1/topics/orders")["partitions"]
    return all(len(partition["isr"]) == 3 for partition in found)


def test_the_plugin_costs_a_run_nothing_that_does_not_use_it() -> None:
    """It is in every pytest run of everybody who has Headrace installed."""
    code = (
        "import sys, headrace.testing.pytest_plugin\n"
        "print(sorted({'asyncio', 'msgspec', 'headrace.node', 'headrace.broker', 'http.client'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", "import pytest; " + code], capture_output=True, text=True)
    before = subprocess.run([sys.executable, "-c", code.replace("headrace.testing.pytest_plugin", "pytest")], capture_output=True, text=True)  # fmt: skip
    assert ran.stdout == before.stdout, ran.stderr
