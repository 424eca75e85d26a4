"""F38, decision 0082: with `--sqs-regions separate` each region has its own queues, through boto3 and through forms; shared is the default."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError
from confluent_kafka import Consumer
from confluent_kafka.admin import AclOperation, ResourceType
from secured import ADMIN, Secured

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

Sqs = Any
OWN, OTHER, THIRD = "us-east-1", "eu-west-1", "ap-southeast-2"
ACCOUNT = "000000000000"
MISSING = "AWS.SimpleQueueService.NonExistentQueue"


@pytest.fixture(scope="module")
def apart() -> Iterator[BrokerProcess]:
    with BrokerProcess(arguments=("--sqs-regions", "separate")) as running:
        yield running


def connect(broker: BrokerProcess, region: str, key: dict[str, str] | None = None, **options: Any) -> Sqs:
    key = key or {"id": "x", "secret": "y"}
    return boto3.client(
        "sqs", endpoint_url=broker.url, region_name=region, aws_access_key_id=key["id"], aws_secret_access_key=key["secret"],
        config=Config(retries={"max_attempts": 0}, **options),
    )  # fmt: skip


def refused(code: str, call: Callable[..., Any], **parameters: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    error = caught.value.response["Error"]
    assert error["Code"] == code, error
    return str(error["Message"])


def names(sqs: Sqs, prefix: str) -> list[str]:
    urls = sqs.list_queues(QueueNamePrefix=prefix).get("QueueUrls", [])
    return [url.rpartition("/")[2] for url in urls]


def attributes(sqs: Sqs, url: str) -> dict[str, str]:
    found: dict[str, str] = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return found


def bodies(sqs: Sqs, url: str) -> list[str]:
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0)
    return [one["Body"] for one in found.get("Messages", [])]


def test_f38_shared_is_the_default_and_a_queue_is_found_from_every_region(
    broker: BrokerProcess, topic: str
) -> None:
    here, there = connect(broker, OWN), connect(broker, OTHER)
    url = here.create_queue(QueueName=topic[:80])["QueueUrl"]
    assert there.get_queue_url(QueueName=topic[:80])["QueueUrl"] == url
    there.send_message(QueueUrl=url, MessageBody="x")
    assert bodies(here, url) == ["x"]
    assert attributes(there, url)["QueueArn"] == f"arn:aws:sqs:{OTHER}:{ACCOUNT}:{topic[:80]}"


@pytest.mark.parametrize("end", ["", ".fifo"])
def test_f38_each_region_has_its_own_queue_of_a_name(apart: BrokerProcess, end: str) -> None:
    name = f"jobs{end}"
    here, there, third = (connect(apart, region) for region in (OWN, OTHER, THIRD))
    made = {"FifoQueue": "true", "ContentBasedDeduplication": "true"} if end else {}
    more = {"MessageGroupId": "g"} if end else {}
    url = here.create_queue(QueueName=name, Attributes={**made, "VisibilityTimeout": "10"})["QueueUrl"]
    refused(MISSING, there.get_queue_url, QueueName=name)
    refused(MISSING, there.send_message, QueueUrl=url, MessageBody="x", **more)
    # The same path in each region, and other attributes under the same name.
    assert (
        there.create_queue(QueueName=name, Attributes={**made, "VisibilityTimeout": "20"})["QueueUrl"] == url
    )
    assert there.get_queue_url(QueueName=name)["QueueUrl"] == url
    assert attributes(here, url)["QueueArn"] == f"arn:aws:sqs:{OWN}:{ACCOUNT}:{name}"
    assert attributes(there, url)["QueueArn"] == f"arn:aws:sqs:{OTHER}:{ACCOUNT}:{name}"
    assert attributes(there, url)["VisibilityTimeout"] == "20"
    here.send_message(QueueUrl=url, MessageBody="here", **more)
    there.send_message_batch(QueueUrl=url, Entries=[{"Id": "1", "MessageBody": "there", **more}])
    assert bodies(here, url) == ["here"] and bodies(there, url) == ["there"]
    assert name in names(here, "jobs") and name in names(there, "jobs") and name not in names(third, "jobs")
    here.tag_queue(QueueUrl=url, Tags={"team": "a"})
    assert "Tags" not in there.list_queue_tags(QueueUrl=url)
    (message,) = there.receive_message(QueueUrl=url)["Messages"]
    refused(
        "ReceiptHandleIsInvalid", here.delete_message, QueueUrl=url, ReceiptHandle=message["ReceiptHandle"]
    )
    there.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    there.delete_queue(QueueUrl=url)
    refused(MISSING, there.get_queue_url, QueueName=name)
    assert bodies(here, url) == ["here"]


def test_f38_the_own_region_is_that_of_who_does_not_sign_and_its_queues_are_plain_topics(
    apart: BrokerProcess,
) -> None:
    unsigned = connect(apart, OTHER, signature_version=UNSIGNED)
    url = connect(apart, OWN).create_queue(QueueName="plain")["QueueUrl"]
    assert unsigned.get_queue_url(QueueName="plain")["QueueUrl"] == url
    there = connect(apart, OTHER)
    there.create_queue(QueueName="plain")
    there.send_message(QueueUrl=url, MessageBody="legible")
    # Nobody reaches another region's queue by the name that Kafka clients know it by.
    inside = f"{OTHER}.plain"
    for client in (unsigned, there, connect(apart, THIRD)):
        refused(MISSING, client.get_queue_url, QueueName=inside)
        refused(MISSING, client.receive_message, QueueUrl=inside)
        assert inside not in names(client, "")
    consumer = Consumer(
        {"bootstrap.servers": apart.bootstrap, "group.id": "r", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([inside])
    record = consumer.poll(30)
    consumer.close()
    assert record is not None and record.error() is None and record.value() == b"legible"


def test_f38_what_regions_do_not_have_says_so(apart: BrokerProcess) -> None:
    assert "called fifo" in refused(
        "InvalidParameterValue", connect(apart, OTHER).create_queue, QueueName="fifo"
    )
    connect(apart, OWN).create_queue(QueueName=f"{OTHER}.fifo", Attributes={"FifoQueue": "true"})
    assert f"{OTHER}.fifo" in names(connect(apart, OWN), OTHER)
    assert "as AWS calls them" in refused(
        "InvalidParameterValue", connect(apart, "local").create_queue, QueueName="x"
    )
    assert names(connect(apart, "local"), "") == []


def test_f38_dead_letters_and_moves_stay_in_their_region(apart: BrokerProcess) -> None:
    here, there = connect(apart, OWN), connect(apart, OTHER)
    dead = there.create_queue(QueueName="dead")["QueueUrl"]
    arn = attributes(there, dead)["QueueArn"]
    assert arn == f"arn:aws:sqs:{OTHER}:{ACCOUNT}:dead"

    def policy(target: str) -> dict[str, str]:
        return {"RedrivePolicy": json.dumps({"deadLetterTargetArn": target, "maxReceiveCount": 1})}

    missing = refused("InvalidParameterValue", here.create_queue, QueueName="live", Attributes=policy(arn))
    assert "Dead letter target does not exist" in missing
    here.create_queue(QueueName="dead")
    refused("InvalidParameterValue", here.create_queue, QueueName="live", Attributes=policy(arn))
    allowed = {"redrivePermission": "byQueue", "sourceQueueArns": [f"arn:aws:sqs:{OWN}:{ACCOUNT}:live"]}
    refused(
        "InvalidAttributeValue",
        there.set_queue_attributes,
        QueueUrl=dead,
        Attributes={"RedriveAllowPolicy": json.dumps(allowed)},
    )
    allowed["sourceQueueArns"] = [f"arn:aws:sqs:{OTHER}:{ACCOUNT}:live"]
    there.set_queue_attributes(QueueUrl=dead, Attributes={"RedriveAllowPolicy": json.dumps(allowed)})
    refused("InvalidParameterValue", there.create_queue, QueueName="stranger", Attributes=policy(arn))
    live = there.create_queue(QueueName="live", Attributes=policy(arn))["QueueUrl"]
    # A change of something else leaves the dead-letter queue what it is.
    there.set_queue_attributes(QueueUrl=live, Attributes={"VisibilityTimeout": "0"})
    there.send_message(QueueUrl=live, MessageBody="x")
    while there.receive_message(QueueUrl=live).get("Messages"):
        pass
    found = there.receive_message(
        QueueUrl=dead, WaitTimeSeconds=20, AttributeNames=["All"], VisibilityTimeout=0
    )
    assert (
        found["Messages"][0]["Attributes"]["DeadLetterQueueSourceArn"]
        == f"arn:aws:sqs:{OTHER}:{ACCOUNT}:live"
    )
    assert bodies(here, dead) == []
    assert there.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [live]
    assert here.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == []
    refused("ResourceNotFoundException", here.start_message_move_task, SourceArn=arn)
    refused("ResourceNotFoundException", here.list_message_move_tasks, SourceArn=arn)
    handle = there.start_message_move_task(SourceArn=arn)["TaskHandle"]
    refused("ResourceNotFoundException", here.cancel_message_move_task, TaskHandle=handle)
    (task,) = there.list_message_move_tasks(SourceArn=arn)["Results"]
    assert task["SourceArn"] == arn


def test_f38_a_form_is_of_the_region_that_it_is_signed_for(apart: BrokerProcess) -> None:
    def ask(region: str, path: str, **form: str) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", apart.http_port)
        scope = f"AK/20261116/{region}/sqs/aws4_request"
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0",
        }
        connection.request("POST", path, urlencode({"Version": "2012-11-05", **form}), headers)
        text = connection.getresponse().read().decode()
        connection.close()
        return text

    assert f"/{ACCOUNT}/form<" in ask(OTHER, "/", Action="CreateQueue", QueueName="form")
    path = f"/{ACCOUNT}/form"
    assert "NonExistentQueue" in ask(OWN, path, Action="SendMessage", MessageBody="x")
    assert "<MessageId>" in ask(OTHER, path, Action="SendMessage", MessageBody="x")
    url = connect(apart, OTHER).get_queue_url(QueueName="form")["QueueUrl"]
    assert bodies(connect(apart, OTHER), url) == ["x"]


def test_f38_rights_and_policies_are_about_the_region_s_queue(tmp_path: Path) -> None:
    key_file = tmp_path / "secrets.key"
    key_file.write_text("07" * 32 + "\n")
    key_file.chmod(0o600)
    arguments = ("--secrets-key-file", str(key_file), "--sqs-regions", "separate")
    with BrokerProcess(arguments=arguments) as running:
        secured = Secured(running)
        alice, bob = secured.user(), secured.user()
        of = {user: secured.ask("POST", "/keys", {"owner": user}) for user in (ADMIN, alice, bob)}
        for region in (OWN, OTHER):
            url = connect(running, region, of[ADMIN]).create_queue(QueueName="pay")["QueueUrl"]
        secured.allow(alice, AclOperation.WRITE, ResourceType.TOPIC, "pay")
        secured.allow(alice, AclOperation.DESCRIBE, ResourceType.GROUP, "pay")
        here, there = (connect(running, region, of[alice]) for region in (OWN, OTHER))
        here.send_message(QueueUrl=url, MessageBody="x")
        refused(MISSING, there.send_message, QueueUrl=url, MessageBody="x")
        assert names(here, "pay") == ["pay"] and names(there, "pay") == []

        def policy(region: str) -> dict[str, str]:
            statement = {
                "Effect": "Allow", "Principal": {"AWS": bob}, "Action": "sqs:SendMessage",
                "Resource": f"arn:aws:sqs:{region}:{ACCOUNT}:pay",
            }  # fmt: skip
            return {"Policy": json.dumps({"Version": "2012-10-17", "Statement": [statement]})}

        admin = connect(running, OTHER, of[ADMIN])
        said = refused(
            "InvalidAttributeValue", admin.set_queue_attributes, QueueUrl=url, Attributes=policy(OWN)
        )
        assert "is not this queue" in said
        admin.set_queue_attributes(QueueUrl=url, Attributes=policy(OTHER))
        connect(running, OTHER, of[bob]).send_message(QueueUrl=url, MessageBody="y")
        refused(MISSING, connect(running, OWN, of[bob]).send_message, QueueUrl=url, MessageBody="y")
