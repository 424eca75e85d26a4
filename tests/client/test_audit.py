"""A64, P16 and P17 (short): who came, what was denied and what was changed stands in `__audit`, without secrets; clients read it with a right and write it never."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AclOperation,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from raw_client import RawClient
from raw_login import log_in
from sasl_clients import librdkafka
from secured import ADMIN, PASSWORD, Secured

from headrace.cli.user_view import scram_records
from headrace.testing.broker_process import BrokerProcess
from headrace.wire.api import ApiKey
from headrace.wire.messages.metadata import MetadataRequest

pytestmark = [pytest.mark.client, pytest.mark.timeout(300)]

WORD = "a word that nobody else uses"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    key = tmp_path_factory.mktemp("audit") / "secrets.key"
    key.write_text("0a" * 32)
    key.chmod(0o600)
    with BrokerProcess(arguments=("--secrets-key-file", str(key))) as running:
        yield Secured(running)


class Reader:
    """Everything in the audit, from its beginning."""

    def __init__(self, secured: Secured, user: str = ADMIN, password: str = PASSWORD) -> None:
        self.events: list[dict[str, Any]] = []
        self.text = ""
        self._consumer = confluent_kafka.Consumer(
            {**librdkafka(secured.login(user, password)), "group.id": "auditors", "auto.offset.reset": "earliest"}
        )  # fmt: skip
        while True:
            found = self._consumer.list_topics(timeout=60).topics.get("__audit")
            if found is not None and found.partitions:
                break
        places = [
            confluent_kafka.TopicPartition("__audit", number, confluent_kafka.OFFSET_BEGINNING)
            for number in found.partitions
        ]
        self._consumer.assign(places)

    def until(self, **wanted: str) -> dict[str, Any]:
        """Until such an event is there."""
        while True:
            for event in self.events:
                if all(str(event.get(key, "")).startswith(value) for key, value in wanted.items()):
                    return event
            message = self._consumer.poll(1)
            if message is not None and message.error() is None:
                self.text += message.value().decode() + "\n"
                self.events.append(json.loads(message.value()))

    def close(self) -> None:
        self._consumer.close()


def test_a64_what_happens_stands_in_the_audit_and_no_secret_does(secured: Secured, topic: str) -> None:
    user = f"user-{topic}"[:60]
    secured.ask("POST", "/users", {"name": user, "scram": scram_records(WORD, 4096)})
    secured.topic(topic)
    secured.allow(user, AclOperation.READ, ResourceType.TOPIC, topic)
    token = secured.ask("POST", "/tokens", {}, user=user, password=WORD)["token"]
    key = secured.ask("POST", "/keys", {}, user=user, password=WORD)
    client = RawClient(secured.broker.kafka_port)
    log_in(client, user, WORD)
    client.call(ApiKey.METADATA, 9, MetadataRequest([]))
    status, _ = secured.http("POST", f"/topics/{topic}/records", {"value": "x"}, token=token)
    assert status in (403, 404)
    assert secured.http("GET", "/api/v1/topics", user=user, password="wrong word")[0] == 401
    secured.ask("PATCH", f"/users/{user}", {"enabled": False})

    reader = Reader(secured)
    try:
        reader.until(event="login", principal=f"User:{user}", mechanism="SCRAM-SHA-256", host="127.0.0.1")
        reader.until(event="login", principal=f"User:{user}", mechanism="token")
        reader.until(event="login_failed", name=user)
        denied = reader.until(event="denied", principal=f"User:{user}", operation="Write", name=topic)
        assert denied["rule"] == "no right allows it" and denied["resource"] == "Topic"
        reader.until(event="change", principal=f"User:{ADMIN}", text="rights added: User:" + user)
        reader.until(event="change", principal=f"User:{user}", text="an access key of")
        disabled = reader.until(event="change", principal=f"User:{ADMIN}", text=f"user '{user}' disabled")
        assert disabled["broker"] == 1 and disabled["at_ms"] > 0
        for secret in (WORD, "wrong word", PASSWORD, token, key["secret"]):
            assert secret not in reader.text and secret not in secured.broker.log()
    finally:
        reader.close()


def test_a41_the_audit_is_read_with_a_right_and_written_by_nobody(secured: Secured) -> None:
    user = secured.user()
    secured.allow(user, AclOperation.ALL, ResourceType.TOPIC, "*")
    secured.ask("GET", "/users")
    reader = Reader(secured)
    reader.until(event="login", principal=f"User:{ADMIN}")
    reader.close()
    mine = confluent_kafka.Consumer({**librdkafka(secured.login(user, "a word")), "group.id": "g"})
    assert "__audit" not in mine.list_topics(timeout=60).topics
    mine.close()
    for name, word in ((user, "a word"), (ADMIN, PASSWORD)):
        outcome: list[Any] = []
        producer = confluent_kafka.Producer(librdkafka(secured.login(name, word)))
        producer.produce("__audit", b"forged", on_delivery=lambda error, _, to=outcome: to.append(error))
        assert producer.flush(60) == 0
        assert outcome[0] is not None, name


def test_a64_what_is_done_to_topics_configs_and_queues_stands_there_by_whom_through_whichever_door(
    secured: Secured, topic: str
) -> None:
    secured.topic(topic)
    reader = Reader(secured)
    change = ConfigResource(
        ResourceType.TOPIC, topic,
        incremental_configs=[ConfigEntry("retention.ms", "12345", incremental_operation=AlterConfigOpType.SET)],
    )  # fmt: skip
    for future in secured.admin.incremental_alter_configs([change]).values():
        future.result(30)
    for future in secured.admin.create_partitions([NewPartitions(topic, 3)]).values():
        future.result(30)
    for future in secured.admin.delete_topics([topic]).values():
        future.result(30)
    made = {"operation": "Create", "resource": "Topic", "name": topic, "text": "1 partitions"}
    assert reader.until(event="change", **made)["principal"] == f"User:{ADMIN}"
    reader.until(event="change", operation="AlterConfigs", name=topic, text="retention.ms=12345")
    reader.until(event="change", operation="Alter", name=topic, text="3 partitions")
    reader.until(event="change", operation="Delete", name=topic)
    path = "/api/v1/topics"
    status, said = secured.http("POST", path, {"name": f"{topic}-2"}, user=ADMIN, password=PASSWORD)
    assert status == 201, said
    written = reader.until(event="change", operation="POST", name=path)
    assert written["host"] == "127.0.0.1" and f"{topic}-2" in written["text"]
    key = secured.ask("POST", "/keys", {"owner": ADMIN})
    sqs = boto3.client(
        "sqs", endpoint_url=secured.broker.url, region_name="us-east-1",
        aws_access_key_id=key["id"], aws_secret_access_key=key["secret"],
    )  # fmt: skip
    sqs.create_queue(QueueName=f"{topic[:50]}-q")
    reader.until(event="change", operation="CreateQueue", resource="Group", name=topic[:50])
    for future in secured.admin.create_topics([NewTopic(f"{topic}-2", 1, 1)]).values():
        with pytest.raises(confluent_kafka.KafkaException):
            future.result(30)
    reader.until(event="change", operation="Create", resource="Topic", name=topic)
    assert not [
        event
        for event in reader.events
        if event.get("operation") == "Create" and event["name"] == f"{topic}-2"
    ], "what failed changed nothing"
