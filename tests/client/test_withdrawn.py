"""A9: who waits when a right is withdrawn gets nothing of what comes afterwards, whatever the door; and it is not lost."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AclBinding, AclBindingFilter, AclOperation, ResourceType
from raw_client import RawClient
from raw_login import log_in
from raw_share import set_group_config, topic_id
from sasl_clients import librdkafka
from secured import ADMIN, PASSWORD, Secured

from headrace.testing.local_broker import LocalBroker
from headrace.wire.api import ApiKey
from headrace.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest

pytestmark = pytest.mark.client

WORD = "a word"


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with LocalBroker() as running:
        yield Secured(running)  # type: ignore[arg-type]


def withdraw(secured: Secured, acl: AclBinding) -> None:
    asked = AclBindingFilter(
        acl.restype, acl.name, acl.resource_pattern_type, acl.principal, acl.host, acl.operation, acl.permission_type
    )  # fmt: skip
    for future in secured.admin.delete_acls([asked]).values():
        assert len(future.result(30)) == 1


def ask(secured: Secured, user: str, method: str, path: str) -> http.client.HTTPConnection:
    """Without waiting for the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", secured.broker.http_port, timeout=240)
    basic = base64.b64encode(f"{user}:{WORD}".encode()).decode()
    connection.request(method, path, headers={"authorization": f"Basic {basic}", "x-headrace-client": "test"})
    return connection


def queue_of(secured: Secured, name: str) -> None:
    status, answer = secured.http("POST", "/api/v1/queues", {"name": name}, user=ADMIN, password=PASSWORD)
    assert status < 300, answer


def send(secured: Secured, queue: str, text: str) -> None:
    status, answer = secured.http(
        "POST", f"/queues/{queue}/messages", {"value": text}, user=ADMIN, password=PASSWORD
    )
    assert status < 300, answer


def received(secured: Secured, queue: str) -> list[Any]:
    status, answer = secured.http("POST", f"/queues/{queue}/receive?wait=60s", user=ADMIN, password=PASSWORD)
    assert status == 200, answer
    return [item["value"] for item in answer["items"]]


@pytest.mark.parametrize("kind", [ResourceType.GROUP, ResourceType.TOPIC])
def test_a9_a_long_poll_that_waited_gets_nothing_and_the_message_goes_back(
    secured: Secured, topic: str, kind: ResourceType
) -> None:
    name = f"{topic[:40]}-{kind.name.lower()}"
    queue_of(secured, name)
    user = secured.user()
    for each in (ResourceType.GROUP, ResourceType.TOPIC):
        secured.allow(user, AclOperation.DESCRIBE, each, name)
    rights = {
        each: secured.allow(user, AclOperation.READ, each, name)
        for each in (ResourceType.GROUP, ResourceType.TOPIC)
    }
    assert ask(secured, user, "GET", f"/queues/{name}/messages?peek").getresponse().status == 200
    polling = ask(secured, user, "POST", f"/queues/{name}/receive?wait=20s")
    # The password is known by now, so what was asked first is looked at first.
    assert ask(secured, user, "GET", f"/queues/{name}/messages?peek").getresponse().status == 200
    withdraw(secured, rights[kind])
    send(secured, name, "secret")
    answer = polling.getresponse()
    said = answer.read()
    assert answer.status == 403 and b"secret" not in said, said
    assert json.loads(said)["code"] == "ACCESS_DENIED"
    assert received(secured, name) == ["secret"]


def test_a9_a_stream_ends_before_the_first_event_after_it(secured: Secured, topic: str) -> None:
    secured.topic(topic)
    user = secured.user()
    right = secured.allow(user, AclOperation.READ, ResourceType.TOPIC, topic)
    streaming = ask(secured, user, "GET", f"/topics/{topic}/tail")
    answer = streaming.getresponse()
    assert answer.status == 200
    producer = confluent_kafka.Producer(librdkafka(secured.login(ADMIN, PASSWORD)))
    producer.produce(topic, b"before")
    assert producer.flush(60) == 0
    seen = b""
    while b"before" not in seen and base64.b64encode(b"before") not in seen:
        seen += answer.read1()
    withdraw(secured, right)
    producer.produce(topic, b"after")
    assert producer.flush(60) == 0
    rest = b""
    while more := answer.read1():  # to its end
        rest += more
        assert b"after" not in rest and base64.b64encode(b"after") not in rest


def test_a9_a_share_fetch_that_waited_gets_nothing(secured: Secured, topic: str) -> None:
    secured.topic(topic)
    user = secured.user()
    secured.allow(user, AclOperation.READ, ResourceType.TOPIC, topic)
    right = secured.allow(user, AclOperation.READ, ResourceType.GROUP, topic)
    admin, client = RawClient(secured.broker.kafka_port), RawClient(secured.broker.kafka_port)
    log_in(admin, ADMIN, PASSWORD)
    assert set_group_config(admin, topic, share_auto_offset_reset="earliest") == 0
    log_in(client, user, WORD)
    wanted = [FetchTopic(topic_id(client, topic), [FetchPartition(partition_index=0)])]
    request = ShareFetchRequest(topic, "member", 0, 20_000, 1, 1 << 20, 10, 10, 0, topics=wanted)
    client.send(ApiKey.SHARE_FETCH, 2, request)
    withdraw(secured, right)
    producer = confluent_kafka.Producer(librdkafka(secured.login(ADMIN, PASSWORD)))
    producer.produce(topic, b"secret")
    assert producer.flush(60) == 0
    answer = client.answer(ApiKey.SHARE_FETCH, 2)
    assert answer.error_code == 30 and not answer.responses
    request.member_id = "another"
    admin.send(ApiKey.SHARE_FETCH, 2, request)
    found = admin.answer(ApiKey.SHARE_FETCH, 2)
    assert b"secret" in bytes(found.responses[0].partitions[0].records), "it is there for others"
