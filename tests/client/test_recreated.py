"""F1: delete and create is a new topic, for everybody who reads it; nothing of the old one is left, with real clients."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import confluent_kafka as ck
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from webhook_endpoint import ALLOW, QUICK, Api, Server, until

from headrace.testing.broker_process import BrokerProcess
from headrace.testing.etcd_server import free_ports

QUIET = {"log_level": 0}


def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET})


def make(broker: BrokerProcess, topic: str, partitions: int = 1, replicas: int = -1, **configs: str) -> None:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    client = admin(broker)  # whose futures live no longer than it does
    for future in client.create_topics([NewTopic(topic, partitions, replicas, config=named)]).values():
        future.result()


def remove(broker: BrokerProcess, *topics: str) -> None:
    client = admin(broker)
    for future in client.delete_topics(list(topics)).values():
        future.result()


def produce(broker: BrokerProcess, topic: str, *values: str) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, **QUIET})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % len(known(broker, topic)))
    assert producer.flush(30) == 0


def known(broker: BrokerProcess, topic: str) -> Any:
    return admin(broker).list_topics(topic, timeout=10).topics[topic].partitions


def topics(broker: BrokerProcess) -> set[str]:
    return set(admin(broker).list_topics(timeout=10).topics)


def read(consumer: Any, count: int, seconds: float = 30.0) -> list[str]:
    found: list[str] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        polled = consumer.poll(timeout=0.5)
        messages = [polled] if isinstance(polled, ck.Message) else list(polled or ())
        found += [message.value().decode() for message in messages if message.error() is None]
    return sorted(found)


def sqs_of(broker: BrokerProcess) -> Any:
    return boto3.client(
        "sqs", endpoint_url=broker.url, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y",
        config=Config(retries={"max_attempts": 0}, read_timeout=30),
    )  # fmt: skip


def receive(sqs: Any, queue: str, count: int, seconds: float = 30.0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        answer = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=1)
        found += answer.get("Messages", ())
    return found


@pytest.fixture(scope="module")
def pushing() -> Iterator[BrokerProcess]:
    with BrokerProcess(environment=ALLOW) as running:
        yield running


# -- share groups and subscriptions ------------------------------------------------------------------------------------


def test_f1_a_share_group_reads_a_topic_made_again(broker: BrokerProcess, topic: str) -> None:
    group = f"g-{topic}"
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[earliest])
    client = admin(broker)
    for future in client.incremental_alter_configs([resource]).values():
        future.result()
    for life in ("first", "second"):
        make(broker, topic, 3)
        sent = [f"{life} {number}" for number in range(30)]
        produce(broker, topic, *sent)
        consumer = ck.ShareConsumer({"bootstrap.servers": broker.bootstrap, "group.id": group, **QUIET})
        consumer.subscribe([topic])
        try:
            assert read(consumer, 30) == sorted(sent)
            consumer.poll(timeout=1.0)  # which acknowledges them
        finally:
            consumer.close()
        assert f"__queue.{topic}" in topics(broker)
        remove(broker, topic)
        assert not {topic, f"__queue.{topic}"} & topics(broker), "the journal goes with its topic"


def test_f1_a_subscription_goes_on_with_a_topic_made_again(broker: BrokerProcess, topic: str) -> None:
    """From its beginning; and a receipt of the old topic takes nothing from the new one (R56)."""
    api, sqs, name = Api(broker), sqs_of(broker), f"s-{topic}"
    make(broker, topic)
    api.ask("POST", "/api/v1/queues", {"name": name, "topics": [topic], "start": "earliest"})
    receipts: list[str] = []
    for life in ("first", "second"):
        if life == "second":
            make(broker, topic)
        sent = [f"{life} {number}" for number in range(10)]
        produce(broker, topic, *sent)
        got = receive(sqs, name, 10)
        assert sorted(message["Body"] for message in got) == sorted(sent)
        for receipt in receipts:
            try:
                sqs.delete_message(QueueUrl=name, ReceiptHandle=receipt)
            except ClientError as refused:
                assert refused.response["Error"]["Code"] in (
                    "ReceiptHandleIsInvalid",
                    "InvalidParameterValue",
                )
        counts = sqs.get_queue_attributes(QueueUrl=name, AttributeNames=["All"])["Attributes"]
        assert counts["ApproximateNumberOfMessagesNotVisible"] == "10", "an old receipt has deleted a message"
        receipts = [message["ReceiptHandle"] for message in got]
        if life == "first":
            for receipt in receipts[:5]:
                sqs.delete_message(QueueUrl=name, ReceiptHandle=receipt)
            remove(broker, topic)
    api.ask("DELETE", f"/api/v1/queues/{name}")


def test_f1_a_webhook_goes_on_with_a_topic_made_again(pushing: BrokerProcess, topic: str) -> None:
    api, server = Api(pushing), Server()
    try:
        endpoint = server.endpoint()
        make(pushing, topic)
        wanted = {"queue": f"w-{topic}", "topics": [topic], "url": endpoint.url, "retry": QUICK}
        api.ask("POST", "/api/v1/webhooks", {**wanted, "start": "earliest"}, status=201)
        produce(pushing, topic, *(f"first {number}" for number in range(5)))
        until(lambda: len(endpoint.taken) == 5)
        remove(pushing, topic)
        make(pushing, topic)
        produce(pushing, topic, *(f"second {number}" for number in range(5)))
        until(lambda: len(endpoint.taken) == 10)
        assert sorted(endpoint.values())[5:] == [f"second {number}" for number in range(5)]
    finally:
        for one in server.endpoints.values():
            one.end.set()
        server.http.shutdown()
        server.http.server_close()


# -- consumer groups ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("kind", ["topic", "view"])
def test_f1_committed_offsets_are_of_one_topic(
    broker: BrokerProcess, topic: str, protocol: str, kind: str
) -> None:
    topic = f"{topic}-{protocol}-{kind}"
    read_from = f"{topic}-seen" if kind == "view" else topic
    view = {"headrace_view_source": topic, "headrace_view_where": "value.number >= 0"}

    def consumer() -> Any:
        timeout = {} if protocol == "consumer" else {"session.timeout.ms": 6000}
        made = ck.Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": f"g-{topic}", "group.protocol": protocol,
             "auto.offset.reset": "earliest", "enable.auto.commit": False, **timeout, **QUIET}
        )  # fmt: skip
        made.subscribe([read_from])
        return made

    for life in ("first", "second"):
        make(broker, topic)
        if kind == "view":
            make(broker, read_from, -1, **view)  # type: ignore[arg-type]
        sent = [json.dumps({"life": life, "number": number}) for number in range(6)]
        produce(broker, topic, *sent)
        reader = consumer()
        try:
            assert read(reader, 6) == sent, f"the {life} topic"
            reader.commit(asynchronous=False)
            (committed,) = reader.committed([ck.TopicPartition(read_from, 0)], timeout=10)
            assert committed.offset > 0
        finally:
            reader.close()
        if kind == "view":
            with pytest.raises(ck.KafkaException, match="POLICY_VIOLATION"):
                remove(broker, topic)
            remove(broker, read_from)
        remove(broker, topic)


# -- queues ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", ["sqs", "kafka"])
def test_f1_a_queue_made_again_is_empty_and_remembers_no_deduplication(
    broker: BrokerProcess, topic: str, door: str
) -> None:
    """By whichever door it was deleted: a queue and its topic are one thing and go together."""
    sqs, name = sqs_of(broker), f"q-{door}-{topic}"[:70] + ".fifo"
    receipts: list[str] = []
    for life in ("first", "second"):
        url = sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true"})["QueueUrl"]
        for number in range(4):
            sqs.send_message(
                QueueUrl=url, MessageBody=f"{life} {number}", MessageGroupId="g",
                MessageDeduplicationId=f"same-{number}",
            )  # fmt: skip
        got = receive(sqs, url, 4)
        assert [message["Body"] for message in got] == [f"{life} {number}" for number in range(4)]
        for receipt in receipts:
            with pytest.raises(ClientError):
                sqs.delete_message(QueueUrl=url, ReceiptHandle=receipt)
        receipts = [message["ReceiptHandle"] for message in got]
        sqs.delete_message(QueueUrl=url, ReceiptHandle=receipts[0])
        if door == "sqs":
            sqs.delete_queue(QueueUrl=url)
        else:
            remove(broker, name)
        with pytest.raises(ClientError, match="does not exist"):
            sqs.get_queue_url(QueueName=name)
        assert not {name, f"__queue.{name}"} & topics(broker)


def test_f1_what_waits_is_deleted_with_its_topic(broker: BrokerProcess, topic: str) -> None:
    """Delays of plain Kafka topics, whose timetable is a journal too."""
    for life in ("first", "second"):
        make(broker, topic, headrace_delay_enabled="true")
        producer = ck.Producer({"bootstrap.servers": broker.bootstrap, **QUIET})
        delay_ms = b"3600000" if life == "first" else b"200"
        producer.produce(topic, f"{life} late", headers=[("headrace-delay-ms", delay_ms)])
        producer.produce(topic, f"{life} now")
        assert producer.flush(30) == 0
        reader = ck.Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": f"g-{life}-{topic}",
             "auto.offset.reset": "earliest", **QUIET}
        )  # fmt: skip
        reader.subscribe([topic])
        try:
            expected = ["first now"] if life == "first" else ["second late", "second now"]
            assert read(reader, len(expected)) == expected
        finally:
            reader.close()
        remove(broker, topic)


def test_f1_an_idempotency_key_is_of_one_topic(broker: BrokerProcess, topic: str) -> None:
    """The first record of a topic has the offset and the leader epoch that the old one's had."""
    for _ in ("first", "second"):
        make(broker, topic)
        found = [publish_once(broker, topic) for _ in range(2)]
        assert found == [False, True], "new in this topic, then a duplicate"
        remove(broker, topic)


