"""A39, A44: names of somebody else's things that come from a request or a record are no way around the rights to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import confluent_kafka
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from confluent_kafka.admin import AclOperation, ResourceType
from raw_client import RawClient
from raw_login import log_in
from raw_transactions import RawProducer, fetch_committed
from sasl_clients import librdkafka
from secured import ADMIN, PASSWORD, Secured
from webhook_endpoint import until

from headrace.broker.queueing.names import DEAD_SOURCE
from headrace.core.errors import ErrorKind
from headrace.testing.local_broker import LocalBroker
from headrace.wire.api import ApiKey

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]

WORD = "a word"
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    key = tmp_path_factory.mktemp("keys") / "secrets.key"
    key.touch(0o600)
    key.write_text("07" * 32 + "\n")
    with LocalBroker(secrets_key_file=str(key)) as running:
        yield Secured(running)  # type: ignore[arg-type]


def queue(secured: Secured, name: str, **more: Any) -> str:
    status, answer = secured.http(
        "POST", "/api/v1/queues", {"name": name, **more}, user=ADMIN, password=PASSWORD
    )
    assert status == 201, answer
    return name


def owner_of(secured: Secured, *names: str) -> str:
    """Somebody to whom queues of these names belong, with everything in them."""
    user = secured.user()
    for name in names:
        for operation in (AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE):
            secured.allow(user, operation, TOPIC, name)
        for operation in (AclOperation.READ, AclOperation.DELETE, AclOperation.ALTER_CONFIGS):
            secured.allow(user, operation, GROUP, name)
    return user


def count(secured: Secured, name: str) -> int:
    status, answer = secured.http("GET", f"/topics/{name}/records", user=ADMIN, password=PASSWORD)
    assert status == 200, answer
    return len(answer["items"])


def forged(secured: Secured, user: str, letters: str, source: str) -> None:
    """A message that says of itself that it is a dead letter of another queue."""
    producer = confluent_kafka.Producer(librdkafka(secured.login(user, WORD)))
    producer.produce(letters, b"planted", headers=[(DEAD_SOURCE, source.encode())])
    assert producer.flush(60) == 0


def moves(secured: Secured, name: str) -> list[dict[str, Any]]:
    status, answer = secured.http("GET", f"/api/v1/queues/{name}/moves", user=ADMIN, password=PASSWORD)
    assert status == 200, answer
    return list(answer["items"])


def sqs_of(secured: Secured, user: str) -> Any:
    key = secured.ask("POST", "/keys", {"owner": user})
    return boto3.client("sqs", endpoint_url=secured.broker.url, region_name="us-east-1", aws_access_key_id=key["id"],
                        aws_secret_access_key=key["secret"], config=Config(retries={"max_attempts": 0}))  # fmt: skip


def refused(call: Callable[..., Any], **parameters: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    assert caught.value.response["Error"]["Code"] == "AccessDenied", caught.value.response
    return str(caught.value.response["Error"]["Message"])


def test_a39_a_dead_letter_does_not_say_where_its_mover_may_write(secured: Secured) -> None:
    queue(secured, "victim")
    user = owner_of(secured, "letters")
    queue(secured, "letters")
    forged(secured, user, "letters", "victim")
    path = "/api/v1/queues/letters/moves"
    status, answer = secured.http("POST", path, {"max": 1}, user=user, password=WORD)
    assert status == 202, answer
    until(lambda: [move["status"] for move in moves(secured, "letters")] == ["failed"])
    assert "no Write on topic victim" in moves(secured, "letters")[0]["failure"]
    assert count(secured, "victim") == 0
    secured.allow(user, AclOperation.WRITE, TOPIC, "victim")
    assert secured.http("POST", path, {"max": 1}, user=user, password=WORD)[0] == 202
    until(lambda: count(secured, "victim") == 1)


def test_a39_nor_does_it_over_sqs(secured: Secured) -> None:
    queue(secured, "victim-2")
    user = owner_of(secured, "letters-2", "work-2")
    queue(secured, "letters-2")
    queue(secured, "work-2", dead_letter="letters-2", max_deliveries=3)
    forged(secured, user, "letters-2", "victim-2")
    source = "arn:aws:sqs:us-east-1:000000000000:letters-2"
    sqs_of(secured, user).start_message_move_task(SourceArn=source)
    until(lambda: [move["status"] for move in moves(secured, "letters-2")] == ["failed"])
    assert count(secured, "victim-2") == 0


def test_a40_a_token_that_may_less_names_where_it_moves_to(secured: Secured) -> None:
    queue(secured, "wide")
    user = owner_of(secured, "letters-3", "wide")
    queue(secured, "letters-3")
    rights = [
        {"operation": operation, "resource": resource, "name": "letters-3"}
        for operation, resource in (
            ("read", "group"),
            ("delete", "group"),
            ("read", "topic"),
            ("write", "topic"),
        )
    ]
    status, made = secured.http(
        "POST", "/api/v1/security/tokens", {"name": "narrow", "rights": rights}, user=user, password=WORD
    )
    assert status == 201, made
    forged(secured, user, "letters-3", "wide")
    status, answer = secured.http("POST", "/api/v1/queues/letters-3/moves", {"max": 1}, token=made["token"])
    assert status == 403 and moves(secured, "letters-3") == [], answer
    assert count(secured, "wide") == 0


def test_a39_who_names_a_dead_letter_queue_writes_to_it_at_every_door(secured: Secured) -> None:
    queue(secured, "graves")
    user = owner_of(secured, "made", "made-too", "held")
    queue(secured, "held")
    sqs = sqs_of(secured, user)
    for name in ("graves", "nothing-there"):
        policy = json.dumps(
            {"deadLetterTargetArn": f"arn:aws:sqs:us-east-1:000000000000:{name}", "maxReceiveCount": 1}
        )
        said = {
            refused(sqs.create_queue, QueueName="made", Attributes={"RedrivePolicy": policy}),
            refused(sqs.set_queue_attributes, QueueUrl="held", Attributes={"RedrivePolicy": policy}),
        }
        assert said == {f"needs Write on topic {name}"}, "whether it is there or not"
        more = {"dead_letter": name, "max_deliveries": 1}
        for method, path, body in (
            ("POST", "/api/v1/queues", {"name": "made-too", **more}),
            ("PATCH", "/api/v1/queues/held", more),
        ):
            status, answer = secured.http(method, path, body, user=user, password=WORD)
            assert status == 403 and f"Write on topic {name}" in answer["detail"], answer
    secured.allow(user, AclOperation.WRITE, TOPIC, "graves")
    policy = json.dumps(
        {"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:graves", "maxReceiveCount": 1}
    )
    sqs.set_queue_attributes(QueueUrl="held", Attributes={"RedrivePolicy": policy})


def test_a39_a_queue_without_topics_is_one_over_the_topic_of_its_name(secured: Secured) -> None:
    """So it takes the right to make that topic, or to read it when it is there."""
    secured.topic("theirs")
    user = secured.user()
    for name in ("theirs", "new"):
        secured.allow(user, AclOperation.ALTER_CONFIGS, GROUP, name)
        bodies: list[dict[str, Any]] = [{"name": name}, {"name": name, "topics": []}]
        for body in bodies:
            status, answer = secured.http("POST", "/api/v1/queues", body, user=user, password=WORD)
            assert status == 403 and f"on topic {name}" in answer["detail"], answer
    assert secured.http("GET", "/api/v1/topics/new", user=ADMIN, password=PASSWORD)[0] == 404
    secured.allow(user, AclOperation.CREATE, TOPIC, "new")
    assert secured.http("POST", "/api/v1/queues", {"name": "new"}, user=user, password=WORD)[0] == 201


def transactional(secured: Secured, user: str, name: str) -> RawProducer:
    client = RawClient(secured.broker.kafka_port)
    log_in(client, user, WORD)
    return RawProducer(client, name)


def test_a39_a_transaction_of_somebody_else_is_not_written_to(secured: Secured) -> None:
    """By who may write to the same topic, and has read there who the producer is: neither without a transactional id nor with the other's."""
    topic = secured.topic("shared")
    victim, other = secured.user(), secured.user()
    for user in (victim, other):
        secured.allow(user, AclOperation.WRITE, TOPIC, topic)
    secured.allow(victim, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "of-victim")
    producer = transactional(secured, victim, "of-victim")
    assert producer.init() is ErrorKind.NONE and producer.add(topic) is ErrorKind.NONE
    assert producer.produce(topic, b"first").error_code == 0
    intruder = transactional(secured, other, "")
    intruder.producer_id, intruder.epoch, intruder.sequence = producer.producer_id, producer.epoch, 1
    for transactional_id in (None, "of-victim"):
        request = intruder.produce_request(topic, b"intruded")._replace(transactional_id=transactional_id)
        answer = intruder.client.call(ApiKey.PRODUCE, 9, request)
        assert answer.topics[0].partitions[0].error_code == 53, transactional_id
    assert producer.produce(topic, b"second").error_code == 0
    assert producer.end().error_code == 0
    reader = RawClient(secured.broker.kafka_port)
    log_in(reader, ADMIN, PASSWORD)
    got = fetch_committed(reader, topic)
    assert b"first" in bytes(got.records) and b"second" in bytes(got.records)
    assert b"intruded" not in bytes(got.records)
