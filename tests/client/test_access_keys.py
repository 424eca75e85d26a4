"""A31, A42, A45, P6 (short): boto3 and awscli sign with keys of users, and a queue's policy counts at every door or is refused in words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import boto3
import botocore.session
import confluent_kafka
import pytest
from botocore import UNSIGNED
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from confluent_kafka.admin import AclOperation, ResourceType
from sasl_clients import librdkafka
from secured import ADMIN, PASSWORD, Secured

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

Sqs = Any
ALL = (AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE)


def sealing_key(directory: Path) -> str:
    path = directory / "secrets.key"
    path.write_text("07" * 32 + "\n")
    path.chmod(0o600)
    return str(path)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    key = sealing_key(tmp_path_factory.mktemp("keys"))
    with BrokerProcess(arguments=("--secrets-key-file", key)) as running:
        yield Secured(running)


def connect(broker: BrokerProcess, key: dict[str, str] | None) -> Sqs:
    more: dict[str, Any] = {"signature_version": UNSIGNED} if key is None else {}
    return boto3.client(
        "sqs", endpoint_url=broker.url, region_name="eu-west-1",
        aws_access_key_id="" if key is None else key["id"], aws_secret_access_key="" if key is None else key["secret"],
        config=Config(retries={"max_attempts": 0}, **more),
    )  # fmt: skip


def sqs_of(secured: Secured, user: str) -> Sqs:
    return connect(secured.broker, secured.ask("POST", "/keys", {"owner": user}))


def refused(code: str, call: Callable[..., Any], **parameters: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    error = caught.value.response["Error"]
    assert error["Code"] == code, error
    return str(error["Message"])


def test_a31_boto3_signs_with_a_key_of_its_user(secured: Secured, topic: str) -> None:
    alice = secured.user()
    admin, sqs = sqs_of(secured, ADMIN), sqs_of(secured, alice)
    url = admin.create_queue(QueueName=topic)["QueueUrl"]
    refused("AWS.SimpleQueueService.NonExistentQueue", sqs.get_queue_url, QueueName=topic)
    refused("AWS.SimpleQueueService.NonExistentQueue", sqs.get_queue_url, QueueName=f"{topic}-absent")
    secured.allow(alice, AclOperation.WRITE, ResourceType.TOPIC, topic)
    secured.allow(alice, AclOperation.DESCRIBE, ResourceType.GROUP, topic)
    assert sqs.get_queue_url(QueueName=topic)["QueueUrl"] == url
    sqs.send_message(QueueUrl=url, MessageBody="x")
    assert "needs Read on group" in refused("AccessDenied", sqs.receive_message, QueueUrl=url)
    secured.allow(alice, AclOperation.READ, ResourceType.TOPIC, topic)
    secured.allow(alice, AclOperation.READ, ResourceType.GROUP, topic)
    (message,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]
    assert message["Body"] == "x"
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def test_a22_x19_an_unknown_key_and_a_wrong_secret_get_the_same_refusal_and_none_is_missing(
    secured: Secured, topic: str
) -> None:
    alice = secured.user()
    key = secured.ask("POST", "/keys", {"owner": alice})
    said = {
        refused("SignatureDoesNotMatch", connect(secured.broker, wrong).list_queues)
        for wrong in ({**key, "secret": "x" * 40}, {"id": "HRAK" + "A" * 16, "secret": key["secret"]})
    }
    assert len(said) == 1
    refused("MissingAuthenticationToken", connect(secured.broker, None).list_queues)


def test_a9_a_key_ends_with_its_user_and_by_itself(secured: Secured) -> None:
    alice = secured.user()
    key = secured.ask("POST", "/keys", {"owner": alice, "name": "ci"})
    sqs = connect(secured.broker, key)
    sqs.list_queues()
    shown = [each for each in secured.ask("GET", "/keys")["items"] if each["owner"] == alice]
    assert [each["id"] for each in shown] == [key["id"]] and "secret" not in shown[0]
    secured.ask("PATCH", f"/users/{alice}", {"enabled": False})
    refused("SignatureDoesNotMatch", sqs.list_queues)
    secured.ask("PATCH", f"/users/{alice}", {"enabled": True})
    sqs.list_queues()
    secured.ask("DELETE", f"/keys/{key['id']}")
    refused("SignatureDoesNotMatch", sqs.list_queues)


def test_a31_one_makes_ones_own_keys_and_nobody_elses(secured: Secured) -> None:
    alice, bob = secured.user(), secured.user()
    own = secured.ask("POST", "/keys", {}, user=alice, password="a word")
    assert own["owner"] == alice
    status, answer = secured.http(
        "POST", "/api/v1/security/keys", {"owner": bob}, user=alice, password="a word"
    )
    assert status == 403, answer
    theirs = secured.ask("POST", "/keys", {}, user=bob, password="a word")
    shown = secured.ask("GET", "/keys", user=alice, password="a word")["items"]
    assert [each["id"] for each in shown] == [own["id"]]
    path = f"/api/v1/security/keys/{theirs['id']}"
    assert secured.http("DELETE", path, user=alice, password="a word")[0] == 404
    assert secured.http("DELETE", path, user=bob, password="a word")[0] == 204


def test_a31_the_secret_is_nowhere_and_survives_a_restart(
    fresh_broker: Callable[..., BrokerProcess], tmp_path: Path, topic: str
) -> None:
    broker = fresh_broker(arguments=("--secrets-key-file", sealing_key(tmp_path)))
    secured = Secured(broker)
    environment = {
        **os.environ, "HEADRACE_URL": broker.url, "HEADRACE_USER": ADMIN, "HEADRACE_PASSWORD": PASSWORD,
    }  # fmt: skip
    told = subprocess.run(
        [sys.executable, "-m", "headrace", "key", "create", "--label", "ci"],
        env=environment, text=True, capture_output=True, check=True, timeout=120,
    ).stdout  # fmt: skip
    parser = ConfigParser(interpolation=None)
    parser.read_string("[default]\n" + told)
    key = {
        "id": parser["default"]["aws_access_key_id"],
        "secret": parser["default"]["aws_secret_access_key"],
    }
    connect(broker, key).create_queue(QueueName=topic)
    listed = subprocess.run(
        [sys.executable, "-m", "headrace", "key", "list", "--json"],
        env=environment, text=True, capture_output=True, check=True, timeout=120,
    ).stdout  # fmt: skip
    assert key["id"] in listed and key["secret"] not in listed
    broker.kill()
    kept = b"".join(file.read_bytes() for file in broker.data_dir.rglob("*") if file.is_file())
    assert key["id"].encode() in kept and key["secret"].encode() not in kept
    assert key["secret"] not in broker.log()
    broker.start()
    assert connect(broker, key).list_queues()["QueueUrls"]
    secured.ask("DELETE", f"/keys/{key['id']}")


def test_a31_a_broker_without_a_sealing_key_keeps_no_secret_and_says_so(
    fresh_broker: Callable[..., BrokerProcess],
) -> None:
    secured = Secured(fresh_broker())
    status, answer = secured.http("POST", "/api/v1/security/keys", {}, user=ADMIN, password=PASSWORD)
    assert status in (400, 403, 409, 422) and "seal" in answer["detail"] and "--secure" in answer["hint"]


def test_a52_mode_observe_refuses_no_signature(secured: Secured, topic: str) -> None:
    secured.set_mode("observe")
    try:
        connect(secured.broker, {"id": "anything", "secret": "anything"}).create_queue(QueueName=topic)
    finally:
        secured.set_mode("enforced")


# -- policies ------------------------------------------------------------------------------------------------------------


def policy(queue: str, **statement: Any) -> dict[str, str]:
    made = {"Effect": "Allow", "Principal": "*", "Action": "SQS:SendMessage", "Resource": queue, **statement}
    made = {name: value for name, value in made.items() if value is not None}
    return {"Policy": json.dumps({"Version": "2012-10-17", "Statement": [made]})}


def produced(secured: Secured, user: str, topic: str) -> bool:
    """Whether the Kafka door lets this user write."""
    outcome: list[Any] = []
    producer = confluent_kafka.Producer(librdkafka(secured.login(user, "a word")))
    producer.produce(topic, b"x", on_delivery=lambda error, message: outcome.append(error))
    assert producer.flush(60) == 0
    if outcome[0] is not None:
        assert outcome[0].code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
    return outcome[0] is None


def test_a42_a_policy_gives_rights_at_every_door_until_it_is_taken_back(secured: Secured, topic: str) -> None:
    alice, bob = secured.user(), secured.user()
    admin, hers, his = (sqs_of(secured, user) for user in (ADMIN, alice, bob))
    arn = f"arn:aws:sqs:eu-west-1:000000000000:{topic}"
    to_alice = {"AWS": f"arn:aws:iam::000000000000:user/{alice}"}
    url = admin.create_queue(QueueName=topic, Attributes=policy(arn, Principal=to_alice))["QueueUrl"]
    hers.send_message(QueueUrl=url, MessageBody="x")
    refused("AWS.SimpleQueueService.NonExistentQueue", his.send_message, QueueUrl=url, MessageBody="x")
    refused("AWS.SimpleQueueService.NonExistentQueue", hers.receive_message, QueueUrl=url)
    assert produced(secured, alice, topic) and not produced(secured, bob, topic)
    question = {
        "principal": f"User:{alice}", "operation": "write", "resource": "topic", "name": topic,
    }  # fmt: skip
    assert f"the policy of queue {topic}" in secured.ask("POST", "/explain", question)["rule"]
    got = admin.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"]
    assert json.loads(got)["Statement"][0]["Principal"] == to_alice
    admin.set_queue_attributes(QueueUrl=url, Attributes={"Policy": ""})
    refused("AWS.SimpleQueueService.NonExistentQueue", hers.send_message, QueueUrl=url, MessageBody="x")
    assert not produced(secured, alice, topic)


def test_a42_a_denial_in_a_policy_wins_and_goes_with_the_queue(secured: Secured, topic: str) -> None:
    alice = secured.user()
    admin, hers = sqs_of(secured, ADMIN), sqs_of(secured, alice)
    url = admin.create_queue(QueueName=topic)["QueueUrl"]
    secured.allow(alice, AclOperation.WRITE, ResourceType.TOPIC, topic)
    hers.send_message(QueueUrl=url, MessageBody="x")
    nowhere = {"IpAddress": {"aws:SourceIp": ["10.99.0.0/16"]}}
    admin.set_queue_attributes(QueueUrl=url, Attributes=policy(topic, Effect="Deny", Condition=nowhere))
    hers.send_message(QueueUrl=url, MessageBody="x")
    here = {"IpAddress": {"aws:SourceIp": ["127.0.0.0/8", "::1"]}}
    admin.set_queue_attributes(QueueUrl=url, Attributes=policy(topic, Effect="Deny", Condition=here))
    refused("AccessDenied", hers.send_message, QueueUrl=url, MessageBody="x")
    assert not produced(secured, alice, topic)
    admin.delete_queue(QueueUrl=url)
    secured.topic(topic)
    assert produced(secured, alice, topic)


def test_a42_add_and_remove_permission(secured: Secured, topic: str) -> None:
    alice = secured.user()
    admin, hers = sqs_of(secured, ADMIN), sqs_of(secured, alice)
    url = admin.create_queue(QueueName=topic)["QueueUrl"]
    for label, action in (("s", "SendMessage"), ("r", "ReceiveMessage")):
        admin.add_permission(QueueUrl=url, Label=label, AWSAccountIds=[alice], Actions=[action])
    hers.send_message(QueueUrl=url, MessageBody="x")
    (message,) = hers.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]
    hers.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    admin.remove_permission(QueueUrl=url, Label="s")
    refused("AccessDenied", hers.send_message, QueueUrl=url, MessageBody="x")
    hers.receive_message(QueueUrl=url)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ({"Principal": {"Service": "sns.amazonaws.com"}}, "nobody else logs in here"),
        ({"Principal": {"AWS": "arn:aws:iam::000000000000:role/r"}}, "there are no roles"),
        ({"Principal": {"AWS": "arn:aws:iam::111122223333:user/x"}}, "another account"),
        ({"Principal": None, "NotPrincipal": "*"}, "NotPrincipal"),
        ({"Action": "SQS:CreateQueue"}, "CreateQueue"),
        ({"Action": "s3:GetObject"}, "s3:GetObject"),
        ({"Resource": "arn:aws:sqs:eu-west-1:000000000000:other"}, "not this queue"),
        ({"Effect": "Maybe"}, "Allow or Deny"),
        ({"Condition": {"ArnEquals": {"aws:SourceArn": "arn:aws:sns:x"}}}, "aws:SourceArn"),
        ({"Condition": {"Bool": {"aws:SecureTransport": "false"}}, "Effect": "Deny"}, "--plaintext refuse"),
        ({"Condition": {"IpAddress": {"aws:SourceIp": "here"}}}, "neither an address"),
    ],
)
def test_a42_what_can_not_be_enforced_is_refused_in_words(
    secured: Secured, topic: str, statement: dict[str, Any], words: str
) -> None:
    sqs = sqs_of(secured, ADMIN)
    attributes = policy(topic, **statement)
    said = refused("InvalidAttributeValue", sqs.create_queue, QueueName=topic, Attributes=attributes)
    assert words in said
    assert topic not in str(sqs.list_queues())


def test_a42_nobody_gives_what_they_do_not_have(secured: Secured, topic: str) -> None:
    alice = secured.user()
    admin, hers = sqs_of(secured, ADMIN), sqs_of(secured, alice)
    url = admin.create_queue(QueueName=topic)["QueueUrl"]
    for operation in (AclOperation.ALTER_CONFIGS, AclOperation.READ):
        secured.allow(alice, operation, ResourceType.GROUP, topic)
    said = refused("AccessDenied", hers.set_queue_attributes, QueueUrl=url, Attributes=policy(topic))
    assert "needs Write on topic" in said
    deny = policy(topic, Effect="Deny")
    assert "needs Alter on topic" in refused(
        "AccessDenied", hers.set_queue_attributes, QueueUrl=url, Attributes=deny
    )
    hers.add_permission(QueueUrl=url, Label="l", AWSAccountIds=["111122223333"], Actions=["DeleteMessage"])
    secured.allow(alice, AclOperation.WRITE, ResourceType.TOPIC, topic)
    hers.set_queue_attributes(QueueUrl=url, Attributes=policy(topic))


def test_p6_what_botocore_signs_for_each_action_is_heard(secured: Secured, topic: str) -> None:
    """Every action of the service model, as botocore serialises and signs it: none is refused for its signature."""
    sqs = sqs_of(secured, ADMIN)
    url = sqs.create_queue(QueueName=topic)["QueueUrl"]
    model = botocore.session.get_session().get_service_model("sqs")
    given: dict[str, Any] = {
        "QueueUrl": url, "QueueName": topic, "MessageBody": "é ~*'()/?&=", "ReceiptHandle": "x", "VisibilityTimeout": 1,
        "Label": "l", "AWSAccountIds": ["111122223333"], "Actions": ["SendMessage"], "Tags": {"a b": "c/d"}, "TagKeys": ["a b"],
        "Attributes": {"VisibilityTimeout": "3"}, "SourceArn": f"arn:aws:sqs:eu-west-1:000000000000:{topic}", "TaskHandle": "x",
        "Entries": [{"Id": "1", "MessageBody": "x", "ReceiptHandle": "x"}],
    }  # fmt: skip
    for name in model.operation_names:
        if name == "DeleteQueue":
            continue
        operation = model.operation_model(name)
        shape = operation.input_shape
        wanted = {key: given[key] for key in shape.required_members if key in given}
        if "Entries" in wanted:
            fields = shape.members["Entries"].member.members
            wanted["Entries"] = [
                {key: value for key, value in entry.items() if key in fields} for entry in given["Entries"]
            ]
        try:
            sqs._make_api_call(name, wanted)
        except ClientError as problem:
            assert problem.response["Error"]["Code"] not in (
                "SignatureDoesNotMatch", "MissingAuthenticationToken", "AccessDenied",
            ), name  # fmt: skip


def test_f32_a_signature_in_the_url_is_one_where_it_is_verified(secured: Secured, topic: str) -> None:
    """Old SDKs hand out such URLs; in mode open, where any page could write one, it still proves nothing (test_sqs_letter.py)."""
    key = secured.ask("POST", "/keys", {"owner": ADMIN})

    def asked(
        action: str, method: str = "GET", secret: str = "", life_s: int = 60, **fields: str
    ) -> tuple[int, str]:
        request = AWSRequest(
            method, f"{secured.broker.url}/000000000000/{topic}?{urlencode({'Action': action, **fields})}"
        )
        credentials = Credentials(key["id"], secret or key["secret"])
        SigV4QueryAuth(credentials, "sqs", "us-east-1", life_s).add_auth(request)
        try:
            with urlopen(Request(request.url, method=method)) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as problem:
            return problem.code, problem.read().decode()

    assert asked("CreateQueue", QueueName=topic)[0] == 200
    assert asked("SendMessage", MessageBody="by & URL")[0] == 200
    assert asked("ReceiveMessage", secret="guessed")[0] == 403
    assert asked("ReceiveMessage", method="HEAD")[0] == 403
    status, got = asked("ReceiveMessage", WaitTimeSeconds="20")
    assert status == 200 and "<Body>by &amp; URL</Body>" in got