def publish_once(broker: BrokerProcess, topic: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=30)
    headers = {"content-type": "application/json", "idempotency-key": "the same"}
    connection.request("POST", f"/topics/{topic}/records", json.dumps({"value": "x"}), headers)
    response = connection.getresponse()
    body = json.loads(response.read())
    connection.close()
    assert response.status in (200, 201), body
    return bool((body["records"][0] if "records" in body else body)["duplicate"])


# -- clusters ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    """Three brokers on one SQLite coordinator, everything on all of them."""
    brokers = []
    try:
        for number in (1, 2, 3):
            broker = BrokerProcess(
                tmp_path / f"b{number}",
                environment={
                    "HEADRACE_NODE_ID": str(number),
                    "HEADRACE_COORDINATOR": f"sqlite://{tmp_path}/coordinator.db",
                    "HEADRACE_DEFAULT_REPLICATION_FACTOR": "2",
                },
                start_seconds=60,
            )
            broker.kafka_port, broker.http_port = free_ports(2)
            brokers.append(broker.start())
        yield brokers
    finally:
        for broker in brokers:
            broker.__exit__(None, None, None)


def patiently(call: Callable[[], Any], seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except (ck.KafkaException, ClientError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def directories(broker: BrokerProcess, name: str) -> list[str]:
    return [path.name for path in broker.data_dir.rglob("*@*") if name in path.name]


def test_f1_a_broker_that_was_down_brings_nothing_back(cluster: list[BrokerProcess], topic: str) -> None:
    """Deleted and made again while one of three was away: its logs go, as does what groups and queues knew."""
    one, two, away = cluster
    queue = f"q-{topic}"[:60]
    patiently(lambda: make(one, topic, replicas=3))
    patiently(lambda: make(one, queue, replicas=3))
    sqs = sqs_of(one)
    url = patiently(lambda: sqs.create_queue(QueueName=queue)["QueueUrl"])
    for number in range(5):
        patiently(partial(sqs.send_message, QueueUrl=url, MessageBody=f"first {number}"))
    assert len(receive(sqs, url, 5)) == 5
    produce(one, topic, *(f"first {number}" for number in range(5)))
    conf = {
        "bootstrap.servers": f"{one.bootstrap},{two.bootstrap}", "group.id": "g", "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "session.timeout.ms": 6000, **QUIET,
    }  # fmt: skip
    reader = ck.Consumer(conf)
    reader.subscribe([topic])
    assert read(reader, 5) == [f"first {number}" for number in range(5)]
    reader.commit(asynchronous=False)
    reader.close()
    old = set(directories(away, topic))
    assert len(old) == 3, "the topic, the queue and its journal"
    away.kill()
    patiently(lambda: remove(one, topic))
    patiently(lambda: sqs.delete_queue(QueueUrl=url))
    patiently(lambda: make(one, topic))
    patiently(lambda: sqs.create_queue(QueueName=queue))
    away.start()
    until(lambda: len(directories(away, topic)) == len(directories(away, f"{topic}@")), 60)
    lives = {name for broker in cluster for name in directories(broker, topic)}
    until(
        lambda: len({n for b in cluster for n in directories(b, topic) if n.startswith(f"{topic}@")}) == 1, 60
    )
    assert lives and "quarantine" not in {path.name for path in away.data_dir.iterdir()}
    patiently(lambda: produce(one, topic, *(f"second {number}" for number in range(5))))
    sqs = sqs_of(away)
    for number in range(5):
        patiently(partial(sqs.send_message, QueueUrl=url, MessageBody=f"second {number}"))
    bodies = {message["Body"] for message in patiently(lambda: receive(sqs, queue, 5))}
    assert bodies == {f"second {number}" for number in range(5)}
    reader = ck.Consumer(conf)
    reader.subscribe([topic])
    try:
        assert read(reader, 5) == [f"second {number}" for number in range(5)]
    finally:
        reader.close()
